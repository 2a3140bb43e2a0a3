//! Changes that go on after their request was answered.

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
    /// Volumes that still drain.
    pub draining: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    Running,
    Done,
}
