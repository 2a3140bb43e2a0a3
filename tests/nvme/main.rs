//! The server as NVMe/TCP hosts see it, alone and beside iSCSI initiators of the same volumes.

mod access;
mod admin;
mod both_protocols;
mod commands;
mod discovery;
mod events;
mod lifecycle;
mod queues;
mod reservations;

use longshore_nvme::command::NamespaceId;
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::server::{Server, ServerBuilder};

/// Namespace 1 is 64 MiB of memory, namespace 2 a terabyte of nothing in blocks of 4 KiB. LUN 0 and 1
/// are the same.
fn volumes() -> ServerBuilder {
    ServerBuilder::new()
        .volume("memory,backend=mem,size=64M")
        .volume("nothing,backend=null,size=1T,block-size=4096")
}

/// A server for NVMe hosts.
fn serve() -> Server {
    volumes().nvme().start().unwrap()
}

/// A host with one I/O queue.
fn connect(server: &Server) -> Host {
    connect_by(server, &HostOptions::default())
}

fn connect_by(server: &Server, options: &HostOptions) -> Host {
    Host::connect(server.nvme(0), options).unwrap()
}

const ONE: NamespaceId = NamespaceId(1);
const TWO: NamespaceId = NamespaceId(2);

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

/// A little-endian integer of 1 to 8 bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_le_bytes(wide)
}
