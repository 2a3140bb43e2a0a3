//! What types cannot check of a configuration.

use std::collections::HashMap;

use super::error::NSID_MAX;
use super::{LunConfig, ServerConfig, StartError};

/// Checks what types cannot.
pub(crate) fn check(config: &ServerConfig) -> Result<(), StartError> {
    check_subsystems(config)?;
    for (index, target) in config.targets.iter().enumerate() {
        let name = || target.name.as_str().to_owned();
        if config.targets[..index]
            .iter()
            .any(|other| other.name == target.name)
        {
            return Err(StartError::TargetTwice(name()));
        }
        for map in target.maps() {
            check_map(config, map, &name)?;
        }
    }
    Ok(())
}

fn check_subsystems(config: &ServerConfig) -> Result<(), StartError> {
    for (index, subsystem) in config.subsystems.iter().enumerate() {
        let earlier = &config.subsystems[..index];
        let nqn = &subsystem.nqn;
        if nqn.is_discovery() || earlier.iter().any(|other| other.nqn == *nqn) {
            return Err(StartError::SubsystemTwice(nqn.clone()));
        }
        let mut volumes = HashMap::new();
        for map in subsystem.maps() {
            for (index, entry) in map.iter().enumerate() {
                let again = map[..index].iter().any(|other| other.nsid == entry.nsid);
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

fn check_map(
    config: &ServerConfig,
    map: &[LunConfig],
    target: &dyn Fn() -> String,
) -> Result<(), StartError> {
    for (index, entry) in map.iter().enumerate() {
        let earlier = &map[..index];
        let used = earlier.iter().any(|other| other.lun == entry.lun);
        if used || entry.lun > longshore_scsi::lun::Lun::MAX_NUMBER {
            return Err(StartError::Lun {
                target: target(),
                lun: entry.lun,
            });
        }
        if earlier.iter().any(|other| other.volume == entry.volume) {
            let volume = config.volumes[entry.volume].identity().name.clone();
            return Err(StartError::VolumeTwice {
                target: target(),
                volume,
            });
        }
    }
    Ok(())
}
