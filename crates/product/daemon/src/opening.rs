//! What the log says of volumes that are opened.

use longshore_remote::RemoteSpec;
use longshore_volume::Volume;

use crate::config::VolumeSource;

/// Says that a volume is open.
pub fn log_opened(source: &VolumeSource, volume: &dyn Volume) {
    tracing::info!(
        volume = source.spec.name,
        backend = source.spec.backend.as_str(),
        bytes = volume.geometry().size_bytes(),
        uuid = %volume.identity().uuid,
        // Prints no password.
        url = source
            .spec
            .options::<RemoteSpec>()
            .and_then(|remote| remote.url.as_ref())
            .map(tracing::field::display),
        "volume opened"
    );
}
