//! What is done to the volumes.

/// Where random operations go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// To all places alike.
    Even,
    /// Nine of ten to a tenth of the places.
    Skewed,
}

/// A kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub name: &'static str,
    /// Bytes of an operation.
    pub bytes: usize,
    /// Operations under way at once.
    pub depth: usize,
    pub writes: bool,
    pub random: bool,
    /// Where random ones go.
    pub spread: Spread,
    /// Writes are on the medium when they end.
    pub fua: bool,
    /// Writes between two flushes; 0: none.
    pub flush_every: u64,
    /// The pool runs twice, and a snapshot is made in between; the file does not run.
    pub after_snapshot: bool,
}

const BASE: Load = Load {
    name: "",
    bytes: 4096,
    depth: 32,
    writes: false,
    random: true,
    spread: Spread::Even,
    fua: false,
    flush_every: 0,
    after_snapshot: false,
};

/// Random writes of 4 KiB, 32 at once.
pub const OVERWRITE: Load = Load {
    name: "random write 4 KiB QD 32",
    writes: true,
    ..BASE
};

/// The volume from its start to its end, whatever the name.
pub const FILL: Load = Load {
    name: "fill",
    bytes: 1 << 20,
    depth: 4,
    writes: true,
    random: false,
    ..BASE
};

/// All loads, in the order in which they run.
pub const LOADS: [Load; 10] = [
    Load {
        name: "sequential read 1 MiB QD 4",
        bytes: 1 << 20,
        depth: 4,
        random: false,
        ..BASE
    },
    Load {
        name: "sequential write 1 MiB QD 4",
        bytes: 1 << 20,
        depth: 4,
        writes: true,
        random: false,
        ..BASE
    },
    Load {
        name: "random read 4 KiB QD 32",
        ..BASE
    },
    Load {
        name: "random read 4 KiB QD 1",
        depth: 1,
        ..BASE
    },
    OVERWRITE,
    Load {
        name: "random write 4 KiB QD 1",
        writes: true,
        depth: 1,
        ..BASE
    },
    Load {
        name: "random write FUA QD 1",
        writes: true,
        depth: 1,
        fua: true,
        ..BASE
    },
    Load {
        name: "random write, flush every 32",
        writes: true,
        flush_every: 32,
        ..BASE
    },
    Load {
        name: "random write after snapshot",
        writes: true,
        after_snapshot: true,
        ..BASE
    },
    Load {
        name: "random read after random write",
        ..BASE
    },
];

/// Data to write. The start of each 4 KiB is random and the rest are zeros, or it is that of files.
#[derive(Debug)]
pub struct Content {
    bytes: Vec<u8>,
    /// Each byte is written once.
    is_whole: bool,
}

impl Content {
    /// These bytes, from the first to the last.
    pub const fn whole(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            is_whole: true,
        }
    }

    /// Content that can be compressed to about one part of `parts`.
    pub fn new(parts: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = vec![0; 8 << 20];
        for page in bytes.chunks_mut(4096) {
            for word in page[..4096 / parts].chunks_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
        }
        Self {
            bytes,
            is_whole: false,
        }
    }

    /// Some of it, of at most a MiB.
    pub fn slice(&self, number: u64, length: usize) -> &[u8] {
        if self.is_whole {
            let place = usize::try_from(number).unwrap_or(0) * length;
            return &self.bytes[place..place + length];
        }
        let places = (self.bytes.len() - (1 << 20)) / 4096;
        let place = usize::try_from(number).unwrap_or(0) % places;
        &self.bytes[place * 4096..place * 4096 + length]
    }
}
