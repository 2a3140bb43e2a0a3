//! What discovery tells: entries of the discovery log page (NVMe base 2.0 §5.16.1.23).
//!
//! ```text
//!   0 TRTYPE   1 ADRFAM   2 SUBTYPE   3 TREQ   4 PORTID   6 CNTLID   8 ASQSZ   10 EFLAGS
//!  32 TRSVCID (32)      256 SUBNQN (256)      512 TRADDR (256)      768 TSAS (256)
//! ```

use std::net::SocketAddr;

use super::secure::TlsUse;
use crate::nqn::Nqn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SubsystemType {
    /// Another discovery subsystem, which a host asks next.
    Referral = 1,
    /// A subsystem with namespaces.
    Nvm = 2,
    /// The discovery subsystem that is asked.
    CurrentDiscovery = 3,
}

/// One way to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    pub subsystem: Nqn,
    pub kind: SubsystemType,
    /// Where it listens: TRADDR, TRSVCID and ADRFAM.
    pub address: SocketAddr,
    /// PORTID: tells the ports of a subsystem apart.
    pub port_id: u16,
    /// Whether it goes over TLS there.
    pub tls: TlsUse,
}

const TRANSPORT_TCP: u8 = 3;
const FAMILY_IPV4: u8 = 1;
const FAMILY_IPV6: u8 = 2;
/// TREQ: the queues may go without SQ flow control (bit 2).
const NO_FLOW_CONTROL: u8 = 0b100;
/// TREQ: a secure channel is required (01b).
const SECURE_REQUIRED: u8 = 0b01;
/// TREQ: a secure channel is not required (10b). Only where there is one: it makes `nvme connect-all` of nvme-cli 2.3
/// ask for TLS, which Linux refuses where it is built without.
const SECURE_NOT_REQUIRED: u8 = 0b10;
/// SECTYPE of TSAS: TLS 1.3.
const TLS_1_3: u8 = 2;
/// CNTLID: controllers are made when hosts connect.
const CONTROLLER_DYNAMIC: u16 = 0xffff;
/// EFLAGS: explicit persistent connections are supported (bit 1).
const PERSISTENT_CONNECTIONS: u16 = 1 << 1;

impl DiscoveryEntry {
    /// Bytes of an entry.
    pub const LENGTH: usize = 1024;

    /// As it stands in the log page. `queue_entries`: ASQSZ.
    pub(super) fn encode(&self, queue_entries: u16) -> [u8; Self::LENGTH] {
        let mut out = [0; Self::LENGTH];
        out[0] = TRANSPORT_TCP;
        out[1] = match self.address {
            SocketAddr::V4(_) => FAMILY_IPV4,
            SocketAddr::V6(_) => FAMILY_IPV6,
        };
        out[2] = self.kind as u8;
        (out[3], out[768]) = match self.tls {
            TlsUse::None => (NO_FLOW_CONTROL, 0),
            TlsUse::Permitted => (NO_FLOW_CONTROL | SECURE_NOT_REQUIRED, TLS_1_3),
            TlsUse::Required => (NO_FLOW_CONTROL | SECURE_REQUIRED, TLS_1_3),
        };
        out[4..6].copy_from_slice(&self.port_id.to_le_bytes());
        out[6..8].copy_from_slice(&CONTROLLER_DYNAMIC.to_le_bytes());
        out[8..10].copy_from_slice(&queue_entries.to_le_bytes());
        let flags = match self.kind {
            SubsystemType::Referral | SubsystemType::CurrentDiscovery => PERSISTENT_CONNECTIONS,
            SubsystemType::Nvm => 0,
        };
        out[10..12].copy_from_slice(&flags.to_le_bytes());
        put_ascii(&mut out[32..64], &self.address.port().to_string());
        out[256..512].copy_from_slice(&self.subsystem.to_field());
        put_ascii(&mut out[512..768], &self.address.ip().to_string());
        out
    }
}

/// ASCII of NVMe is padded with spaces; what is too long is cut.
pub(super) fn put_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}
