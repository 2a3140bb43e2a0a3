//! Remote volumes as ends of a copy.

use std::sync::Arc;

use longshore_initiator::info::VolumeInfo;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_initiator::volume::RemoteVolume;
use longshore_volume::backend::remote::RemoteBackend;
use longshore_volume::{BackendKind, Volume, VolumeSpec};

use crate::endpoint::EndpointError;

/// A volume that is attached.
pub(crate) struct Remote {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) info: Arc<VolumeInfo>,
    /// Counts the connections that were lost.
    pub(crate) losses: Box<dyn Fn() -> u64>,
}

/// Attaches a volume. Blocks.
pub(crate) fn open(url: &Url, options: &Options) -> Result<Remote, EndpointError> {
    let remote = RemoteVolume::open(url, options).map_err(|source| EndpointError::Remote {
        url: Box::new(url.clone()),
        source: Box::new(source),
    })?;
    let info = remote.info();
    let spec = VolumeSpec::new(url.to_string(), BackendKind::of_url(url));
    let backend = RemoteBackend::over(&spec, url, remote)
        .map_err(|error| EndpointError::Open(Box::new(error)))?;
    let backend = Arc::new(backend);
    let volume = backend.clone();
    Ok(Remote {
        volume,
        info,
        losses: Box::new(move || backend.remote().state().counters.losses),
    })
}
