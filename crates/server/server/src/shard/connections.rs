//! The connections of a shard, and the lists of those with work.

use std::collections::VecDeque;
use std::ops::Range;

use crate::address::ConnectionAddress;
use crate::connection::driven::Driven;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<dyn Driven>>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Connections {
    shard: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections to be received from.
    pub(super) listed: Vec<u32>,
    /// Those whose turn it is.
    pub(super) listing: Vec<u32>,
    /// Connections with something to send, or that ended. Who comes first is answered first: peers that wait for
    /// answers before they ask for more have equal shares only then.
    pub(super) dirty: VecDeque<u32>,
    /// Connections that are idle unless something has come for them by the next turn.
    pub(super) quiet: Vec<u32>,
    /// Connections that have sent what may wait for the peer ([`Pacing::waits_until`]).
    ///
    /// [`Pacing::waits_until`]: crate::transport::pacing::Pacing::waits_until
    pub(super) waiting: Vec<u32>,
    /// Connections whose part of this turn was not enough for what they have to send.
    pub(super) unfinished: VecDeque<u32>,
}

impl Connections {
    pub(super) fn new(shard: usize) -> Self {
        Self {
            shard: u32::try_from(shard).expect("fewer shards than cores"),
            slots: Vec::new(),
            free: Vec::new(),
            listed: Vec::new(),
            listing: Vec::new(),
            dirty: VecDeque::new(),
            quiet: Vec::new(),
            waiting: Vec::new(),
            unfinished: VecDeque::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.connection.is_none())
    }

    /// All slots, with a connection or without.
    pub(super) fn slots(&self) -> Range<u32> {
        0..u32::try_from(self.slots.len()).expect("fewer connections than descriptors")
    }

    /// Those that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(dyn Driven + 'static)> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| slot.connection.as_deref())
    }

    /// Those that are there.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (dyn Driven + 'static)> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.connection.as_deref_mut())
    }

    /// That in a slot.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut (dyn Driven + 'static)> {
        self.slots[slot as usize].connection.as_deref_mut()
    }

    /// That in a slot.
    pub(super) fn peek(&self, slot: u32) -> Option<&(dyn Driven + 'static)> {
        self.slots[slot as usize].connection.as_deref()
    }

    /// The one of that address.
    pub(super) fn get(&self, address: ConnectionAddress) -> Option<&(dyn Driven + 'static)> {
        let entry = self.slots.get(address.slot as usize)?;
        let connection = entry.connection.as_deref()?;
        (entry.generation == address.generation).then_some(connection)
    }

    /// The one of that address.
    #[inline]
    pub(super) fn find(
        &mut self,
        address: ConnectionAddress,
    ) -> Option<&mut (dyn Driven + 'static)> {
        self.find_generation(address.slot, address.generation)
    }

    /// The one in that slot, if it is of that generation.
    #[inline]
    pub(super) fn find_generation(
        &mut self,
        slot: u32,
        generation: u32,
    ) -> Option<&mut (dyn Driven + 'static)> {
        let entry = self.slots.get_mut(slot as usize)?;
        if entry.generation != generation {
            return None;
        }
        entry.connection.as_deref_mut()
    }

    /// A slot for a connection, and its address there.
    pub(super) fn take_slot(&mut self) -> ConnectionAddress {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer connections than descriptors")
        });
        ConnectionAddress {
            shard: self.shard,
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// A connection takes the slot that was taken for it.
    pub(super) fn put(&mut self, slot: u32, connection: Box<dyn Driven>) {
        self.slots[slot as usize].connection = Some(connection);
    }

    /// Takes a connection out, with the generation of its slot.
    pub(super) fn take(&mut self, slot: u32) -> Option<(Box<dyn Driven>, u32)> {
        let entry = &mut self.slots[slot as usize];
        Some((entry.connection.take()?, entry.generation))
    }

    /// The slot is free again: its connection has ended or gone. Events of it may have been reported already, so
    /// its address is not used again.
    pub(super) fn leave_slot(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
    }

    /// Has a connection received from, if it wants a turn.
    #[inline]
    pub(super) fn list(&mut self, slot: u32) {
        let Some(connection) = self.at(slot) else {
            return;
        };
        if !connection.channel().is_listed && connection.wants_turn() {
            connection.channel_mut().is_listed = true;
            self.listed.push(slot);
        }
    }

    /// A connection may have something to send.
    #[inline]
    pub(super) fn mark_dirty(&mut self, slot: u32) {
        let Some(connection) = self.at(slot) else {
            return;
        };
        let channel = connection.channel_mut();
        if !channel.is_dirty {
            channel.is_dirty = true;
            self.dirty.push_back(slot);
        }
    }

    /// Has a connection looked at in the next turn, whose policy goes by whether it is idle.
    #[inline]
    pub(super) fn expect_idle(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else {
            return;
        };
        let channel = connection.channel_mut();
        if channel.pacing.policy.awaits_idle() && !channel.may_go_idle {
            channel.may_go_idle = true;
            self.quiet.push(slot);
        }
        if channel.pacing.waits_until.is_some() && !self.waiting.contains(&slot) {
            self.waiting.push(slot);
        }
    }

    /// Nothing of them is left to do without waiting.
    #[inline]
    pub(super) fn are_served(&self) -> bool {
        self.listed.is_empty() && self.quiet.is_empty() && self.unfinished.is_empty()
    }
}
