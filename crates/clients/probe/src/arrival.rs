//! When the bytes of one large read come, with nothing else under way.
//!
//! ```text
//!   request                first byte            half                  last byte
//!     ├────────────────────────┼───────────────────┼───────────────────────┤
//!          medium, round trip        a bucket of           pace of
//!                                    the link              the link
//! ```
//!
//! A slow medium makes the first byte late, and the rest follows at the pace of the link. A slow link spreads the bytes
//! over the whole time. The pace is that of the second half: a link that has been idle may let some of the first half pass
//! at once. Where packets are lost, bytes wait for those before them, and much comes at once when these come again; then
//! the pace of the whole read is the smaller one, and counts. Both protocols show this, and so tell link and medium apart
//! where the one has no echo.

use std::time::{Duration, Instant};

use longshore_bench::bound::Bound;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::error::Lost;
use longshore_initiator::operation::{Data, Operation};
use longshore_model::probe::ArrivalFacts;
use longshore_model::spread::Spread;
use longshore_reactor::Buffer;

use crate::convert::microseconds;
use crate::course::Course;
use crate::error::Error;
use crate::transfer::{LIMIT, Setting, ended, submit};
use crate::turn::turn;

/// The read that tells how long others take, and that opens the congestion window.
const FIRST: u64 = 256 << 10;
/// The reads that are timed, where the first one was quick.
const LARGE: u64 = 1 << 20;
const QUICK: Duration = Duration::from_millis(25);
const ROUNDS: u32 = 15;
const ROUNDS_MIN: u32 = 3;
/// Arrivals from which a half of a read has a pace.
const ARRIVALS_MIN: usize = 3;

/// Bytes that have come since the request, and when.
type Arrivals = Vec<(Duration, u64)>;

/// What one read has shown, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    first: f64,
    /// Of the second half.
    tail: Option<Tail>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Tail {
    bytes_per_second: f64,
    /// The longest time without an arrival, as a part of the whole.
    pause: f64,
}

/// Reads for about so long.
pub(crate) fn measure(
    bound: &mut Bound,
    setting: &Setting<'_>,
    time: Duration,
    course: &mut Course<'_>,
) -> Result<Option<ArrivalFacts>, Error> {
    course.next("network and storage: bytes of one read")?;
    let most = setting.transfer_bytes.min(bound.place.volume_bytes);
    let block = u64::from(setting.block_size);
    let whole = |bytes: u64| bytes.min(most) / block * block;
    let began = Instant::now();
    let Some(arrivals) = read(bound, whole(FIRST), setting)? else {
        return Ok(None);
    };
    let took = arrivals.last().map_or(Duration::ZERO, |(at, _)| *at);
    let bytes = whole(if took < QUICK { LARGE } else { FIRST });
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        if round >= ROUNDS_MIN && began.elapsed() > time {
            break;
        }
        course.go_on()?;
        let arrivals = read(bound, bytes, setting)?;
        seen.extend(arrivals.as_deref().and_then(Seen::of));
    }
    let facts = facts(bytes, &seen);
    if facts
        .as_ref()
        .is_none_or(|it| it.bytes_per_second.is_none())
    {
        course.not_measured("the pace of a read", "all of it comes at once");
    }
    Ok(facts)
}

/// What rounds have in common.
fn facts(bytes: u64, seen: &[Seen]) -> Option<ArrivalFacts> {
    let first: Vec<f64> = seen.iter().map(|it| it.first).collect();
    let mut tails: Vec<Tail> = seen.iter().filter_map(|it| it.tail).collect();
    // Other programs that take the processor away make pauses. A medium or a window makes them in all rounds.
    tails.sort_by(|a, b| a.pause.total_cmp(&b.pause));
    tails.truncate(tails.len().div_ceil(2).max(2));
    let of = |value: fn(&Tail) -> f64| middle(tails.iter().map(value).collect());
    Some(ArrivalFacts {
        bytes,
        first_us: middle(first)?,
        bytes_per_second: of(|tail| tail.bytes_per_second).filter(|it| it.rounds > 1),
        pause: of(|tail| tail.pause).map_or(0.0, |pause| pause.value),
    })
}

/// The middle of some values, which one that was disturbed does not move, with the deviation of their mean.
fn middle(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let value = *values.get(values.len() / 2)?;
    Some(Spread {
        value,
        ..Spread::of(&values)
    })
}

impl Seen {
    fn of(arrivals: &[(Duration, u64)]) -> Option<Self> {
        let (first, _) = arrivals.first()?;
        Some(Self {
            first: microseconds(*first),
            tail: Tail::of(arrivals),
        })
    }
}

impl Tail {
    /// The second half of the bytes. None: they came in too few pieces.
    fn of(arrivals: &[(Duration, u64)]) -> Option<Self> {
        let (start, at_first) = *arrivals.first()?;
        let (end, all) = *arrivals.last()?;
        let half = arrivals.iter().position(|(_, bytes)| *bytes >= all / 2)?;
        let tail = &arrivals[half..];
        let (begin, before) = *tail.first()?;
        let time = (end - begin).as_secs_f64();
        if tail.len() <= ARRIVALS_MIN || time <= 0.0 {
            return None;
        }
        let gaps = tail.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let longest = gaps.max().unwrap_or_default();
        let pace = |bytes, time| longshore_bench::result::float(bytes) / time;
        let whole = pace(all - at_first, (end - start).as_secs_f64());
        Some(Self {
            bytes_per_second: whole.min(pace(all - before, time)),
            pause: longest.as_secs_f64() / time,
        })
    }
}

/// Reads once, from the beginning of the volume.
fn read(bound: &mut Bound, bytes: u64, setting: &Setting<'_>) -> Result<Option<Arrivals>, Error> {
    const WHAT: &str = "a read";
    let lost = Error::lost("while the bytes of a read came");
    let ([queue, ..], Ok(length)) = (bound.queues(), usize::try_from(bytes)) else {
        return Ok(None);
    };
    if length == 0 {
        return Ok(None);
    }
    let extent = Extent {
        lba: Lba(0),
        blocks: BlockCount(bytes / u64::from(setting.block_size)),
    };
    let data = Data::buffer(Buffer::allocate(length));
    let before = queue.counters().bytes_received;
    let mut arrivals = Arrivals::new();
    let mut completions = Vec::new();
    let began = Instant::now();
    submit(queue, Operation::Read { extent }, data, WHAT)?;
    while completions.is_empty() {
        let until = Instant::now() + LIMIT;
        turn(queue, &mut completions, until).map_err(&lost)?;
        let now = Instant::now();
        let come = queue.counters().bytes_received - before;
        if come > arrivals.last().map_or(0, |(_, bytes)| *bytes) {
            arrivals.push((now - began, come));
        } else if now >= until {
            return Err(lost(Lost::Silent));
        }
    }
    ended(&completions, WHAT)?;
    Ok(Some(arrivals))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals of packets of 1000 bytes: a time of the medium, a bucket, and the pace of the link, all in microseconds.
    fn arrivals(medium: u64, bucket: u64, packet: u64) -> Arrivals {
        let at = |number: u64| medium + packet * number.saturating_sub(bucket);
        (1..=100)
            .map(|number| (Duration::from_micros(at(number)), number * 1000))
            .collect()
    }

    #[test]
    fn a_slow_medium_makes_the_first_byte_late_and_a_slow_link_all_others() {
        let link = Seen::of(&arrivals(50, 20, 800)).unwrap();
        let medium = Seen::of(&arrivals(80_000, 20, 8)).unwrap();
        let pace = |seen: &Seen| seen.tail.unwrap().bytes_per_second;
        assert!((pace(&link) / 1.25e6 - 1.0).abs() < 1e-6, "{link:?}");
        assert!((pace(&medium) / 1.25e8 - 1.0).abs() < 1e-6, "{medium:?}");
        assert!(link.first < 100.0 && medium.first > 79_000.0);
        assert!(link.tail.unwrap().pause < 0.03);
    }

    #[test]
    fn a_medium_that_delivers_in_pieces_shows_pauses() {
        let pieces = (0..8_u64).flat_map(|piece| {
            (1..=10).map(move |packet| {
                let at = Duration::from_micros(10_000 * piece + 8 * packet);
                (at, (10 * piece + packet) * 1000)
            })
        });
        let pieces: Arrivals = pieces.collect();
        let tail = Tail::of(&pieces).unwrap();
        assert!(tail.pause > 0.2, "{tail:?}");
    }

    #[test]
    fn bytes_that_waited_for_a_lost_packet_make_no_pace() {
        // Packet 45 was lost, and came after packet 70.
        let at = |number: u64| {
            if (45..70).contains(&number) {
                70
            } else {
                number
            }
        };
        let arrivals: Arrivals = (1..=100)
            .map(|number| (Duration::from_micros(800 * at(number)), number * 1000))
            .collect();
        let tail = Tail::of(&arrivals).unwrap();
        assert!(
            (tail.bytes_per_second / 1.25e6 - 1.0).abs() < 0.02,
            "{tail:?}"
        );
    }

    #[test]
    fn what_comes_at_once_has_no_pace_and_one_disturbed_round_moves_nothing() {
        let at_once = [(Duration::from_micros(70), 1 << 20)];
        let seen = Seen::of(&at_once).unwrap();
        assert_eq!(seen.tail, None);
        assert_eq!(facts(1 << 20, &[seen]).unwrap().bytes_per_second, None);
        assert_eq!(facts(1 << 20, &[]), None);
        let usual = arrivals(50, 0, 800);
        // The processor was away for as long as half of it takes.
        let late = |&(at, bytes): &(Duration, u64)| {
            let away = if bytes > 70_000 { 40_000 } else { 0 };
            (at + Duration::from_micros(away), bytes)
        };
        let disturbed: Arrivals = usual.iter().map(late).collect();
        let seen = [&usual, &disturbed, &disturbed, &usual].map(|it| Seen::of(it).unwrap());
        let facts = facts(100_000, &seen).unwrap();
        let pace = facts.bytes_per_second.unwrap();
        assert!((pace.value / 1.25e6 - 1.0).abs() < 1e-6, "{facts:?}");
        assert!(facts.pause < 0.03, "{facts:?}");
    }
}
