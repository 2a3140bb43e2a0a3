//! Targets whose input says what is done rather than what is sent: every byte of it makes requests
//! that are nearly right, and drivers and media that answer anything.

mod connection;
mod device;
mod initiator;

pub(crate) use connection::{drain, login_conversations, pdu_sequences};
pub(crate) use device::{device_sequences, persistent_reserve_out};
pub(crate) use initiator::initiator_sequences;
