//! The initiator's end of a connection.
