//! `/metrics`: what was collected, in OpenMetrics and in the text form 0.0.4 of Prometheus.

mod families;
mod family;
mod text;

pub(crate) use text::Form;
use text::encode;

use crate::audit::LastChange;
use crate::collection::Collected;
use crate::requests::{RequestKind, Times};

/// What the metrics are made of.
pub(crate) struct Sources<'a> {
    pub collected: &'a Collected,
    pub requests: Vec<(RequestKind, Times)>,
    pub streams: usize,
    pub last_change: Option<LastChange>,
}

/// The text of a scrape.
pub(crate) fn render(sources: &Sources<'_>, form: Form) -> String {
    encode(families::families(sources), form)
}

#[cfg(test)]
mod tests;
