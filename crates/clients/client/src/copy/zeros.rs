//! Zeros in what was read: found by looking, so that they need not be written.

use std::ops::Range;

/// Unit of the search. File systems and thin volumes allocate in units of 4 KiB at least, so shorter
/// runs of zeros save nothing.
pub(super) const UNIT: usize = 4096;

/// Shortest run of zeros that is left out of a chunk that has other bytes too. One more request for
/// less than this costs more than the bytes.
pub(super) const RUN_MIN: usize = 64 * 1024;

/// A page of zeros to compare with; the comparison is then the platform's `memcmp`.
static ZEROS: [u8; UNIT] = [0; UNIT];

/// Part of a chunk that is written by one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes from the start of the chunk.
    pub(super) range: Range<usize>,
    /// All of it is zeros.
    pub(super) zeros: bool,
}

/// Whether all bytes are zeros.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Data mostly shows in its first byte.
    bytes.first().is_none_or(|first| *first == 0)
        && bytes.chunks(UNIT).all(|unit| unit == &ZEROS[..unit.len()])
}

/// Cuts a chunk into runs of zeros and of data, which cover it in order without gaps. Runs of zeros
/// are at least [`RUN_MIN`] long, unless the chunk is nothing else.
pub(super) fn cut(chunk: &[u8], runs: &mut Vec<Run>) {
    runs.clear();
    let mut start = 0;
    for unit in chunk.chunks(UNIT) {
        let end = start + unit.len();
        let zeros = is_zero(unit);
        match runs.last_mut() {
            Some(last) if last.zeros == zeros => last.range.end = end,
            _ => {
                join_short_zeros(runs);
                runs.push(Run {
                    range: start..end,
                    zeros,
                });
            }
        }
        start = end;
    }
    if runs.len() > 1 {
        join_short_zeros(runs);
    }
    join_neighbours(runs);
}

/// A run of zeros that has ended and is too short counts as data.
fn join_short_zeros(runs: &mut [Run]) {
    if let Some(last) = runs.last_mut()
        && last.zeros
        && last.range.len() < RUN_MIN
    {
        last.zeros = false;
    }
}

/// Runs of the same kind side by side become one.
fn join_neighbours(runs: &mut Vec<Run>) {
    runs.dedup_by(|next, before| {
        let same = next.zeros == before.zeros;
        if same {
            before.range.end = next.range.end;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(chunk: &[u8]) -> Vec<(Range<usize>, bool)> {
        let mut runs = Vec::new();
        cut(chunk, &mut runs);
        runs.into_iter().map(|run| (run.range, run.zeros)).collect()
    }

    #[test]
    fn a_single_byte_anywhere_is_data() {
        let mut chunk = vec![0; 3 * UNIT + 512];
        assert!(is_zero(&chunk));
        for at in [0, 1, UNIT - 1, UNIT, 3 * UNIT + 511] {
            chunk[at] = 1;
            assert!(!is_zero(&chunk), "{at}");
            chunk[at] = 0;
        }
        assert!(is_zero(&[]));
    }

    #[test]
    fn a_chunk_of_zeros_is_one_run_however_short() {
        assert_eq!(runs(&[0; 512]), [(0..512, true)]);
        assert_eq!(runs(&vec![0; 1 << 20]), [(0..1 << 20, true)]);
        assert_eq!(runs(&[]), []);
    }

    #[test]
    fn short_zeros_between_data_are_written_with_it() {
        let mut chunk = vec![0; 256 * 1024];
        (chunk[0], chunk[40 * 1024]) = (1, 1);
        assert_eq!(
            runs(&chunk),
            [(0..44 * 1024, false), (44 * 1024..256 * 1024, true)]
        );
    }

    #[test]
    fn long_zeros_between_data_are_left_out() {
        let mut chunk = vec![0; 256 * 1024];
        (chunk[0], chunk[256 * 1024 - 1]) = (1, 1);
        assert_eq!(
            runs(&chunk),
            [
                (0..UNIT, false),
                (UNIT..252 * 1024, true),
                (252 * 1024..256 * 1024, false)
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn runs_cover_the_chunk_and_zeros_are_zeros(
            units in proptest::collection::vec((any::<bool>(), 1..40_usize), 0..12),
            tail in 0..8_usize,
        ) {
            let mut chunk = Vec::new();
            for (zero, count) in units {
                chunk.resize(chunk.len() + count * UNIT, u8::from(!zero));
            }
            chunk.resize(chunk.len() + tail * 512, 0);
            let mut found = Vec::new();
            cut(&chunk, &mut found);
            let mut at = 0;
            for (number, run) in found.iter().enumerate() {
                prop_assert_eq!(run.range.start, at);
                prop_assert!(run.range.end > at);
                at = run.range.end;
                if run.zeros {
                    prop_assert!(is_zero(&chunk[run.range.clone()]));
                    prop_assert!(run.range.len() >= RUN_MIN || found.len() == 1);
                }
                if number > 0 {
                    prop_assert_ne!(run.zeros, found[number - 1].zeros);
                }
            }
            prop_assert_eq!(at, chunk.len());
        }
    }
}
