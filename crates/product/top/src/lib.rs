//! What a server does, in a terminal.
//!
//! A [`sample::Sample`] is what the server has counted at one moment; [`rates::Rates`] are the differences of two, by the
//! clock of the server.

#![forbid(unsafe_code)]

pub mod rates;
pub mod sample;
