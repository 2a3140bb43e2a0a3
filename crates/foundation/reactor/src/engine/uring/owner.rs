//! The owners of completions, as user data of the ring.

/// What a completion belongs to, and its form in the ring's 64-bit user data: two bits of kind, then
/// 30 bits of generation, then 32 bits of slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The multishot poll of a registered socket.
    Socket {
        slot: u32,
        generation: u32,
    },
    File {
        slot: u32,
    },
    /// The multishot poll of the waker.
    Waker,
    /// The multishot poll of the listeners.
    Listeners,
    /// A cancellation; nobody wants its result.
    Nobody,
}

pub(super) const GENERATION_MASK: u32 = (1 << 30) - 1;

impl Owner {
    pub(super) fn to_user_data(self) -> u64 {
        let (kind, generation, slot) = match self {
            Self::Socket { slot, generation } => (0, generation & GENERATION_MASK, slot),
            Self::File { slot } => (1, 0, slot),
            Self::Waker => (2, 0, 0),
            Self::Listeners => (2, 0, 1),
            Self::Nobody => (3, 0, 0),
        };
        kind << 62 | u64::from(generation) << 32 | u64::from(slot)
    }

    pub(super) fn from_user_data(data: u64) -> Self {
        let slot = u32::try_from(data & u64::from(u32::MAX)).expect("masked to 32 bits");
        let generation = u32::try_from(data >> 32).expect("shifted to 32 bits") & GENERATION_MASK;
        match data >> 62 {
            0 => Self::Socket { slot, generation },
            1 => Self::File { slot },
            2 if slot == 0 => Self::Waker,
            2 => Self::Listeners,
            _ => Self::Nobody,
        }
    }
}

/// The place of a slot in a list.
pub(super) fn index(slot: u32) -> usize {
    usize::try_from(slot).expect("usize has at least 32 bits on Linux")
}
