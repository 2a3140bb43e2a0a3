//! Metrics of one name.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A value, by the type of its family.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Counter(u64),
    Seconds(f64),
    Gauge(f64),
    Histogram {
        sum: f64,
        count: u64,
        /// Upper bounds, and what lies between each and the one before.
        buckets: Vec<(f64, u64)>,
    },
}

/// See the module documentation. `name` is without the `_total` of counters.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub samples: Vec<(Labels, Value)>,
}

impl Family {
    pub(super) fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            samples: Vec::new(),
        }
    }

    pub(super) fn with(mut self, labels: Labels, value: Value) -> Self {
        self.samples.push((labels, value));
        self
    }

    pub(super) fn each<T>(
        mut self,
        items: impl IntoIterator<Item = T>,
        sample: impl Fn(T) -> (Labels, Value),
    ) -> Self {
        self.samples.extend(items.into_iter().map(sample));
        self
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some((_, first)) = self.samples.first() else {
            return Ok(());
        };
        let kind = match first {
            Value::Counter(_) | Value::Seconds(_) => MetricType::Counter,
            Value::Gauge(_) => MetricType::Gauge,
            Value::Histogram { .. } => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in &self.samples {
            if labels.is_empty() {
                value.encode(&mut metric)?;
            } else {
                value.encode(&mut metric.encode_family(&labels.as_slice())?)?;
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(value) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
            Self::Seconds(value) => metric.encode_counter::<NoLabelSet, _, f64>(value, None),
            Self::Gauge(value) => metric.encode_gauge(value),
            Self::Histogram {
                sum,
                count,
                buckets,
            } => metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None),
        }
    }
}
