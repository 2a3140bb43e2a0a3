//! Which loads are measured: some for the fit, some kept back.
//!
//! Loads on one place tell network, protocol and processors apart from the medium, which answers them from its cache.
//! Those of depth 1 tell times, the deep ones capacities. A load that is kept back differs in size or depth from all that
//! are fitted to, and lies among them.

use std::collections::BTreeSet;

use longshore_model::probe::{Direction, Pattern, Role};

use crate::options::Asked;

use Direction::{Read, Write};
use Pattern::{OnePlace, Random, Sequential};
use Role::{Fit, Held};

/// One load, on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Planned {
    pub(crate) direction: Direction,
    pub(crate) pattern: Pattern,
    pub(crate) size: u32,
    pub(crate) depth: u16,
    pub(crate) role: Role,
}

type Row = (Role, Pattern, u32, u16);

/// Sizes of 512 are the smallest that the volume has.
const READS: [Row; 17] = [
    (Fit, OnePlace, 512, 1),
    (Held, Random, 16 << 10, 1),
    (Fit, OnePlace, 64 << 10, 1),
    (Fit, OnePlace, 256 << 10, 1),
    (Held, Random, 4 << 10, 2),
    (Fit, Random, 4 << 10, 1),
    (Fit, Random, 64 << 10, 1),
    (Held, Random, 64 << 10, 2),
    (Fit, Random, 256 << 10, 1),
    (Fit, Random, 4 << 10, 4),
    (Held, Random, 4 << 10, 16),
    (Fit, Random, 64 << 10, 4),
    (Fit, Random, 4 << 10, 32),
    (Held, Random, 128 << 10, 4),
    (Fit, OnePlace, 512, 64),
    (Fit, OnePlace, 256 << 10, 8),
    (Fit, Sequential, 64 << 10, 1),
];

const WRITES: [Row; 9] = [
    (Fit, OnePlace, 512, 1),
    (Held, Random, 16 << 10, 1),
    (Fit, Random, 4 << 10, 1),
    (Fit, Random, 64 << 10, 1),
    (Held, Random, 64 << 10, 4),
    (Fit, Random, 256 << 10, 1),
    (Fit, Random, 256 << 10, 4),
    (Held, Random, 128 << 10, 2),
    (Fit, Random, 4 << 10, 32),
];

/// What a volume allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadLimits {
    pub(crate) block_size: u32,
    /// Bytes of an operation at most, the region's that may be used included.
    pub(crate) reads_max: u64,
    /// The same of writes; 0: there are none.
    pub(crate) writes_max: u64,
}

pub(crate) const DEPTH_MAX: u16 = 64;

/// Bytes that a load that is asked for may have under way, so that slow servers answer in time.
const ASKED_MAX: u64 = 8 << 20;

/// All loads in the order of a round. What a volume does not allow is left out.
pub(crate) fn loads(limits: LoadLimits, asked: &[Asked]) -> Vec<Planned> {
    let reads = READS.iter().map(|row| (Read, *row));
    let writes = WRITES.iter().map(|row| (Write, *row));
    let asked = asked.iter().filter_map(|load| {
        let size = u32::try_from(load.size).ok()?;
        let is_small = load.depth <= DEPTH_MAX && load.size * u64::from(load.depth) <= ASKED_MAX;
        is_small.then_some((load.direction, (Role::Asked, Random, size, load.depth)))
    });
    let mut seen = BTreeSet::new();
    let all = reads.chain(writes).chain(asked);
    let all = all.filter_map(|(direction, row)| {
        let (role, pattern, size, depth) = row;
        let most = match direction {
            Read => limits.reads_max,
            Write => limits.writes_max,
        };
        let size = size.max(limits.block_size);
        let fits = u64::from(size) <= most && size.is_multiple_of(limits.block_size);
        let planned = Planned {
            direction,
            pattern,
            size,
            depth,
            role,
        };
        // Large blocks make several loads the same one.
        let is_new = seen.insert((direction, pattern, size, depth));
        (fits && is_new).then_some(planned)
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(limits: LoadLimits) -> Vec<Planned> {
        super::loads(limits, &[])
    }

    fn limits(block_size: u32, reads_max: u64, writes_max: u64) -> LoadLimits {
        LoadLimits {
            block_size,
            reads_max,
            writes_max,
        }
    }

    #[test]
    fn what_is_asked_for_is_measured_once_where_the_volume_allows_it() {
        let usual = loads(limits(512, 1 << 20, 0)).len();
        let asked = |direction, size, depth| Asked {
            direction,
            size,
            depth,
        };
        let wanted = [
            asked(Read, 8 << 10, 3),
            asked(Read, 8 << 10, 3),
            // It is among the usual ones.
            asked(Read, 4 << 10, 4),
            asked(Write, 8 << 10, 3),
            asked(Read, 2 << 20, 1),
            asked(Read, 1000, 1),
            asked(Read, 8 << 10, 65),
            asked(Read, 1 << 20, 9),
        ];
        let all = super::loads(limits(512, 1 << 20, 0), &wanted);
        assert_eq!(all.len(), usual + 1);
        let last = all.last().expect("there are some");
        assert_eq!(
            (last.role, last.pattern, last.size, last.depth),
            (Role::Asked, Random, 8 << 10, 3)
        );
    }

    #[test]
    fn without_leave_to_write_nothing_writes() {
        let loads = loads(limits(512, 1 << 20, 0));
        assert!(loads.iter().all(|load| load.direction == Read));
        assert_eq!(loads.len(), READS.len());
    }

    #[test]
    fn a_load_that_is_kept_back_is_not_fitted_to() {
        let all = loads(limits(512, 1 << 20, 1 << 20));
        let of = |role| all.iter().filter(move |load| load.role == role);
        for held in of(Held) {
            let same = |fit: &&Planned| {
                (fit.direction, fit.size, fit.depth) == (held.direction, held.size, held.depth)
            };
            assert_eq!(of(Fit).find(same), None, "{held:?}");
        }
        assert!(of(Held).count() * 4 >= all.len() && of(Fit).count() >= 10);
    }

    #[test]
    fn loads_fit_the_volume_and_none_is_measured_twice() {
        for block in [512, 4096, 1 << 20] {
            let all = loads(limits(block, 1 << 20, 1 << 20));
            assert!(!all.is_empty());
            let sizes = all.iter().map(|load| load.size);
            assert!(
                sizes
                    .clone()
                    .all(|size| size % block == 0 && size <= 1 << 20)
            );
            let different: BTreeSet<_> = all
                .iter()
                .map(|load| (load.direction, load.pattern, load.size, load.depth))
                .collect();
            assert_eq!(different.len(), all.len());
        }
        assert!(
            loads(limits(512, 4096, 0))
                .iter()
                .all(|load| load.size <= 4096)
        );
        assert!(loads(limits(512, 0, 0)).is_empty());
        // 520 bytes divide none of the others.
        assert_eq!(loads(limits(520, 1 << 20, 0)).len(), 2);
    }
}
