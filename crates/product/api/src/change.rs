//! Changes: what is asked for, what would be done, what was done.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::{Document, Keys, ObjectId, ObjectKind, Owner};

/// Number of a state of the configuration. Each change that is carried out makes the next one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

/// What somebody wants changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// The objects of the API are these, and no others.
    Replace(Document),
    /// The file is read again (SIGHUP, `longshore apply` of the server's own file).
    ReadFile,
    /// One object has these keys. It comes if it is not there.
    Put { id: ObjectId, keys: Keys },
    /// One object is changed by a JSON merge patch (RFC 7396).
    Patch { id: ObjectId, patch: Keys },
    /// One object goes. Data are never deleted.
    Remove { id: ObjectId },
    /// One object is known, and is not served or is served again.
    Enable { id: ObjectId, enabled: bool },
    /// As it was at that revision.
    Rollback(Revision),
}

/// How a change is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
pub struct ChangeOptions {
    /// Refuse if the revision is another one by now (`If-Match`).
    pub revision: Option<Revision>,
    /// Remove also what sessions use: let accepted operations end first.
    pub drain: bool,
    /// The same, without waiting for anything but what the kernel holds.
    pub force: bool,
    /// Put another volume under a number that hosts know: they may not notice.
    pub replace: bool,
    /// Refuse to change an object that is there and has other keys (`If-None-Match: *`).
    pub create: bool,
}

/// Who asks for a change, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Caller {
    /// A user of this machine (`uid 1000`), a token by name (`token ci`), a signal (`SIGHUP`).
    pub name: String,
    /// The socket's path or the peer's address.
    pub from: String,
}

/// What a change would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// What it was compared with.
    pub revision: Option<Revision>,
    /// In the order in which they are carried out. Empty: nothing to do.
    pub steps: Vec<Step>,
    /// Listeners that come and go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStep>,
    /// Settings of the file outside of objects that take effect at once: `discovery.accounts.a.secret`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<KeyChange>,
    /// Settings that take effect at the next start only, by key: `engine.cores`.
    pub needs_restart: Vec<String>,
    /// What is worth knowing before it is done.
    pub warnings: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Step {
    pub action: Action,
    #[serde(flatten)]
    pub id: ObjectId,
    pub owner: Owner,
    /// Keys that change. Secrets show as `"set"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<KeyChange>,
    /// What hosts notice, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// A listener that comes (`add`) or goes (`remove`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ListenerStep {
    pub action: Action,
    /// `iscsi`, `nvme` or `nvme-discovery`.
    pub service: String,
    /// As configured: port 0 stands for a free one.
    pub address: String,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Add,
    Change,
    /// The object's data stay; only its owner changes.
    Adopt,
    Remove,
}

/// A key that changes. Absent: it is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyChange {
    /// Dotted path within the object: `luns.1.read-only`.
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The result of a change that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Applied {
    /// The revision from now on.
    pub revision: Revision,
    pub plan: Plan,
    /// Volumes that were removed and are still ending what they had accepted.
    #[serde(default)]
    pub draining: Vec<String>,
}

/// A revision that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RevisionInfo {
    pub revision: Revision,
    /// Time of the commit, in milliseconds since 1970.
    pub time_ms: u64,
    pub caller: Caller,
    /// One line for each step: `add volume a`.
    pub steps: Vec<String>,
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.listeners.is_empty() && self.settings.is_empty()
    }

    /// One line for each step: `add volume a`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let steps = self.steps.iter().map(ToString::to_string);
        let settings = self.settings.iter().map(|it| format!("set {}", it.key));
        let listeners = self.listeners.iter().map(ToString::to_string);
        steps.chain(listeners).chain(settings).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.id)?;
        if matches!(self.action, Action::Change) {
            let keys: Vec<&str> = self.changes.iter().map(|it| &*it.key).collect();
            write!(f, ": {}", keys.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for ListenerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            action,
            service,
            address,
        } = self;
        write!(f, "{action} listener {address} ({service})")
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Change => "change",
            Self::Adopt => "adopt",
            Self::Remove => "remove",
        })
    }
}

impl ObjectKind {
    /// In the order in which objects are added; they are removed in the opposite one.
    pub const ALL: [Self; 4] = [Self::Volume, Self::Target, Self::Subsystem, Self::Setting];

    /// Those that clients find, and what is behind them.
    pub const SERVED: [Self; 3] = [Self::Volume, Self::Target, Self::Subsystem];
}
