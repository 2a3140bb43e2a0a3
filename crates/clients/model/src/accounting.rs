//! Where processor time goes, and what follows from shares of it.

/// Shares of a processor's time, in percent of all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Account<'a> {
    pub idle: f64,
    /// Names and shares. Their sum may be less than 1: the rest is unknown.
    pub parts: Vec<(&'a str, f64)>,
}

impl Account<'_> {
    /// The share of a part in the time that the processor was not idle, in percent.
    #[must_use]
    pub fn of_busy(&self, name: &str) -> f64 {
        let of_name = self.parts.iter().filter(|(part, _)| *part == name);
        100.0 * of_name.map(|(_, share)| share).sum::<f64>() / self.busy()
    }

    /// Time that the processor was not idle, in percent.
    #[must_use]
    pub fn busy(&self) -> f64 {
        100.0 - self.idle
    }

    /// What no part accounts for, in percent of all time.
    #[must_use]
    pub fn unlisted(&self) -> f64 {
        self.busy() - self.parts.iter().map(|(_, share)| share).sum::<f64>()
    }

    /// The share of the busy time that would be saved if a part took `factor` of its time.
    #[must_use]
    pub fn saving(&self, name: &str, factor: f64) -> f64 {
        self.of_busy(name) * (1.0 - factor)
    }
}

/// Little's law: operations under way, from their rate and mean latency.
#[must_use]
pub fn outstanding(iops: f64, latency_us: f64) -> f64 {
    iops * latency_us / 1e6
}

/// The same law: mean latency in microseconds, from operations under way and their rate.
#[must_use]
pub fn latency_us(outstanding: f64, iops: f64) -> f64 {
    outstanding / iops * 1e6
}
