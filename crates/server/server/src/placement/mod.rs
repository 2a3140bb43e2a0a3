//! Placement of connections: the shard of a new one, moves to other shards, and settings of the kernel.
//!
//! | module | subject |
//! |---|---|
//! | [`arrivals`] | the shard for a new connection |
//! | [`load`] | how busy shards are |
//! | [`balance`] | when the load is uneven, and what is moved then |
//! | [`spread`] | when nothing can be moved: whether large reads and writes go to other cores |
//! | [`arrived`] | connections of a shard that came from others |
//! | [`migration`] | what a connection knows of all that |
//! | [`interrupts`] | the core that takes the network's interrupts |
//! | [`nearness`] | cores that share caches with it |
//! | [`options`] | socket options |
//!
//! # How a connection moves, and why nothing is lost or reordered
//!
//! ```text
//!  shard A                                                       shard B
//!  begins to leave ─► takes no input, lets no waiting task begin
//!        │             (storage and other shards finish what they do for it, or it stays)
//!        ▼
//!  at rest, and no mail unread ─► leaves its slot ──Message::Moved──► gets a slot ─► receives, sends
//! ```
//!
//! **Its bytes.** The connection is one value that one shard owns at a time. Both directions of the
//! stream, whatever is received in part, the transmit queue and payload that it refers to, also such that
//! the kernel still sends from, are in that value and move with it. A shard sends and receives for a
//! connection only while it has it. The engine of the new shard reports readiness as it is when the
//! socket is registered, and the shard tries both directions once, so no edge is missed in between.
//!
//! **Its tasks.** Those that wait for something of the connection itself (write data, room to answer,
//! older tasks, the other half, memory) move along and get new addresses; no other code knew the old ones. Tasks with
//! outstanding work elsewhere (storage, the write gate, stored reservations, aborts) keep it from moving, and so do
//! requests of tasks that ended early (orphans): what waits for these looks for them on the connection's shard.
//!
//! **Its mail.** [`addresses`](crate::mail::addresses) has a lock that puts moves, broadcasts, and mail from other connections to
//! this one into one order, and each mailbox keeps to the order in which messages were sent. The old shard takes that lock,
//! finds its own mailbox empty, notes where the connection goes, and sends it there. So
//! - what was sent to the connection before was read before, on the old shard;
//! - what is sent later goes to the new shard and is read after the connection has come there;
//! - a broadcast (an abort order, a reset, a transmit policy, the end of the server) reaches every
//!   connection exactly once: if it came before the move, then the old shard has read it with the connection, and the new
//!   one reads it before it gets the connection; if it came after, then the old shard reads it without.
//!
//! Orders never wait for a connection in the mail: it has no task with outstanding work elsewhere. A connection whose
//! own order is open (task management, PREEMPT AND ABORT) does not move until it is answered.
//!
//! **The end of the server.** A shard that drains sends no connections away. One that was sent before the
//! order to drain arrives before that order, too: nothing is in the mail to a shard that has ended. (If a shard
//! fails, connections in its mail end with it, and one that is sent later comes back to the sender, who closes it.)
//!
//! **Time.** All shards count milliseconds from the same start, so deadlines keep their meaning.
//!
//! Sessions, controllers and other connections know a connection by its *name*, the address it had
//! first; what concerns its shard alone goes by its address there. iSCSI sessions with a target and NVMe I/O queues
//! move. Logins, discovery and admin queues have little to do and stay where they are.

pub(crate) mod arrivals;
pub(crate) mod arrived;
pub(crate) mod balance;
pub(crate) mod interrupts;
pub(crate) mod load;
pub(crate) mod migration;
pub(crate) mod nearness;
pub(crate) mod options;
pub(crate) mod spread;
