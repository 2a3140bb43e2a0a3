//! New connections: accepted, not yet logged in, or too many.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_reactor::SocketToken;

use super::state::{Phase, Shard, Timer};
use crate::address::ConnectionAddress;
use crate::connection::driven::Driven;
use crate::counters::clients::Limit;
use crate::listeners::Accepted;
use crate::mail::message::Message;
use crate::platform::Link;
use crate::transport::channel::Channel;
use crate::{iscsi, nvme};

/// How long listeners pause when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long they pause when others are waiting for their turn: until the next one.
const ACCEPT_SOON: Duration = Duration::from_micros(1);

/// The list of pending logins is tidied when it is this many times as long as they may be many.
const PENDING_NOTES_PER_LOGIN: usize = 4;

impl Shard {
    pub(super) fn accept(&mut self, portal: usize) {
        let Some(listeners) = &mut self.listeners else {
            return;
        };
        let pause = match listeners.accept(portal, &self.core) {
            Accepted::All => return,
            Accepted::Enough => ACCEPT_SOON,
            Accepted::OutOfDescriptors => ACCEPT_PAUSE,
        };
        // One timer for all listeners: each of them fails when descriptors are short.
        if !std::mem::replace(&mut self.accept_timer, true) {
            self.timers.insert(self.now + pause, Timer::Accept);
        }
    }

    /// One listener more, or less.
    pub(super) fn listen(&mut self, place: usize, socket: Option<TcpListener>) -> io::Result<()> {
        let Some(listeners) = &mut self.listeners else {
            return Ok(());
        };
        let platform = &mut *self.core.platform;
        match socket {
            Some(socket) if self.phase == Phase::Serving => listeners.open(place, socket, platform),
            // The server is about to end.
            Some(_) => Ok(()),
            None => {
                listeners.close_one(place, platform);
                Ok(())
            }
        }
    }

    /// Closes the oldest connection that has not finished its login, if there are too many of these.
    pub(super) fn make_room(&mut self) {
        if self.core.shared.pending_logins() <= self.core.shared.limits.pending_logins {
            return;
        }
        while let Some(address) = self.pending.pop_front() {
            if let Some(connection) = self.pending_login(address) {
                let peer = connection.channel().socket.peer;
                tracing::debug!(%peer, "too many pending logins; oldest connection closed");
                self.core.shared.clients.reached(Limit::PendingLogins);
                return self.close(address.slot);
            }
        }
        // It had most of them when it was told to, and has none left.
        let crowded = self.core.shared.most_crowded();
        if crowded != self.core.shard {
            self.core.shared.posts[crowded].send(Message::MakeRoom);
        }
    }

    /// The connection, if it is there and has not finished its login.
    fn pending_login(&self, address: ConnectionAddress) -> Option<&(dyn Driven + 'static)> {
        let connection = self.connections.get(address)?;
        (!connection.state().established).then_some(connection)
    }

    /// Remembers a connection as the youngest of those that have not finished their login.
    fn note_pending(&mut self, address: ConnectionAddress) {
        if self.pending.len() > PENDING_NOTES_PER_LOGIN * self.core.shared.limits.pending_logins {
            let mut pending = std::mem::take(&mut self.pending);
            pending.retain(|address| self.pending_login(*address).is_some());
            self.pending = pending;
        }
        self.pending.push_back(address);
    }

    /// Takes over a connection that was accepted.
    pub(super) fn adopt(&mut self, link: Box<dyn Link>, portal: usize) {
        let address = self.connections.take_slot();
        let ConnectionAddress {
            slot, generation, ..
        } = address;
        let opened = self.open(link, portal, address);
        match opened {
            Ok(connection) if self.phase == Phase::Serving => {
                tracing::debug!(peer = %connection.channel().socket.peer, "connection accepted");
                self.connections.put(slot, connection);
                self.share_memory();
                self.note_pending(address);
                self.arm(slot);
                self.connections.list(slot);
            }
            refused => {
                match refused {
                    Ok(mut late) => {
                        let token = SocketToken::new(slot, generation);
                        late.channel_mut()
                            .socket
                            .link
                            .forget(&mut *self.core.platform, token);
                    }
                    Err(error) => tracing::debug!(%error, "connection lost before it began"),
                }
                let (shared, shard) = (&self.core.shared, self.core.shard);
                shared.pending_logins[shard].fetch_sub(1, Ordering::Relaxed);
                shared.connections[shard].fetch_sub(1, Ordering::Relaxed);
                self.leave_slot(slot, None);
            }
        }
    }

    fn open(
        &mut self,
        link: Box<dyn Link>,
        portal: usize,
        address: ConnectionAddress,
    ) -> io::Result<Box<dyn Driven>> {
        let token = SocketToken::new(address.slot, address.generation);
        let shared = Arc::clone(&self.core.shared);
        let mut channel = Channel::new(
            address,
            link,
            portal,
            &self.core.transmit,
            shared.limits.stall_timeout,
            &mut self.core.counters,
        )?;
        channel.socket.link.watch(&mut *self.core.platform, token)?;
        let now_ms = self.core.now_ms;
        if self.core.view.exports.is_nvme(portal) {
            Ok(Box::new(nvme::connection(&shared, channel, now_ms)))
        } else {
            Ok(Box::new(iscsi::connection(&shared, channel, now_ms)?))
        }
    }
}
