//! Remote volumes as ends of a copy.

use std::sync::Arc;

use longshore_initiator::error::Error;
use longshore_initiator::info::VolumeInfo;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_volume::Volume;

use crate::endpoint::EndpointError;

/// A volume that is attached.
pub(crate) struct Remote {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) info: Arc<VolumeInfo>,
    /// Counts the connections that were lost.
    pub(crate) losses: Box<dyn Fn() -> u64>,
}

/// Attaches a volume. Blocks.
pub(crate) fn open(url: &Url, _options: &Options) -> Result<Remote, EndpointError> {
    Err(EndpointError::Remote {
        url: Box::new(url.clone()),
        source: Box::new(Error::Options(
            "remote volumes cannot be copied in this version".to_owned(),
        )),
    })
}
