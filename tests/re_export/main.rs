//! Volumes of one server, offered again by another: a client talks to server A, whose volume is one of server B.
//!
//! What was written through A is on B; a B that goes and comes back is a pause for the clients of A; one that does
//! not come back is an error after the time given up after, and holds up nothing else.

mod chain;
mod data;
mod end;
mod idle;
mod restart;
mod rig;
mod tgt;
