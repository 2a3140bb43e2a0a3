//! A connection that is lost at each place where it can be lost.
//!
//! The workload is always the same: it opens a remote volume through a proxy, writes and overwrites blocks with several
//! operations in flight, reads, zeros, deallocates, flushes, and counts a block up by compare and write. First it
//! runs undisturbed, which says how many PDUs go either way; then once for each of them, with the connection cut
//! before that PDU, or within it. Login and Connect are among them.
//!
//! After each cut: every operation has ended once, and well; blocks hold what was written last, seen through
//! a connection of its own; and the counter, of which each step can be taken once, stands at the steps that were
//! acknowledged, or at one more for each whose outcome is unknown.
//!
//! Our server and tgt are cut before every PDU by close and by reset, ours within every PDU as well; the other places are
//! sampled. `LONGSHORE_EXHAUSTIVE=1` (`cargo xtask peers --exhaustive`) takes every place in every way with every
//! peer.

use std::time::{Duration, Instant};

use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Data, Operation};
use longshore_initiator::options::{DigestWish, Options, QueueMaps};
use longshore_initiator::volume::RemoteVolume;
use longshore_reactor::Buffer;
use longshore_tests::proxy::{Cut, DIRECTIONS, Direction, How, Proxy};

use crate::Fact;
use crate::load::{Load, Model, Queues, Remote, extent, one, read, write};
use crate::peer::{Maker, Peer};

pub const FACTS: &[Fact] = &[
    Fact::of_all("a_cut_before_any_pdu_loses_and_doubles_nothing", boundaries),
    Fact::of_all("a_cut_within_a_pdu_loses_and_doubles_nothing", within),
    Fact::of_all(
        "silence_from_any_pdu_on_loses_and_doubles_nothing",
        silences,
    ),
];

/// The block that is counted up.
const COUNTER: u64 = 600;

/// Steps of the counter.
const STEPS: u64 = 4;

/// No workload takes longer, wherever it is cut; and from where on it is worth a line.
const PATIENCE: Duration = Duration::from_secs(15);
const SLOW: Duration = Duration::from_secs(1);

/// Blocks that are zeroed and deallocated.
const ZEROED: u64 = 520;

fn is_exhaustive() -> bool {
    std::env::var_os("LONGSHORE_EXHAUSTIVE").is_some()
}

fn options(peer: &Peer) -> Options {
    let mut options = peer.options();
    options.queues = QueueMaps::plain(2);
    options.depth = 8;
    // Larger writes take several R2Ts and Data-Outs, reads several Data-Ins.
    let keys = &mut options.iscsi.preferences;
    keys.first_burst_length = 8192;
    keys.max_burst_length = 32768;
    keys.max_recv_data_segment_length = 16384;
    // Over NVMe nothing proves that a former connection executes nothing any more, so time has to. Our server
    // needs none: the one that is cut has one thread, which takes connections in the order of what has come.
    options.volume.settle = match peer.maker {
        Maker::Longshore => Duration::from_millis(50),
        _ => Duration::from_millis(500),
    };
    options.timeouts.login = Duration::from_secs(2);
    options
}

/// Every nth place, and how connections are cut there.
#[derive(Clone, Copy)]
struct Sample {
    step: usize,
    bytes: usize,
    how: How,
}

fn boundaries(peer: &Peer) {
    let step = sampled(peer, [1, 1, 18]);
    for how in [How::Close, How::Reset] {
        let sample = Sample {
            step,
            bytes: 0,
            how,
        };
        cut_everywhere(peer, sample, &options(peer));
    }
}

fn within(peer: &Peer) {
    let step = sampled(peer, [1, 3, 46]);
    let mut options = options(peer);
    options.header_digest = DigestWish::Ask;
    options.data_digest = DigestWish::Ask;
    for (bytes, how) in [(1, How::Reset), (47, How::Close), (500, How::Reset)] {
        cut_everywhere(peer, Sample { step, bytes, how }, &options);
    }
}

fn silences(peer: &Peer) {
    let mut options = options(peer);
    options.timeouts.keep_alive = Duration::from_millis(150);
    options.timeouts.request = Duration::from_millis(800);
    options.timeouts.login = Duration::from_millis(800);
    options.nvme.keep_alive = Duration::from_millis(500);
    let step = sampled(peer, [19, 31, 61]);
    let sample = Sample {
        step,
        bytes: 0,
        how: How::Silence,
    };
    cut_everywhere(peer, sample, &options);
}

/// The distance between places: of ours, of others on this machine, of those that are emulated.
fn sampled(peer: &Peer, [ours, others, slow]: [usize; 3]) -> usize {
    match peer.maker {
        Maker::Longshore => ours,
        Maker::Tgt => others,
        Maker::Lio | Maker::Nvmet => slow,
    }
}

fn cut_everywhere(peer: &Peer, sample: Sample, options: &Options) {
    let begin = Instant::now();
    let proxy = Proxy::start(peer.cut_portal, peer.proxy_protocol()).expect("a proxy listens");
    run(peer, &proxy, options, None);
    let counts = proxy.counts();
    let mut cuts = 0;
    for direction in DIRECTIONS {
        let pdus = counts[usize::from(direction == Direction::ToClient)];
        let (first, step) = places(sample);
        for pdu in (first..pdus).step_by(step) {
            let cut = Cut {
                direction,
                pdu,
                bytes: sample.bytes,
                how: sample.how,
            };
            run(peer, &proxy, options, Some(cut));
            cuts += 1;
        }
    }
    println!(
        "{counts:?} PDUs, {cuts} cuts ({:?}) in {:.1?}",
        sample.how,
        begin.elapsed()
    );
}

/// The first place and the distance between places. Where these are sampled, each way of breaking has its own.
fn places(sample: Sample) -> (u64, usize) {
    if is_exhaustive() {
        return (0, 1);
    }
    let first = match sample.how {
        How::Close => 0,
        How::Reset => sample.step / 2,
        How::Silence => sample.step / 3,
    };
    (u64::try_from(first).expect("steps are small"), sample.step)
}

/// One workload with at most one cut.
fn run(peer: &Peer, proxy: &Proxy, options: &Options, cut: Option<Cut>) {
    let place = format!("{cut:?}");
    let begin = Instant::now();
    let guard = NotesCut(&place);
    let mut direct = Queues::attach(&peer.url_at(peer.cut_portal), &peer.options());
    let has_counter = peer.has_compare_and_write();
    if has_counter {
        write(&mut direct, COUNTER, &counter(0), false).expect("the counter is set");
    }
    direct.close();
    proxy.reset_counts();
    if let Some(cut) = cut {
        proxy.arm(cut);
    }
    let mut remote = open(peer, proxy, options);
    let mut model = Model::new(0..512);
    let mut load = Load::new(peer, 14, 4);
    load.region = 0..512;
    load.blocks_max = 140;
    load.fua_every = 3;
    for seed in [7, 8] {
        load.seed = seed;
        load.run_on(&mut remote, &mut model);
        let (flushed, _) = one(&mut remote, Operation::Flush, Data::None);
        flushed.unwrap_or_else(|failure| panic!("flush: {failure}"));
    }
    zero(&mut remote);
    let steps = has_counter.then(|| count_up(&mut remote));
    remote.close();
    proxy.disarm();
    let after = begin.elapsed();
    if after > SLOW {
        println!("slow: {after:.1?} with {place}");
    }
    assert!(after < PATIENCE, "it took {after:?}");

    let mut direct = Queues::attach(&peer.url_at(peer.cut_portal), &peer.options());
    model.verify(&mut direct);
    let zeros = read(&mut direct, ZEROED, 32).expect("the blocks are read");
    assert!(zeros.iter().all(|&byte| byte == 0), "zeros");
    if let Some(steps) = steps {
        let found = read(&mut direct, COUNTER, 1).expect("the counter is read");
        let count = value(&found);
        assert!(found[..] == counter(count)[..], "the counter is torn");
        let most = steps.acknowledged + steps.unknown;
        assert!(
            (steps.acknowledged..=most).contains(&count),
            "the counter stands at {count}: {steps:?}"
        );
    }
    direct.close();
    drop(guard);
}

/// Says where the connection was cut when the workload fails.
struct NotesCut<'a>(&'a str);

impl Drop for NotesCut<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with the connection cut at {}", self.0);
        }
    }
}

/// Opens the volume; while it is opened, its caller is the one to try again. Besides the cut, time may run out once.
fn open(peer: &Peer, proxy: &Proxy, options: &Options) -> Remote {
    let url = peer.url_at(proxy.address());
    for _ in 0..2 {
        match RemoteVolume::open(&url, options) {
            Ok(volume) => return Remote::over(volume),
            Err(error) => assert!(proxy.cuts() > 0 && error.is_transient(), "{error}"),
        }
    }
    Remote::open(&url, options)
}

/// Zeros half of the blocks in each way; all of them held something.
fn zero(remote: &mut Remote) {
    let bytes = vec![0xa5; 32 * 512];
    write(remote, ZEROED, &bytes, false).unwrap_or_else(|failure| panic!("write: {failure}"));
    for (lba, may_unmap) in [(ZEROED, false), (ZEROED + 16, true)] {
        let operation = Operation::WriteZeroes {
            extent: extent(lba, 16),
            may_unmap,
            fua: false,
        };
        let (result, _) = one(remote, operation, Data::None);
        result.unwrap_or_else(|failure| panic!("{operation:?}: {failure}"));
    }
    let operation = Operation::Unmap {
        extent: extent(ZEROED, 8),
    };
    let (result, _) = one(remote, operation, Data::None);
    result.unwrap_or_else(|failure| panic!("{operation:?}: {failure}"));
}

/// How steps of the counter ended.
#[derive(Debug, Default)]
struct Steps {
    acknowledged: u64,
    unknown: u64,
}

/// Takes steps one after the other, each from what was read just before.
fn count_up(remote: &mut Remote) -> Steps {
    let mut steps = Steps::default();
    for _ in 0..STEPS {
        let found = read(remote, COUNTER, 1).unwrap_or_else(|failure| panic!("read: {failure}"));
        let now = value(&found);
        let operation = Operation::CompareAndWrite {
            extent: extent(COUNTER, 1),
            fua: false,
        };
        let mut buffer = Buffer::allocate(1024);
        buffer[..512].copy_from_slice(&found);
        buffer[512..].copy_from_slice(&counter(now + 1));
        match one(remote, operation, Data::buffer(buffer)).0 {
            Ok(_) => steps.acknowledged += 1,
            Err(Failure::OutcomeUnknown(_)) => steps.unknown += 1,
            // Nobody else counts: a miscompare means that a step was taken twice.
            Err(failure) => panic!("step from {now}: {failure}; {steps:?}"),
        }
    }
    steps
}

/// The block at a count.
fn counter(count: u64) -> [u8; 512] {
    let mut block = [0; 512];
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&count.to_le_bytes());
    }
    block
}

fn value(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("a block has eight bytes"))
}
