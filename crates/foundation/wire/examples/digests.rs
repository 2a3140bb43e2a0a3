//! Nanoseconds for CRC32C digests: of headers, of small and large data, of zeros, and together with a copy.
//!
//! `cargo run --release -p longshore-wire --example digests`

use std::hint::black_box;
use std::time::Instant;

use crc_fast::{CrcAlgorithm, get_calculator_target};
use longshore_wire::{Crc32c, crc32c, crc32c_of_zeros};

const ROUNDS: usize = 9;
/// Pieces of a copy whose digest is computed while they are in the innermost cache.
const PIECE: usize = 4096;

/// Nanoseconds for one call, the median of some rounds.
fn time(bytes: usize, mut call: impl FnMut()) -> f64 {
    let calls = u32::try_from((64 << 20) / bytes.max(1024)).expect("few");
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..calls {
                call();
            }
            begun.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!("{}", get_calculator_target(CrcAlgorithm::Crc32Iscsi));
    println!("bytes: digest, digest of zeros");
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    for bytes in [24, 48, 52, 64, 72, 128, 512, 4096, 8192, 65_536, 1 << 20] {
        let part = &data[..bytes];
        let ours = time(bytes, || {
            black_box(crc32c(black_box(part)));
        });
        let zeros = time(bytes, || {
            black_box(crc32c_of_zeros(black_box(bytes)));
        });
        println!("{bytes}: {ours:.1}, {zeros:.1}");
    }
    // A window over many buffers, as a server has: not the same one each time.
    println!("copy of bytes: alone, then the digest, digest by pieces");
    let from = vec![7_u8; 8 << 20];
    let mut into = vec![0_u8; 8 << 20];
    for bytes in [8192, 16_384, 65_536, 262_144, 1 << 20] {
        let places = from.len() / bytes;
        let mut at = 0;
        let mut next = || {
            at = (at + 1) % places;
            at * bytes..(at + 1) * bytes
        };
        let alone = time(bytes, || {
            let range = next();
            into[range.clone()].copy_from_slice(&from[range]);
        });
        let then = time(bytes, || {
            let range = next();
            into[range.clone()].copy_from_slice(&from[range.clone()]);
            black_box(crc32c(&into[range]));
        });
        let pieces = time(bytes, || {
            let range = next();
            let mut crc = Crc32c::new();
            let places = into[range.clone()].chunks_mut(PIECE);
            for (to, from) in places.zip(from[range].chunks(PIECE)) {
                to.copy_from_slice(from);
                crc.update(to);
            }
            black_box(crc);
        });
        println!("{bytes}: {alone:.0}, {then:.0}, {pieces:.0}");
    }
}
