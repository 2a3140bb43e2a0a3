//! Distribution of memory for payload and for transmit queues.
//!
//! | module | subject |
//! |---|---|
//! | [`transmit`] | parts of the memory for transmit queues |
//! | [`share`] | what one host may hold, over all of its connections |
//! | [`mod@line`] | tasks of a shard that wait for memory |
//! | [`refusals`] | commands that cannot wait and were refused |
//! | [`shard`] | the memory of a shard |
//! | [`holdings`] | the memory of a connection |

pub(crate) mod holdings;
pub(crate) mod line;
pub(crate) mod refusals;
pub(crate) mod shard;
pub(crate) mod share;
pub(crate) mod transmit;
