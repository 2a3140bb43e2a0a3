//! Volume.
