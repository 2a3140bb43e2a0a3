//! What can be added, changed and removed: volumes, targets, subsystems, and some settings of the server.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keys whose values are paths, or lists of them.
pub const PATHS: [&str; 6] = [
    "path",
    "secret-file",
    "dhchap-secret-file",
    "dhchap-ctrl-secret-file",
    "tls-key-file",
    "tls-key-files",
];

/// The kinds of objects.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    Volume,
    Target,
    Subsystem,
    /// Settings of the server, by the names in [`SETTINGS`].
    Setting,
}

/// Accounts of discovery sessions: the keys of `[discovery]`.
pub const DISCOVERY: &str = "discovery";

/// When responses are sent: those of `[engine]` that can change while the server runs.
pub const TRANSMIT: &str = "transmit";

/// Keys of `[engine]` that are those of [`TRANSMIT`].
pub const TRANSMIT_KEYS: [&str; 5] = [
    "transmit",
    "nagle-threshold",
    "nagle-margin",
    "nagle-cycles",
    "send",
];

/// Settings that can change as objects do.
pub const SETTINGS: [&str; 2] = [DISCOVERY, TRANSMIT];

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volume",
            Self::Target => "target",
            Self::Subsystem => "subsystem",
            Self::Setting => "setting",
        })
    }
}

/// An object by kind and name.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct ObjectId {
    pub kind: ObjectKind,
    /// Volume name, iSCSI name, NQN, or one of [`SETTINGS`].
    pub name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Who describes an object, and so may change it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    File,
    /// Options of `longshore serve`.
    CommandLine,
    /// The API. Such objects lie in the state directory.
    Api,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::CommandLine => "command line",
            Self::Api => "api",
        })
    }
}

/// The keys of an object, as in the configuration file: `size = "10G"`, `luns = [{ lun = 0, volume = "a" }]`.
///
/// The key that names the object (`name`, `nqn`) is not among them.
pub type Keys = serde_json::Map<String, serde_json::Value>;

/// Objects of one owner, or of all: what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Document {
    pub volumes: BTreeMap<String, Keys>,
    pub targets: BTreeMap<String, Keys>,
    pub subsystems: BTreeMap<String, Keys>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Keys>,
}

impl Document {
    /// The objects of a kind, by name.
    #[must_use]
    pub const fn of_kind(&self, kind: ObjectKind) -> &BTreeMap<String, Keys> {
        match kind {
            ObjectKind::Volume => &self.volumes,
            ObjectKind::Target => &self.targets,
            ObjectKind::Subsystem => &self.subsystems,
            ObjectKind::Setting => &self.settings,
        }
    }

    /// The same, to change.
    pub const fn of_kind_mut(&mut self, kind: ObjectKind) -> &mut BTreeMap<String, Keys> {
        match kind {
            ObjectKind::Volume => &mut self.volumes,
            ObjectKind::Target => &mut self.targets,
            ObjectKind::Subsystem => &mut self.subsystems,
            ObjectKind::Setting => &mut self.settings,
        }
    }
}

/// An object with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Object {
    #[serde(flatten)]
    pub id: ObjectId,
    pub owner: Owner,
    pub state: ObjectState,
    /// Its place in the configuration file, if it is the file's: `longshore.toml:12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Without secrets: these read as `"set"`.
    pub keys: Keys,
    /// What is known of it beyond its keys, such as `size-bytes`, `uuid`, `sessions`.
    #[serde(default)]
    pub facts: Keys,
}

/// What has become of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectState {
    /// The object is served.
    Up,
    /// Known and not served, because somebody said so.
    Disabled,
    /// Removed; operations that it had accepted are ending.
    Draining,
    /// Removed; its storage does not answer.
    Stuck,
    /// It cannot be served, or has lost what was written to it.
    Failed,
}
