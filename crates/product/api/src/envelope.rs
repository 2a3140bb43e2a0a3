//! The form of all answers: a JSON object with a `version`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::VERSION;

/// A list with the version of its form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listing<T> {
    pub version: u32,
    pub items: Vec<T>,
}

impl<T> Listing<T> {
    #[must_use]
    pub const fn new(items: Vec<T>) -> Self {
        Self {
            version: VERSION,
            items,
        }
    }
}

/// A single thing with the version of its form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Versioned<T> {
    pub version: u32,
    #[serde(flatten)]
    pub body: T,
}

impl<T> Versioned<T> {
    #[must_use]
    pub const fn new(body: T) -> Self {
        Self {
            version: VERSION,
            body,
        }
    }
}
