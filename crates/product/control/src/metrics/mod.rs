//! `/metrics`: what was collected, in OpenMetrics and in the text form 0.0.4 of Prometheus.

mod families;
mod family;
mod sources;
mod text;

pub(crate) use sources::Sources;
pub(crate) use text::Form;
use text::encode;

/// The text of a scrape.
pub(crate) fn render(sources: &Sources<'_>, form: Form) -> String {
    encode(families::families(sources), form)
}

#[cfg(test)]
mod tests;
