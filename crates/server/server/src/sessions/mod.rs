//! Sessions and hosts over all shards, and the pause between one and its successor.

pub(crate) mod activity;
pub(crate) mod attempts;
pub(crate) mod hosts;
pub(crate) mod iscsi;
