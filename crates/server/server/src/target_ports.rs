//! Relative target port identifiers of the ports of iSCSI targets.
//!
//! A port is a target in a portal group. Registrations of persistent reservations hold the number of
//! their port, also on disk, so a port keeps its number as long as the state directory lasts, whatever
//! is configured beside it (SPC-4 §7.8.6.6). Numbers of ports that are gone are given to others only
//! when there are no more, or when the configuration gives them: the port may come back, and its registrations may still
//! be there.
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
    /// The configuration gives a number that a port beside it has.
    #[error("{number} is the number of target {} in portal group {}", owner.0, owner.1)]
    Taken {
        number: u16,
        target: String,
        owner: Port,
    },
}

/// The ports of a target as they are configured.
#[derive(Debug)]
pub(crate) struct PortsOf {
    /// Its name in normal form.
    pub target: String,
    /// Portal groups through which it is reached, with the numbers that are given.
    pub groups: Vec<(u16, Option<u16>)>,
}

impl PortsOf {
    fn ports(&self) -> impl Iterator<Item = (Port, Option<u16>)> {
        let groups = self.groups.iter();
        groups.map(|(tag, number)| ((self.target.clone(), *tag), *number))
    }
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

    /// Gives numbers to the ports of all targets, in the order of the configuration: those that are configured, and free
    /// ones where there are none yet. Stores the table if it changed. `tags` are those of all portal groups.
    pub(crate) fn assign(
        &mut self,
        targets: &[PortsOf],
        tags: &BTreeSet<u16>,
    ) -> Result<(), TargetPortsError> {
        let mut numbers = self.numbers.clone();
        if self.is_new {
            adopt(targets, tags, &mut numbers);
        }
        let ports: BTreeMap<Port, Option<u16>> = targets.iter().flat_map(PortsOf::ports).collect();
        give(&ports, &mut numbers)?;
        let is_missing = |port: &Port| !numbers.contains_key(port);
        // In the order of the configuration.
        let missing: Vec<Port> = targets
            .iter()
            .flat_map(PortsOf::ports)
            .map(|(port, _)| port)
            .filter(is_missing)
            .collect();
        if numbers.len() + missing.len() > usize::from(u16::MAX) {
            numbers.retain(|port, _| ports.contains_key(port));
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

/// Gives ports the numbers that are configured. A port that is not configured loses its number to them.
fn give(
    ports: &BTreeMap<Port, Option<u16>>,
    numbers: &mut BTreeMap<Port, u16>,
) -> Result<(), TargetPortsError> {
    let given: BTreeMap<&Port, u16> = ports
        .iter()
        .filter_map(|(port, number)| Some((port, (*number)?)))
        .collect();
    if given.is_empty() {
        return Ok(());
    }
    numbers.retain(|port, _| !given.contains_key(port));
    let mut owners: BTreeMap<u16, Port> = numbers
        .iter()
        .map(|(port, number)| (*number, port.clone()))
        .collect();
    for (port, number) in given {
        if let Some(owner) = owners.insert(number, port.clone()) {
            if ports.contains_key(&owner) {
                let target = port.0.clone();
                return Err(TargetPortsError::Taken {
                    number,
                    target,
                    owner,
                });
            }
            numbers.remove(&owner);
        }
        numbers.insert(port.clone(), number);
    }
    Ok(())
}

/// Versions without a table counted ports in the order of the configuration. Reservations that they stored hold those
/// numbers, so these are kept where no other number is configured.
fn adopt(targets: &[PortsOf], tags: &BTreeSet<u16>, numbers: &mut BTreeMap<Port, u16>) {
    let groups = || targets.iter().flat_map(|target| &target.groups);
    let given: BTreeSet<u16> = groups().filter_map(|(_, number)| *number).collect();
    for (index, target) in targets.iter().enumerate() {
        let is_own = |tag: &u16| target.groups.iter().any(|(own, _)| own == tag);
        for (place, tag) in tags.iter().enumerate().filter(|(_, tag)| is_own(tag)) {
            if let Ok(number) = u16::try_from(index * tags.len() + place + 1)
                && !given.contains(&number)
            {
                numbers.insert((target.target.clone(), *tag), number);
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

    fn targets(names: &[&str], tags: &[u16]) -> Vec<PortsOf> {
        let names = names.iter();
        names
            .map(|name| PortsOf {
                target: (*name).to_owned(),
                groups: tags.iter().map(|tag| (*tag, None)).collect(),
            })
            .collect()
    }

    /// Targets in portal group 1.
    fn given(list: &[(&str, Option<u16>)]) -> Vec<PortsOf> {
        let list = list.iter();
        list.map(|(name, number)| PortsOf {
            target: (*name).to_owned(),
            groups: vec![(1, *number)],
        })
        .collect()
    }

    #[test]
    fn the_first_table_has_the_numbers_of_versions_without_one() {
        let mut ports = TargetPorts::open(None).unwrap();
        let mut configured = targets(&["iqn.b", "iqn.a"], &[3]);
        configured[1].groups = vec![(9, None)];
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
    fn a_number_that_is_configured_is_that_of_the_port_and_others_are_numbered_around_it() {
        let mut ports = TargetPorts::open(None).unwrap();
        let mut assign = |list: &[(&str, Option<u16>)]| {
            ports.assign(&given(list), &[1].into())?;
            let of = |(name, _): &(&str, Option<u16>)| ports.number(name, 1).unwrap();
            Ok::<_, TargetPortsError>(list.iter().map(of).collect::<Vec<u16>>())
        };
        // The first table: the number by place of the first target is configured for the second one.
        assert_eq!(assign(&[("a", None), ("b", Some(1))]).unwrap(), [2, 1]);
        // Both change places in one step, and what is configured no more stays.
        let swapped = [("a", Some(1)), ("b", Some(2))];
        assert_eq!(assign(&swapped).unwrap(), [1, 2]);
        assert_eq!(assign(&[("a", None), ("b", None)]).unwrap(), [1, 2]);
        // A port that is gone loses its number, and gets another one when it comes back.
        assert_eq!(assign(&[("c", Some(2)), ("a", None)]).unwrap(), [2, 1]);
        let back = [("c", None), ("a", None), ("b", None)];
        assert_eq!(assign(&back).unwrap(), [2, 1, 3]);
    }

    #[test]
    fn a_number_of_another_port_that_is_configured_is_refused_and_nothing_changes() {
        let mut ports = TargetPorts::open(None).unwrap();
        let tags = [1].into();
        ports
            .assign(&given(&[("a", None), ("b", None)]), &tags)
            .unwrap();
        for list in [
            [("a", None), ("b", Some(1))],
            [("a", Some(7)), ("b", Some(7))],
        ] {
            let error = ports.assign(&given(&list), &tags).unwrap_err();
            let TargetPortsError::Taken { number, owner, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(Some(*number), list[1].1);
            assert_eq!(*owner, ("a".to_owned(), 1));
            assert_eq!(ports.number("a", 1), Some(1));
            assert_eq!(ports.number("b", 1), Some(2));
        }
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
