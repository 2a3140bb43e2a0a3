//! Changes that go on after their request was answered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Revision;

/// The end of a change: volumes that were removed complete what they had accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Operation {
    pub id: String,
    pub state: OperationState,
    /// The revision of the change.
    pub revision: Revision,
    /// Volumes that are not closed yet.
    pub draining: Vec<String>,
    /// What each of them waits for: accepted commands, the last flush, the close of its storage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits_for: BTreeMap<String, String>,
    /// Which volumes may have lost what was written to them, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// Volumes complete what they had accepted.
    Running,
    /// The time for that is over, and the storage of the volumes that are left does not answer. It ends when the storage
    /// answers.
    Stuck,
    /// All volumes are closed, and the last flush of some of them failed.
    Failed,
    Done,
}
