//! Messages between shards, connections and tasks.
//!
//! | module | subject |
//! |---|---|
//! | [`abort`] | orders to abort tasks, and the end of the last of them |
//! | [`message`] | the messages |
//! | [`mailbox`] | delivery that loses nothing |
//! | [`grace`] | waiting for all shards |
//! | [`removal`] | units that are removed |
//! | [`addresses`] | mail for connections that have moved |

pub(crate) mod abort;
pub(crate) mod addresses;
pub(crate) mod grace;
pub(crate) mod mailbox;
pub(crate) mod message;
pub(crate) mod removal;
pub(crate) mod waiters;
