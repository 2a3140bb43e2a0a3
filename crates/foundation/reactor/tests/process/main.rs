//! Facts that need processes of their own: limits, users, sudden death.
//!
//! Apart from the other tests, because a process that is being started holds the sockets of its
//! parent for a moment, and other tests count on closing theirs.

#[allow(dead_code, unused_imports, unused_macros)] // These tests need a part of it.
#[path = "../engine/direct.rs"]
mod direct;
mod killed;
#[allow(dead_code, unused_imports, unused_macros)] // These tests need a part of it.
#[path = "../engine/rig.rs"]
mod rig;
mod unprivileged;
