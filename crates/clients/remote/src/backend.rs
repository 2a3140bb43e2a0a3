//! The backends `iscsi` and `nvme-tcp`.

use std::sync::Arc;

use longshore_volume::open::{Backend, Opened};
use longshore_volume::{BackendName, Backends, InlineWrites, OpenError, VolumeSpec};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::RemoteError;
use crate::name::{ISCSI, NVME_TCP};
use crate::{RemoteBackend, RemoteSpec};

/// Registers the backends `iscsi` and `nvme-tcp`.
pub fn register(backends: &mut Backends) {
    for name in [ISCSI, NVME_TCP] {
        backends.register(Box::new(Remote(name)));
    }
}

struct Remote(BackendName);

impl Backend for Remote {
    fn name(&self) -> BackendName {
        self.0
    }

    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        if spec.options::<RemoteSpec>().is_none() {
            spec.refuse_options()?;
        }
        if spec.size.is_some() {
            return Err(RemoteError::Size {
                name: spec.name.clone(),
            }
            .into());
        }
        if spec.inline_writes != InlineWrites::default() {
            return Err(spec.misplaced("inline-writes"));
        }
        Ok(())
    }

    /// Checks the URL and the secret file. Does not contact the server.
    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        let options = spec.options::<RemoteSpec>();
        let Some(options) = options.filter(|options| options.url.is_some()) else {
            return Err(RemoteError::UrlMissing {
                name: spec.name.clone(),
                backend: spec.backend,
            }
            .into());
        };
        let Some(path) = &options.secret_file else {
            return Ok(());
        };
        accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).map_err(|source| {
            let error = RemoteError::SecretFile {
                name: spec.name.clone(),
                path: path.clone(),
                source: source.into(),
            };
            error.into()
        })
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        let volume = RemoteBackend::open(spec)?;
        Ok(Opened::existing(Arc::new(volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_volume_needs_its_secret_and_no_server() {
        let mut backends = Backends::local();
        register(&mut backends);
        let url = "iscsi://ann@192.0.2.7/iqn.2026-11.com.example:disks/0";
        let mut options = RemoteSpec {
            url: Some(url.parse().unwrap()),
            ..RemoteSpec::default()
        };
        let spec = |options: &RemoteSpec| VolumeSpec {
            options: Some(Arc::new(options.clone())),
            ..VolumeSpec::new("r", ISCSI)
        };
        backends.survey(&spec(&options)).unwrap();
        options.secret_file = Some("/nonexistent/secret".into());
        let missing = backends.survey(&spec(&options)).unwrap_err().to_string();
        assert!(missing.contains("cannot read the secret file"), "{missing}");
        let nowhere = backends.survey(&VolumeSpec::new("r", ISCSI));
        let nowhere = nowhere.unwrap_err().to_string();
        assert!(nowhere.contains("needs url="), "{nowhere}");
    }

    #[test]
    fn options_of_a_remote_volume_mean_nothing_to_others() {
        let options = RemoteSpec {
            queues: Some(2),
            ..RemoteSpec::default()
        };
        let spec = VolumeSpec {
            size: Some(1 << 20),
            options: Some(Arc::new(options)),
            ..VolumeSpec::new("n", BackendName::NULL)
        };
        let refused = Backends::local().survey(&spec).unwrap_err().to_string();
        assert!(refused.contains("queues means nothing"), "{refused}");
    }
}
