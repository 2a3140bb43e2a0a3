//! The identity of the host: Host NQN and Host Identifier.
//!
//! Both have to stay the same from run to run, since access and reservations hang on them, and two names
//! must not share an identifier: controllers take hosts with one Host Identifier for one host, and Linux refuses to
//! connect two of them. So in this order:
//!
//! 1. what the options say; an identifier alone makes the name, a name alone makes the identifier;
//! 2. `/etc/nvme/hostnqn` and `/etc/nvme/hostid`, which nvme-cli writes;
//! 3. an identifier derived from the machine's and the user, and the name of it.

use std::fs;
use std::path::Path;

use longshore_nvme::nqn::Nqn;
use uuid::Uuid;

/// Names of hosts that have nothing but a UUID (NVMe base 2.0 §4.5).
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// What derived identifiers are made in: they differ from what others derive of the same machine.
const DERIVED: Uuid = Uuid::from_u128(0x8d1c_42a6_70b9_4f3e_9b1d_5a27_e6f0_13c8);

/// A host's name and identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// HOSTNQN: access rules of servers go by it.
    pub nqn: Nqn,
    /// HOSTID: reservations belong to it, whatever the NQN.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// The identity to use, by what the options give of it. See the module documentation.
    #[must_use]
    pub fn choose(nqn: Option<&Nqn>, id: Option<[u8; 16]>) -> Self {
        Self::choose_from(nqn, id, Path::new("/"))
    }

    fn choose_from(nqn: Option<&Nqn>, id: Option<[u8; 16]>, root: &Path) -> Self {
        match (nqn, id) {
            (Some(nqn), Some(id)) => Self {
                nqn: nqn.clone(),
                id,
            },
            (Some(nqn), None) => match Self::of_system(root) {
                Some(system) if system.nqn == *nqn => system,
                _ => Self::of_name(nqn.clone()),
            },
            (None, Some(id)) => Self::of_uuid(Uuid::from_bytes(id)),
            (None, None) => Self::of_system(root).unwrap_or_else(|| Self::of_machine(root)),
        }
    }

    /// As nvme-cli has written it down. A file that is missing or makes no sense counts as none.
    fn of_system(root: &Path) -> Option<Self> {
        let nqn = Nqn::new(&first_line(&root.join("etc/nvme/hostnqn"))?).ok()?;
        let id = first_line(&root.join("etc/nvme/hostid"))
            .and_then(|text| Uuid::parse_str(&text).ok())
            .filter(|id| !id.is_nil());
        Some(match id {
            Some(id) => Self {
                nqn,
                id: id.into_bytes(),
            },
            None => Self::of_name(nqn),
        })
    }

    /// Any name has an identifier of its own: the UUID in it, or one made of its text.
    fn of_name(nqn: Nqn) -> Self {
        let written = nqn.as_str().strip_prefix(UUID_PREFIX);
        let id = written.and_then(|text| Uuid::try_parse(text).ok());
        let id = id.unwrap_or_else(|| Uuid::new_v5(&DERIVED, nqn.as_str().as_bytes()));
        Self {
            nqn,
            id: id.into_bytes(),
        }
    }

    fn of_uuid(id: Uuid) -> Self {
        let nqn = Nqn::new(&format!("{UUID_PREFIX}{id}")).expect("the form is the standard's");
        Self {
            nqn,
            id: id.into_bytes(),
        }
    }

    /// Of this machine and user. The machine's identifier itself is not to be shown to others
    /// (machine-id(5)), so it goes through a hash.
    fn of_machine(root: &Path) -> Self {
        let files = [
            "etc/machine-id",
            "var/lib/dbus/machine-id",
            "proc/sys/kernel/hostname",
        ];
        let machine = files.iter().find_map(|file| first_line(&root.join(file)));
        let user = rustix::process::geteuid().as_raw();
        let seed = format!("host {} {user}", machine.unwrap_or_default());
        Self::of_uuid(Uuid::new_v5(&DERIVED, seed.as_bytes()))
    }
}

/// The first line of a file, if it says anything.
fn first_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty() && line != "uninitialized").then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn nqn(text: &str) -> Nqn {
        Nqn::new(text).unwrap()
    }

    const ID: &str = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

    #[test]
    fn options_come_before_all() {
        let root = root(&[("etc/nvme/hostnqn", "nqn.2026-11.local:system\n")]);
        let name = nqn("nqn.2026-11.local:given");
        let both = HostIdentity::choose_from(Some(&name), Some([7; 16]), root.path());
        assert_eq!((&both.nqn, both.id), (&name, [7; 16]));
        let id = HostIdentity::choose_from(None, Some([7; 16]), root.path());
        assert!(
            id.nqn
                .as_str()
                .ends_with(":07070707-0707-0707-0707-070707070707")
        );
        assert_eq!(id.id, [7; 16]);
    }

    #[test]
    fn names_do_not_share_an_identifier() {
        let root = root(&[
            ("etc/nvme/hostnqn", "nqn.2026-11.local:system\n"),
            ("etc/nvme/hostid", ID),
        ]);
        let of = |text| HostIdentity::choose_from(Some(&nqn(text)), None, root.path()).id;
        assert_eq!(
            of("nqn.2026-11.local:system"),
            *Uuid::parse_str(ID).unwrap().as_bytes()
        );
        assert_ne!(
            of("nqn.2026-11.local:system"),
            of("nqn.2026-11.local:other")
        );
        assert_ne!(of("nqn.2026-11.local:other"), of("nqn.2026-11.local:third"));
        assert_eq!(of("nqn.2026-11.local:other"), of("nqn.2026-11.local:other"));
        let uuid = format!("{UUID_PREFIX}{ID}");
        assert_eq!(of(&uuid), *Uuid::parse_str(ID).unwrap().as_bytes());
    }

    #[test]
    fn the_files_of_the_system_are_used_when_they_make_sense() {
        let system = root(&[
            ("etc/nvme/hostnqn", "nqn.2026-11.local:system\n"),
            ("etc/nvme/hostid", ID),
        ]);
        let found = HostIdentity::choose_from(None, None, system.path());
        assert_eq!(found.nqn.as_str(), "nqn.2026-11.local:system");
        assert_eq!(found.id, *Uuid::parse_str(ID).unwrap().as_bytes());
        let broken = root(&[
            ("etc/nvme/hostnqn", "no name\n"),
            ("etc/nvme/hostid", "zzz"),
            ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ]);
        let found = HostIdentity::choose_from(None, None, broken.path());
        assert!(found.nqn.as_str().starts_with(UUID_PREFIX));
    }

    #[test]
    fn a_derived_identity_stays_and_hides_the_machine() {
        let machine = "0123456789abcdef0123456789abcdef";
        let here = root(&[("etc/machine-id", machine)]);
        let there = root(&[("etc/machine-id", "fedcba9876543210fedcba9876543210")]);
        let of = |root: &tempfile::TempDir| HostIdentity::choose_from(None, None, root.path());
        assert_eq!(of(&here), of(&here));
        assert_ne!(of(&here), of(&there));
        assert!(!of(&here).nqn.as_str().replace('-', "").contains(machine));
        let empty = root(&[("etc/machine-id", "uninitialized\n")]);
        assert!(of(&empty).nqn.as_str().starts_with(UUID_PREFIX));
    }
}
