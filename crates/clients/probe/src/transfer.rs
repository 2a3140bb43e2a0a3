//! How the data of reads and writes travels, as far as it can be seen from here.
//!
//! A queue sends nothing unless it is told to. So the data of a write can be held back: what a server asks for (R2T) within
//! a few round trips, without having got any of it, is what it lets be outstanding. The same with sending stopped behind
//! the header tells whether it asks before the data that goes without being asked for.
//!
//! ```text
//!   here                                          the server
//!   command, data that needs no R2T  ──────────►
//!                    (nothing more)  ◄──────────  R2T, R2T …   as many as it lets be outstanding
//!   the data asked for               ──────────►
//!                                    ◄──────────  R2T …, status
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_bench::bound::Bound;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::error::Lost;
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::queue::{AnyQueue, QueueCounters};
use longshore_model::probe::TransferFacts;
use longshore_model::spread::Spread;
use longshore_reactor::Buffer;

use crate::convert::microseconds;
use crate::course::Course;
use crate::error::Error;
use crate::points::Known;
use crate::turn::{receive, turn};

/// Sizes of the writes whose R2Ts are counted.
const WRITES: [u32; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The read whose data PDUs are counted.
const READ: u32 = 256 << 10;
const ROUNDS: usize = 3;
/// Bytes of the header of an iSCSI command, and of a digest behind it.
const HEADER: usize = 48;
const DIGEST: usize = 4;
/// An operation takes no longer, or the peer is lost.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// What has to be known beforehand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) negotiated: &'a BTreeMap<String, String>,
    /// Bytes of an operation at most.
    pub(crate) transfer_bytes: u64,
    pub(crate) block_size: u32,
    /// How long an answer of the server takes.
    pub(crate) round_trip: Duration,
}

impl Setting<'_> {
    /// As long as an R2T may be under way.
    fn patience(&self) -> Duration {
        (self.round_trip * 3 + Duration::from_millis(5)).min(Duration::from_secs(2))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.negotiated.get(name)?.parse().ok()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.negotiated.get(name).is_some_and(|is| is == value)
    }

    /// Bytes behind which a write stops: its header, and its first PDU where more goes without being asked for. None where
    /// all of its data waits for R2Ts, or none of it does.
    fn stops(&self, write: usize) -> Vec<usize> {
        self.find_stops(write).unwrap_or_default()
    }

    fn find_stops(&self, write: usize) -> Option<Vec<usize>> {
        let immediate = self.is("ImmediateData", "Yes");
        let solicited = self.is("InitialR2T", "Yes");
        let first_burst = self.number("FirstBurstLength")?;
        let segment = self.number("MaxRecvDataSegmentLength (target)")?;
        let with_command = if immediate {
            first_burst.min(segment)
        } else {
            0
        };
        let unsolicited = if solicited { with_command } else { first_burst };
        if unsolicited == 0 || unsolicited >= write {
            return None;
        }
        let digest = |name| if self.is(name, "CRC32C") { DIGEST } else { 0 };
        let header = HEADER + digest("HeaderDigest");
        let mut stops = vec![header];
        if (1..unsolicited).contains(&with_command) {
            stops.push(header + with_command + digest("DataDigest"));
        }
        Some(stops)
    }
}

/// What a write has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// R2Ts of the whole write.
    all: u32,
    /// Those that came while the data was held back.
    outstanding: u32,
    /// The most bytes that one asks for.
    bytes: u32,
    /// From the last byte that needed no R2T to the first R2T.
    first: Option<Duration>,
}

/// Looks at reads, and at writes to a region if there is one.
pub(crate) fn measure(
    bound: &mut Bound,
    known: Option<&Known>,
    setting: &Setting<'_>,
    course: &mut Course<'_>,
) -> Result<TransferFacts, Error> {
    course.next("protocol: data of reads and writes")?;
    let mut facts = TransferFacts {
        read_segment_bytes: read_segment(bound, setting)?,
        ..TransferFacts::default()
    };
    let Some(known) = known else {
        let why = "it takes writes; give a region to --write, on a volume that nobody uses";
        course.not_measured("R2Ts", why);
        return Ok(facts);
    };
    let region = u64::try_from(known.content.len()).unwrap_or(0);
    let most = region.min(setting.transfer_bytes);
    let fits = |size: &u32| u64::from(*size) <= most && size.is_multiple_of(setting.block_size);
    let mut largest = None;
    for size in WRITES.into_iter().filter(fits) {
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            course.next("protocol: what writes are asked for")?;
            seen.push(write(bound, known, size, setting)?);
        }
        facts
            .r2ts_per_write
            .insert(size.into(), seen.iter().map(|it| it.all).max().unwrap_or(0));
        largest = Some((size, seen));
    }
    let Some((size, seen)) = largest else {
        course.not_measured("R2Ts", "the region has no room for a write of 64 KiB");
        return Ok(facts);
    };
    // What arrived late in one round arrived in time in another.
    let outstanding = seen.iter().map(|it| it.outstanding).max().unwrap_or(0);
    if outstanding == 0 {
        return Ok(facts);
    }
    facts.outstanding = Some(outstanding);
    facts.r2t_bytes = seen.iter().map(|it| u64::from(it.bytes)).max();
    let first: Vec<f64> = seen
        .iter()
        .filter_map(|it| it.first)
        .map(microseconds)
        .collect();
    facts.first_r2t_us = (!first.is_empty()).then(|| Spread::of(&first));
    let all = seen.iter().map(|it| it.all).max().unwrap_or(0);
    if outstanding == all && all > 1 {
        let text = format!(
            "all {all} R2Ts of the largest write came at once: the server may let more than {outstanding} be outstanding"
        );
        course.not_measured("the limit of outstanding R2Ts", text);
    }
    facts.early = early(bound, known, size, setting)?;
    Ok(facts)
}

/// Bytes of a data PDU of a read.
fn read_segment(bound: &mut Bound, setting: &Setting<'_>) -> Result<Option<u64>, Error> {
    let block = u64::from(setting.block_size);
    let most = u64::from(READ)
        .min(setting.transfer_bytes)
        .min(bound.place.volume_bytes);
    let blocks = most / block;
    let [queue, ..] = bound.queues() else {
        return Ok(None);
    };
    let Ok(length) = usize::try_from(blocks * block) else {
        return Ok(None);
    };
    let extent = Extent {
        lba: Lba(0),
        blocks: BlockCount(blocks),
    };
    let data = Data::buffer(Buffer::allocate(length));
    let before = queue.counters().data_pdus;
    submit(queue, Operation::Read { extent }, data, "a read")?;
    finish(queue, "a read")?;
    let pdus = queue.counters().data_pdus - before;
    Ok((pdus > 0).then(|| (blocks * block).div_ceil(pdus)))
}

/// A write of what is there, whose data is held back until the server has had the time to ask for it.
fn write(
    bound: &mut Bound,
    known: &Known,
    size: u32,
    setting: &Setting<'_>,
) -> Result<Seen, Error> {
    let lost = Error::lost("while the data of a write was held back");
    let [queue, ..] = bound.queues() else {
        return Ok(Seen::default());
    };
    let before = *queue.counters();
    begin_write(queue, known, size, setting)?;
    // A socket that takes no more is full of what needs no R2T.
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    while queue.has_unsent() && requests(queue, &before) == 0 {
        queue.send().map_err(&lost)?;
        if queue.has_unsent() {
            receive(
                queue,
                &mut completions,
                Instant::now() + Duration::from_millis(1),
            )
            .map_err(&lost)?;
        }
        if Instant::now() >= until {
            return Err(lost(Lost::Silent));
        }
    }
    let first = hold(queue, &mut completions, &before, setting.patience()).map_err(&lost)?;
    let outstanding = requests(queue, &before);
    if completions.is_empty() {
        finish(queue, "a write")?;
    } else {
        ended(&completions, "a write")?;
    }
    let after = queue.counters();
    Ok(Seen {
        all: requests(queue, &before),
        outstanding,
        // The largest since the connection began: all writes have bursts of one length.
        bytes: after.data_request_bytes_max,
        first,
    })
}

/// Whether the server asks before the data that needs no R2T has come.
fn early(
    bound: &mut Bound,
    known: &Known,
    size: u32,
    setting: &Setting<'_>,
) -> Result<Option<bool>, Error> {
    let lost = Error::lost("while the data of a write was held back");
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let stops = setting.stops(length);
    if stops.is_empty() {
        return Ok(None);
    }
    let [queue, ..] = bound.queues() else {
        return Ok(None);
    };
    let before = *queue.counters();
    begin_write(queue, known, size, setting)?;
    let mut completions = Vec::new();
    let mut early = false;
    for stop in stops {
        let sent = queue.counters().bytes_sent - before.bytes_sent;
        let more = stop.saturating_sub(usize::try_from(sent).unwrap_or(usize::MAX));
        if more == 0 {
            continue;
        }
        queue.send_at_most(more).map_err(&lost)?;
        hold(queue, &mut completions, &before, setting.patience()).map_err(&lost)?;
        if requests(queue, &before) > 0 {
            early = true;
            break;
        }
    }
    if completions.is_empty() {
        finish(queue, "a write")?;
    }
    Ok(Some(early))
}

/// Receives for so long and sends nothing. When the first R2T came.
fn hold(
    queue: &mut AnyQueue,
    completions: &mut Vec<Completion>,
    before: &QueueCounters,
    patience: Duration,
) -> Result<Option<Duration>, Lost> {
    let began = Instant::now();
    let mut first = (requests(queue, before) > 0).then_some(Duration::ZERO);
    let until = began + patience;
    while Instant::now() < until && completions.is_empty() {
        receive(queue, completions, until)?;
        if first.is_none() && requests(queue, before) > 0 {
            first = Some(began.elapsed());
        }
    }
    Ok(first)
}

fn requests(queue: &AnyQueue, before: &QueueCounters) -> u32 {
    let since = queue.counters().data_requests - before.data_requests;
    u32::try_from(since).unwrap_or(u32::MAX)
}

fn begin_write(
    queue: &mut AnyQueue,
    known: &Known,
    size: u32,
    setting: &Setting<'_>,
) -> Result<(), Error> {
    let block = u64::from(setting.block_size);
    let extent = Extent {
        lba: Lba(known.offset / block),
        blocks: BlockCount(u64::from(size) / block),
    };
    let operation = Operation::Write { extent, fua: false };
    let data = Data::shared(Arc::clone(&known.content));
    submit(queue, operation, data, "a write")
}

pub(crate) fn submit(
    queue: &mut AnyQueue,
    operation: Operation,
    data: Data,
    what: &'static str,
) -> Result<(), Error> {
    use longshore_initiator::queue::Refusal;
    match queue.submit(operation, data, 0) {
        Ok(()) => Ok(()),
        Err(rejected) => match rejected.refusal {
            Refusal::Busy => Err(Error::lost("before an operation")(Lost::Silent)),
            Refusal::Failed(failure) => Err(Error::Failed(what, failure)),
        },
    }
}

/// Sends and receives until the operation has ended.
fn finish(queue: &mut AnyQueue, what: &'static str) -> Result<(), Error> {
    let lost = Error::lost("during one operation");
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    while completions.is_empty() {
        turn(queue, &mut completions, until).map_err(&lost)?;
        if completions.is_empty() && Instant::now() >= until {
            return Err(lost(Lost::Silent));
        }
    }
    ended(&completions, what)
}

pub(crate) fn ended(completions: &[Completion], what: &'static str) -> Result<(), Error> {
    let failure = completions.iter().find_map(|it| it.result.as_ref().err());
    failure.map_or(Ok(()), |failure| Err(Error::Failed(what, failure.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn stops(pairs: &[(&str, &str)], write: usize) -> Vec<usize> {
        let negotiated = negotiated(pairs);
        let setting = Setting {
            negotiated: &negotiated,
            transfer_bytes: 1 << 20,
            block_size: 512,
            round_trip: Duration::ZERO,
        };
        setting.stops(write)
    }

    const LENGTHS: [(&str, &str); 2] = [
        ("FirstBurstLength", "65536"),
        ("MaxRecvDataSegmentLength (target)", "8192"),
    ];

    #[test]
    fn a_write_stops_behind_its_header_and_behind_its_first_pdu() {
        let [burst, segment] = LENGTHS;
        let usual = [
            burst,
            segment,
            ("ImmediateData", "Yes"),
            ("InitialR2T", "No"),
        ];
        assert_eq!(stops(&usual, 1 << 20), [48, 48 + 8192]);
        // All of it goes without being asked for.
        assert!(stops(&usual, 65_536).is_empty());
        let digests = [
            burst,
            segment,
            ("ImmediateData", "Yes"),
            ("InitialR2T", "Yes"),
            ("HeaderDigest", "CRC32C"),
            ("DataDigest", "CRC32C"),
        ];
        // Behind the first PDU nothing more is to come.
        assert_eq!(stops(&digests, 1 << 20), [52]);
        let bare = [
            burst,
            segment,
            ("ImmediateData", "No"),
            ("InitialR2T", "No"),
        ];
        assert_eq!(stops(&bare, 1 << 20), [48]);
    }

    #[test]
    fn without_data_that_needs_no_r2t_none_is_early() {
        let [burst, segment] = LENGTHS;
        let none = [
            burst,
            segment,
            ("ImmediateData", "No"),
            ("InitialR2T", "Yes"),
        ];
        assert!(stops(&none, 1 << 20).is_empty());
        assert!(stops(&[("MAXH2CDATA", "65536")], 1 << 20).is_empty());
    }
}
