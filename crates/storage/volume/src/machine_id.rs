//! What tells this machine from all others.
//!
//! UUIDs of volumes are derived from it, so that two machines never give one identity to two disks.
//! machine-id(5) is the usual source. Images of containers leave it empty or without the file, and
//! images of virtual machines may hold `uninitialized` until their first boot: none of these is an
//! id, because every machine made from such an image would have the same.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use uuid::Uuid;

/// Where hosts keep it, in order of preference.
const PLACES: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];

/// 32 hexadecimal digits, not all of them 0: so it is parsed. Of a host, any other text that is no
/// placeholder is taken as it stands, `uuidgen` with its dashes for example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineId(String);

/// The text is no machine id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMachineId {
    #[error("is empty")]
    Empty,
    /// The word that images hold until their first boot.
    #[error("is uninitialized")]
    Uninitialized,
    /// Anything else that is not 32 hexadecimal digits, or 32 zeros.
    #[error("does not hold a machine id, which is 32 hexadecimal digits and not all of them 0")]
    Malformed,
}

/// Why this host has no machine id.
#[derive(Debug, thiserror::Error)]
pub enum NoMachineId {
    /// There is no file.
    #[error("/etc/machine-id does not exist")]
    Missing,
    /// A file holds something else.
    #[error("/{place} {reason}")]
    Unusable {
        place: &'static str,
        /// What is wrong with it.
        reason: NotMachineId,
    },
    /// A file cannot be read.
    #[error("/{place} cannot be read: {source}")]
    Unreadable {
        place: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

impl MachineId {
    /// That of this host.
    ///
    /// # Errors
    /// It has none.
    pub fn of_host() -> Result<MachineId, NoMachineId> {
        MachineId::below(Path::new("/"))
    }

    /// That of the system whose root directory is `root`.
    fn below(root: &Path) -> Result<MachineId, NoMachineId> {
        let mut problem = None;
        for place in PLACES {
            let reason = match std::fs::read_to_string(root.join(place)) {
                Ok(text) => match MachineId::in_use(&text) {
                    Ok(id) => return Ok(id),
                    Err(reason) => NoMachineId::Unusable { place, reason },
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => NoMachineId::Unreadable { place, source },
            };
            problem.get_or_insert(reason);
        }
        Err(problem.unwrap_or(NoMachineId::Missing))
    }

    /// What a host has in the place of an id. Identities of volumes derive from the very text.
    fn in_use(text: &str) -> Result<MachineId, NotMachineId> {
        let trimmed = text.trim();
        match trimmed.parse() {
            Err(NotMachineId::Malformed)
                if trimmed.bytes().any(|byte| !matches!(byte, b'0' | b'-')) =>
            {
                Ok(MachineId(trimmed.to_owned()))
            }
            parsed => parsed,
        }
    }

    /// A new one, at random.
    #[must_use]
    pub fn random() -> MachineId {
        MachineId(Uuid::new_v4().simple().to_string())
    }

    /// The digits, or the text of the host.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MachineId {
    type Err = NotMachineId;

    fn from_str(text: &str) -> Result<MachineId, NotMachineId> {
        let text = text.trim();
        match text {
            "" => Err(NotMachineId::Empty),
            "uninitialized" => Err(NotMachineId::Uninitialized),
            _ if text.len() == 32
                && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                && text.bytes().any(|byte| byte != b'0') =>
            {
                Ok(MachineId(text.to_owned()))
            }
            _ => Err(NotMachineId::Malformed),
        }
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::harness::Scratch;

    const ID: &str = "3d1219c7c4c5404aaa1f6d2a48adfda4";

    #[test]
    fn what_images_are_shipped_with_is_no_machine_id() {
        assert_eq!(format!("{ID}\n").parse(), Ok(MachineId(ID.to_owned())));
        for (text, reason) in [
            ("", NotMachineId::Empty),
            ("\n", NotMachineId::Empty),
            ("uninitialized\n", NotMachineId::Uninitialized),
            ("localhost", NotMachineId::Malformed),
            ("3d1219c7c4c5404aaa1f6d2a48adfda", NotMachineId::Malformed),
            ("00000000000000000000000000000000", NotMachineId::Malformed),
        ] {
            assert_eq!(text.parse::<MachineId>(), Err(reason), "{text:?}");
        }
    }

    /// Identities of volumes were derived from it before, and stay.
    #[test]
    fn a_host_may_have_any_other_text_that_is_no_placeholder() {
        for text in [
            "3d1219c7-c4c5-404a-aa1f-6d2a48adfda4",
            "3D1219C7C4C5404AAA1F6D2A48ADFDA4",
            "3d1219c7c4c5404aaa1f6d2a48adfda",
            "host 7",
        ] {
            let id = MachineId::in_use(&format!(" {text}\n")).unwrap();
            assert_eq!(id.as_str(), text);
        }
        for (text, reason) in [
            ("", NotMachineId::Empty),
            ("uninitialized\n", NotMachineId::Uninitialized),
            ("00000000000000000000000000000000", NotMachineId::Malformed),
            (
                "00000000-0000-0000-0000-000000000000\n",
                NotMachineId::Malformed,
            ),
        ] {
            assert_eq!(MachineId::in_use(text), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn the_first_place_that_holds_one_counts() {
        let scratch = Scratch::new();
        let root = scratch.path("root");
        let missing = MachineId::below(&root).unwrap_err().to_string();
        assert_eq!(missing, "/etc/machine-id does not exist");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::create_dir_all(root.join("var/lib/dbus")).unwrap();
        std::fs::write(root.join("etc/machine-id"), "uninitialized\n").unwrap();
        let unusable = MachineId::below(&root).unwrap_err().to_string();
        assert_eq!(unusable, "/etc/machine-id is uninitialized");
        std::fs::write(root.join("var/lib/dbus/machine-id"), ID).unwrap();
        assert_eq!(MachineId::below(&root).unwrap().as_str(), ID);
    }

    #[test]
    fn random_ids_are_ids_and_differ() {
        let (one, other) = (MachineId::random(), MachineId::random());
        assert_ne!(one, other);
        assert_eq!(one.as_str().parse(), Ok(one));
    }
}
