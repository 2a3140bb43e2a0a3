//! The API over real sockets.

mod access;
mod changes;
mod dashboard;
mod following;
mod support;
mod surface;
