//! A blocking NVMe/TCP host around the product's own machine, and PDUs by hand for rude ones.
//!
//! [`Queue`] is one connection, [`Host`] an admin queue with its I/O queues as the Linux kernel makes
//! them. What the product's codec gets wrong on both sides at once would not show here; [`pdu`]
//! shares no code with it, and the Linux kernel's host in a virtual machine judges the rest.

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::Blocks;

mod host;
pub mod pdu;
mod queue;

pub use self::host::{DiscoveryEntry, Host, HostOptions, Refusal, discover};
pub use self::queue::{Answer, Queue};

/// The subsystem that volumes given on the command line appear in.
pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// The well-known name of every discovery controller (NVMe base 2.0 §3.1.2.3).
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Blocks of 512 bytes of namespace 1.
pub fn blocks(lba: u64, count: u32) -> Blocks {
    Blocks {
        namespace: NamespaceId(1),
        lba: Lba(lba),
        count,
        block_bytes: 512,
    }
}
