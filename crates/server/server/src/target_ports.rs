//! Relative target port identifiers of the ports of iSCSI targets.
//!
//! A port is a target in a portal group. Registrations of persistent reservations hold the number of
//! their port, also on disk, so a port keeps its number as long as the state directory lasts, whatever
//! is configured beside it (SPC-4 §7.8.6.6). Numbers of ports that are gone are given to others only
//! when there are no more: the port may come back, and its registrations may still be there.
//!
//! The table is a text file (docs/formats/target-ports.md), replaced as a whole. Without a state
//! directory it lives as long as the server, as the reservations do then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use longshore_wire::crc32c;

use crate::state_file;

const FILE_NAME: &str = "target-ports";
const FIRST_LINE: &str = "longshore target-ports 1";
const CHECKSUM: &str = "crc32c ";
/// 65,535 ports with names of 223 bytes.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// A port: name of the target in normal form, and tag of the portal group.
pub(crate) type Port = (String, u16);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct TargetPorts {
    path: Option<PathBuf>,
    numbers: BTreeMap<Port, u16>,
    /// No table has been stored yet.
    is_new: bool,
}

/// Why ports could not be given numbers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetPortsError {
    /// It cannot be read or written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// It is not what was stored.
    #[error("line {line}: {problem}")]
    Damaged { line: usize, problem: &'static str },
    /// The number is one of 16 bits.
    #[error("there are more than 65535 target ports")]
    TooMany,
}

impl TargetPorts {
    /// The table of a state directory.
    pub(crate) fn open(state_directory: Option<&Path>) -> Result<Self, TargetPortsError> {
        let path = state_directory.map(|directory| directory.join(FILE_NAME));
        let stored = match &path {
            Some(path) => state_file::load(path, FILE_BYTES_MAX)?,
            None => None,
        };
        Ok(Self {
            path,
            is_new: stored.is_none(),
            numbers: stored
                .map(|bytes| decode(&bytes))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// Where the table of a state directory is.
    pub(crate) fn path(state_directory: &Path) -> PathBuf {
        state_directory.join(FILE_NAME)
    }

    /// Gives numbers to the ports of all targets that have none, and stores the table if it changed. `targets` are
    /// names and tags, in the order of the configuration; `tags` those of all portal groups.
    pub(crate) fn assign(
        &mut self,
        targets: &[(String, Vec<u16>)],
        tags: &BTreeSet<u16>,
    ) -> Result<(), TargetPortsError> {
        let mut numbers = self.numbers.clone();
        if self.is_new {
            adopt(targets, tags, &mut numbers);
        }
        let ports = || {
            targets
                .iter()
                .flat_map(|(name, tags)| tags.iter().map(move |tag| (name.clone(), *tag)))
        };
        let missing: Vec<Port> = ports().filter(|port| !numbers.contains_key(port)).collect();
        if numbers.len() + missing.len() > usize::from(u16::MAX) {
            let wanted: BTreeSet<Port> = ports().collect();
            numbers.retain(|port, _| wanted.contains(port));
        }
        let taken: BTreeSet<u16> = numbers.values().copied().collect();
        let mut free = (1..=u16::MAX).filter(|number| !taken.contains(number));
        for port in missing {
            let number = free.next().ok_or(TargetPortsError::TooMany)?;
            numbers.insert(port, number);
        }
        if numbers != self.numbers || self.is_new {
            if let Some(path) = &self.path {
                state_file::replace(path, &encode(&numbers))?;
            }
            self.numbers = numbers;
            self.is_new = false;
        }
        Ok(())
    }

    /// The number of a port.
    pub(crate) fn number(&self, target: &str, portal_group_tag: u16) -> Option<u16> {
        let port = (target.to_owned(), portal_group_tag);
        self.numbers.get(&port).copied()
    }
}

/// Versions without a table counted ports in the order of the configuration. Reservations that they stored hold those
/// numbers, so these are kept.
fn adopt(targets: &[(String, Vec<u16>)], tags: &BTreeSet<u16>, numbers: &mut BTreeMap<Port, u16>) {
    for (index, (name, own)) in targets.iter().enumerate() {
        for (place, tag) in tags.iter().enumerate().filter(|(_, tag)| own.contains(tag)) {
            if let Ok(number) = u16::try_from(index * tags.len() + place + 1) {
                numbers.insert((name.clone(), *tag), number);
            }
        }
    }
}

fn encode(numbers: &BTreeMap<Port, u16>) -> Vec<u8> {
    let mut text = format!("{FIRST_LINE}\n");
    for ((name, tag), number) in numbers {
        text.push_str(&format!("{number} {tag} {name}\n"));
    }
    let checksum = u32::from_le_bytes(crc32c(text.as_bytes()).to_bytes());
    text.push_str(&format!("{CHECKSUM}{checksum:08x}\n"));
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<BTreeMap<Port, u16>, TargetPortsError> {
    let damaged = |line: usize, problem| TargetPortsError::Damaged { line, problem };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged(1, "not a text"))?;
    let body_length = text
        .trim_end_matches('\n')
        .rfind('\n')
        .map_or(0, |at| at + 1);
    let (body, last) = text.split_at(body_length);
    let mut lines = body.lines().enumerate();
    match lines.next() {
        Some((_, FIRST_LINE)) => {}
        _ => return Err(damaged(1, "not a table of target ports of version 1")),
    }
    let lines_count = body.lines().count();
    let checksum = u32::from_le_bytes(crc32c(body.as_bytes()).to_bytes());
    let told = last.strip_prefix(CHECKSUM).map(str::trim_end);
    if told.and_then(|told| u32::from_str_radix(told, 16).ok()) != Some(checksum) {
        return Err(damaged(lines_count + 1, "the checksum does not match"));
    }
    let mut numbers = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (index, line) in lines {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next()?.parse::<u16>().ok();
        let (number, tag) = (number(), number());
        let (Some(number), Some(tag), Some(name)) = (number, tag, words.next()) else {
            return Err(damaged(index + 1, "not a number, a tag and a name"));
        };
        let port = (name.to_owned(), tag);
        if number == 0 || !taken.insert(number) || numbers.insert(port, number).is_some() {
            return Err(damaged(
                index + 1,
                "the number or the port stands there twice",
            ));
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(names: &[&str], tags: &[u16]) -> Vec<(String, Vec<u16>)> {
        let names = names.iter();
        names
            .map(|name| ((*name).to_owned(), tags.to_vec()))
            .collect()
    }

    #[test]
    fn the_first_table_has_the_numbers_of_versions_without_one() {
        let mut ports = TargetPorts::open(None).unwrap();
        let mut configured = targets(&["iqn.b", "iqn.a"], &[3]);
        configured[1].1 = vec![9];
        // Nobody is reached through 5.
        ports.assign(&configured, &[3, 5, 9].into()).unwrap();
        assert_eq!(ports.number("iqn.b", 3), Some(1));
        assert_eq!(ports.number("iqn.b", 9), None);
        assert_eq!(ports.number("iqn.a", 9), Some(6));
    }

    #[test]
    fn what_is_stored_is_read_back_and_new_ports_get_free_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let open = || TargetPorts::open(Some(directory.path())).unwrap();
        open()
            .assign(&targets(&["iqn.a", "iqn.b"], &[1]), &[1].into())
            .unwrap();
        let mut ports = open();
        ports
            .assign(&targets(&["iqn.new", "iqn.b"], &[0, 1]), &[0, 1].into())
            .unwrap();
        assert_eq!(ports.number("iqn.b", 1), Some(2));
        assert_eq!(ports.number("iqn.a", 1), Some(1), "it may come back");
        let others = [("iqn.new", 0), ("iqn.new", 1), ("iqn.b", 0)];
        let mut numbers = others.map(|(name, tag)| ports.number(name, tag).unwrap());
        numbers.sort_unstable();
        assert_eq!(numbers, [3, 4, 5]);
        assert_eq!(open().numbers, ports.numbers);
    }

    #[test]
    fn ports_that_are_gone_give_way_when_there_are_no_numbers_left() {
        let mut ports = TargetPorts::open(None).unwrap();
        let all: Vec<u16> = (1..=u16::MAX).collect();
        let tags: BTreeSet<u16> = all.iter().copied().collect();
        ports.assign(&targets(&["iqn.old"], &all), &tags).unwrap();
        ports.assign(&targets(&["iqn.new"], &[1]), &tags).unwrap();
        assert_eq!(ports.number("iqn.new", 1), Some(1));
        let error = ports.assign(&targets(&["iqn.a", "iqn.b"], &all), &tags);
        assert!(matches!(error, Err(TargetPortsError::TooMany)));
        assert_eq!(ports.number("iqn.new", 1), Some(1), "nothing has changed");
    }

    #[test]
    fn what_is_not_the_stored_table_is_refused() {
        let mut numbers = BTreeMap::new();
        numbers.insert(("iqn.a".to_owned(), 1), 1);
        let good = String::from_utf8(encode(&numbers)).unwrap();
        assert_eq!(decode(good.as_bytes()).unwrap(), numbers);
        let bad = [
            "",
            "longshore target-ports 2\n",
            &good[..good.len() - 3],
            &good.replace("iqn.a", "iqn.b"),
        ];
        for text in bad {
            let error = decode(text.as_bytes()).unwrap_err();
            assert!(
                matches!(error, TargetPortsError::Damaged { .. }),
                "{text:?}"
            );
        }
    }
}
