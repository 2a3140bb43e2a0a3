//! Payload referenced by a transmit queue.

use longshore_reactor::{Buffer, PagePipe};
use longshore_wire::transmit::PayloadId;
use slab::Slab;

use crate::core::Core;

/// One piece of it.
#[derive(Debug)]
pub(crate) enum Held {
    /// Data in a buffer of ours.
    Buffer(Buffer),
    /// In pages of the page cache; what was sent of them is gone.
    Pages(PagePipe),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    held: Slab<Held>,
    /// Bytes of the buffers that are held.
    bytes: usize,
}

impl Payloads {
    /// Bytes of all buffers that are held.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the one that is kept next.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        self.held.vacant_key()
    }

    /// Keeps payload that the transmit queue refers to by that number.
    #[inline]
    pub(crate) fn keep(&mut self, held: Held, number: usize) {
        if let Held::Buffer(buffer) = &held {
            self.bytes += buffer.capacity();
        }
        let kept = self.held.insert(held);
        assert_eq!(
            kept, number,
            "payload is kept under the number that is queued"
        );
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// That of a number.
    pub(super) fn get_mut(&mut self, id: PayloadId) -> &mut Held {
        &mut self.held[number(id)]
    }

    /// That of a number, if it is in memory.
    #[inline]
    pub(super) fn buffer(&self, id: PayloadId) -> Option<&Buffer> {
        match &self.held[number(id)] {
            Held::Buffer(buffer) => Some(buffer),
            Held::Pages(_) => None,
        }
    }

    /// Gives back payload that has left.
    pub(super) fn release(&mut self, core: &mut Core, released: &mut Vec<PayloadId>) {
        for id in released.drain(..) {
            let held = self.held.remove(number(id));
            if let Held::Buffer(buffer) = &held {
                self.bytes -= buffer.capacity();
            }
            held.give_back(core);
        }
    }

    /// Frees all buffers and pages.
    pub(super) fn tear_down(&mut self, core: &mut Core) {
        self.bytes = 0;
        for (_, held) in std::mem::take(&mut self.held) {
            held.give_back(core);
        }
    }

    /// Pipes of pages among them.
    pub(super) fn pages(&self) -> impl Iterator<Item = &PagePipe> {
        self.held.iter().filter_map(|(_, held)| match held {
            Held::Pages(pages) => Some(pages),
            Held::Buffer(_) => None,
        })
    }
}

impl Held {
    fn give_back(self, core: &mut Core) {
        match self {
            Self::Pages(pages) => core.pipes.put(pages),
            Self::Buffer(buffer) => core.memory.pool.put(buffer),
        }
    }
}

fn number(id: PayloadId) -> usize {
    usize::try_from(id.0).expect("we numbered it")
}
