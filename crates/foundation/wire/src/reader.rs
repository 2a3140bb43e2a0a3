//! A cursor over received bytes.

use thiserror::Error;

/// A format promised more bytes than there are.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{wanted} bytes needed, {available} left")]
pub struct OutOfBytes {
    /// How many were asked for.
    pub wanted: usize,
    /// How many there were.
    pub available: usize,
}

/// Hands out the bytes of a slice from front to back, never beyond its end.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

macro_rules! integers {
    ($($name:ident $type:ty, $from:ident;)*) => {$(
        #[doc = concat!("The next `", stringify!($type), "`, by `", stringify!($from), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$type, OutOfBytes> {
            self.array().map(<$type>::$from)
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], OutOfBytes> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(OutOfBytes {
                wanted: length,
                available: self.rest.len(),
            });
        };
        self.rest = rest;
        Ok(taken)
    }

    /// A reader of only the next `length` bytes.
    pub fn sub_reader(&mut self, length: usize) -> Result<Reader<'a>, OutOfBytes> {
        self.take(length).map(Reader::new)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], OutOfBytes> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(OutOfBytes {
                wanted: N,
                available: self.rest.len(),
            });
        };
        self.rest = rest;
        Ok(*taken)
    }

    integers! {
        u8 u8, from_be_bytes;
        be16 u16, from_be_bytes;
        be32 u32, from_be_bytes;
        be64 u64, from_be_bytes;
        le16 u16, from_le_bytes;
        le32 u32, from_le_bytes;
        le64 u64, from_le_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_in_order() {
        let mut reader = Reader::new(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.be16(), Ok(0x0203));
        assert_eq!(reader.le32(), Ok(0x0706_0504));
        assert!(reader.is_empty());
    }

    #[test]
    fn reading_beyond_the_end_is_an_error_and_takes_nothing() {
        let mut reader = Reader::new(&[1, 2]);
        assert_eq!(
            reader.be32(),
            Err(OutOfBytes {
                wanted: 4,
                available: 2
            })
        );
        assert_eq!(
            reader.take(usize::MAX),
            Err(OutOfBytes {
                wanted: usize::MAX,
                available: 2
            })
        );
        assert_eq!(reader.rest(), [1, 2]);
    }

    #[test]
    fn a_sub_reader_ends_where_it_should() {
        let mut reader = Reader::new(&[1, 2, 3]);
        let mut sub = reader.sub_reader(2).unwrap();
        assert_eq!(sub.be16(), Ok(0x0102));
        assert!(sub.u8().is_err());
        assert_eq!(reader.u8(), Ok(3));
    }
}
