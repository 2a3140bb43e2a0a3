//! Attach.
