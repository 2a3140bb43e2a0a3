//! Names of the backends for remote volumes.

use longshore_initiator::url::Url;
use longshore_volume::BackendName;

/// A logical unit of an iSCSI target elsewhere.
pub const ISCSI: BackendName = BackendName::new("iscsi");
/// A namespace of an NVMe/TCP subsystem elsewhere.
pub const NVME_TCP: BackendName = BackendName::new("nvme-tcp");

/// The backend for volumes with such URLs.
#[must_use]
pub fn backend_of_url(url: &Url) -> BackendName {
    match url {
        Url::Iscsi(_) => ISCSI,
        Url::NvmeTcp(_) => NVME_TCP,
    }
}
