//! Discovery of subsystems and their addresses (NVMe base 2.0 §3.1.2.3, §5.16.1.23).
//!
//! A discovery controller has one log page. It is read in parts, and again if its generation has changed meanwhile,
//! so that entries of two generations are not mixed. Referrals lead to further discovery controllers; each address is
//! asked once. What a server can make us read is bounded, by number and by time.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use longshore_nvme::nqn::{DISCOVERY_NQN, Nqn};
use serde::Serialize;
use tracing::warn;

use super::admin::Admin;
use super::link::{DATA_BYTES_MAX, Deadline, LinkError};
use super::log_page::lid;
use super::page::Page;
use crate::error::Error;
use crate::options::Options;
use crate::url::{HostPort, NVME_DISCOVERY_PORT, NVME_PORT};

/// Bytes of the header, and of an entry.
const RECORD_BYTES: usize = 1024;

/// What of the header is read: it ends with RECFMT.
const HEADER_BYTES: u32 = 1024;

/// Most entries of a log page that are read.
const ENTRIES_MAX: u64 = 4096;

/// Entries that are read at a time where log pages can be read in parts: 4 KiB, which every controller takes.
const PART_ENTRIES: u64 = 4;

/// How often a log page that changes all the time is begun anew.
const ATTEMPTS: u32 = 10;

/// Most discovery controllers that referrals lead to.
const REFERRALS_MAX: usize = 32;

/// What an entry leads to (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    /// Another discovery subsystem, to be asked next.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The discovery subsystem that was asked.
    CurrentDiscovery,
    /// A SUBTYPE that is newer than this library.
    Other(u8),
}

/// One way to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DiscoveryEntry {
    /// What it leads to.
    pub kind: EntryKind,
    /// SUBNQN: the NQN to connect to.
    pub subsystem: String,
    /// TRTYPE in words: `tcp`, `rdma`, `fc`, …
    pub transport: String,
    /// TRADDR: the address, for TCP an IP address without port.
    pub address: String,
    /// TRSVCID: the port, for TCP.
    pub service: String,
    /// PORTID: tells the ports of a subsystem apart.
    pub port_id: u16,
    /// CNTLID; FFFFh: any, FFFEh: any, static.
    pub controller_id: u16,
    /// ASQSZ: most entries of an admin queue.
    pub admin_entries: u16,
    /// TREQ: a secure channel is required.
    pub requires_secure_channel: bool,
    /// TREQ: queues can go without SQ flow control.
    pub flow_control_optional: bool,
    /// TSAS: the secure channel, `none` or `tls`.
    pub security: String,
}

impl DiscoveryEntry {
    fn decode(bytes: &[u8]) -> Self {
        let page = Page(bytes);
        let is_tcp = page.u8(0) == 3;
        Self {
            kind: match page.u8(2) {
                1 => EntryKind::Referral,
                2 => EntryKind::Nvm,
                3 => EntryKind::CurrentDiscovery,
                code => EntryKind::Other(code),
            },
            subsystem: page.text(256, 256),
            transport: match page.u8(0) {
                1 => "rdma".to_owned(),
                2 => "fc".to_owned(),
                3 => "tcp".to_owned(),
                254 => "loop".to_owned(),
                code => format!("transport {code}"),
            },
            address: page.text(512, 256),
            service: page.text(32, 32),
            port_id: page.u16(4),
            controller_id: page.u16(6),
            admin_entries: page.u16(8),
            requires_secure_channel: page.u8(3) & 0b11 == 1,
            flow_control_optional: page.u8(3) & 1 << 2 != 0,
            security: match page.u8(768) {
                1 | 2 if is_tcp => "tls".to_owned(),
                _ => "none".to_owned(),
            },
        }
    }

    /// Where it is, for TCP.
    #[must_use]
    pub fn portal(&self) -> Option<SocketAddr> {
        if self.transport != "tcp" {
            return None;
        }
        let address: IpAddr = self.address.parse().ok()?;
        let port: u16 = self.service.parse().ok()?;
        (port != 0).then(|| SocketAddr::new(address, port))
    }

    /// Its subsystem as a name that can be connected to.
    #[must_use]
    pub fn nqn(&self) -> Option<Nqn> {
        let mut field = [0; longshore_nvme::nqn::NQN_FIELD_LENGTH];
        let text = self.subsystem.as_bytes();
        field.get_mut(..text.len())?.copy_from_slice(text);
        Nqn::from_field(&field)
            .ok()
            .filter(|nqn| !nqn.as_str().is_empty())
    }
}

/// Asks the discovery controller at `portal`, and those that it refers to, which subsystems there are. A referral
/// that does not answer is left out, with a line in the log.
///
/// # Errors
/// The portal does not answer, or not as it should.
pub fn discover(portal: &HostPort, options: &Options) -> Result<Vec<DiscoveryEntry>, Error> {
    let until = Instant::now() + options.timeouts.login * 4;
    let mut seen = HashSet::from([portal.to_string()]);
    let mut entries = log_page(portal, options)?;
    let mut listed: HashSet<DiscoveryEntry> = entries.iter().cloned().collect();
    let mut ahead: VecDeque<SocketAddr> = referrals(&entries).collect();
    while let Some(next) = ahead.pop_front()
        && seen.len() <= REFERRALS_MAX
        && Instant::now() < until
    {
        let next = HostPort::from(next);
        if !seen.insert(next.to_string()) {
            continue;
        }
        match log_page(&next, options) {
            Ok(found) => {
                ahead.extend(referrals(&found));
                for entry in found {
                    // Discovery controllers that refer to each other list the same things.
                    if listed.insert(entry.clone()) {
                        entries.push(entry);
                    }
                }
            }
            Err(error) => warn!("the discovery controller that {portal} refers to: {error}"),
        }
    }
    Ok(entries)
}

/// The same at a host: at `port` when it is given, else at those of discovery and of NVMe/TCP.
///
/// # Errors
/// None of them answers; says why for the first.
pub fn discover_host(
    host: &str,
    port: Option<u16>,
    options: &Options,
) -> Result<(HostPort, Vec<DiscoveryEntry>), Error> {
    let ports = port.map_or(vec![NVME_DISCOVERY_PORT, NVME_PORT], |port| vec![port]);
    let mut first = None;
    for port in ports {
        let portal = HostPort {
            host: host.to_owned(),
            port,
        };
        match discover(&portal, options) {
            Ok(entries) => return Ok((portal, entries)),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.expect("there is at least one port"))
}

fn referrals(entries: &[DiscoveryEntry]) -> impl Iterator<Item = SocketAddr> + '_ {
    let referrals = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Referral);
    referrals.filter_map(DiscoveryEntry::portal)
}

/// The subsystems that discovery at `portal`'s host lists, for an error message: briefly, and as far as it works.
pub(super) fn subsystems_near(portal: &HostPort, options: &Options) -> Vec<String> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut options = options.clone();
    options.timeouts.connect = options.timeouts.connect.min(PATIENCE);
    options.timeouts.login = options.timeouts.login.min(PATIENCE);
    let elsewhere = HostPort {
        host: portal.host.clone(),
        port: NVME_DISCOVERY_PORT,
    };
    let found = [portal, &elsewhere]
        .into_iter()
        .find_map(|portal| log_page(portal, &options).ok());
    let mut names: Vec<String> = found
        .into_iter()
        .flatten()
        .filter(|entry| entry.kind == EntryKind::Nvm)
        .map(|entry| entry.subsystem)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// All entries of the log page of one discovery controller.
fn log_page(portal: &HostPort, options: &Options) -> Result<Vec<DiscoveryEntry>, Error> {
    let discovery = Nqn::new(DISCOVERY_NQN).expect("the standard's own name");
    let mut admin = Admin::connect(portal, &discovery, Duration::ZERO, options)?;
    let controller = admin.identify_controller()?;
    let mut reader = Reader {
        admin: &mut admin,
        in_parts: controller.log_pages_in_parts,
        until: Deadline::after(options.timeouts.login * 2),
    };
    let entries = reader.read();
    admin.shut_down();
    entries
}

const STEP: &str = "discovery";

/// Reads the log page of a discovery controller.
struct Reader<'a> {
    admin: &'a mut Admin,
    in_parts: bool,
    /// A controller that answers slowly is not to hold us for as long as it has entries.
    until: Deadline,
}

/// The header of the log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    generation: u64,
    entries: u64,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<Vec<DiscoveryEntry>, Error> {
        for _ in 0..ATTEMPTS {
            let header = self.header()?;
            let entries = self.entries(header.entries)?;
            if header.entries == 0 || self.header()?.generation == header.generation {
                return Ok(entries);
            }
        }
        let reason = format!("the log page has changed {ATTEMPTS} times while it was read");
        Err(self.admin.broken(STEP, reason))
    }

    fn header(&mut self) -> Result<Header, Error> {
        let bytes = self.part(0, HEADER_BYTES)?;
        decode_header(&bytes).map_err(|reason| self.admin.broken(STEP, reason))
    }

    fn part(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
        if self.until.left().is_none() {
            return Err(self
                .admin
                .lost(STEP, LinkError::TimedOut(self.until.limit())));
        }
        self.admin.log_page(lid::DISCOVERY, 0, offset, length)
    }

    fn entries(&mut self, count: u64) -> Result<Vec<DiscoveryEntry>, Error> {
        let mut entries = Vec::new();
        if !self.in_parts {
            // Without offsets, everything is one transfer.
            let count = count.min(u64::from(DATA_BYTES_MAX) / RECORD_BYTES as u64 - 1);
            let length = (count + 1) * RECORD_BYTES as u64;
            let length = u32::try_from(length).expect("bounded");
            let bytes = self.part(0, length)?;
            let records = bytes.chunks_exact(RECORD_BYTES).skip(1);
            entries.extend(records.map(DiscoveryEntry::decode));
            return Ok(entries);
        }
        let mut at = 0;
        while at < count {
            let part = (count - at).min(PART_ENTRIES);
            let offset = (at + 1) * RECORD_BYTES as u64;
            let length = u32::try_from(part * RECORD_BYTES as u64).expect("few entries");
            let bytes = self.part(offset, length)?;
            let records = bytes.chunks_exact(RECORD_BYTES);
            entries.extend(records.map(DiscoveryEntry::decode));
            at += part;
        }
        Ok(entries)
    }
}

/// ```text
/// 0 GENCTR (8)   8 NUMREC (8)   16 RECFMT (2)
/// ```
fn decode_header(bytes: &[u8]) -> Result<Header, String> {
    let page = Page(bytes);
    let header = Header {
        generation: page.u64(0),
        entries: page.u64(8),
    };
    if page.u16(16) != 0 {
        return Err(format!(
            "the log page has records of format {}",
            page.u16(16)
        ));
    }
    if header.entries > ENTRIES_MAX {
        let count = header.entries;
        return Err(format!(
            "the log page claims {count} entries; at most {ENTRIES_MAX} are read"
        ));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(kind: u8, address: &str, service: &str) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&[3, 1, kind, 0b100]);
        bytes[6..8].fill(0xff);
        bytes[32..32 + service.len()].copy_from_slice(service.as_bytes());
        bytes[256..276].copy_from_slice(b"nqn.2026-11.local:ab");
        bytes[512..512 + address.len()].copy_from_slice(address.as_bytes());
        bytes
    }

    #[test]
    fn an_entry_says_what_is_where() {
        let found = DiscoveryEntry::decode(&entry(2, "192.0.2.7", "4420   "));
        assert_eq!(found.kind, EntryKind::Nvm);
        assert_eq!(found.portal(), Some("192.0.2.7:4420".parse().unwrap()));
        assert_eq!(found.nqn().unwrap().as_str(), "nqn.2026-11.local:ab");
        assert!(found.flow_control_optional && !found.requires_secure_channel);
        assert_eq!(found.controller_id, 0xffff);
    }

    #[test]
    fn addresses_that_are_none_lead_nowhere() {
        for (address, service) in [
            ("", "4420"),
            ("host", "4420"),
            ("192.0.2.7", ""),
            ("192.0.2.7", "0"),
        ] {
            let found = DiscoveryEntry::decode(&entry(1, address, service));
            assert_eq!(found.portal(), None);
        }
        let mut fibre = entry(2, "192.0.2.7", "4420");
        fibre[0] = 2;
        assert_eq!(DiscoveryEntry::decode(&fibre).portal(), None);
    }

    #[test]
    fn a_log_page_cannot_claim_to_be_endless() {
        let mut header = vec![0; 1024];
        header[8] = 3;
        assert_eq!(decode_header(&header).unwrap().entries, 3);
        header[15] = 0xff;
        assert!(decode_header(&header).unwrap_err().contains("at most 4096"));
        header[15] = 0;
        header[16] = 1;
        assert!(decode_header(&header).unwrap_err().contains("format 1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_entry_makes_a_host_panic(bytes in prop::collection::vec(any::<u8>(), 0..=1024)) {
            let found = DiscoveryEntry::decode(&bytes);
            let _ = found.portal();
            let _ = found.nqn();
            let _ = decode_header(&bytes);
        }
    }
}
