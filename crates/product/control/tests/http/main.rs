//! The API over real sockets.

mod access;
mod changes;
mod following;
mod support;
mod surface;
