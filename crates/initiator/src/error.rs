//! Error.
