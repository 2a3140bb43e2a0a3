//! Remote volumes as ends of a copy.

use std::sync::Arc;

use longshore_initiator::info::VolumeInfo;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_initiator::volume::{Outage, RemoteVolume};
use longshore_remote::{RemoteBackend, backend_of_url};
use longshore_volume::{Volume, VolumeSpec};

use crate::endpoint::error::EndpointError;
use crate::side::Link;

/// A volume that is attached.
pub(crate) struct Remote {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) info: Arc<VolumeInfo>,
    pub(crate) link: Box<dyn Link>,
}

/// The connections of a volume.
struct Connections(Arc<RemoteBackend>);

impl Link for Connections {
    fn losses(&self) -> u64 {
        self.0.remote().state().counters.losses
    }

    fn outage(&self) -> Option<Outage> {
        self.0.remote().state().outage
    }
}

/// Attaches a volume. Blocks.
pub(crate) fn open(url: &Url, options: &Options) -> Result<Remote, EndpointError> {
    let remote = RemoteVolume::open(url, options).map_err(|source| EndpointError::Remote {
        url: Box::new(url.clone()),
        source: Box::new(source),
    })?;
    let info = remote.info();
    let spec = VolumeSpec::new(url.to_string(), backend_of_url(url));
    let backend = RemoteBackend::over(&spec, url, remote)
        .map_err(|error| EndpointError::Open(Box::new(error)))?;
    let backend = Arc::new(backend);
    Ok(Remote {
        volume: backend.clone(),
        info,
        link: Box::new(Connections(backend)),
    })
}
