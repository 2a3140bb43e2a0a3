//! What moves the bytes of a connection, whatever it speaks: its socket, its transmit queue, and when that is sent.

pub(crate) mod channel;
pub(crate) mod stall;
