//! Connections: two streams of bytes that arrive late, in pieces, or not at all.
//! An initiator is whoever connects: NVMe hosts are initiators here.
//!
//! ```text
//!   initiator ── Initiator::send ──► to_target ──(pieces, delays)──► SimLink::receive ── server
//!             ◄─ Wire::take ◄─(pieces, delays)── to_initiator ◄───── SimLink::send
//! ```
//!
//! What has arrived is readable, what is under way is not. A stream holds a bounded number of
//! bytes; then the sender has to wait, as with a socket whose peer does not read.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};

use longshore_reactor::SocketToken;
use longshore_server::platform::{Link, Platform};

use crate::environment::{Environment, Shared, SimulatedEvent};
use crate::time::MICROSECOND;

impl Environment {
    /// Sends from one end. Returns how many bytes were taken.
    fn send(&mut self, wire: usize, to_target: bool, bytes: &[u8]) -> usize {
        let room = self
            .profile
            .send_buffer
            .saturating_sub(self.wires[wire].stream(to_target).bytes.len());
        let mut taken = bytes.len().min(room);
        if taken > 1 && self.random.chance(self.profile.short_send) {
            taken = 1 + self.random.index(taken);
        }
        let pieces = if self.random.chance(self.profile.network_drip) {
            1
        } else if self.random.chance(self.profile.network_tiny) {
            60
        } else {
            20_000
        };
        let vanished = self.wires[wire].vanished;
        if !vanished {
            self.wires[wire]
                .stream(to_target)
                .bytes
                .extend(&bytes[..taken]);
        }
        let mut left = taken;
        while left > 0 && !vanished {
            let piece = left.min(1 + self.random.index(pieces));
            let delay = if pieces < 100 {
                self.random.between(MICROSECOND / 10, 2 * MICROSECOND)
            } else {
                self.random.between(MICROSECOND, self.profile.network_delay)
            };
            let stream = self.wires[wire].stream(to_target);
            let at = (stream.busy_until + 1).max(self.now + delay);
            stream.busy_until = at;
            let event = SimulatedEvent::Arrive {
                wire,
                at_target: to_target,
                bytes: piece,
            };
            self.plan(at, event);
            left -= piece;
        }
        taken
    }

    /// The initiator sends. Returns how many bytes were taken.
    pub fn send_to_target(&mut self, wire: usize, bytes: &[u8]) -> usize {
        if self.wires[wire].reset {
            return bytes.len();
        }
        self.send(wire, true, bytes)
    }

    /// Bytes arrive. Returns whether anybody is there to notice.
    pub fn arrive(&mut self, wire: usize, at_target: bool, bytes: usize) -> bool {
        let gone = self.wires[wire].reset || self.wires[wire].vanished;
        if !gone {
            let stream = self.wires[wire].stream(at_target);
            stream.arrived += bytes;
            debug_assert!(stream.arrived <= stream.bytes.len());
        }
        !gone
    }

    /// The initiator takes what has arrived.
    pub fn take_at_initiator(&mut self, wire: usize) -> Vec<u8> {
        let stream = &mut self.wires[wire].to_initiator;
        let arrived = std::mem::take(&mut stream.arrived);
        let bytes = stream.bytes.drain(..arrived).collect();
        if arrived > 0 && std::mem::take(&mut self.wires[wire].blocked) {
            let delay = self.random.between(1, 5 * MICROSECOND);
            self.plan_in(delay, SimulatedEvent::Writable { wire });
        }
        bytes
    }

    /// The connection breaks; both ends learn of it at once, and what was under way is lost.
    pub fn reset(&mut self, wire: usize) {
        let broken = &mut self.wires[wire];
        broken.reset = true;
        for stream in [&mut broken.to_target, &mut broken.to_initiator] {
            stream.bytes.clear();
            stream.arrived = 0;
        }
        let index = broken.initiator;
        self.plan_in(1, SimulatedEvent::HangUp { wire });
        self.plan_in(1, SimulatedEvent::Initiator { index });
    }

    /// The initiator closes its end; what it has sent before still arrives.
    pub fn close_at_initiator(&mut self, wire: usize) {
        let stream = &mut self.wires[wire].to_target;
        stream.ended = true;
        let at = stream.busy_until + 1;
        self.plan(at, SimulatedEvent::HangUp { wire });
    }

    /// The initiator's end disappears without a word.
    pub fn vanish(&mut self, wire: usize) {
        let gone = &mut self.wires[wire];
        gone.vanished = true;
        // What has arrived can be received; what is under way is lost.
        let arrived = gone.to_target.arrived;
        gone.to_target.bytes.truncate(arrived);
        gone.to_initiator.bytes.clear();
        gone.to_initiator.arrived = 0;
    }
}

/// The target's end of a wire.
#[derive(Debug)]
pub struct SimLink {
    environment: Shared,
    wire: usize,
}

impl SimLink {
    /// The end of that wire.
    #[must_use]
    pub const fn new(environment: Shared, wire: usize) -> Self {
        Self { environment, wire }
    }
}

impl Link for SimLink {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut environment = self.environment.lock();
        let wire = &mut environment.wires[self.wire];
        if wire.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let stream = &mut wire.to_target;
        if stream.arrived == 0 {
            return if stream.ended && stream.bytes.is_empty() {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        let mut received = 0;
        for buffer in buffers {
            let count = buffer.len().min(stream.arrived);
            for (place, byte) in buffer.iter_mut().zip(stream.bytes.drain(..count)) {
                *place = byte;
            }
            stream.arrived -= count;
            received += count;
        }
        let index = wire.initiator;
        // There is room again.
        environment.plan_in(MICROSECOND, SimulatedEvent::Initiator { index });
        Ok(received)
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut environment = self.environment.lock();
        if environment.wires[self.wire].reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut sent = 0;
        let mut whole = true;
        for buffer in buffers {
            let taken = environment.send(self.wire, false, buffer);
            sent += taken;
            if taken < buffer.len() {
                whole = false;
                break;
            }
        }
        if !whole {
            let wire = &mut environment.wires[self.wire];
            let full = wire.to_initiator.bytes.len() >= environment.profile.send_buffer;
            environment.wires[self.wire].blocked = full;
            if !full {
                let delay = environment.random.between(1, 20 * MICROSECOND);
                environment.plan_in(delay, SimulatedEvent::Writable { wire: self.wire });
            }
        }
        if sent == 0 && !whole {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(sent)
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let environment = self.environment.lock();
        if environment.wires[self.wire].reset {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let port = u16::try_from(1024 + self.wire % 60_000).unwrap_or(1024);
        Ok((
            SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)),
            SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 3260)),
        ))
    }

    fn watch(&mut self, _platform: &mut dyn Platform, token: SocketToken) -> io::Result<()> {
        let mut environment = self.environment.lock();
        let shard = environment.turning;
        let wire = &mut environment.wires[self.wire];
        wire.token = Some(token);
        if std::mem::replace(&mut wire.shard, shard) == shard {
            return Ok(());
        }
        let is_over = wire.is_over_for_target();
        environment.moves += 1;
        let wire = self.wire;
        environment.trace(format_args!("wire {wire}: moves to shard {shard}"));
        if is_over {
            // Like an engine that is given a socket whose peer has hung up already.
            environment.plan_in(1, SimulatedEvent::HangUp { wire });
        }
        Ok(())
    }

    fn forget(&mut self, _platform: &mut dyn Platform, _token: SocketToken) {
        self.environment.lock().wires[self.wire].token = None;
    }
}

impl Drop for SimLink {
    /// The target closes the connection: what it has sent still arrives.
    fn drop(&mut self) {
        let mut environment = self.environment.lock();
        let wire = &mut environment.wires[self.wire];
        wire.dropped = true;
        wire.token = None;
        wire.to_initiator.ended = true;
        let (index, at) = (wire.initiator, wire.to_initiator.busy_until + 1);
        environment.plan(at, SimulatedEvent::Initiator { index });
    }
}
