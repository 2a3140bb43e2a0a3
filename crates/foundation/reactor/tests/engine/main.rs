//! One suite of facts about [`Engine`](longshore_reactor::Engine), proved on both engines.

mod cached_writes;
mod delegated;
mod direct;
mod drop;
mod handed_over;
mod registered;
mod rig;
mod sockets;
mod storage;
mod wakeups;
