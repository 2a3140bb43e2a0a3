//! The commands of a connection: a slab of slots, an index by command identifier, and the R2Ts that await
//! their data.
//!
//! A slot is free, or live from the capsule's reception to its completion. The entries of the queue bound
//! the live commands; memory is taken for as many as there have been at a time, so that an idle queue
//! costs little and a busy one allocates nothing.
//!
//! Most commands end before the next one arrives. So the command that came last is beside the index, and goes
//! into it when another one comes.

use super::command::CommandSlot;
use crate::command::CommandId;
use crate::pdu::TransferTag;

/// One command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) id: CommandId,
    pub(super) live: bool,
    /// It is a Connect that has succeeded.
    pub(super) connects: bool,
    /// It is an Asynchronous Event Request.
    pub(super) event_request: bool,
    /// Bytes the host has room for; 0 unless data go to it.
    pub(super) to_host: u32,
    /// Bytes the host has; 0 unless data come from it.
    pub(super) from_host: u32,
    /// Bytes the driver takes, once it has said so; at most `from_host`.
    pub(super) wanted: Option<u32>,
    /// Where the next R2T starts.
    pub(super) solicit_offset: u32,
    /// R2Ts whose data have not arrived in full.
    pub(super) r2ts: u32,
    /// The in-capsule data have not arrived in full.
    pub(super) in_capsule: bool,
    /// The data are unusable: no R2Ts are sent, and what comes is not delivered.
    pub(super) failed: bool,
    /// The driver has been told how the data ended.
    pub(super) reported: bool,
}

impl Command {
    /// Of a command whose data, if any, go to the host.
    #[inline]
    pub(super) const fn new(id: CommandId) -> Self {
        Self {
            id,
            live: true,
            connects: false,
            event_request: false,
            to_host: 0,
            from_host: 0,
            wanted: None,
            solicit_offset: 0,
            r2ts: 0,
            in_capsule: false,
            failed: false,
            reported: false,
        }
    }

    /// Bytes of its data beyond this offset are not wanted.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        if self.failed {
            return 0;
        }
        self.wanted.unwrap_or(self.from_host)
    }

    /// Whether the host is sending data, or about to.
    #[inline]
    pub(super) const fn is_owed_data(&self) -> bool {
        self.r2ts > 0 || self.in_capsule
    }
}

/// An R2T and how far its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutstandingR2t {
    pub(super) slot: CommandSlot,
    /// Where the next byte belongs in the command's data.
    pub(super) offset: u32,
    /// Where the data end.
    pub(super) end: u32,
}

/// The commands of a connection. See the module documentation.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Vec<Command>,
    /// Free ones of `slots`; the one freed last is used first, as it is in the cache.
    free: Vec<CommandSlot>,
    /// So many can be live.
    limit: u32,
    /// The highest limit so far.
    capacity: u32,
    index: IdIndex,
    /// The command that came last, as long as it lives and is not in the index.
    latest: Entry,
    /// Indexed by transfer tag; `None` is free.
    r2ts: Vec<Option<OutstandingR2t>>,
    free_tags: Vec<TransferTag>,
}

impl Commands {
    /// Room for `limit` commands at a time.
    pub(super) const fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            capacity: limit,
            index: IdIndex::new(),
            latest: Entry::NONE,
            r2ts: Vec::new(),
            free_tags: Vec::new(),
        }
    }

    /// Slots are below this.
    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// From now on there can be `limit` commands at a time.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.capacity = self.capacity.max(limit);
    }

    /// The live command of this identifier.
    #[inline]
    pub(super) fn find(&self, id: CommandId) -> Option<CommandSlot> {
        if self.latest.id == id && !self.latest.is_free() {
            return Some(CommandSlot(self.latest.slot));
        }
        self.index.find(id)
    }

    /// Takes a slot for a command whose identifier is not in use. `None`: there is no room.
    #[inline]
    pub(super) fn insert(&mut self, command: Command) -> Option<CommandSlot> {
        let live = self.slots.len() - self.free.len();
        if live >= self.limit as usize {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                debug_assert!(
                    !self.slots[slot.index()].live,
                    "no command lives in a free slot"
                );
                self.slots[slot.index()] = command;
                slot
            }
            None => {
                let slot = CommandSlot(u32::try_from(live).ok()?);
                self.slots.push(command);
                slot
            }
        };
        if !self.latest.is_free() {
            self.index
                .insert(self.latest.id, CommandSlot(self.latest.slot));
        }
        self.latest = Entry {
            id: command.id,
            slot: slot.0,
        };
        Some(slot)
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: CommandSlot) {
        let command = &mut self.slots[slot.index()];
        debug_assert!(command.live, "a command ends once");
        command.live = false;
        if command.r2ts > 0 {
            self.forget_r2ts(slot);
        }
        if self.latest.slot == slot.0 {
            self.latest = Entry::NONE;
        } else {
            self.index.remove(self.slots[slot.index()].id);
        }
        self.free.push(slot);
    }

    #[cold]
    fn forget_r2ts(&mut self, slot: CommandSlot) {
        for (tag, r2t) in self.r2ts.iter_mut().enumerate() {
            if r2t.is_some_and(|r2t| r2t.slot == slot) {
                *r2t = None;
                let tag = u16::try_from(tag).expect("tags have 16 bits");
                self.free_tags.push(TransferTag(tag));
            }
        }
    }

    /// A live command.
    ///
    /// # Panics
    /// When it is not live.
    #[inline]
    pub(super) fn get(&self, slot: CommandSlot) -> &Command {
        let command = &self.slots[slot.index()];
        assert!(command.live, "the command is live");
        command
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: CommandSlot) -> &mut Command {
        let command = &mut self.slots[slot.index()];
        assert!(command.live, "the command is live");
        command
    }

    /// Gives back the memory of busier times, if no command is live.
    pub(super) fn release_memory(&mut self) {
        if self.slots.len() == self.free.len() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
            (self.r2ts, self.free_tags) = (Vec::new(), Vec::new());
            self.index = IdIndex::new();
        }
    }

    pub(super) fn live(&self) -> impl Iterator<Item = CommandSlot> + '_ {
        (0..)
            .map(CommandSlot)
            .zip(&self.slots)
            .filter_map(|(slot, command)| command.live.then_some(slot))
    }

    /// Notes an R2T and gives it a tag.
    ///
    /// # Panics
    /// When all 65,536 are in use.
    pub(super) fn add_r2t(&mut self, r2t: OutstandingR2t) -> TransferTag {
        let tag = self.free_tags.pop().unwrap_or_else(|| {
            self.r2ts.push(None);
            TransferTag(u16::try_from(self.r2ts.len() - 1).expect("R2Ts are bounded"))
        });
        let before = self.r2ts[usize::from(tag.0)].replace(r2t);
        assert!(before.is_none(), "the tag of an R2T names one command");
        self.get_mut(r2t.slot).r2ts += 1;
        tag
    }

    /// The outstanding R2T of this tag.
    #[inline]
    pub(super) fn r2t_mut(&mut self, tag: TransferTag) -> Option<&mut OutstandingR2t> {
        self.r2ts.get_mut(usize::from(tag.0))?.as_mut()
    }

    /// The data of an R2T have arrived.
    #[inline]
    pub(super) fn end_r2t(&mut self, tag: TransferTag) {
        if let Some(r2t) = self.r2ts[usize::from(tag.0)].take() {
            self.free_tags.push(tag);
            self.get_mut(r2t.slot).r2ts -= 1;
        }
    }
}

/// Open addressing with linear probing: command identifier to slot. At most half of it is in use.
#[derive(Debug)]
struct IdIndex {
    /// A power of two of entries, or none.
    entries: Vec<Entry>,
    live: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: CommandId,
    /// `u32::MAX` where there is none.
    slot: u32,
}

impl Entry {
    const NONE: Self = Self {
        id: CommandId(0),
        slot: u32::MAX,
    };

    const fn is_free(self) -> bool {
        self.slot == u32::MAX
    }
}

const INDEX_ENTRIES_MIN: usize = 16;

impl IdIndex {
    const fn new() -> Self {
        Self {
            entries: Vec::new(),
            live: 0,
        }
    }

    /// Where the search for an identifier starts. The identifiers of a host's live commands differ in their
    /// low bits: they are counted up, or numbers of its own slots with a generation above (Linux).
    #[inline]
    fn home(&self, id: CommandId) -> usize {
        usize::from(id.0) & (self.entries.len() - 1)
    }

    #[inline]
    fn position(&self, id: CommandId) -> Option<usize> {
        if self.live == 0 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(id);
        loop {
            let entry = self.entries[at];
            if entry.is_free() {
                return None;
            }
            if entry.id == id {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn find(&self, id: CommandId) -> Option<CommandSlot> {
        self.position(id)
            .map(|at| CommandSlot(self.entries[at].slot))
    }

    #[inline]
    fn insert(&mut self, id: CommandId, slot: CommandSlot) {
        if (self.live + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.live += 1;
        self.place(Entry { id, slot: slot.0 });
    }

    #[inline]
    fn place(&mut self, entry: Entry) {
        let mask = self.entries.len() - 1;
        let mut at = self.home(entry.id);
        while !self.entries[at].is_free() {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let length = (self.entries.len() * 2).max(INDEX_ENTRIES_MIN);
        let old = std::mem::replace(&mut self.entries, vec![Entry::NONE; length]);
        for entry in old.into_iter().filter(|entry| !entry.is_free()) {
            self.place(entry);
        }
    }

    /// Takes an entry out, and moves later ones of its run up, so that no search ends early.
    #[inline]
    fn remove(&mut self, id: CommandId) {
        let Some(mut hole) = self.position(id) else {
            return;
        };
        self.live -= 1;
        let mask = self.entries.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.is_free() {
                break;
            }
            let from_home = at.wrapping_sub(self.home(entry.id)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = Entry::NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn there_are_no_more_commands_than_the_capacity() {
        let mut commands = Commands::new(2);
        let slots: Vec<_> = (0..3)
            .map(|id| commands.insert(Command::new(CommandId(id))))
            .collect();
        assert_eq!(slots, [Some(CommandSlot(0)), Some(CommandSlot(1)), None]);
        commands.remove(CommandSlot(0));
        let again = commands.insert(Command::new(CommandId(9)));
        assert_eq!(again, Some(CommandSlot(0)));
        commands.set_limit(3);
        let more = commands.insert(Command::new(CommandId(10)));
        assert_eq!(more, Some(CommandSlot(2)));
        commands.set_limit(2);
        commands.remove(CommandSlot(1));
        assert_eq!(commands.insert(Command::new(CommandId(11))), None);
        assert_eq!(commands.capacity(), 3);
    }

    #[test]
    fn memory_of_busier_times_is_given_back_when_no_command_is_live() {
        let mut commands = Commands::new(64);
        let slots: Vec<_> = (0..64)
            .filter_map(|id| commands.insert(Command::new(CommandId(id))))
            .collect();
        let (last, others) = slots.split_last().unwrap();
        others.iter().for_each(|slot| commands.remove(*slot));
        commands.release_memory();
        assert_eq!(commands.find(CommandId(63)), Some(*last));
        commands.remove(*last);
        commands.release_memory();
        assert_eq!(commands.slots.capacity(), 0);
        assert_eq!(commands.index.entries.capacity(), 0);
        for id in 0..64 {
            assert!(commands.insert(Command::new(CommandId(id))).is_some());
        }
        assert!(commands.insert(Command::new(CommandId(64))).is_none());
    }

    #[test]
    fn live_commands_are_found_whichever_came_last() {
        let mut commands = Commands::new(4);
        let mut insert = |id| commands.insert(Command::new(CommandId(id))).unwrap();
        let slots = [insert(0), insert(16), insert(1)];
        let find = |commands: &Commands| [0, 16, 1].map(|id| commands.find(CommandId(id)));
        assert_eq!(find(&commands), slots.map(Some));
        commands.remove(slots[2]);
        assert_eq!(find(&commands), [Some(slots[0]), Some(slots[1]), None]);
        commands.remove(slots[0]);
        assert_eq!(find(&commands), [None, Some(slots[1]), None]);
        commands.remove(slots[1]);
        assert_eq!(find(&commands), [None; 3]);
    }

    #[test]
    fn the_tags_of_a_command_that_ends_are_free_again() {
        let mut commands = Commands::new(2);
        let slot = commands.insert(Command::new(CommandId(1))).unwrap();
        let r2t = OutstandingR2t {
            slot,
            offset: 0,
            end: 8,
        };
        let tags = [commands.add_r2t(r2t), commands.add_r2t(r2t)];
        assert_eq!(tags, [TransferTag(0), TransferTag(1)]);
        commands.remove(slot);
        assert_eq!(commands.r2t_mut(TransferTag(0)), None);
        assert_eq!(commands.free_tags.len(), 2);
    }

    proptest! {
        /// Few identifiers, so that runs of the index collide.
        #[test]
        fn the_index_finds_what_a_map_finds(
            steps in prop::collection::vec((any::<bool>(), 0_u16..64), 1..400),
            stride in prop::sample::select(vec![1_u16, 16, 256, 1000, 1024]),
        ) {
            let mut index = IdIndex::new();
            let mut model = HashMap::new();
            for (insert, number) in steps {
                let id = CommandId(number * stride);
                let slot = CommandSlot(u32::from(number));
                if !insert {
                    index.remove(id);
                    model.remove(&id);
                } else if index.find(id).is_none() {
                    index.insert(id, slot);
                    model.insert(id, slot);
                }
                for number in 0..64 {
                    let id = CommandId(number * stride);
                    prop_assert_eq!(index.find(id), model.get(&id).copied());
                }
            }
        }
    }
}
