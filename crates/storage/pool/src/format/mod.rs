//! What lies on a drive, byte by byte (`docs/formats/pool.md`). All integers are little-endian.
//!
//! ```text
//! 0        64 KiB                1 MiB                                        end - 1 MiB
//! │ copy 0 │ copy 1 │ … reserved │ segment 0 │ segment 1 │ …            │ … │ copy 2 │ copy 3 │
//! ```
//!
//! A segment begins with a [header](segment). What follows belongs to records of the log ([`record`]), or to
//! parts of a checkpoint ([`checkpoint`]).

pub mod checkpoint;
pub mod chunk;
pub mod op;
pub mod record;
pub mod segment;
pub mod superblock;

use longshore_wire::OutOfBytes;

/// Bytes of the unit that maps count in.
pub const PAGE: usize = 4096;
/// The same as a number of bytes of a drive.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes at the start and at the end of a drive that hold copies of its superblock.
pub const RESERVED_BYTES: u64 = 1 << 20;

/// What is wrong with bytes that should be a structure of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They are something else, or nothing.
    #[error("no such structure there")]
    Magic,
    #[error("the checksum does not match")]
    Checksum,
    /// A field has a value that this version does not know, or that contradicts another.
    #[error("{0} has an impossible value")]
    Field(&'static str),
    #[error("{0}")]
    Short(#[from] OutOfBytes),
}

/// Appends integers to a vector.
pub(crate) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn text(&mut self, value: &str);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, value: &str) {
        let length = u16::try_from(value.len()).expect("names are short");
        self.u16(length);
        self.extend_from_slice(value.as_bytes());
    }
}

/// A cursor over little-endian integers.
#[derive(Clone, Debug)]
pub(crate) struct Take<'a>(longshore_wire::Reader<'a>);

impl<'a> Take<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(longshore_wire::Reader::new(bytes))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        Ok(self.0.take(length)?)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.0.array()?)
    }

    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Result<String, FormatError> {
        let length = usize::from(self.u16()?);
        let bytes = self.bytes(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Field("a name"))?;
        Ok(text.to_owned())
    }
}

/// The CRC32C of bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    longshore_wire::crc32c(bytes).value()
}

/// A size in memory as a number of bytes of a drive.
pub(crate) fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize is at most 64 bits wide")
}

/// A number of bytes of a drive that are held in memory.
pub(crate) fn short(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits in memory")
}
