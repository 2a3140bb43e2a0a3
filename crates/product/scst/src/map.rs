//! Maps of logical units: their entries, and the map that the copy manager has.

use std::collections::{BTreeMap, BTreeSet};

/// The one target of the copy manager. No iSCSI target has this name.
pub(crate) const COPY_TARGET: &str = "copy_manager_tgt";

/// An entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lun {
    pub device: String,
    pub read_only: bool,
}

/// The map of the copy manager: all devices in the order of their names, until a command changes it. From then on each
/// device keeps its number, and a new one gets the lowest number that is free. As in SCST, a device may have several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyMap {
    luns: BTreeMap<u64, Lun>,
    /// Devices that a command took out.
    left_out: BTreeSet<String>,
    is_written: bool,
}

impl CopyMap {
    /// Takes new devices in, and those that are gone out. With the last one, what commands have changed is forgotten.
    pub fn follow<'a>(&mut self, devices: impl Iterator<Item = &'a String>) {
        let devices: BTreeSet<&String> = devices.collect();
        self.luns.retain(|_, lun| devices.contains(&lun.device));
        self.left_out.retain(|device| devices.contains(device));
        if self.luns.is_empty() && self.left_out.is_empty() {
            self.is_written = false;
        }
        if !self.is_written {
            self.luns = (0..).zip(devices).map(|(lun, it)| (lun, of(it))).collect();
            return;
        }
        let mapped: BTreeSet<&String> = self.luns.values().map(|lun| &lun.device).collect();
        let new = devices
            .into_iter()
            .filter(|it| !mapped.contains(it) && !self.left_out.contains(*it));
        let free = (0..).filter(|lun| !self.luns.contains_key(lun));
        let added: Vec<(u64, Lun)> = free.zip(new).map(|(lun, it)| (lun, of(it))).collect();
        self.luns.extend(added);
    }

    /// Its entries, by number.
    #[must_use]
    pub const fn luns(&self) -> &BTreeMap<u64, Lun> {
        &self.luns
    }

    /// Takes an entry out, if there is one.
    pub(crate) fn take_out(&mut self, lun: u64) -> Option<()> {
        let taken = self.luns.remove(&lun)?;
        self.left_out.insert(taken.device);
        self.is_written = true;
        Some(())
    }

    /// Puts a device there.
    pub(crate) fn put(&mut self, lun: u64, device: &str) {
        self.is_written = true;
        let _ = self.take_out(lun);
        self.left_out.remove(device);
        self.luns.insert(lun, of(device));
    }

    /// Takes all entries out.
    pub(crate) fn clear(&mut self) {
        let all = std::mem::take(&mut self.luns).into_values();
        self.left_out.extend(all.map(|lun| lun.device));
        self.is_written = true;
    }
}

fn of(device: &str) -> Lun {
    Lun {
        device: device.to_owned(),
        read_only: false,
    }
}
