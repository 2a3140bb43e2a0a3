//! Probes of servers: ours in both protocols, tgt, and some that are none.

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_bench::medium::Medium;
use longshore_bench::watch::Interrupt;
use longshore_model::probe::{
    Direction, Make, Pattern, Probe, RemarkKind, Role, TransferFacts, Way,
};
use longshore_probe::{Error, Options, Unwatched, Watch, WriteRegion, probe};
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET};
use longshore_tests::skip::skip;
use longshore_tests::tgt::{Tgt, TgtVolume};

const MEGABYTE: u64 = 1 << 20;

fn options(writes: bool) -> Options {
    Options {
        time: Duration::from_secs(3),
        writes: writes.then_some(WriteRegion {
            offset: MEGABYTE,
            length: 4 * MEGABYTE,
        }),
        ..Options::default()
    }
}

fn probed(url: &str, options: Options) -> Result<Probe, Error> {
    let medium = Medium::parse(url.into()).unwrap();
    probe(&medium, options, &Interrupt::default(), &mut Unwatched)
}

fn serve(config: &str) -> Server {
    let server = ServerBuilder::new().volume("m,backend=mem,size=64M");
    server.iscsi().nvme().config(config).start().unwrap()
}

fn iscsi(server: &Server) -> String {
    format!("iscsi://{}/{TARGET}/0", server.portal(0))
}

fn nvme(server: &Server) -> String {
    format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.nvme(0))
}

/// What every probe of a server has.
fn check(probe: &Probe, writes: bool) {
    // Numbers may lose their last bit on the way.
    let again = Probe::parse(&probe.to_json()).unwrap();
    assert_eq!(again.subject, probe.subject);
    assert_eq!(again.points.len(), probe.points.len());
    let network = probe.network.as_ref().unwrap();
    assert!(network.ping_us.count > 10, "{network:?}");
    assert_eq!(network.handshake_rtt_us.count, 8);
    assert!(network.ping_us.min > 0.0 && network.tcp.snd_mss.unwrap() > 500);
    let has = |role, direction| {
        let mut points = probe.points.iter();
        points.any(|point| (point.role, point.direction) == (role, direction))
    };
    for role in [Role::Fit, Role::Held] {
        assert!(has(role, Direction::Read));
        assert_eq!(has(role, Direction::Write), writes);
    }
    for point in &probe.points {
        // In a short round on a busy machine nothing may end.
        assert!((1..=3).contains(&point.iops.rounds), "{point:?}");
        // Little's law: what is under way is the rate times the time; the product of means over rounds is no less.
        let under_way = point.iops.value * point.latency_us.value / 1e6;
        assert!(under_way >= 0.5 * f64::from(point.depth), "{point:?}");
        assert!(point.client_cpu_us.unwrap().value > 0.0);
    }
    assert!(probe.client.cpus > 0 && !probe.client.kernel.is_empty());
}

/// A server that gives back the data of pings has a throughput without storage.
///
/// On a busy machine the pings without data may take longer than those with, which the probe then says; another of
/// up to four probes settles it.
fn check_echo(first: &Probe, again: impl Fn() -> Probe) {
    let settled = |probe: &Probe| {
        if probe
            .network
            .as_ref()
            .unwrap()
            .echo_bytes_per_second
            .is_some()
        {
            return true;
        }
        let says = |part: &str| probe.remarks.iter().any(|it| it.text.contains(part));
        let why = "a ping with data takes no longer than one without";
        assert!(says(why), "{:?}", probe.remarks);
        false
    };
    assert!(settled(first) || (0..4).any(|_| settled(&again())));
}

fn transfer(probe: &Probe) -> &TransferFacts {
    probe.transfer.as_ref().unwrap()
}

#[test]
fn our_server_is_probed_over_iscsi_and_its_r2ts_are_those_negotiated() {
    for outstanding in [1_u32, 3] {
        let config = format!(
            "[iscsi]\nmax-outstanding-r2t = {outstanding}\nmax-burst-length = 65536\nfirst-burst-length = 65536\n"
        );
        let server = serve(&config);
        let probe = probed(&iscsi(&server), options(true)).unwrap();
        check(&probe, true);
        let subject = &probe.subject;
        assert_eq!((subject.way, subject.make), (Way::Iscsi, Make::Longshore));
        assert_eq!(subject.volume_bytes, 64 * MEGABYTE);
        assert_eq!(probe.negotiated["MaxBurstLength"], "65536");
        let facts = transfer(&probe);
        assert_eq!(facts.outstanding, Some(outstanding), "{facts:?}");
        assert_eq!(facts.r2t_bytes, Some(65_536), "{facts:?}");
        // All but the first burst is asked for, in bursts.
        assert_eq!(facts.r2ts_per_write[&MEGABYTE], 15, "{facts:?}");
        assert_eq!(facts.r2ts_per_write[&65_536], 0, "{facts:?}");
        assert!(facts.early.is_some() && facts.first_r2t_us.is_some());
        check_echo(&probe, || probed(&iscsi(&server), options(false)).unwrap());
    }
}

#[test]
fn our_server_is_probed_over_nvme() {
    let server = serve("");
    let probe = probed(&nvme(&server), options(true)).unwrap();
    check(&probe, true);
    assert_eq!(probe.subject.way, Way::NvmeTcp);
    assert_eq!(probe.subject.make, Make::Longshore);
    // Numbers are plain.
    assert!(probe.negotiated["MAXH2CDATA"].parse::<u32>().is_ok());
    let facts = transfer(&probe);
    let asked = u64::from(facts.r2ts_per_write[&MEGABYTE]) * facts.r2t_bytes.unwrap();
    assert!(asked >= MEGABYTE, "{facts:?}");
    assert_eq!(facts.early, None, "all data waits for R2Ts");
    assert!(facts.read_segment_bytes.unwrap() >= 4096);
}

#[test]
fn a_probe_reads_only_unless_a_region_is_named_and_then_changes_nothing() {
    let scratch = Scratch::new("probe");
    let path = scratch.join("disk");
    let content: Vec<u8> = (0..8 * MEGABYTE).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let volume = format!("m,backend=file,path={}", path.display());
    let server = ServerBuilder::new().volume(&volume).iscsi().nvme();
    let server = server.reports_to(&scratch).start().unwrap();
    let written = || report::of(&server, &scratch)["volumes"][0]["written_bytes"].clone();
    for url in [iscsi(&server), nvme(&server)] {
        let probe = probed(&url, options(false)).unwrap();
        check(&probe, false);
        assert_eq!(transfer(&probe).r2ts_per_write.len(), 0);
        let why = |remark: &&longshore_model::probe::Remark| {
            remark.kind == RemarkKind::NotMeasured && remark.text.contains("--write")
        };
        assert!(probe.remarks.iter().any(|remark| why(&remark)));
    }
    assert_eq!(written(), 0);
    for url in [iscsi(&server), nvme(&server)] {
        probed(&url, options(true)).unwrap();
    }
    assert!(written().as_u64().unwrap() > 0);
    server.stop(Duration::from_secs(30)).unwrap();
    assert!(std::fs::read(&path).unwrap() == content);
}

#[test]
fn regions_that_are_not_there_are_refused_before_anything_is_written() {
    let server = serve("");
    for (offset, length, why) in [
        (60 * MEGABYTE, 8 * MEGABYTE, "ends behind the volume"),
        (100, 4096, "whole blocks"),
        (0, 0, "one block at least"),
        (u64::MAX - 511, 1024, "ends behind the volume"),
    ] {
        let mut options = options(false);
        options.writes = Some(WriteRegion { offset, length });
        let error = probed(&iscsi(&server), options).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_file_has_the_table_of_a_server() {
    let scratch = Scratch::new("probe");
    let path = scratch.join("disk");
    std::fs::write(&path, vec![7; 16 << 20]).unwrap();
    let probe = probed(path.to_str().unwrap(), options(true)).unwrap();
    assert_eq!(probe.subject.way, Way::File);
    assert_eq!((&probe.network, &probe.transfer), (&None, &None));
    assert!(probe.points.len() >= 20, "{}", probe.points.len());
    let patterns = [Pattern::OnePlace, Pattern::Random, Pattern::Sequential];
    for pattern in patterns {
        assert!(probe.points.iter().any(|point| point.pattern == pattern));
    }
    assert!(std::fs::read(&path).unwrap() == vec![7; 16 << 20]);
}

#[test]
fn tgt_is_found_to_ask_for_one_burst_at_a_time() {
    let scratch = Scratch::new("probe-tgt");
    let path = scratch.join("disk.img");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let volume = TgtVolume {
        backing_store_type: "rdwr",
        path,
        block_size: 512,
    };
    let tgt = match Tgt::start(&[], 1, &[volume]) {
        Ok(tgt) => tgt,
        Err(error) => return skip(format!("tgt cannot be started: {error}")),
    };
    let url = format!("iscsi://{}/{TARGET}/1", tgt.portal(0));
    let probe = probed(&url, options(true)).unwrap();
    check(&probe, true);
    assert_eq!(probe.subject.make, Make::Tgt);
    assert_eq!(probe.negotiated["InitialR2T"], "Yes");
    let facts = transfer(&probe);
    assert_eq!(facts.outstanding, Some(1), "{facts:?}");
    let burst: u64 = probe.negotiated["MaxBurstLength"].parse().unwrap();
    assert_eq!(facts.r2t_bytes, Some(burst.min(4 * MEGABYTE)), "{facts:?}");
    assert_eq!(facts.early, Some(false), "{facts:?}");
}

#[test]
fn a_server_that_says_nothing_or_nonsense_ends_a_probe_with_an_error() {
    for nonsense in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(1..) = stream.read(&mut bytes) {
                        if nonsense
                            && std::io::Write::write_all(&mut stream, &[0xa5; 4096]).is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        for url in [
            format!("iscsi://{address}/{TARGET}/0"),
            format!("nvme+tcp://{address}/{SUBSYSTEM}/1"),
        ] {
            let mut options = options(false);
            options.connection.timeouts.login = Duration::from_secs(1);
            options.connection.timeouts.connect = Duration::from_secs(1);
            assert!(probed(&url, options).is_err(), "{url}");
        }
    }
}

#[test]
fn a_probe_that_is_interrupted_ends_and_has_no_result() {
    /// Interrupts at the first load.
    struct Impatient(Interrupt);
    impl Watch for Impatient {
        fn progress(&mut self, done: f64, what: &str) {
            assert!((0.0..=1.0).contains(&done));
            if what.contains("round 1") {
                self.0.cell().store(2, Ordering::Relaxed);
            }
        }

        fn warn(&mut self, text: &str) {
            panic!("{text}");
        }
    }
    let server = serve("");
    let medium = Medium::parse(iscsi(&server).into()).unwrap();
    let interrupt = Interrupt::default();
    let mut options = options(false);
    options.time = Duration::from_secs(20);
    let mut watch = Impatient(interrupt.clone());
    let error = probe(&medium, options, &interrupt, &mut watch).unwrap_err();
    assert!(matches!(error, Error::Interrupted(2)), "{error}");
}
