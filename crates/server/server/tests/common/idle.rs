//! A platform on which nothing happens: bytes go from hand to hand, and tests say when a turn begins.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use longshore_reactor::storage::{Delegated, FileOperation, Storage, StorageTag};
use longshore_reactor::{EngineEvent, SocketToken};
use longshore_server::platform::Platform;

/// Volumes in memory need no storage, and nobody sleeps here.
#[derive(Debug)]
pub struct Idle;

impl Storage for Idle {
    fn submit(&mut self, operation: FileOperation) {
        panic!("{operation:?}");
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        panic!("{tag:?}");
    }
}

impl Platform for Idle {
    fn watch(&mut self, _: BorrowedFd<'_>, _: SocketToken) -> io::Result<()> {
        Ok(())
    }

    fn forget(&mut self, _: BorrowedFd<'_>, _: SocketToken) {}

    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<EngineEvent>) -> io::Result<()> {
        Ok(())
    }
}
