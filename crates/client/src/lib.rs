//! What a user does with remote volumes.

#![forbid(unsafe_code)]
