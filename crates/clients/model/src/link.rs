//! Time on the wire, and the PDUs that it carries.
//!
//! A full packet of TCP over IPv4 with time stamps takes MTU + 38 bytes of Ethernet (preamble, header, checksum, gap) for
//! MTU − 52 bytes of data. So a byte of data takes (MTU+38)/(MTU−52) bytes of the wire: the *wire factor*.

use crate::parameter::{Choice, Key, Parts};

/// What a train of packets that leaves in one call holds at most (TSO, GSO).
pub const TRAIN: f64 = 65_536.0;

/// Bytes of IP and TCP headers with time stamps.
const IP_AND_TCP: f64 = 52.0;

/// Preamble, Ethernet header, checksum and gap.
const ETHERNET: f64 = 38.0;

/// Bytes on the wire for each byte of full packets.
#[must_use]
pub fn wire_factor(mtu: f64) -> f64 {
    (mtu + ETHERNET) / (mtu - IP_AND_TCP)
}

/// One direction of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes of the wire in a microsecond.
    bytes_per_us: f64,
    factor: f64,
    /// Bytes of data of a full packet.
    pub segment: f64,
    /// Time of what passes at once after a pause.
    pub burst_us: f64,
    /// Whether headers count: not where the rate was measured as that of data.
    counts_headers: bool,
}

impl Link {
    #[must_use]
    pub fn new(parts: &Parts) -> Self {
        let mtu = parts.get(Key::Mtu);
        let counts_headers = parts.is(Choice::RateCounts, "wire");
        let factor = match parts.get(Key::WireFactor) {
            _ if !counts_headers => 1.0,
            factor if factor > 0.0 => factor,
            _ => wire_factor(mtu),
        };
        let rate = parts.get(Key::Rate);
        let bytes_per_us = if rate > 0.0 {
            rate / 1e6
        } else {
            f64::INFINITY
        };
        Self {
            bytes_per_us,
            burst_us: parts.get(Key::LinkBurst) / bytes_per_us,
            factor,
            segment: mtu - IP_AND_TCP,
            counts_headers,
        }
    }

    /// Bytes of a header, if headers count.
    #[must_use]
    pub fn header(&self, bytes: f64) -> f64 {
        if self.counts_headers { bytes } else { 0.0 }
    }

    /// Time of so many bytes in full packets.
    #[must_use]
    pub fn packed_us(&self, bytes: f64) -> f64 {
        bytes * self.factor / self.bytes_per_us
    }

    /// Time of so many bytes that are sent by themselves, the last packet being partly full.
    #[must_use]
    pub fn apart_us(&self, bytes: f64) -> f64 {
        let overhead = (self.factor - 1.0) * self.segment;
        (bytes + self.packets(bytes) * overhead) / self.bytes_per_us
    }

    /// Packets of so many bytes that are sent by themselves.
    #[must_use]
    pub fn packets(&self, bytes: f64) -> f64 {
        (bytes / self.segment).ceil()
    }
}

/// Headers of the PDUs of a protocol, in bytes, with digests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headers {
    pub command: f64,
    /// Of each PDU with data of a write.
    pub data_out: f64,
    /// Of each PDU with data of a read. Over iSCSI, the last one brings the status.
    pub data_in: f64,
    pub r2t: f64,
    /// A response by itself.
    pub response: f64,
}

impl Headers {
    #[must_use]
    pub fn new(parts: &Parts, link: &Link) -> Self {
        let digest = |choice, bytes| {
            if parts.is(choice, "crc32c") {
                bytes
            } else {
                0.0
            }
        };
        let header_digest = digest(Choice::HeaderDigest, 4.0);
        let data_digest = digest(Choice::DataDigest, 4.0);
        let plain = |bytes: f64| link.header(bytes + header_digest);
        let data = |bytes: f64| link.header(bytes + header_digest + data_digest);
        if parts.is(Choice::Protocol, "iscsi") {
            Self {
                command: plain(48.0),
                data_out: data(48.0),
                data_in: data(48.0),
                r2t: plain(48.0),
                response: plain(48.0),
            }
        } else {
            // A command capsule is a header of 8 bytes and a submission queue entry, the others are as long as their
            // headers (NVMe/TCP 1.0 §3.6.2).
            Self {
                command: plain(72.0),
                data_out: data(24.0),
                data_in: data(24.0),
                r2t: plain(24.0),
                response: plain(24.0),
            }
        }
    }
}

/// The published form of the time on the wire of a read's answer, `(size + 48) × 8 × factor / rate`, in microseconds;
/// `rate` in bit/s.
#[must_use]
pub fn net_reply_us(size: f64, factor: f64, rate: f64) -> f64 {
    (size + 48.0) * 8.0 * factor / rate * 1e6
}

/// The depth from which responses do not fit into the socket's send buffer, and a write to it falls short.
#[must_use]
pub fn full_send_buffer_depth(send_buffer: f64, size: f64) -> f64 {
    send_buffer / (size + 48.0)
}
