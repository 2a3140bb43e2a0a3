//! One suite of facts about [`Engine`](longshore_reactor::Engine), proved on both engines.

mod drop;
mod rig;
mod sockets;
mod storage;
mod wakeups;
