//! Chunks: pages that are compressed together, 16 KiB at most.
//!
//! What is unpacked goes to a buffer of the length that it must have, and nowhere else. Contexts of zstd are kept for
//! each thread: about 200 KiB to compress, once a thread has, and 160 KiB to unpack.

use std::cell::RefCell;

use zstd_safe::{CCtx, DCtx};

use crate::place::Codec;

/// Bytes that compression has to save to be worth it.
const SAVING_MIN: usize = 512;

/// How much effort zstd makes. Its first level is the fastest that is not a special one.
const ZSTD_LEVEL: zstd_safe::CompressionLevel = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Why a chunk could not be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// The bytes are none of that codec, or of another length when they are unpacked.
    Damaged,
    OutOfMemory,
}

/// The chunk compressed; `None` if it does not become smaller.
#[must_use]
pub fn pack(codec: Codec, plain: &[u8]) -> Option<Vec<u8>> {
    let room = plain.len().checked_sub(SAVING_MIN)?;
    match codec {
        Codec::Raw => None,
        Codec::Lz4 => {
            let packed = lz4_flex::block::compress(plain);
            (packed.len() <= room).then_some(packed)
        }
        Codec::Zstd => COMPRESSOR.with_borrow_mut(|context| {
            if context.is_none() {
                *context = CCtx::try_create();
            }
            let mut packed = vec![0; room];
            // Without room it fails, and then it is not worth it.
            let packing = context
                .as_mut()?
                .compress(&mut packed[..], plain, ZSTD_LEVEL);
            packed.truncate(packing.ok()?);
            Some(packed)
        }),
    }
}

/// Unpacks a chunk, all of it: into exactly `plain`.
///
/// # Errors
/// The bytes are damaged.
pub fn unpack(codec: Codec, packed: &[u8], plain: &mut [u8]) -> Result<(), UnpackError> {
    let wanted = plain.len();
    let length = match codec {
        Codec::Raw => {
            if packed.len() == wanted {
                plain.copy_from_slice(packed);
            }
            Some(packed.len())
        }
        Codec::Lz4 => lz4_flex::block::decompress_into(packed, plain).ok(),
        Codec::Zstd => DECOMPRESSOR.with_borrow_mut(|context| {
            if context.is_none() {
                *context = DCtx::try_create();
            }
            let context = context.as_mut().ok_or(UnpackError::OutOfMemory)?;
            Ok(context.decompress(plain, packed).ok())
        })?,
    };
    if length == Some(wanted) {
        Ok(())
    } else {
        Err(UnpackError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PAGE;

    /// Words that repeat, and numbers between them.
    fn text(length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = 7_u32;
        while bytes.len() < length {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.extend_from_slice(format!("block {} of the volume; ", number >> 20).as_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn chunks_come_back_and_those_that_do_not_become_smaller_are_left() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            for pages in 1..=4 {
                let plain = text(pages * PAGE);
                let packed = pack(codec, &plain).expect("smaller");
                assert!(packed.len() + SAVING_MIN <= plain.len());
                let mut again = vec![0xee; plain.len()];
                unpack(codec, &packed, &mut again).expect("whole");
                assert_eq!(again, plain);
            }
            let mut dice = crate::testing::Dice::new(5);
            let noise: Vec<u8> = (0..4 * PAGE)
                .map(|_| dice.roll().to_le_bytes()[3])
                .collect();
            assert_eq!(pack(codec, &noise), None);
            // A failure leaves nothing behind.
            assert!(pack(codec, &text(PAGE)).is_some());
        }
        assert_eq!(pack(Codec::Raw, &text(PAGE)), None);
    }

    #[test]
    fn nothing_is_unpacked_beyond_its_length_and_damage_is_no_panic() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let plain = text(4 * PAGE);
            let packed = pack(codec, &plain).expect("smaller");
            for length in [0, PAGE, 3 * PAGE, 4 * PAGE - 1, 4 * PAGE + 1] {
                let mut room = vec![0; length];
                let refused = unpack(codec, &packed, &mut room);
                assert_eq!(refused, Err(UnpackError::Damaged), "{codec:?}, {length}");
            }
            let mut room = vec![0; plain.len()];
            for place in 0..packed.len() {
                let mut damaged = packed.clone();
                damaged[place] ^= 0x21;
                let _ = unpack(codec, &damaged, &mut room);
                let cut = unpack(codec, &packed[..place], &mut room);
                assert!(cut.is_err(), "{codec:?} cut at {place}");
            }
            // What a context held of damage does not matter.
            unpack(codec, &packed, &mut room).expect("whole");
            assert_eq!(room, plain);
        }
    }

    #[test]
    fn the_contexts_of_a_thread_are_bounded() {
        let plain = text(4 * PAGE);
        let packed = pack(Codec::Zstd, &plain).expect("smaller");
        let mut room = vec![0; plain.len()];
        unpack(Codec::Zstd, &packed, &mut room).expect("whole");
        let compressor = COMPRESSOR.with_borrow(|it| it.as_ref().expect("used").sizeof());
        let decompressor = DECOMPRESSOR.with_borrow(|it| it.as_ref().expect("used").sizeof());
        assert!(compressor < 512 << 10, "{compressor} bytes");
        assert!(decompressor < 256 << 10, "{decompressor} bytes");
    }
}
