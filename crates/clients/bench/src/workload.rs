//! What a stream of operations does next: direction, size and place.

use std::fmt;
use std::str::FromStr;

use longshore_block::extent::{BlockCount, Extent, Lba};

use crate::random::Random;
use crate::units::{self, UnitError, show_size};

/// A text that is no part of a workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Not a direction and order.
    #[error("`{0}` is not a workload; use randread, randwrite, read, write, randrw or rw")]
    Pattern(String),
    /// A size within it is none.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A share of a mix.
    #[error("`{0}` is not SIZE/PERCENT; write for example 4k/60:64k/40")]
    Share(String),
    /// Shares of a mix.
    #[error("the shares of `{0}` come to {1} %, not 100")]
    Sum(String, u32),
    /// A size that no operation has.
    #[error("`{0}` is not the size of an operation; use 512 bytes to 1 GiB")]
    Range(String),
}

/// Whether places follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any place of the region, each as likely.
    Random,
    /// One after the other.
    Sequential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    /// Both, as a share decides.
    Both,
}

/// What `--rw` says, in `fio`'s words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    pub order: Order,
    pub direction: Direction,
}

impl Pattern {
    /// Whether it changes the volume.
    #[must_use]
    pub fn writes(self) -> bool {
        self.direction != Direction::Read
    }

    /// Whether it reads the volume.
    #[must_use]
    pub fn reads(self) -> bool {
        self.direction != Direction::Write
    }
}

impl FromStr for Pattern {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (order, direction) = match text {
            "randread" => (Order::Random, Direction::Read),
            "randwrite" => (Order::Random, Direction::Write),
            "randrw" => (Order::Random, Direction::Both),
            "read" => (Order::Sequential, Direction::Read),
            "write" => (Order::Sequential, Direction::Write),
            "rw" | "readwrite" => (Order::Sequential, Direction::Both),
            other => return Err(WorkloadError::Pattern(other.to_owned())),
        };
        Ok(Self { order, direction })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.order, self.direction) {
            (Order::Random, Direction::Read) => "randread",
            (Order::Random, Direction::Write) => "randwrite",
            (Order::Random, Direction::Both) => "randrw",
            (Order::Sequential, Direction::Read) => "read",
            (Order::Sequential, Direction::Write) => "write",
            (Order::Sequential, Direction::Both) => "rw",
        })
    }
}

/// Sizes of operations and how often each comes, in percent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSizes {
    shares: Vec<(u32, u32)>,
}

const SIZE_MIN: u64 = 512;
const SIZE_MAX: u64 = 1 << 30;

impl BlockSizes {
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self {
            shares: vec![(bytes, 100)],
        }
    }

    /// The largest of them.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.sizes().max().expect("there is one at least")
    }

    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.shares.iter().map(|(size, _)| *size)
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        let weighted = self.shares.iter();
        let sum: f64 = weighted
            .map(|(size, share)| f64::from(*size) * f64::from(*share))
            .sum();
        sum / 100.0
    }

    #[inline]
    fn choose(&self, random: &mut Random) -> u32 {
        if let [(only, _)] = self.shares[..] {
            return only;
        }
        let mut number = random.below(100);
        for &(size, share) in &self.shares {
            match number.checked_sub(u64::from(share)) {
                None => return size,
                Some(rest) => number = rest,
            }
        }
        self.shares[0].0
    }
}

impl FromStr for BlockSizes {
    type Err = WorkloadError;

    /// `4k`, or `4k/60:64k/40`; shares left out get what is left in equal parts, as in `fio`.
    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let size = |part: &str| -> Result<u32, WorkloadError> {
            let bytes = units::size(part)?;
            let in_range = (SIZE_MIN..=SIZE_MAX).contains(&bytes);
            let bytes = u32::try_from(bytes).ok().filter(|_| in_range);
            bytes.ok_or_else(|| WorkloadError::Range(part.to_owned()))
        };
        if !text.contains(['/', ':']) {
            return Ok(Self::one(size(text)?));
        }
        let mut shares = Vec::new();
        for part in text.split(':') {
            let bad = || WorkloadError::Share(part.to_owned());
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let share: Option<u32> = match share {
                "" => None,
                share => Some(share.trim_end_matches('%').parse().map_err(|_| bad())?),
            };
            shares.push((size(bytes)?, share));
        }
        let given = shares.iter().filter_map(|(_, share)| *share);
        let sum = given.fold(0_u32, u32::saturating_add);
        let open = shares.iter().filter(|(_, share)| share.is_none()).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        let wrong = WorkloadError::Sum(text.to_owned(), sum);
        if sum > 100 || (open == 0 && sum != 100) || open > 100 - sum {
            return Err(wrong);
        }
        // What does not divide goes to the first ones.
        let mut left = 100 - sum;
        let mut open_left = open;
        let shares = shares.into_iter().map(|(bytes, share)| {
            let share = share.unwrap_or_else(|| {
                let part = left.div_ceil(open_left);
                left -= part;
                open_left -= 1;
                part
            });
            (bytes, share)
        });
        Ok(Self {
            shares: shares.collect(),
        })
    }
}

impl fmt::Display for BlockSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(only, _)] = self.shares[..] {
            return f.write_str(&show_size(u64::from(only)));
        }
        for (index, (size, share)) in self.shares.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{}/{share}", show_size(u64::from(*size)))?;
        }
        Ok(())
    }
}

/// One operation to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub write: bool,
    pub extent: Extent,
    pub bytes: u32,
}

/// The part of a volume that a stream works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub lba: u64,
    pub blocks: u64,
    /// Bytes of each operation.
    pub block_size: u32,
}

impl Region {
    /// Bytes from its start to a block of it.
    ///
    /// # Panics
    /// When the block is before the region, or so far behind it that no memory holds what is between.
    #[must_use]
    pub fn offset(&self, lba: Lba) -> usize {
        let blocks = lba.0.checked_sub(self.lba).expect("a block of the region");
        let bytes = blocks.checked_mul(self.block_size.into());
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.expect("a region fits into memory")
    }
}

/// Chooses the next operation, without end.
#[derive(Debug)]
pub struct Generator {
    pattern: Pattern,
    read_percent: u32,
    sizes: BlockSizes,
    region: Region,
    random: Random,
    /// Blocks from the region's start to the next place in order.
    next: u64,
}

impl Generator {
    /// Operations of one stream out of `streams`. In order, each starts in a part of its own, so
    /// that several together cover the region and do not all work on the same blocks.
    #[must_use]
    pub fn new(
        pattern: Pattern,
        read_percent: u32,
        sizes: BlockSizes,
        region: Region,
        random: Random,
        stream: (u64, u64),
    ) -> Self {
        let (number, streams) = stream;
        let unit = u64::from(sizes.largest() / region.block_size).max(1);
        let places = region.blocks / unit;
        let start = u128::from(places) * u128::from(number) / u128::from(streams.max(1));
        Self {
            pattern,
            read_percent,
            sizes,
            region,
            random,
            next: u64::try_from(start).expect("it is below the number of places") * unit,
        }
    }

    #[inline]
    pub fn step(&mut self) -> Step {
        let write = match self.pattern.direction {
            Direction::Read => false,
            Direction::Write => true,
            Direction::Both => self.random.below(100) >= u64::from(self.read_percent),
        };
        let bytes = self.sizes.choose(&mut self.random);
        let blocks = u64::from(bytes / self.region.block_size);
        let offset = match self.pattern.order {
            Order::Random => self.random.below(self.region.blocks / blocks) * blocks,
            Order::Sequential => {
                if self.next + blocks > self.region.blocks {
                    self.next = 0;
                }
                let offset = self.next;
                self.next += blocks;
                offset
            }
        };
        Step {
            write,
            extent: Extent {
                lba: Lba(self.region.lba + offset),
                blocks: BlockCount(blocks),
            },
            bytes,
        }
    }

    /// Whether another try can give another place.
    #[must_use]
    pub fn is_random(&self) -> bool {
        self.pattern.order == Order::Random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region = Region {
        lba: 100,
        blocks: 64,
        block_size: 512,
    };

    fn generator(rw: &str, bs: &str, stream: (u64, u64)) -> Generator {
        let (pattern, sizes) = (rw.parse().unwrap(), bs.parse().unwrap());
        let random = Random::new(1, stream.0);
        Generator::new(pattern, 70, sizes, REGION, random, stream)
    }

    #[test]
    fn patterns_are_those_of_fio() {
        for text in ["randread", "randwrite", "randrw", "read", "write", "rw"] {
            let pattern: Pattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
        }
        assert_eq!("readwrite".parse::<Pattern>(), "rw".parse());
        assert!("trim".parse::<Pattern>().is_err());
        assert!(!"randread".parse::<Pattern>().unwrap().writes());
        assert!("rw".parse::<Pattern>().unwrap().writes());
    }

    #[test]
    fn a_mix_has_shares_that_come_to_a_hundred() {
        let mix: BlockSizes = "4k/60:64k/40".parse().unwrap();
        assert_eq!(mix.to_string(), "4k/60:64k/40");
        assert_eq!(mix.largest(), 65_536);
        let mix: BlockSizes = "4k/50:64k:1m".parse().unwrap();
        assert_eq!(mix.to_string(), "4k/50:64k/25:1m/25");
        for text in [
            "4k/60:64k/50",
            "4k/60:64k/30",
            "4k/x",
            "4k/100:8k",
            "0",
            "256",
            "2g",
            "4k/",
        ] {
            let parsed = text.parse::<BlockSizes>();
            assert!(parsed.is_err() || text == "4k/", "{text} is {parsed:?}");
        }
    }

    #[test]
    fn a_mix_comes_about_as_often_as_its_shares_say() {
        let mut generator = generator("randrw", "512/75:4k/25", (0, 1));
        let steps: Vec<Step> = (0..10_000).map(|_| generator.step()).collect();
        let large = steps.iter().filter(|s| s.bytes == 4096).count();
        assert!((2_300..2_700).contains(&large), "{large}");
        let writes = steps.iter().filter(|s| s.write).count();
        assert!((2_800..3_200).contains(&writes), "{writes}");
    }

    #[test]
    fn places_stay_in_the_region_and_are_multiples_of_the_size() {
        for rw in ["randread", "read"] {
            let mut generator = generator(rw, "512/50:4k/50", (2, 3));
            for _ in 0..1_000 {
                let Extent { lba, blocks } = generator.step().extent;
                assert!(lba.0 >= 100 && lba.0 + blocks.0 <= 164, "{lba:?}");
                assert!(rw == "read" || (lba.0 - 100).is_multiple_of(blocks.0));
            }
        }
    }

    #[test]
    fn streams_in_order_share_the_region_and_go_round() {
        let starts = |stream| {
            let mut generator = generator("read", "4k", (stream, 2));
            let lbas = (0..9).map(|_| generator.step().extent.lba.0);
            lbas.collect::<Vec<_>>()
        };
        assert_eq!(starts(0)[..3], [100, 108, 116]);
        assert_eq!(starts(1)[..3], [132, 140, 148]);
        assert_eq!(starts(0)[8], 100);
    }
}
