//! Commands against a logical unit whose medium is a map of blocks in memory.
#![allow(clippy::cast_possible_truncation)]

mod driver;
mod identification;
mod media;
mod mode_pages;
mod model;
mod provisioning;
mod random;
mod sanitize;
mod supported_commands;
mod target_port_groups;
