//! The network: handshakes, pings, pings with data.
//!
//! The kernel of the server answers handshakes, so they have no wake-up of a server in them, which pings have. Pings at
//! an interval of 2 ms find processors and radios awake, as a load does; those at 200 ms do not.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longshore_bench::bound::Bound;
use longshore_model::probe::{NetworkFacts, RemarkKind};
use longshore_model::spread::{Distribution, Spread};
use longshore_reactor::socket::tcp_info;

use crate::convert::{microseconds, tcp};
use crate::course::Course;
use crate::error::Error;
use crate::ping::ping;

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_millis(200);
/// Connections whose handshakes are timed.
const HANDSHAKES: usize = 8;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ROUNDS: u32 = 3;
/// Data of a ping at most.
const ECHO_MAX: usize = 256 << 10;
/// Pings at a long interval mislead when they take so much longer, in parts and in microseconds.
const MISLEADING: (f64, f64) = (1.4, 20.0);

/// Measures for about so long.
pub(crate) fn measure(
    bound: &mut Bound,
    segment_bytes: usize,
    time: Duration,
    course: &mut Course<'_>,
) -> Result<NetworkFacts, Error> {
    course.next("network: handshakes")?;
    let handshake_rtt_us = handshakes(bound, course);
    course.next("network: round trips every 2 ms")?;
    let ping_us = pings(bound, SHORT, time.mul_f64(0.3), course)?;
    course.next("network: round trips every 200 ms")?;
    let rare = pings(bound, LONG, time.mul_f64(0.6), course)?;
    course.next("network: data without storage")?;
    let echo_bytes_per_second = echo(bound, segment_bytes, time.mul_f64(0.1), course)?;
    let info = bound.tcp().ok().and_then(|all| all.first().copied());
    if info.is_none() {
        course.not_measured("TCP_INFO", "the kernel does not tell");
    }
    look_at(&ping_us, &rare, course);
    Ok(NetworkFacts {
        ping_us,
        ping_rare_us: (rare.count > 0).then_some(rare),
        handshake_rtt_us,
        echo_bytes_per_second,
        tcp: info.as_ref().map(tcp).unwrap_or_default(),
        mtu: info.map(|info| info.path_mtu).filter(|mtu| *mtu > 0),
    })
}

/// What the distributions say themselves.
fn look_at(short: &Distribution, rare: &Distribution, course: &mut Course<'_>) {
    if let [low, high, ..] = short.modes[..] {
        let text = format!(
            "round trips lie in two heaps, at {:.0} µs ({:.0} %) and at {:.0} µs ({:.0} %): their mean describes neither",
            low.at,
            low.share * 100.0,
            high.at,
            high.share * 100.0
        );
        course.remark(RemarkKind::Bimodal, text);
    }
    let (factor, more) = MISLEADING;
    if rare.count > 0 && rare.p50 > short.p50 * factor && rare.p50 > short.p50 + more {
        let text = format!(
            "a round trip takes {:.0} µs at an interval of 200 ms and {:.0} µs at 2 ms: what ping shows at its usual \
             interval is not what a load meets",
            rare.p50, short.p50
        );
        course.remark(RemarkKind::LongIntervalMisleads, text);
    }
}

/// Round trips of fresh connections, as the kernel has timed them.
fn handshakes(bound: &Bound, course: &mut Course<'_>) -> Distribution {
    let portal = bound.place.portal.as_deref();
    let Some(portal) = portal.and_then(|portal| portal.parse::<SocketAddr>().ok()) else {
        course.not_measured("handshakes", "the portal has no address");
        return Distribution::default();
    };
    let mut times = Vec::new();
    for _ in 0..HANDSHAKES {
        let made = TcpStream::connect_timeout(&portal, CONNECT_LIMIT);
        match made.and_then(tcp_info) {
            Ok(info) => times.push(f64::from(info.rtt_us)),
            Err(error) => {
                course.not_measured("handshakes", error);
                break;
            }
        }
    }
    Distribution::of(&times)
}

/// Pings for so long.
fn pings(
    bound: &mut Bound,
    interval: Duration,
    time: Duration,
    course: &mut Course<'_>,
) -> Result<Distribution, Error> {
    let lost = Error::lost("while round trips were measured");
    let mut times = Vec::new();
    let began = Instant::now();
    let mut next = began;
    while began.elapsed() < time {
        course.go_on()?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let Some(took) = ping(bound, &[]).map_err(&lost)? else {
            course.not_measured("round trips", "the peer answers no ping");
            break;
        };
        times.push(microseconds(took));
        // One that took longer than the interval is followed by the next at once, not by all that were due.
        next = (next + interval).max(Instant::now());
    }
    Ok(Distribution::of(&times))
}

/// Bytes per second, each way, from what pings with a full segment take longer.
fn echo(
    bound: &mut Bound,
    segment_bytes: usize,
    time: Duration,
    course: &mut Course<'_>,
) -> Result<Option<Spread>, Error> {
    let length = segment_bytes.min(ECHO_MAX);
    let what = "throughput without storage";
    if length == 0 {
        course.not_measured(what, "NVMe has no echo; see the large reads");
        return Ok(None);
    }
    let data = vec![0; length];
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let Some(rate) = echo_round(bound, &data, time / ROUNDS, course)? else {
            course.not_measured(what, "the peer does not give back the data of a ping");
            return Ok(None);
        };
        rounds.push(rate);
    }
    rounds.retain(|rate| rate.is_finite() && *rate > 0.0);
    if rounds.len() < 2 {
        course.not_measured(what, "a ping with data takes no longer than one without");
        return Ok(None);
    }
    Ok(Some(Spread::of(&rounds)))
}

fn echo_round(
    bound: &mut Bound,
    data: &[u8],
    time: Duration,
    course: &Course<'_>,
) -> Result<Option<f64>, Error> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let began = Instant::now();
    // Three of each at least, however slow the link is.
    while began.elapsed() < time || with.len() < 3 {
        course.go_on()?;
        for (data, times) in [(data, &mut with), (&[], &mut without)] {
            let took = ping(bound, data).map_err(Error::lost("while data was echoed"))?;
            let Some(took) = took else {
                return Ok(None);
            };
            times.push(took.as_secs_f64());
        }
    }
    let both_ways = middle(&mut with) - middle(&mut without);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a segment has less than 2^24 bytes"
    )]
    let bytes = 2.0 * data.len() as f64;
    Ok(Some(bytes / both_ways))
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
