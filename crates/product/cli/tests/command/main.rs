//! Runs the `longshore` command and looks at what it says and how it ends.

#![forbid(unsafe_code)]

mod completing;
mod control;
mod identity;
mod installing;
mod lifecycle;
mod refusals;
mod requests;
mod steps;
mod support;
mod top;
