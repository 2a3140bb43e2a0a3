//! Transport of the bytes of a connection, for both protocols.
//!
//! | module | subject |
//! |---|---|
//! | [`channel`] | all of it: receiving, sending |
//! | [`socket`] | the socket |
//! | [`payload`] | what the transmit queue refers to |
//! | [`pacing`] | when responses leave |
//! | [`closing`] | how a connection ends |
//! | [`stall`] | peers that do not move |
//! | [`trickle`] | peers that move too little while memory is short |

pub(crate) mod channel;
mod closing;
pub(crate) mod pacing;
pub(crate) mod payload;
pub(crate) mod socket;
pub(crate) mod stall;
pub(crate) mod trickle;
