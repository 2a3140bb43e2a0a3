//! Remote volumes as ends of a copy.

use std::sync::Arc;

use longshore_initiator::error::Error;
use longshore_initiator::info::VolumeInfo;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_volume::Volume;

use crate::endpoint::EndpointError;

/// Attaches a volume. Blocks.
pub(crate) fn open(
    url: &Url,
    _options: &Options,
) -> Result<(Arc<dyn Volume>, Arc<VolumeInfo>), EndpointError> {
    Err(EndpointError::Remote {
        url: Box::new(url.clone()),
        source: Box::new(Error::Options(
            "remote volumes cannot be copied in this version".to_owned(),
        )),
    })
}
