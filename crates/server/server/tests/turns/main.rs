//! Shards turn by turn, without sockets: what each connection gets of a turn, and when its answers leave.

mod failure;
mod fairness;
#[path = "../common/idle.rs"]
mod idle;
mod limits;
mod memory;
mod rig;
mod transmit;
