//! Messages of other shards and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::mail::Mail;
use super::state::Shard;
use crate::address::{ConnectionAddress, TaskAddress};
use crate::connection::driven::{Handled, ShardEvent};
use crate::counters::clients::Ending;
use crate::mail::abort::AbortOrder;
use crate::mail::message::Message;
use crate::observe::sessions::SessionId;

impl Shard {
    /// Out of line: inlined, it has each turn save registers that few turns need.
    #[inline(never)]
    pub(super) fn read_mail(&mut self) {
        while let Some(mail) = self.inbox.receive() {
            self.core.counters.messages += 1;
            match mail {
                Mail::Message(message) => self.receive_message(message),
                Mail::Moved(connection) => {
                    self.take_in(connection);
                }
                Mail::Exports { view, token } => {
                    self.core.take_over(view);
                    drop(token);
                }
            }
        }
    }

    pub(super) fn receive_message(&mut self, message: Message) {
        match message {
            Message::Accepted { link, portal } => self.adopt(link, portal),
            Message::MakeRoom => self.make_room(),
            Message::Retry { task, unit } => {
                self.tell(task.connection, ShardEvent::Retry(task));
                // A task that is gone may have been told to pass the gate on.
                self.pass_on_gate(task, unit);
            }
            Message::RequestsWoken => {
                let core = &mut self.core;
                core.requests.proceed(&mut *core.platform);
                self.end_requests();
            }
            Message::Abort(order) => self.obey(&order),
            Message::Relocate { peer, to } => self.relocate(peer, to),
            Message::CloseConnection(name) => {
                if let Some(address) = self.arrived.find(name)
                    && self.connections.find(address).is_some()
                {
                    tracing::debug!("closing a connection whose session or controller has ended");
                    self.close(address.slot);
                }
            }
            Message::Note(name, note) => {
                if let Some(address) = self.arrived.find(name) {
                    self.tell(address, ShardEvent::Note(note));
                    // It may take input now that it did not before.
                    self.list_if_open(address);
                }
            }
            Message::NoteForAll(note) => {
                for slot in self.connections.slots() {
                    if let Some(connection) = self.connections.at(slot) {
                        connection.handle(&mut self.core, ShardEvent::Note(note.clone()));
                        let slot = connection.channel().address.slot;
                        self.connections.mark_dirty(slot);
                    }
                }
            }
            Message::Sanitize {
                place,
                memory,
                hold,
            } => {
                self.core.carry_out_sanitize(place, memory);
                drop(hold);
                self.end_requests();
            }
            Message::MemoryShort => {
                self.memory_short = true;
                // What this shard keeps for later may be what another one lacks.
                self.core.memory.pool.release_kept();
            }
            Message::Report(question) => question.answer(self.report(question.tcp)),
            Message::Listen {
                place,
                socket,
                answer,
            } => {
                // Who has lost patience does not mind.
                let _ = answer.send(self.listen(place, socket));
            }
            Message::Sessions(answers) => {
                let connections = self.connections.iter();
                let parts =
                    connections.filter_map(|one| one.exports().session(&self.core, one.channel()));
                // Who has lost patience does not mind.
                let _ = answers.send(parts.collect());
            }
            Message::CloseSession { id, found, token } => {
                self.close_session(id, &found);
                drop(token);
            }
            Message::Transmit(config) => {
                self.core.transmit = config;
                for connection in self.connections.iter_mut() {
                    let channel = connection.channel_mut();
                    channel.set_transmit(&config, &mut self.core.counters);
                }
            }
            Message::Limits => self.renew_delays(),
            Message::Renew(token) => self.begin_renewal(token),
            Message::Remove { removal, token } => self.remove_unit(removal, token),
            Message::FlushRemoved { removal, token } => self.flush_removed(removal, token),
            Message::Shutdown => self.begin_drain(),
            Message::ShutdownNow => self.end_connections(),
        }
    }

    fn close_session(&mut self, id: SessionId, found: &AtomicBool) {
        for slot in self.connections.slots() {
            let connection = self.connections.at(slot);
            let it = connection.filter(|connection| connection.exports().session_id() == Some(id));
            if let Some(connection) = it {
                tracing::info!(peer = %connection.channel().socket.peer, "session closed by request");
                connection.channel_mut().ends_by(Ending::Request);
                connection.handle(&mut self.core, ShardEvent::Close);
                self.connections.mark_dirty(slot);
                found.store(true, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn list_if_open(&mut self, address: ConnectionAddress) {
        if self.connections.find(address).is_some() {
            self.connections.list(address.slot);
        }
    }

    /// Wakes the next in line at a gate that told a vanished task to try again.
    pub(super) fn pass_on_gate(&mut self, task: TaskAddress, unit: usize) {
        let alive = self
            .connections
            .get(task.connection)
            .is_some_and(|connection| connection.has_task(task));
        if !alive {
            self.core.leave_exclusive(unit, task);
        }
    }

    /// Aborts the tasks that an order names.
    pub(super) fn obey(&mut self, order: &Arc<AbortOrder>) {
        self.core.hold_for_orphans(order);
        for slot in self.connections.slots() {
            if let Some(connection) = self.connections.at(slot)
                && connection.handle(&mut self.core, ShardEvent::Abort(order)) == Handled::Changed
            {
                // Others of its tasks may run now, and its window may have to be announced.
                let slot = connection.channel().address.slot;
                self.connections.mark_dirty(slot);
            }
        }
    }
}
