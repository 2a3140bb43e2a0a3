//! What a simulation is asked for, and what comes of it.

use serde::Serialize;

use crate::operation::Element;

/// How much is simulated of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Operations that are measured.
    pub operations: u64,
    pub seed: u64,
}

/// What became of a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulatedLoad {
    pub iops: f64,
    /// Half the width of the interval that holds nineteen twentieths of such runs, by means of ten parts of this one.
    pub iops_spread: f64,
    pub latency_us: f64,
    pub latency_p50_us: f64,
    pub latency_p99_us: f64,
    /// Operations a second of the second load, where there is one.
    pub mix_iops: Option<f64>,
    pub mix_latency_us: Option<f64>,
    /// Responses in a train that leaves the server.
    pub responses_per_train: f64,
    /// Time from a response's writing to its leaving: what the transmit policy and the kernel hold it back.
    pub held_us: f64,
    /// Share of the time in which an element had work.
    pub busy: Vec<Busy>,
    /// Events of the simulation.
    pub events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Busy {
    pub element: Element,
    pub share: f64,
}

impl SimulatedLoad {
    /// The element that had work for most of the time.
    #[must_use]
    pub fn busiest(&self) -> Option<Busy> {
        let busiest = self.busy.iter().max_by(|a, b| a.share.total_cmp(&b.share));
        busiest.copied()
    }
}
