//! Runs the client verbs of the `longshore` command against servers of its own.

#![forbid(unsafe_code)]

mod copying;
mod explaining;
mod full;
mod importing;
mod interrupted;
mod keys;
mod looking;
mod outputs;
mod predicting;
mod probing;
mod support;
mod terminal;
