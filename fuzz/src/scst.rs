//! What tools write to the files of SCST's trees.

use std::collections::BTreeMap;

use longshore_api::object::{Keys, ObjectId, ObjectKind, Owner};
use longshore_scst::change::Change;
use longshore_scst::map::CopyMap;
use longshore_scst::node::{Directory, Node};
use longshore_scst::state::{Connection, Device, Session, State, Tuned};
use longshore_scst::write::write;

const TARGET: &str = "iqn.2026-11.com.example:a";

/// Files by the first byte of a line; `T` stands for the target.
const PATHS: [&str; 32] = [
    "sys/handlers/vdisk_nullio/mgmt",
    "sys/handlers/vdisk_fileio/mgmt",
    "sys/handlers/vdisk_blockio/mgmt",
    "sys/handlers/vcdrom/mgmt",
    "sys/targets/iscsi/mgmt",
    "sys/targets/iscsi/enabled",
    "sys/targets/iscsi/T/luns/mgmt",
    "sys/targets/iscsi/T/ini_groups/mgmt",
    "sys/targets/iscsi/T/ini_groups/g/initiators/mgmt",
    "sys/targets/iscsi/T/ini_groups/g/luns/mgmt",
    "sys/targets/iscsi/T/ini_groups/g/addr_method",
    "sys/targets/iscsi/T/enabled",
    "sys/targets/iscsi/T/rel_tgt_id",
    "sys/targets/iscsi/T/redirect",
    "sys/targets/iscsi/T/IncomingUser",
    "sys/targets/iscsi/T/MaxBurstLength",
    "sys/targets/iscsi/T/HeaderDigest",
    "sys/targets/iscsi/T/sessions/iqn.2026-11.com.example:host1/force_close",
    "sys/devices/disk0/usn",
    "sys/devices/disk0/size",
    "sys/device_groups/mgmt",
    "proc/scsi_tgt/scsi_tgt",
    "proc/scsi_tgt/vdisk/vdisk",
    "proc/scsi_tgt/groups/Default/names",
    "proc/scsi_tgt/groups/Default/devices",
    "proc/scsi_tgt/groups/g/names",
    "sys/threads",
    "sys/suspend",
    "sys/targets/copy_manager/copy_manager_tgt/luns/mgmt",
    "sys/targets/copy_manager/copy_manager_tgt/rel_tgt_id",
    "sys/targets/iscsi/nagle_threshold",
    "sys/targets/iscsi/IncomingUser",
];

/// Lines of an input that are carried out.
const LINES_MAX: usize = 32;

/// Objects as the writes have made them.
#[derive(Default)]
struct World {
    devices: BTreeMap<String, Keys>,
    targets: BTreeMap<String, Keys>,
    settings: BTreeMap<&'static str, u64>,
    tuned: BTreeMap<Tuned, String>,
    copies: CopyMap,
    described: BTreeMap<String, Keys>,
}

impl World {
    fn state(&self) -> State {
        let device = |(name, keys): (&String, &Keys)| {
            let device = Device {
                owner: Owner::Api,
                keys: keys.clone(),
                size_bytes: 1 << 20,
                serial: "0123".to_owned(),
            };
            (name.clone(), device)
        };
        let targets = self.targets.iter();
        let session = Session {
            id: "7".to_owned(),
            initiator: "iqn.2026-11.com.example:host1".to_owned(),
            target: TARGET.to_owned(),
            connections: vec![Connection {
                address: "192.0.2.1:5000".to_owned(),
                ..Connection::default()
            }],
            group: None,
        };
        let mut state = State::new(
            self.devices.iter().map(device).collect(),
            targets.map(|(name, keys)| (name.clone(), Owner::Api, keys.clone())),
            vec![session],
        );
        state.settings.clone_from(&self.settings);
        state.tuned.clone_from(&self.tuned);
        state.copies.clone_from(&self.copies);
        state.copies.follow(self.devices.keys());
        let described = |name: &str| self.described.get(name).cloned().unwrap_or_default();
        state.discovery = described("discovery");
        state.transmit = described("transmit");
        state
    }

    fn carry_out(&mut self, change: Change) {
        match change {
            Change::Reopen { id, keys } => drop(self.devices.insert(id.name, keys)),
            Change::Objects { objects, .. } => {
                // The plan refuses names that no volume and no target can have.
                let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '.']);
                let is_target = |id: &ObjectId| id.kind == ObjectKind::Target;
                let may_be =
                    |id: &ObjectId| is_name(&id.name) || is_target(id) && id.name == TARGET;
                for (id, keys) in objects.into_iter().filter(|(id, _)| may_be(id)) {
                    let kind = match id.kind {
                        ObjectKind::Volume => &mut self.devices,
                        ObjectKind::Target | ObjectKind::Subsystem => &mut self.targets,
                        ObjectKind::Setting => &mut self.described,
                    };
                    match keys {
                        Some(keys) => drop(kind.insert(id.name, keys)),
                        None => drop(kind.remove(&id.name)),
                    }
                }
            }
            Change::Setting { name, value } => drop(self.settings.insert(name, value)),
            Change::Tune { what, value } => match value {
                Some(value) => drop(self.tuned.insert(what, value)),
                None => drop(self.tuned.remove(&what)),
            },
            Change::Copies(map) => self.copies = map,
            Change::Nothing | Change::Refresh(_) | Change::CloseSession(_) => {}
        }
    }
}

/// Each line is a write: its first byte selects the file, the rest is what is written.
pub(crate) fn scst_writes(data: &[u8]) {
    let mut world = World::default();
    let mut state = world.state();
    for line in data.split(|byte| *byte == b'\n').take(LINES_MAX) {
        let Some((first, command)) = line.split_first() else {
            continue;
        };
        let path = PATHS[usize::from(first.wrapping_sub(b'A')) % PATHS.len()];
        let Some(Node::File(file)) = find(&state, path) else {
            continue;
        };
        match write(&state, &file, command) {
            Ok(wanted) => {
                world.carry_out(wanted.change);
                state = world.state();
            }
            Err(refusal) => assert!(refusal.errno > 0 && !refusal.text.is_empty()),
        }
    }
    walk(&state, &Directory::Root, 0);
}

fn find(state: &State, path: &str) -> Option<Node> {
    let mut node = Node::Directory(Directory::Root);
    for name in path.split('/') {
        let Node::Directory(directory) = &node else {
            return None;
        };
        let name = if name == "T" { TARGET } else { name };
        node = directory.child(state, name)?;
    }
    Some(node)
}

/// Every name of a directory is found, and has a text that the kernel takes.
fn walk(state: &State, directory: &Directory, depth: usize) {
    assert!(depth < 10, "{directory:?}");
    for name in directory.names(state) {
        assert!(!name.is_empty() && !name.contains(['/', '\0']), "{name:?}");
        let node = directory.child(state, &name);
        match node.unwrap_or_else(|| panic!("{directory:?} has no {name}")) {
            Node::Directory(inner) => walk(state, &inner, depth + 1),
            Node::File(file) => drop(file.text(state)),
            Node::Link(link) => assert!(link.text(state).is_some(), "{link:?}"),
        }
    }
}
