//! The closed loop of a set-up, simulated event by event.
//!
//! ```text
//!  client thread ─► client socket ─► request wire ─► server kernel ─► server thread ─► server socket ─┐
//!   CL, CP, CK       Nagle (CN)        CT, W1          SR, SI           SL, SP, SK    policy (SN)       │
//!        ▲                                                                │  ▲                        │
//!        │                                                                ▼  │                        │
//!  client kernel ◄──────────────────────────────── response wire ◄────── storage                      │
//!     CR, CI                                          ST, W2  ◄─────────────────────────────────────┘
//! ```
//!
//! - A latency (CT, SR, SL, ST, CR, CL) is paid when the element was idle and had to be woken, a processing time for each
//!   operation, packet or train.
//! - What a server sends together, and what its kernel holds back, is decided by the code of the server
//!   ([`longshore_transmit`]): this module tells it of requests, sends, turns and idleness, as a shard does.
//! - Acknowledgements travel with data of the other direction, at once behind two full segments, else after `delayed-ack`.
//! - A connection belongs to one thread of each end. The wires serve connections in turn. Trains hold up to 64 KiB.
//!
//! Not simulated: loss, congestion control, the processor's caches, other load, polling. The same seed gives the same
//! run.

mod events;
mod stream;
mod wire;
mod world;

use std::time::Instant;

use serde::Serialize;

use crate::operation::Element;
use crate::parameter::Parts;
use world::World;

/// How much is simulated of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Operations that are measured.
    pub operations: u64,
    pub seed: u64,
}

/// What became of a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
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

impl Outcome {
    /// The element that had work for most of the time.
    #[must_use]
    pub fn busiest(&self) -> Option<Busy> {
        let busiest = self.busy.iter().max_by(|a, b| a.share.total_cmp(&b.share));
        busiest.copied()
    }
}

/// Simulates one size at one depth.
#[must_use]
pub fn simulate(parts: &Parts, size: u64, depth: u16, length: Length) -> Outcome {
    // The policies measure differences of instants; which one is the first changes nothing.
    World::new(parts, size, depth, length, Instant::now()).run()
}

#[cfg(test)]
mod tests;
