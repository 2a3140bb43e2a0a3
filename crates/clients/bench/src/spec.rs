//! What is to be measured.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longshore_initiator::options::{Options, QueueMaps};

use crate::pacing::RateLimits;
use crate::units::{self, UnitError};
use crate::workload::{BlockSizes, Pattern, WorkloadError};

/// One kind of stream, and how many of them there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What it is called; empty where there is only one.
    pub name: String,
    /// Direction and order of the operations, such as `randread`.
    pub pattern: Pattern,
    /// Share of reads where there are both, in percent.
    pub read_percent: u32,
    /// Bytes of an operation.
    pub sizes: BlockSizes,
    /// Operations that each stream keeps under way.
    pub depth: u16,
    pub streams: u16,
    /// Limits of all its streams together.
    pub rate: RateLimits,
    /// Its operations go to poll queues.
    pub poll: bool,
}

/// How long a run takes: until the first of these is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length {
    /// So long, without the warm-up.
    pub time: Option<Duration>,
    /// So many operations, each job counted for itself.
    pub operations: Option<u64>,
    /// So many bytes, each job counted for itself.
    pub bytes: Option<u64>,
}

/// Whether contents are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    #[default]
    Off,
    /// Writes are stamped, reads checked, and at the end all that was written is read again.
    On,
    /// Nothing is written; what earlier runs with the same seed have written is checked.
    Only,
}

/// Everything about a run but its place.
#[derive(Debug, Clone)]
pub struct Run {
    /// Never empty: at least one job.
    pub jobs: Vec<Job>,
    /// Number of queues of each kind.
    pub maps: QueueMaps,
    /// Threads; `None`: as many as there are processors, up to the number of queues.
    pub threads: Option<u16>,
    pub length: Length,
    /// Load that is not measured, before that.
    pub warmup: Duration,
    /// The measurement begins and ends with an answer, and holds generations of operations: as many as are under way at a
    /// time. A window of the clock alone has one too many or too few of operations that are slow.
    pub whole: bool,
    /// Of places, directions and contents.
    pub seed: u64,
    /// Whether contents are checked.
    pub verify: Verify,
    /// Where the region starts, in bytes.
    pub offset: u64,
    /// Bytes of the region; `None`: to the end of the volume.
    pub span: Option<u64>,
    /// Read data is dropped rather than put into memory.
    pub discard: bool,
    /// Threads do not sleep.
    pub spin: bool,
    /// Operations that fail are counted and do not end the run.
    pub continue_on_error: bool,
    /// Of the connections. Queues and depth follow from the above.
    pub options: Options,
}

impl Run {
    /// Whether the volume is changed.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.verify != Verify::Only && self.jobs.iter().any(|job| job.pattern.writes())
    }

    /// Bytes of the largest operation.
    #[must_use]
    pub fn largest(&self) -> u32 {
        let largest = self.jobs.iter().map(|job| job.sizes.largest());
        largest.max().expect("there is a job")
    }

    /// All sizes of operations.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.jobs.iter().flat_map(|job| job.sizes.sizes())
    }
}

/// A text that is not part of a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A workload or size within it.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A quantity within it.
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error(
        "`{0}` is not a queue depth; use 1 to 65535, or a range of powers of two such as 1..256"
    )]
    Depth(String),
    #[error("`{0}` is not a queue map; write for example default=1,read=2,poll=1")]
    Maps(String),
    /// Part of a job.
    #[error(
        "job `{job}`: `{part}` is not a setting; write for example \
         NAME,rw=randread,bs=4k,iodepth=1,numjobs=16, and add rwmixread=, rate=, rate-bytes= or \
         poll"
    )]
    Job { job: String, part: String },
    /// A job lacks something.
    #[error("job `{job}` has no {missing}=; add it")]
    JobLacks { job: String, missing: &'static str },
}

/// So many answers at a time let client and server work side by side: with all of a deep queue in one
/// batch, each waits while the other works.
const OPERATIONS_PER_RECEIVE: u64 = 64;

/// What one receive call had better bring, in bytes, if nobody says otherwise.
#[must_use]
pub fn receive_bytes(jobs: &[Job]) -> u64 {
    let largest = jobs.iter().map(|job| u64::from(job.sizes.largest())).max();
    let usual = largest.unwrap_or_default() * OPERATIONS_PER_RECEIVE;
    usual.clamp(32 << 10, 256 << 10)
}

/// Depths to measure: `32`, `1,8,32` or `1..256` (powers of two).
pub fn depths(text: &str) -> Result<Vec<u16>, SpecError> {
    let bad = || SpecError::Depth(text.to_owned());
    let number = |part: &str| part.parse::<u16>().ok().filter(|n| *n > 0).ok_or_else(bad);
    let mut depths = Vec::new();
    for part in text.split(',') {
        let Some((first, last)) = part.split_once("..") else {
            depths.push(number(part)?);
            continue;
        };
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last {
            return Err(bad());
        }
        let doubled = std::iter::successors(Some(first), |depth| depth.checked_mul(2));
        depths.extend(doubled.take_while(|depth| *depth < last));
        depths.push(last);
    }
    Ok(depths)
}

/// Sizes to measure: `4k`, `512,4k,64k`, or a mix such as `4k/60:64k/40`.
pub fn block_sizes(text: &str) -> Result<Vec<BlockSizes>, SpecError> {
    let parts = text.split(',').map(|part| part.parse().map_err(Into::into));
    parts.collect()
}

/// Queues by kind: `default=1,read=2,poll=1`.
pub fn maps(text: &str) -> Result<QueueMaps, SpecError> {
    let bad = || SpecError::Maps(text.to_owned());
    let mut maps = QueueMaps::default();
    for part in text.split(',') {
        let (kind, count) = part.split_once('=').ok_or_else(bad)?;
        let count: u16 = count.parse().map_err(|_| bad())?;
        match kind {
            "default" if count > 0 => maps.default = count,
            "read" => maps.read = count,
            "poll" => maps.poll = count,
            _ => return Err(bad()),
        }
    }
    Ok(maps)
}

impl FromStr for Job {
    type Err = SpecError;

    /// `NAME,rw=…,bs=…,iodepth=…,numjobs=…`, in `fio`'s words.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let bad = |part: &str| SpecError::Job {
            job: name.clone(),
            part: part.to_owned(),
        };
        if name.is_empty() || name.contains('=') {
            return Err(bad(&name));
        }
        let (mut pattern, mut sizes) = (None, None);
        let mut job = Self {
            name: name.clone(),
            pattern: Pattern::from_str("randread")?,
            read_percent: 50,
            sizes: BlockSizes::one(4096),
            depth: 1,
            streams: 1,
            rate: RateLimits::default(),
            poll: false,
        };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "rw" | "readwrite" => pattern = Some(value.parse()?),
                "bs" | "bssplit" => sizes = Some(value.parse()?),
                "iodepth" => job.depth = positive(value).ok_or_else(|| bad(part))?,
                "numjobs" => job.streams = positive(value).ok_or_else(|| bad(part))?,
                "rwmixread" => job.read_percent = percent(value).ok_or_else(|| bad(part))?,
                "rate" | "rate_iops" => job.rate.operations = Some(units::rate(value)?),
                "rate-bytes" => job.rate.bytes = Some(units::size(value)?).filter(|n| *n > 0),
                "poll" | "hipri" if matches!(value, "" | "1" | "true") => job.poll = true,
                _ => return Err(bad(part)),
            }
        }
        let lacks = |missing| SpecError::JobLacks {
            job: name.clone(),
            missing,
        };
        job.pattern = pattern.ok_or_else(|| lacks("rw"))?;
        job.sizes = sizes.ok_or_else(|| lacks("bs"))?;
        Ok(job)
    }
}

fn positive(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number| *number > 0)
}

/// A number up to 100.
#[must_use]
pub fn percent(text: &str) -> Option<u32> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|p| *p <= 100)
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} iodepth {}", self.pattern, self.sizes, self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_depths_is_one_of_powers_of_two() {
        assert_eq!(depths("32"), Ok(vec![32]));
        assert_eq!(depths("1..256"), Ok(vec![1, 2, 4, 8, 16, 32, 64, 128, 256]));
        assert_eq!(depths("1,4..20"), Ok(vec![1, 4, 8, 16, 20]));
        assert_eq!(depths("1..1"), Ok(vec![1]));
        for text in ["0", "", "8..1", "1..", "65536", "1..0", "x"] {
            assert!(depths(text).is_err(), "{text}");
        }
        assert_eq!(depths("1..65535").map(|depths| depths.len()), Ok(17));
    }

    #[test]
    fn a_list_of_sizes_may_hold_mixes() {
        let sizes = block_sizes("512,4k/50:8k/50,1m").unwrap();
        let shown: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["512", "4k/50:8k/50", "1m"]);
        assert!(block_sizes("4k,").is_err());
    }

    #[test]
    fn maps_name_kinds_of_queues() {
        let expected = QueueMaps {
            default: 1,
            read: 2,
            poll: 0,
        };
        assert_eq!(maps("default=1,read=2"), Ok(expected));
        assert_eq!(maps("read=2"), Ok(expected));
        for text in ["default=0", "write=1", "read", "read=x", ""] {
            assert!(maps(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_job_is_written_in_the_words_of_fio() {
        let job: Job = "readers,rw=randread,bs=4k,iodepth=1,numjobs=16"
            .parse()
            .unwrap();
        assert_eq!(
            (job.name.as_str(), job.streams, job.depth),
            ("readers", 16, 1)
        );
        assert_eq!(job.to_string(), "randread 4k iodepth 1");
        let job: Job = "m,rw=randrw,bs=4k/50:8k,rwmixread=70,rate=1k,poll"
            .parse()
            .unwrap();
        assert_eq!((job.read_percent, job.rate.operations), (70, Some(1_000)));
        assert!(job.poll);
        for text in [
            "rw=read,bs=4k",
            "a,rw=read",
            "a,bs=4k",
            "a,rw=read,bs=4k,numjobs=0",
            "a,rw=read,bs=4k,colour=red",
            "a,rw=read,bs=4k,rwmixread=101",
            "",
        ] {
            assert!(text.parse::<Job>().is_err(), "{text}");
        }
    }
}
