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
mod outcome;
mod stream;
mod time;
mod wire;
mod world;

use std::time::Instant;

use crate::parameter::Parts;
pub use outcome::{Busy, Length, SimulatedLoad};
use world::World;

/// Simulates one size at one depth.
#[must_use]
pub fn simulate(parts: &Parts, size: u64, depth: u16, length: Length) -> SimulatedLoad {
    // The policies measure differences of instants; which one is the first changes nothing.
    World::new(parts, size, depth, length, Instant::now()).run()
}

#[cfg(test)]
mod tests;
