//! Where the UUID and the serial number of a volume come from.
//!
//! Initiators recognise a disk by identifiers that we derive from its UUID, so the UUID must be the
//! same after every restart. An explicit one is best. Without it, a name-based UUID (RFC 9562 §5.5,
//! version 5) is made of the machine id, the backend, the canonical path (of a remote volume, its own
//! worldwide name) and the volume's name: it stays as long as these stay, and two machines never
//! agree on one. Without a machine id the UUID is random: two disks never share one then either, but
//! it lasts only while the volume is open. A server that exports volumes decides whether that will
//! do, or brings an id of its own ([`VolumeSpec::machine_id`]). Volumes that move between machines or
//! containers should carry an explicit UUID.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uuid::Uuid;

use crate::description::Identity;
use crate::machine_id::MachineId;
use crate::open::error::OpenError;
use crate::open::{BackendName, VolumeSpec};

/// Namespace of derived volume UUIDs. Changing it changes every disk's identity.
const NAMESPACE: Uuid = Uuid::from_u128(0x5c0d_86b4_0d0e_4f0a_9b1e_6c6f_6e67_7368);

/// Longest unit serial number. Other servers have made theirs of a UUID or longer.
const SERIAL_LENGTH_MAX: usize = 64;

/// Length of serial numbers of our own.
const DERIVED_SERIAL_LENGTH: usize = 20;

/// T10 VENDOR IDENTIFICATION and PRODUCT IDENTIFICATION of INQUIRY.
const VENDOR_LENGTH_MAX: usize = 8;
const PRODUCT_LENGTH_MAX: usize = 16;

/// Identity of a volume; `origin` is what its backing object is known by, if there is one: a canonical path, or
/// the worldwide name of a volume of another server.
///
/// # Errors
/// The serial number, vendor or product cannot be shown to peers.
pub fn identify(spec: &VolumeSpec, origin: Option<&[u8]>) -> Result<Identity, OpenError> {
    let uuid = match spec.uuid {
        Some(uuid) => uuid,
        None => match spec
            .machine_id
            .clone()
            .or_else(|| MachineId::of_host().ok())
        {
            Some(machine) => derive_uuid(machine.as_str(), spec.backend, origin, &spec.name),
            None => Uuid::new_v4(),
        },
    };
    let given = checked(spec)?;
    Ok(Identity {
        name: spec.name.clone(),
        uuid,
        serial: given.serial.unwrap_or_else(|| derive_serial(uuid)),
        vendor: given.vendor,
        product: given.product,
        names: spec.names,
    })
}

/// The texts of a specification that peers see.
pub(crate) struct Texts {
    serial: Option<String>,
    vendor: Option<String>,
    product: Option<String>,
}

/// Checks the texts of a specification that peers see.
///
/// # Errors
/// One of them cannot be shown to peers.
pub(crate) fn checked(spec: &VolumeSpec) -> Result<Texts, OpenError> {
    let text = |option, text: &Option<String>, most| {
        let text = text.as_deref();
        text.map(|text| checked_text(&spec.name, option, text, most))
            .transpose()
    };
    Ok(Texts {
        serial: text("serial", &spec.serial, SERIAL_LENGTH_MAX)?,
        vendor: text("vendor", &spec.vendor, VENDOR_LENGTH_MAX)?,
        product: text("product", &spec.product, PRODUCT_LENGTH_MAX)?,
    })
}

/// Identity of the volume over the object at `path`.
pub(crate) fn identify_at(spec: &VolumeSpec, path: Option<&Path>) -> Result<Identity, OpenError> {
    let canonical = match path {
        Some(path) => Some(
            path.canonicalize()
                .map_err(|source| OpenError::io("resolve", path, source))?,
        ),
        None => None,
    };
    let origin = canonical.as_deref().map(|path| path.as_os_str().as_bytes());
    identify(spec, origin)
}

fn derive_uuid(machine_id: &str, backend: BackendName, origin: Option<&[u8]>, name: &str) -> Uuid {
    let mut unique = Vec::new();
    for part in [
        machine_id.as_bytes(),
        backend.as_str().as_bytes(),
        origin.unwrap_or_default(),
    ] {
        unique.extend_from_slice(part);
        unique.push(0);
    }
    unique.extend_from_slice(name.as_bytes());
    Uuid::new_v5(&NAMESPACE, &unique)
}

/// The first 20 of the UUID's 32 hexadecimal digits. 80 bits: the version digit among them is the
/// only one that all volumes share.
fn derive_serial(uuid: Uuid) -> String {
    let mut serial = uuid.simple().to_string();
    serial.truncate(DERIVED_SERIAL_LENGTH);
    serial
}

/// Trailing spaces go, because the standards pad with them; everything else that cannot be shown to
/// peers as it was written is refused rather than changed.
fn checked_text(
    name: &str,
    option: &'static str,
    text: &str,
    most: usize,
) -> Result<String, OpenError> {
    let trimmed = text.trim_end_matches(' ');
    let printable = trimmed.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if trimmed.is_empty() || trimmed.len() > most || !printable {
        return Err(OpenError::Text {
            name: name.to_owned(),
            option,
            text: text.to_owned(),
            most,
        });
    }
    Ok(trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_uuid_depends_on_machine_backend_path_and_name() {
        let file = |machine, path: &str, name| {
            derive_uuid(machine, BackendName::FILE, Some(path.as_bytes()), name)
        };
        let one = file("m", "/a", "n");
        assert_eq!(one, file("m", "/a", "n"));
        assert_eq!(one.get_version_num(), 5);
        assert_ne!(one, file("other", "/a", "n"));
        assert_ne!(one, file("m", "/b", "n"));
        assert_ne!(one, file("m", "/a", "o"));
        assert_ne!(one, derive_uuid("m", BackendName::BLOCK, Some(b"/a"), "n"));
    }

    #[test]
    fn a_machine_id_that_is_given_comes_before_that_of_the_host() {
        let on = |machine: &str| {
            let mut spec = VolumeSpec::new("n", BackendName::MEM);
            spec.machine_id = Some(machine.parse().expect("an id"));
            identify(&spec, None).expect("fine").uuid
        };
        let (one, other) = (
            "3d1219c7c4c5404aaa1f6d2a48adfda4",
            "4d1219c7c4c5404aaa1f6d2a48adfda4",
        );
        assert_eq!(on(one), on(one));
        assert_ne!(on(one), on(other));
        assert_eq!(on(one), derive_uuid(one, BackendName::MEM, None, "n"));
    }

    /// Peers find their disks again after an upgrade only if this never changes.
    #[test]
    fn derived_identity_is_the_same_in_every_release() {
        let uuid = derive_uuid("m", BackendName::FILE, Some(b"/a"), "n");
        assert_eq!(uuid.to_string(), "6df3e495-442e-57a3-9030-713a2d7dca3a");
        assert_eq!(derive_serial(uuid), "6df3e495442e57a39030");
    }

    #[test]
    fn texts_that_peers_could_not_see_as_written_are_refused() {
        let serial = |text: &str| checked_text("n", "serial", text, SERIAL_LENGTH_MAX);
        assert_eq!(serial("ABC 1  ").expect("fine"), "ABC 1");
        assert_eq!(serial(&"1".repeat(64)).expect("fine").len(), 64);
        for bad in ["", "   ", &"1".repeat(65), "caf\u{e9}", "a\tb"] {
            assert!(serial(bad).is_err(), "{bad:?}");
        }
        let mut spec = VolumeSpec::new("n", BackendName::MEM);
        spec.vendor = Some("EIGHTLET".into());
        spec.product = Some("SIXTEEN CHARS 16".into());
        assert!(identify(&spec, None).is_ok());
        spec.vendor = Some("NINE CHAR".into());
        let refused = identify(&spec, None).unwrap_err().to_string();
        assert_eq!(
            refused,
            "volume n: vendor \"NINE CHAR\" must be 1 to 8 printable ASCII characters"
        );
    }
}
