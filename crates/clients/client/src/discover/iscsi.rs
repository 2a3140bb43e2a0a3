//! Targets of iSCSI portals, and their logical units.

use longshore_initiator::error::{Error, Failure, Retry};
use longshore_initiator::info::Protocol;
use longshore_initiator::iscsi::{DiscoveredTarget, Session, Transfer};
use longshore_initiator::options::Options;
use longshore_initiator::url::{DigestWishes, HostPort, IscsiUrl, Url};
use longshore_iscsi::pdu::Lun as IscsiLun;
use longshore_scsi::lun::Lun;

use super::found::{FoundTarget, FoundVolume, Portal, VOLUMES_MAX, reachable};

/// How often a command is repeated because something had happened (a unit attention).
const ATTEMPTS: usize = 5;

/// Bytes of the answer to REPORT LUNS: a header and eight for each of all single-level LUNs.
const REPORT_LUNS_BYTES: u32 = 8 + 8 * 16_384;

/// A target that was told of.
pub(super) struct Lead {
    /// The portal that told of it.
    asked: HostPort,
    target: DiscoveredTarget,
}

/// Asks a portal for its targets.
pub(super) fn ask(portal: &HostPort, options: &Options) -> Result<Vec<Lead>, Error> {
    let targets = longshore_initiator::iscsi::discover(portal, options)?;
    let lead = |target| Lead {
        asked: portal.clone(),
        target,
    };
    Ok(targets.into_iter().map(lead).collect())
}

impl Lead {
    fn addresses(&self) -> impl Iterator<Item = HostPort> + '_ {
        let portals = self.target.portals.iter();
        portals.map(|portal| reachable(&portal.address, &self.asked))
    }

    /// The target, without its volumes.
    pub(super) fn found(&self) -> FoundTarget {
        let tags = self.target.portals.iter();
        let portals = self.addresses().zip(tags.map(|it| it.portal_group_tag));
        FoundTarget {
            protocol: Protocol::Iscsi,
            name: self.target.name.to_string(),
            portals: portals
                .map(|(address, portal_group_tag)| Portal {
                    address: address.to_string(),
                    transport: "tcp".to_owned(),
                    portal_group_tag,
                })
                .collect(),
            volumes: Vec::new(),
            problem: None,
        }
    }

    /// Logs in and asks for the logical units.
    pub(super) fn visit(&self, options: &Options) -> FoundTarget {
        let mut found = self.found();
        let mut addresses: Vec<_> = self.addresses().collect();
        // A portal behind an address translation is reached where it was asked.
        if !addresses.contains(&self.asked) {
            addresses.push(self.asked.clone());
        }
        for address in addresses {
            let url = self.url(address, 0);
            let units = Session::open(&url, 0, options).and_then(|mut session| {
                let units = logical_units(&mut session);
                session.close();
                units
            });
            match units {
                Ok(units) => {
                    found.volumes = units.iter().map(|unit| unit.found(&url)).collect();
                    found.problem = None;
                    return found;
                }
                // The first reason is that of the address it has told.
                Err(error) => _ = found.problem.get_or_insert_with(|| error.to_string()),
            }
        }
        found
    }

    fn url(&self, portal: HostPort, lun: u16) -> IscsiUrl {
        IscsiUrl {
            user: None,
            password: None,
            target_user: None,
            target_password: None,
            portals: vec![portal],
            target: self.target.name.clone(),
            lun,
            digests: DigestWishes::default(),
        }
    }
}

/// What is known of a logical unit.
#[derive(Debug, PartialEq, Eq)]
struct Unit {
    lun: Lun,
    /// Peripheral device type and product, from INQUIRY.
    product: Option<(u8, String)>,
    capacity: Option<(u64, u32)>,
    problem: Option<String>,
}

impl Unit {
    fn found(&self, url: &IscsiUrl) -> FoundVolume {
        let number = self.lun.number();
        let kind = self.product.as_ref().map_or(0, |(kind, _)| *kind);
        let url = number
            .filter(|_| kind == 0)
            .map(|lun| Url::Iscsi(IscsiUrl { lun, ..url.clone() }).to_string());
        let problem = match (number, kind) {
            (None, _) => Some("its LUN has several levels, which a URL cannot express".to_owned()),
            (_, 0) => self.problem.clone(),
            (_, kind) => Some(format!("is {}, not a disk", device_type(kind))),
        };
        FoundVolume {
            number: number.map_or(u64::from_be_bytes(self.lun.0), u64::from),
            size_bytes: self
                .capacity
                .map(|(blocks, block_size)| blocks.saturating_mul(u64::from(block_size))),
            block_size: self.capacity.map(|(_, block_size)| block_size),
            product: self
                .product
                .as_ref()
                .map_or_else(String::new, |(_, product)| product.clone()),
            url,
            problem,
        }
    }
}

/// Peripheral device types (SPC-4 table 138), as far as anybody meets them.
fn device_type(kind: u8) -> String {
    match kind {
        0x01 => "a tape".to_owned(),
        0x03 => "a processor".to_owned(),
        0x05 => "an optical drive".to_owned(),
        0x08 => "a media changer".to_owned(),
        0x0c => "a storage array controller".to_owned(),
        0x0d => "an enclosure".to_owned(),
        0x14 => "a zoned disk".to_owned(),
        kind => format!("a device of type {kind:#04x}"),
    }
}

fn logical_units(session: &mut Session) -> Result<Vec<Unit>, Error> {
    let mut cdb = [0; 12];
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&REPORT_LUNS_BYTES.to_be_bytes());
    let luns = match command(session, Lun::default(), &cdb, REPORT_LUNS_BYTES)? {
        Ok(data) => parse_luns(&data),
        // LUN 0 has to be there; targets without REPORT LUNS have little else.
        Err(_) => vec![Lun::default()],
    };
    luns.into_iter()
        .take(VOLUMES_MAX)
        .map(|lun| ask_unit(session, lun))
        .collect()
}

fn ask_unit(session: &mut Session, lun: Lun) -> Result<Unit, Error> {
    const INQUIRY_BYTES: u8 = 96;
    let mut unit = Unit {
        lun,
        product: None,
        capacity: None,
        problem: None,
    };
    let inquiry = [0x12, 0, 0, 0, INQUIRY_BYTES, 0];
    match command(session, lun, &inquiry, u32::from(INQUIRY_BYTES))? {
        Ok(data) => unit.product = parse_inquiry(&data),
        Err(failure) => unit.problem = Some(failure.to_string()),
    }
    if unit.product.as_ref().is_some_and(|(kind, _)| *kind != 0) {
        return Ok(unit);
    }
    // SERVICE ACTION IN (16), READ CAPACITY (16); old disks have READ CAPACITY (10) alone.
    let mut long = [0; 16];
    (long[0], long[1], long[13]) = (0x9e, 0x10, 32);
    let mut short = [0; 10];
    short[0] = 0x25;
    match command(session, lun, &long, 32)? {
        Ok(data) => unit.capacity = parse_capacity_16(&data),
        Err(failure) => match command(session, lun, &short, 8)? {
            Ok(data) => unit.capacity = parse_capacity_10(&data),
            Err(_) => unit.problem = Some(failure.to_string()),
        },
    }
    Ok(unit)
}

/// Runs a command, again after a unit attention.
fn command(
    session: &mut Session,
    lun: Lun,
    cdb: &[u8],
    length: u32,
) -> Result<Result<Vec<u8>, Failure>, Error> {
    let lun = IscsiLun(lun.0);
    let mut result = session.command(lun, cdb, Transfer::Read(length))?.data();
    for _ in 1..ATTEMPTS {
        match &result {
            Err(failure) if failure.retry() == Retry::Now => {
                result = session.command(lun, cdb, Transfer::Read(length))?.data();
            }
            _ => break,
        }
    }
    Ok(result)
}

/// LUN list length in bytes, four reserved bytes, LUNs (SPC-4 §6.33).
fn parse_luns(data: &[u8]) -> Vec<Lun> {
    let (luns, _) = data.get(8..).unwrap_or_default().as_chunks::<8>();
    let listed = data
        .first_chunk()
        .and_then(|length| usize::try_from(u32::from_be_bytes(*length) / 8).ok())
        .unwrap_or(0);
    luns.iter().take(listed).map(|lun| Lun(*lun)).collect()
}

/// Peripheral device type, vendor and product; `None` when nothing is connected there (SPC-4 §6.6.2).
fn parse_inquiry(data: &[u8]) -> Option<(u8, String)> {
    let first = *data.first()?;
    if first >> 5 != 0 {
        return None;
    }
    let text = |range| {
        let bytes: &[u8] = data.get(range).unwrap_or_default();
        let printable = bytes.iter().filter(|byte| (b' '..=b'~').contains(*byte));
        let text: String = printable.map(|byte| char::from(*byte)).collect();
        text.trim().to_owned()
    };
    let product = format!("{} {}", text(8..16), text(16..32));
    Some((first & 0x1f, product.trim().to_owned()))
}

/// Last LBA and block length (SBC-3 §5.16.2).
fn parse_capacity_16(data: &[u8]) -> Option<(u64, u32)> {
    let last = u64::from_be_bytes(*data.first_chunk()?);
    let block_size = u32::from_be_bytes(*data.get(8..)?.first_chunk()?);
    Some((last.checked_add(1)?, block_size))
}

/// The same with 32 bits (SBC-3 §5.15.2).
fn parse_capacity_10(data: &[u8]) -> Option<(u64, u32)> {
    let last = u32::from_be_bytes(*data.first_chunk()?);
    let block_size = u32::from_be_bytes(*data.get(4..)?.first_chunk()?);
    (last != u32::MAX).then_some((u64::from(last) + 1, block_size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_as_the_standards_say() {
        let mut luns = vec![0, 0, 0, 16, 0, 0, 0, 0];
        luns.extend([0, 0, 0, 0, 0, 0, 0, 0]);
        luns.extend([0x41, 2, 0, 0, 0, 0, 0, 0]);
        luns.extend([0, 9, 0, 0, 0, 0, 0, 0]);
        let numbers: Vec<_> = parse_luns(&luns).into_iter().map(Lun::number).collect();
        assert_eq!(
            numbers,
            [Some(0), Some(258)],
            "what is not listed does not count"
        );

        let mut inquiry = vec![0; 36];
        inquiry[8..32].copy_from_slice(b"LONGSHORVirtual\0disk    ");
        assert_eq!(
            parse_inquiry(&inquiry),
            Some((0, "LONGSHOR Virtualdisk".to_owned()))
        );
        inquiry[0] = 0x7f;
        assert_eq!(parse_inquiry(&inquiry), None);

        let mut capacity = vec![0; 32];
        (capacity[7], capacity[10]) = (0xff, 2);
        assert_eq!(parse_capacity_16(&capacity), Some((256, 512)));
        assert_eq!(
            parse_capacity_10(&[0, 0, 0, 7, 0, 0, 16, 0]),
            Some((8, 4096))
        );
        assert_eq!(
            parse_capacity_10(&[0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]),
            None
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(parse_luns(&data).len() <= data.len() / 8);
            let _ = parse_inquiry(&data);
            let _ = parse_capacity_16(&data);
            let _ = parse_capacity_10(&data);
        }
    }
}
