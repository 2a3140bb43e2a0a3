//! The probe as a whole.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longshore_bench::bound::Bound;
use longshore_bench::cpu::ProcessClock;
use longshore_bench::measure::BenchError;
use longshore_bench::medium::Medium;
use longshore_bench::units::show_size;
use longshore_bench::watch::Interrupt;
use longshore_bench::workload::Region;
use longshore_initiator::options::QueueMaps;
use longshore_model::probe::{PROBE_VERSION, Probe, RemarkKind, Subject, TransferFacts};
use longshore_reactor::Buffer;

use crate::arrival;
use crate::client;
use crate::course::Course;
use crate::error::Error;
use crate::network;
use crate::options::{Options, Watch, WriteRegion};
use crate::plan::{DEPTH_MAX, LoadLimits, loads};
use crate::points::{Known, Loads};
use crate::server::{Statistics, since};
use crate::subject;
use crate::transfer::{self, Setting};

/// Parts of the time: the network has so much, and loads the rest.
const NETWORK: f64 = 0.14;
/// One read at a time has so much, of a server.
const ARRIVAL: f64 = 0.08;
/// Memory for the content of a region that is written.
const REGION_MAX: u64 = 64 << 20;
/// The region is read in operations of so much.
const READ_BYTES: u32 = 256 << 10;
/// An operation of a probe takes no longer.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const BLOCK_MAX: u64 = 1 << 20;
/// Bytes that one operation of a probe moves at most.
const OPERATION_MAX: u64 = 4 << 20;

/// Probes a volume, a file or a device.
///
/// # Errors
/// It cannot be reached or measured; nothing is told of half a probe.
pub fn probe(
    medium: &Medium,
    mut options: Options,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<Probe, Error> {
    let made = SystemTime::now().duration_since(UNIX_EPOCH);
    let made_ms = made.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
    let mut course = Course::new(interrupt, watch, options.time);
    course.next("attaching")?;
    let connection = &mut options.connection;
    connection.queues = QueueMaps::plain(1);
    connection.depth = DEPTH_MAX;
    connection.timeouts.request = connection.timeouts.request.min(REQUEST_LIMIT);
    let writes = options.writes.is_some();
    let mut bound = Bound::open(medium, connection, options.local, writes)?;
    let measured = measure(&mut bound, &mut options, &mut course);
    bound.close();
    let mut probe = measured?;
    let (remarks, took) = course.into_remarks();
    probe.version = PROBE_VERSION;
    probe.made_ms = made_ms;
    probe.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    probe.seed = options.seed;
    probe.remarks = remarks;
    Ok(probe)
}

/// All but what is known at the end.
fn measure(
    bound: &mut Bound,
    options: &mut Options,
    course: &mut Course<'_>,
) -> Result<Probe, Error> {
    prepare_thread();
    let subject = subject::of(bound);
    let negotiated = subject::negotiated(bound);
    let block_size = block_size(&subject)?;
    if let Some(allocated) = bound.allocated() {
        let text = format!(
            "{} of {} are allocated; reading the rest moves no data from the medium",
            show_size(allocated),
            show_size(subject.volume_bytes)
        );
        course.remark(RemarkKind::Other, text);
    }
    let most = bound
        .transfer_bytes()
        .unwrap_or(u64::MAX)
        .min(OPERATION_MAX);
    let known = match options.writes {
        Some(region) => Some(read_region(bound, region, block_size, most, course)?),
        None => None,
    };
    let mut statistics = Statistics::new(options.statistics.take());
    let before = statistics.read();
    let clock = options.server_pid.map(ProcessClock::new).transpose();
    let clock = clock.map_err(BenchError::Server)?;
    let is_remote = subject.portal.is_some();
    let network_time = options.time.mul_f64(NETWORK);
    let network = if is_remote {
        let number = |name: &str| negotiated.get(name)?.parse::<usize>().ok();
        let segment = number("MaxRecvDataSegmentLength (target)")
            .zip(number("MaxRecvDataSegmentLength (initiator)"))
            .map_or(0, |(theirs, ours)| theirs.min(ours));
        Some(network::measure(bound, segment, network_time, course)?)
    } else {
        None
    };
    let transfer = match &network {
        Some(network) => {
            let round_trip = Duration::try_from_secs_f64(network.ping_us.p99 / 1e6);
            let setting = Setting {
                negotiated: &negotiated,
                transfer_bytes: most,
                block_size,
                round_trip: round_trip.unwrap_or_default(),
            };
            let mut transfer = transfer::measure(bound, known.as_ref(), &setting, course)?;
            let time = options.time.mul_f64(ARRIVAL);
            transfer.arrival = arrival::measure(bound, &setting, time, course)?;
            Some(transfer)
        }
        None => None,
    };
    let reads_max = most.min(subject.volume_bytes);
    let region = known.as_ref().map_or(0, |known| known.content.len());
    let writes_max = most.min(u64::try_from(region).unwrap_or(0));
    let limits = LoadLimits {
        block_size,
        reads_max,
        writes_max,
    };
    let planned = loads(limits, &options.asked);
    let time = options.time
        - if is_remote {
            network_time + options.time.mul_f64(ARRIVAL)
        } else {
            Duration::ZERO
        };
    let measured = Loads {
        planned: &planned,
        known: known.as_ref(),
        connection: &options.connection,
        seed: options.seed,
        server: clock.filter(|_| before.is_none()),
        time,
    };
    let points = measured.measure(bound, &mut statistics, course)?;
    let after = statistics.read();
    let server = before
        .as_ref()
        .zip(after.as_ref())
        .map(|(before, after)| since(before, after));
    let server = server.filter(|server| server.operations > 0);
    if let Some(failure) = statistics.failure() {
        course.not_measured("the server's own statistics", failure);
    } else if before.is_some() && server.is_none() {
        let why = "the server that was named has done nothing of what was measured";
        course.not_measured("the server's processors", why);
    } else if before.is_none() && clock.is_none() && is_remote {
        let why = "the server tells nothing of them here; they are inferred from loads";
        course.not_measured("the server's processors", why);
    }
    if let Some(known) = &known {
        look_again(bound, known, block_size, most, course)?;
    }
    Ok(Probe {
        subject,
        network,
        negotiated,
        transfer: transfer.filter(|facts| *facts != TransferFacts::default()),
        points,
        client: client::facts(),
        server,
        ..Probe::default()
    })
}

fn block_size(subject: &Subject) -> Result<u32, Error> {
    let Subject {
        volume_bytes,
        block_size,
        ..
    } = *subject;
    let is_usable = (1..=BLOCK_MAX).contains(&block_size) && block_size <= volume_bytes;
    let size = u32::try_from(block_size).ok().filter(|_| is_usable);
    size.ok_or(Error::Volume {
        volume_bytes,
        block_size,
    })
}

/// Reads the region that may be written: writes write what is there.
fn read_region(
    bound: &mut Bound,
    region: WriteRegion,
    block_size: u32,
    most: u64,
    course: &mut Course<'_>,
) -> Result<Known, Error> {
    course.next("reading the region of --write")?;
    if bound.is_read_only() {
        return Err(Error::ReadOnly);
    }
    let block = u64::from(block_size);
    let wrong = |what: String| Err(Error::Region(what));
    if !region.offset.is_multiple_of(block) || !region.length.is_multiple_of(block) {
        return wrong(format!(
            "the region does not consist of whole blocks of {block} bytes"
        ));
    }
    let end = region.offset.checked_add(region.length);
    if end.is_none_or(|end| end > bound.place.volume_bytes) {
        let has = show_size(bound.place.volume_bytes);
        return wrong(format!(
            "the region ends behind the volume, which has {has}"
        ));
    }
    if region.length == 0 || region.length > REGION_MAX {
        let most = show_size(REGION_MAX);
        return wrong(format!(
            "a region has one block at least and {most} at most"
        ));
    }
    let size = u32::try_from(most).unwrap_or(u32::MAX).min(READ_BYTES);
    let mut content = Buffer::allocate(usize::try_from(region.length).expect("it fits"));
    // In pieces, so that a slow server does not keep a signal waiting.
    let piece = u64::from(READ_BYTES).next_multiple_of(block);
    let mut done = 0;
    while done < region.length {
        course.go_on()?;
        let length = piece.min(region.length - done);
        let blocks = Region {
            lba: (region.offset + done) / block,
            blocks: length / block,
            block_size,
        };
        let bytes = bound.read(blocks, size, REQUEST_LIMIT)?;
        let start = usize::try_from(done).expect("it fits");
        content[start..start + bytes.len()].copy_from_slice(&bytes);
        done += length;
    }
    Ok(Known {
        offset: region.offset,
        content: Arc::new(content),
    })
}

/// Whether the region still holds what was read before it was written.
fn look_again(
    bound: &mut Bound,
    known: &Known,
    block_size: u32,
    most: u64,
    course: &mut Course<'_>,
) -> Result<(), Error> {
    let region = WriteRegion {
        offset: known.offset,
        length: u64::try_from(known.content.len()).unwrap_or(0),
    };
    let now = read_region(bound, region, block_size, most, course)?;
    if now.content[..] != known.content[..] {
        let text = "the region of --write holds other data than before: somebody else has written to it meanwhile, and \
                    may have lost some of that";
        course.warn(text);
        course.remark(RemarkKind::OtherLoad, text.to_owned());
    }
    Ok(())
}

/// Timers are to be exact to the microsecond: the kernel's usual slack is 50.
fn prepare_thread() {
    // Without it pings are a little less regular.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}
