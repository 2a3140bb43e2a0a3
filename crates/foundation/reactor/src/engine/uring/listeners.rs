//! Listeners are watched by an epoll instance, which in turn is watched by the ring.
//!
//! A poll in the ring holds its socket open, and when a process is killed the kernel takes down the
//! ring some tens of milliseconds after the process is gone. A listener would keep its address in
//! use for that long, and a restarted server could not bind. An epoll instance holds nothing open.
//! Connections come so rarely that the way around costs nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::engine::{EngineEvent, Readiness, SocketToken};

/// Listeners reported at once; others follow at once.
const READY_MAX: usize = 16;

pub(super) struct Listeners {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Listeners {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            ready: Vec::with_capacity(READY_MAX),
        })
    }

    /// What the ring polls: readable when a listener has news.
    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn insert(&self, socket: BorrowedFd<'_>, token: SocketToken) -> io::Result<()> {
        let data = EventData::new_u64(token.0);
        Ok(epoll::add(
            &self.epoll,
            socket,
            data,
            EventFlags::IN | EventFlags::ET,
        )?)
    }

    /// Does nothing for a socket that is not watched.
    pub(super) fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Appends what the listeners have to report; returns how many did, and the system calls made.
    pub(super) fn take_events(&mut self, events: &mut Vec<EngineEvent>) -> (u64, u64) {
        let (mut reported, mut calls) = (0, 0);
        loop {
            self.ready.clear();
            calls += 1;
            let spare = rustix::buffer::spare_capacity(&mut self.ready);
            let found =
                match epoll::wait(&self.epoll, spare, Some(&rustix::time::Timespec::default())) {
                    Ok(found) => found,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => 0, // Impossible with a descriptor and a buffer of ours.
                };
            for event in self.ready.drain(..) {
                let flags = event.flags; // Out of a packed structure.
                let readiness = Readiness::from_poll_bits(flags.bits());
                events.push(EngineEvent::Socket {
                    token: SocketToken(event.data.u64()),
                    readiness,
                });
                reported += 1;
            }
            if found < READY_MAX {
                return (reported, calls);
            }
        }
    }
}

/// Whether a socket is a listener (SO_ACCEPTCONN).
pub(super) fn is_listener(socket: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false)
}
