//! A cursor over bytes to be sent.

use thiserror::Error;

/// What was to be written does not fit.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{wanted} bytes to write, room for {available}")]
pub struct NoRoom {
    /// How many were to be written.
    pub wanted: usize,
    /// How many would have fitted.
    pub available: usize,
}

/// Fills a slice from front to back, never beyond its end.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    written: usize,
}

macro_rules! integers {
    ($($name:ident $type:ty, $to:ident;)*) => {$(
        #[doc = concat!("Writes a `", stringify!($type), "`, by `", stringify!($to), "`.")]
        pub fn $name(&mut self, value: $type) -> Result<(), NoRoom> {
            self.put(&value.$to())
        }
    )*};
}

impl<'a> Writer<'a> {
    /// Writes from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, written: 0 }
    }

    /// How many bytes have been written.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.written
    }

    /// How many more fit.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes all of `bytes`, or nothing.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let room = self.room();
        let Some(place) = self.bytes[self.written..].get_mut(..bytes.len()) else {
            return Err(NoRoom {
                wanted: bytes.len(),
                available: room,
            });
        };
        place.copy_from_slice(bytes);
        self.written += bytes.len();
        Ok(())
    }

    integers! {
        u8 u8, to_be_bytes;
        be16 u16, to_be_bytes;
        be32 u32, to_be_bytes;
        be64 u64, to_be_bytes;
        le16 u16, to_le_bytes;
        le32 u32, to_le_bytes;
        le64 u64, to_le_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_writer_refuses_and_keeps_what_it_has() {
        let mut bytes = [0; 4];
        let mut writer = Writer::new(&mut bytes);
        writer.be16(0x0102).unwrap();
        assert_eq!(
            writer.be32(0),
            Err(NoRoom {
                wanted: 4,
                available: 2
            })
        );
        writer.le16(0x0304).unwrap();
        assert_eq!(writer.room(), 0);
        assert_eq!(bytes, [1, 2, 4, 3]);
    }
}
