//! Checks of a configuration beyond its types.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::NSID_MAX;
use super::{ExportsConfig, LunConfig, StartError};

/// Checks what types cannot.
pub(crate) fn check(config: &ExportsConfig) -> Result<(), StartError> {
    let mut volumes = HashSet::new();
    for volume in &config.volumes {
        if !volumes.insert(Arc::as_ptr(volume).cast::<()>()) {
            let name = volume.identity().name.clone();
            return Err(StartError::VolumeListedTwice(name));
        }
    }
    check_subsystems(config)?;
    let mut names = HashSet::new();
    for target in &config.targets {
        let name = target.name.as_str();
        if !names.insert(name) {
            return Err(StartError::TargetTwice(name.to_owned()));
        }
        for map in target.maps() {
            check_map(config, map, name)?;
        }
    }
    Ok(())
}

fn check_volume(config: &ExportsConfig, volume: usize, exporter: &str) -> Result<(), StartError> {
    if volume < config.volumes.len() {
        return Ok(());
    }
    Err(StartError::NoVolume {
        exporter: exporter.to_owned(),
        volume,
    })
}

fn check_subsystems(config: &ExportsConfig) -> Result<(), StartError> {
    let mut names = HashSet::new();
    for subsystem in &config.subsystems {
        let nqn = &subsystem.nqn;
        if nqn.is_discovery() || !names.insert(nqn) {
            return Err(StartError::SubsystemTwice(nqn.clone()));
        }
        let mut volumes = HashMap::new();
        for map in subsystem.maps() {
            let mut used = HashSet::new();
            for entry in map {
                check_volume(config, entry.volume, nqn.as_str())?;
                let again = !used.insert(entry.nsid);
                let volume = *volumes.entry(entry.nsid).or_insert(entry.volume);
                let is_number = (1..=NSID_MAX).contains(&entry.nsid);
                if again || volume != entry.volume || !is_number {
                    return Err(StartError::Namespace {
                        subsystem: nqn.clone(),
                        nsid: entry.nsid,
                    });
                }
            }
        }
    }
    Ok(())
}

fn check_map(config: &ExportsConfig, map: &[LunConfig], target: &str) -> Result<(), StartError> {
    let mut luns = HashSet::new();
    let mut volumes = HashSet::new();
    for entry in map {
        check_volume(config, entry.volume, target)?;
        if !luns.insert(entry.lun) || entry.lun > longshore_scsi::lun::Lun::MAX_NUMBER {
            return Err(StartError::Lun {
                target: target.to_owned(),
                lun: entry.lun,
            });
        }
        if !volumes.insert(entry.volume) {
            let volume = config.volumes[entry.volume].identity().name.clone();
            return Err(StartError::VolumeTwice {
                target: target.to_owned(),
                volume,
            });
        }
    }
    Ok(())
}
