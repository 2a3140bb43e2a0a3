//! What a user does with remote volumes: look for them, look at them, copy them.
//!
//! The library side of the verbs `discover`, `info` and `copy` of the `longshore` command: everything
//! but the command line and what the results look like.

#![forbid(unsafe_code)]

pub mod copy;
pub mod discover;
pub mod endpoint;
pub mod info;
mod remote;
mod side;
