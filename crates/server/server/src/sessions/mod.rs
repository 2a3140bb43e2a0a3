//! Sessions and hosts over all shards, and the quiet between one that is gone and its successor.

pub(crate) mod activity;
pub(crate) mod hosts;
pub(crate) mod iscsi;
