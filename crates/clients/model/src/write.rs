//! How the data of a write travels: unsolicited, and in bursts that R2Ts ask for.
//!
//! ```text
//! client  command+U bytes ─┐            ┌─ burst 1 ─┐           ┌─ burst 2 …
//!                        to_server   to_client   to_server
//! server                   └──► R2T 1 ──┘           └──► R2T 2 ─┘            k R2Ts are outstanding at most
//! ```
//!
//! With `n` bursts, one R2T at a time and a latency `L` in each direction, the last byte arrives after
//! `(2n+1)·L + W(size)`; where enough R2Ts are outstanding, after `3L + W(size)`. `W` is time on the wire.
//!
//! iSCSI: RFC 7143 §13.10 (InitialR2T), §13.11 (ImmediateData), §13.14 (FirstBurstLength), §13.17 (MaxOutstandingR2T).
//! NVMe/TCP: in-capsule data replaces unsolicited data and is all of the data or none; MAXR2T and MAXH2CDATA stand for
//! MaxOutstandingR2T and the segment length.

use crate::link::{Headers, Link};
use crate::parameter::{Choice, Key, Parts};

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteRules {
    is_iscsi: bool,
    initial_r2t: bool,
    immediate_data: bool,
    first_burst: f64,
    in_capsule: f64,
    /// Bytes of an R2T at most.
    pub burst: f64,
    /// R2Ts at a time.
    pub outstanding: usize,
    /// Bytes of a data PDU at most.
    pub segment: f64,
    /// The first R2T leaves before the unsolicited data is complete.
    pub early: bool,
}

/// Latency of each direction, without the time on the wire, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    pub to_server: f64,
    pub to_client: f64,
}

/// The data of one write.
#[derive(Clone, Debug, PartialEq)]
pub struct DataTransfer {
    /// When its last byte has arrived, in microseconds after the command began to leave.
    pub arrived_us: f64,
    /// Time on the wire of command and data.
    pub wire_us: f64,
    /// R2Ts that the server sends for the write.
    pub r2ts: usize,
    /// Times that the server sends R2Ts, where those that it may send together leave together.
    pub rounds: usize,
}

impl WriteRules {
    #[must_use]
    pub fn new(parts: &Parts) -> Self {
        let outstanding = parts.count(Key::MaxOutstandingR2t);
        Self {
            is_iscsi: parts.is(Choice::Protocol, "iscsi"),
            initial_r2t: parts.is(Choice::InitialR2t, "yes"),
            immediate_data: parts.is(Choice::ImmediateData, "yes"),
            first_burst: parts.get(Key::FirstBurst),
            in_capsule: parts.get(Key::InCapsule),
            burst: parts.get(Key::MaxBurst),
            outstanding: usize::try_from(outstanding).unwrap_or(usize::MAX),
            segment: parts.get(Key::SegmentLength),
            early: match parts.word(Choice::EarlyR2t) {
                "always" => true,
                "several" => outstanding > 1,
                _ => false,
            },
        }
    }

    /// Bytes that leave without being asked for.
    #[must_use]
    pub fn unsolicited(&self, size: f64) -> f64 {
        if !self.is_iscsi {
            return if size <= self.in_capsule { size } else { 0.0 };
        }
        match (self.immediate_data, self.initial_r2t) {
            (_, false) => self.first_burst.min(size),
            (true, true) => self.first_burst.min(self.segment).min(size),
            (false, true) => 0.0,
        }
    }

    /// Bytes of the bursts that are asked for.
    pub fn bursts(&self, size: f64) -> impl Iterator<Item = f64> {
        let (burst, mut left) = (self.burst, size - self.unsolicited(size));
        std::iter::from_fn(move || {
            let next = left.min(burst);
            left -= next;
            (next > 0.0).then_some(next)
        })
    }

    /// Time on the wire of command and unsolicited data.
    fn command_us(&self, unsolicited: f64, link: &Link, headers: &Headers) -> f64 {
        // The first data travels in the PDU of the command, where both sides agreed on that.
        let in_command = !self.is_iscsi || self.immediate_data;
        let more = (unsolicited / self.segment).ceil() - f64::from(u8::from(in_command));
        link.packed_us(unsolicited + headers.command + headers.data_out * more.max(0.0))
    }

    /// Time on the wire of a burst.
    #[must_use]
    pub fn burst_us(&self, bytes: f64, link: &Link, headers: &Headers) -> f64 {
        link.packed_us(bytes + headers.data_out * (bytes / self.segment).ceil())
    }

    /// How the data of a write travels.
    #[must_use]
    pub fn transfer(
        &self,
        size: f64,
        link: &Link,
        headers: &Headers,
        latency: Latencies,
    ) -> DataTransfer {
        let unsolicited = self.unsolicited(size);
        let mut wire = self.command_us(unsolicited, link, headers);
        let mut wire_us = wire;
        let arrived = wire + latency.to_server;
        let first_r2t = if self.early {
            link.packed_us(headers.command) + latency.to_server
        } else {
            arrived
        };
        let mut done = Vec::new();
        for (number, bytes) in self.bursts(size).enumerate() {
            let asked = match number.checked_sub(self.outstanding) {
                Some(before) => first_r2t.max(done[before]),
                None => first_r2t,
            };
            let time = self.burst_us(bytes, link, headers);
            wire = wire.max(asked + latency.to_client) + time;
            wire_us += time;
            done.push(wire + latency.to_server);
        }
        DataTransfer {
            arrived_us: done.last().map_or(arrived, |last| last.max(arrived)),
            wire_us,
            r2ts: done.len(),
            rounds: done.len().div_ceil(self.outstanding),
        }
    }

    /// The number of outstanding R2Ts from which more bring nothing: `1 + ⌈2L / W(MaxBurst)⌉`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
    pub fn enough_r2ts(&self, link: &Link, headers: &Headers, latency: Latencies) -> usize {
        let round_trip = latency.to_server + latency.to_client;
        let burst = self.burst_us(self.burst, link, headers);
        if burst <= 0.0 {
            return usize::MAX;
        }
        ((round_trip / burst).ceil() as usize).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Source;

    fn parts(changes: &[(&str, &str)]) -> Parts {
        let mut parts = Parts::default();
        for (name, value) in changes {
            let source = Source::Given("a test".to_owned());
            parts.change(name, value, source).unwrap();
        }
        parts
    }

    fn rules(changes: &[(&str, &str)]) -> WriteRules {
        WriteRules::new(&parts(changes))
    }

    #[test]
    fn unsolicited_data_follows_the_three_keys_of_iscsi() {
        let k = |kib: f64| kib * 1024.0;
        let base = ("max-recv-data-segment", "8k");
        assert!((rules(&[base]).unsolicited(k(2048.0)) - k(64.0)).abs() < 1e-9);
        assert!((rules(&[base]).unsolicited(k(16.0)) - k(16.0)).abs() < 1e-9);
        let initial = rules(&[base, ("initial-r2t", "yes")]);
        assert!((initial.unsolicited(k(2048.0)) - k(8.0)).abs() < 1e-9);
        let not_immediate = rules(&[base, ("immediate-data", "no")]);
        assert!((not_immediate.unsolicited(k(2048.0)) - k(64.0)).abs() < 1e-9);
        let none = rules(&[base, ("immediate-data", "no"), ("initial-r2t", "yes")]);
        assert!(none.unsolicited(k(2048.0)).abs() < 1e-9);
    }

    #[test]
    fn nvme_data_is_in_the_capsule_or_asked_for_as_a_whole() {
        let nvme = rules(&[("protocol", "nvme-tcp")]);
        assert!((nvme.unsolicited(8192.0) - 8192.0).abs() < 1e-9);
        assert!(nvme.unsolicited(16384.0).abs() < 1e-9);
        assert_eq!(nvme.bursts(16384.0).count(), 1);
    }

    #[test]
    fn headers_of_every_pdu_are_on_the_wire() {
        let parts = parts(&[
            ("rate", "8Mbit/s"),
            ("wire-factor", "1"),
            ("max-recv-data-segment", "8k"),
        ]);
        let link = Link::new(&parts);
        let (rules, headers) = (WriteRules::new(&parts), Headers::new(&parts, &link));
        let latency = Latencies {
            to_server: 0.0,
            to_client: 0.0,
        };
        // A byte takes a microsecond. 64 KiB in 8 PDUs, the command's being one, and 4 KiB in one more.
        let moved = rules.transfer(69_632.0, &link, &headers, latency);
        assert!((moved.wire_us - (69_632.0 + 9.0 * 48.0)).abs() < 1e-6);
        assert_eq!(moved.r2ts, 1);
    }
}
