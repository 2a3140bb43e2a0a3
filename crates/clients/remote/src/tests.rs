//! The suite of all backends over servers of our own, and what only remote volumes do.

use std::fs;
use std::time::{Duration, Instant};

use longshore_initiator::error::{Failure, Lost, Sense};
use longshore_reactor::EngineChoice;
use longshore_tests::server::{Server, ServerBuilder, TARGET, signal};
use proptest::test_runner::{Config, TestRunner};

use longshore_volume::testing::harness::{
    Scratch, check_on_all_storage, check_volume_against_model, engine, steps,
};
use longshore_volume::testing::suite::{Keeps, SIZE_MIN, check_volume};
use longshore_volume::testing::{TestStorage, VolumeClient};
use longshore_volume::{BackendName, Backends, OpenError, VolumeSpec};

use super::*;

fn open(spec: &VolumeSpec) -> Result<Arc<dyn Volume>, OpenError> {
    let mut backends = Backends::local();
    register(&mut backends);
    backends.open(spec).map(|opened| opened.volume)
}

const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

const BOTH: [BackendName; 2] = [ISCSI, NVME_TCP];

/// A server of memory volumes: 0 has blocks of 512 bytes, 1 of 4096, 2 is read-only.
fn server() -> Server {
    let size = SIZE_MIN;
    ServerBuilder::new()
        .volume(&format!("small,backend=mem,size={size}"))
        .volume(&format!("large,backend=mem,size={size},block-size=4096"))
        .volume(&format!("fixed,backend=mem,size={size},read-only"))
        .iscsi()
        .nvme()
        .start()
        .expect("a server")
}

fn url(server: &Server, backend: BackendName, number: u32) -> String {
    match backend {
        ISCSI => format!("iscsi://{}/{TARGET}/{number}", server.portal(0)),
        _ => format!("nvme+tcp://{}/{SUBSYSTEM}/{}", server.nvme(0), number + 1),
    }
}

fn spec(url: &str, backend: BackendName) -> VolumeSpec {
    VolumeSpec {
        options: Some(Arc::new(RemoteSpec {
            url: Some(url.parse().expect("a URL")),
            queues: Some(2),
            give_up: Some(Duration::from_secs(20)),
            ..RemoteSpec::default()
        })),
        ..VolumeSpec::new("r", backend)
    }
}

fn with_options(spec: &mut VolumeSpec, change: impl FnOnce(&mut RemoteSpec)) {
    let mut options = spec.options::<RemoteSpec>().expect("of this type").clone();
    change(&mut options);
    spec.options = Some(Arc::new(options));
}

fn refusal(spec: &VolumeSpec) -> String {
    match open(spec) {
        Ok(_) => panic!("the volume opens"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn remote_volumes_pass_the_suite() {
    let server = server();
    for backend in BOTH {
        for number in [0, 1] {
            let spec = spec(&url(&server, backend, number), backend);
            check_on_all_storage(Keeps::Data, || open(&spec).expect("the volume opens"));
        }
    }
}

#[test]
fn volumes_of_files_pass_the_suite_from_afar() {
    let scratch = Scratch::new();
    let path = scratch.path("disk");
    let server = ServerBuilder::new()
        .volume(&format!(
            "f,backend=file,path={},size={SIZE_MIN}",
            path.display()
        ))
        .iscsi()
        .nvme()
        .start()
        .expect("a server");
    for backend in BOTH {
        let volume = open(&spec(&url(&server, backend, 0), backend)).expect("the volume opens");
        assert_eq!(volume.characteristics().write_cache, WriteCache::Volatile);
        assert!(volume.characteristics().unmap_granularity.is_some());
        assert!(volume.characteristics().unmapped_reads_zeros);
        let mut storage = TestStorage::new();
        check_volume(
            &mut VolumeClient::new(volume.clone(), &mut storage),
            Keeps::Data,
        );
    }
    assert_eq!(fs::metadata(path).expect("the file").len(), SIZE_MIN);
}

#[test]
fn remote_volumes_agree_with_a_map_of_blocks() {
    let server = server();
    for (backend, choice) in BOTH
        .into_iter()
        .zip([EngineChoice::IoUring, EngineChoice::Epoll])
    {
        let Some(mut storage) = engine(choice) else {
            continue;
        };
        for number in [0, 1] {
            let volume = open(&spec(&url(&server, backend, number), backend)).expect("open");
            let mut runner = TestRunner::new(Config::with_cases(12));
            let storage = std::cell::RefCell::new(&mut storage);
            let outcome = runner.run(&steps(), |steps| {
                let storage = &mut **storage.borrow_mut();
                VolumeClient::new(volume.clone(), storage)
                    .write_zeroes(0, SIZE_MIN, true, false)
                    .expect("zeroes");
                check_volume_against_model(&volume, storage, &steps);
                Ok(())
            });
            outcome.expect("agrees");
        }
    }
}

#[test]
fn a_peer_that_lacks_fua_zeroing_and_extents_passes_the_suite() {
    let server = server();
    for backend in BOTH {
        let spec = spec(&url(&server, backend, 0), backend);
        let mut volume = RemoteBackend::open(&spec).expect("the volume opens");
        volume.abilities.fua = false;
        volume.abilities.write_cache = true;
        volume.abilities.write_zeroes = AtomicBool::new(false);
        volume.abilities.extent_status = AtomicBool::new(false);
        let mut storage = TestStorage::new();
        check_volume(
            &mut VolumeClient::new(Arc::new(volume), &mut storage),
            Keeps::Data,
        );
    }
}

#[test]
fn zeros_are_written_piece_by_piece_where_the_peer_has_no_command_for_them() {
    let server = server();
    let spec = spec(&url(&server, ISCSI, 0), ISCSI);
    let mut volume = RemoteBackend::open(&spec).expect("the volume opens");
    volume.abilities.write_zeroes = AtomicBool::new(false);
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(Arc::new(volume), &mut storage);
    let (start, length) = (4096, u64::from(ZEROS_PER_WRITE) * 3 - 512);
    let ones = vec![1; usize::try_from(SIZE_MIN).expect("small")];
    client.write(0, &ones).expect("write");
    client
        .write_zeroes(start, length, true, true)
        .expect("zeroes");
    let mut expected = ones;
    expected[4096..4096 + usize::try_from(length).expect("small")].fill(0);
    assert!(client.read(0, expected.len()).expect("read") == expected);
}

#[test]
fn a_read_only_peer_takes_no_writes() {
    let server = server();
    for backend in BOTH {
        let volume = open(&spec(&url(&server, backend, 2), backend)).expect("the volume opens");
        assert!(volume.characteristics().read_only);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume.clone(), &mut storage);
        assert!(matches!(
            client.write(0, &[1; 512]),
            Err(VolumeError::ReadOnly)
        ));
        assert_eq!(client.read(0, 512).expect("read"), [0; 512]);
        client.flush().expect("nothing to do");
    }
}

#[test]
fn identity_stays_with_the_remote_volume_and_is_not_the_same() {
    let server = server();
    for backend in BOTH {
        let uuid = |number, name: &str| {
            let spec = VolumeSpec {
                name: name.to_owned(),
                ..spec(&url(&server, backend, number), backend)
            };
            open(&spec).expect("the volume opens").identity().uuid
        };
        assert_eq!(uuid(0, "a"), uuid(0, "a"));
        assert_ne!(uuid(0, "a"), uuid(1, "a"));
        assert_ne!(uuid(0, "a"), uuid(0, "b"));
    }
}

#[test]
fn what_is_wrong_with_a_volume_is_said_with_what_to_do() {
    let server = server();
    let with = |backend, url: &str, change: fn(&mut VolumeSpec)| {
        let mut spec = spec(url, backend);
        change(&mut spec);
        refusal(&spec)
    };
    let iscsi = url(&server, ISCSI, 0);
    let nvme = url(&server, NVME_TCP, 0);
    let no_url = refusal(&VolumeSpec::new("r", ISCSI));
    assert!(
        no_url.contains("needs url=…, for example url=iscsi://"),
        "{no_url}"
    );
    let other = with(ISCSI, &nvme, |_| ());
    assert!(other.ends_with("use backend=nvme-tcp"), "{other}");
    let size = with(ISCSI, &iscsi, |spec| spec.size = Some(1 << 20));
    assert!(size.contains("leave size out"), "{size}");
    let block = with(NVME_TCP, &nvme, |spec| {
        with_options(spec, |options| options.block_size = Some(4096));
    });
    assert!(
        block.contains("has blocks of 512 bytes, not 4096"),
        "{block}"
    );
    let queues = with(ISCSI, &iscsi, |spec| {
        with_options(spec, |options| options.queues = Some(65));
    });
    assert!(
        queues.contains("queues=65 is out of range; it is 1 to 64"),
        "{queues}"
    );
    let path = with(ISCSI, &iscsi, |spec| {
        spec.path = Some("/x".into());
    });
    assert!(
        path.contains("path means nothing to backend=iscsi"),
        "{path}"
    );
    let local = refusal(&VolumeSpec {
        size: Some(1 << 20),
        options: Some(Arc::new(RemoteSpec {
            depth: Some(1),
            ..RemoteSpec::default()
        })),
        ..VolumeSpec::new("m", BackendName::MEM)
    });
    assert!(
        local.contains("depth means nothing to backend=mem"),
        "{local}"
    );
}

#[test]
fn what_is_not_there_is_said_with_what_there_is() {
    let server = server();
    for backend in BOTH {
        let missing = refusal(&spec(&url(&server, backend, 9), backend));
        assert!(missing.starts_with("volume r: "), "{missing}");
        assert!(missing.contains("there is no"), "{missing}");
    }
    let (portal, nvme) = (server.portal(0), server.nvme(0));
    drop(server);
    for (url, backend) in [
        (format!("iscsi://{portal}/{TARGET}/0"), ISCSI),
        (format!("nvme+tcp://{nvme}/{SUBSYSTEM}/1"), NVME_TCP),
    ] {
        let away = refusal(&spec(&url, backend));
        assert!(away.contains("cannot connect"), "{away}");
    }
}

#[test]
fn a_secret_comes_from_its_file_and_is_never_shown() {
    let config = format!(
        "[[target]]\nname = \"{TARGET}\"\n\
         accounts = [{{ user = \"ann\", secret = \"a-long-enough-secret\" }}]\n"
    );
    let server = ServerBuilder::new()
        .volume("m,backend=mem,size=1M")
        .iscsi()
        .config(&config)
        .start()
        .expect("a server");
    let scratch = Scratch::new();
    let (right, wrong, empty) = (
        scratch.path("right"),
        scratch.path("wrong"),
        scratch.path("no"),
    );
    fs::write(&right, "a-long-enough-secret\n").expect("a file");
    fs::write(&wrong, "another-long-secret").expect("a file");
    fs::write(&empty, "\n").expect("a file");
    let portal = server.portal(0);
    let with = |user: &str, file: Option<&std::path::Path>| {
        let mut spec = spec(&format!("iscsi://{user}{portal}/{TARGET}/0"), ISCSI);
        with_options(&mut spec, |options| {
            options.secret_file = file.map(Into::into)
        });
        open(&spec).map(drop).map_err(|error| error.to_string())
    };
    with("ann@", Some(&right)).expect("the right secret");
    with("ann%a-long-enough-secret@", None).expect("the right password");
    for (user, file, expected) in [
        ("ann@", Some(&wrong), "authentication"),
        ("ann@", Some(&empty), "has 0 bytes; it is 1 to 255"),
        ("ann@", None, "give secret-file="),
        ("", Some(&right), "names a user and no password"),
        ("ann%x@", Some(&right), "names a user and no password"),
        ("ann%wrong-password@", None, "authentication"),
    ] {
        let error = with(user, file.map(|path| path.as_path())).expect_err("refused");
        assert!(error.to_lowercase().contains(expected), "{user}: {error}");
        for secret in ["long-enough", "another-long", "wrong-password"] {
            assert!(!error.contains(secret), "{error}");
        }
    }
}

fn opened(server: &Server) -> RemoteBackend {
    let spec = spec(&url(server, NVME_TCP, 0), NVME_TCP);
    RemoteBackend::open(&spec).expect("the volume opens")
}

#[test]
fn failures_keep_their_meaning() {
    let server = server();
    let volume = opened(&server);
    let error = |failure: Failure| volume.error("write", failure);
    assert!(matches!(error(Failure::NoSpace), VolumeError::NoSpace));
    assert!(matches!(error(Failure::ReadOnly), VolumeError::ReadOnly));
    assert!(matches!(
        error(Failure::Unsupported),
        VolumeError::Unsupported
    ));
    assert!(matches!(
        error(Failure::OutOfRange),
        VolumeError::ShortFile {
            expected_end: SIZE_MIN
        }
    ));
    let conflict = error(Failure::ReservationConflict).to_string();
    assert!(
        conflict.starts_with("write volume r at nvme+tcp://127.0.0.1:"),
        "{conflict}"
    );
    assert!(
        conflict.contains("somebody else has reserved the volume"),
        "{conflict}"
    );
    assert!(matches!(
        error(Failure::ConnectionLost(Lost::Silent)),
        VolumeError::Io { .. }
    ));
}

#[test]
fn a_flush_that_the_peer_fails_poisons_and_a_lost_connection_does_not() {
    let server = server();
    let volume = Arc::new(opened(&server));
    let mut storage = TestStorage::new();
    volume.poison_for(&Failure::ConnectionLost(Lost::Silent));
    volume.poison_for(&Failure::TimedOut);
    volume.poison_for(&Failure::NoSpace);
    VolumeClient::new(volume.clone(), &mut storage)
        .write(0, &[1; 512])
        .expect("not poisoned");
    let medium_error = Failure::Scsi {
        status: 2,
        sense: Some(Sense {
            key: 3,
            asc: 0x0c,
            ascq: 2,
            information: None,
        }),
    };
    volume.poison_for(&medium_error);
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    assert!(matches!(
        client.write(0, &[1; 512]),
        Err(VolumeError::Poisoned)
    ));
    assert!(matches!(client.flush(), Err(VolumeError::Poisoned)));
    assert_eq!(client.read(0, 512).expect("reads go on"), [1; 512]);
}

#[test]
fn operations_outlast_a_restart_of_the_peer() {
    let scratch = Scratch::new();
    let volume = format!(
        "f,backend=file,path={},size=1M",
        scratch.path("disk").display()
    );
    for backend in BOTH {
        let server = ServerBuilder::new()
            .volume(&volume)
            .iscsi()
            .nvme()
            .start()
            .expect("a server");
        let (portal, nvme) = (server.portal(0), server.nvme(0));
        let remote = open(&spec(&url(&server, backend, 0), backend)).expect("the volume opens");
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(remote.clone(), &mut storage);
        client.write(0, &[1; 4096]).expect("write");
        server.kill().expect("killed");
        let again = ServerBuilder::new().volume(&volume);
        let again = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            again
                .iscsi_at(portal, "")
                .nvme_at(nvme, "")
                .start()
                .expect("a server")
        });
        client
            .write(4096, &[2; 4096])
            .expect("a pause, not an error");
        assert_eq!(client.read(0, 4096).expect("read"), [1; 4096]);
        assert_eq!(client.read(4096, 4096).expect("read"), [2; 4096]);
        client.flush().expect("flush");
        drop(again.join().expect("no panic"));
    }
}

#[test]
fn a_peer_that_is_gone_for_good_is_given_up() {
    for backend in BOTH {
        let server = server();
        let mut spec = spec(&url(&server, backend, 0), backend);
        with_options(&mut spec, |options| {
            options.give_up = Some(Duration::from_millis(500))
        });
        let volume = open(&spec).expect("the volume opens");
        server.kill().expect("killed");
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume.clone(), &mut storage);
        let start = Instant::now();
        let error = client.write(0, &[1; 512]).expect_err("nobody is there");
        assert!(matches!(error, VolumeError::Io { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
        let closing = Instant::now();
        drop(volume);
        assert!(
            closing.elapsed() < Duration::from_secs(5),
            "closing waits for nobody"
        );
    }
}

#[test]
fn a_volume_that_grew_is_taken_up_and_one_that_shrank_is_not() {
    let server = server();
    let mut volume = opened(&server);
    let geometry = volume.geometry();
    assert_eq!(volume.refresh_geometry().expect("as before"), geometry);
    // As if it had been smaller when it was opened.
    volume.outline = Outline::new(volume.identity().clone(), 512, SIZE_MIN / 2);
    assert_eq!(volume.refresh_geometry().expect("grown"), geometry);
    volume.outline = Outline::new(volume.identity().clone(), 512, SIZE_MIN * 2);
    assert!(matches!(
        volume.refresh_geometry(),
        Err(VolumeError::ShortFile { .. })
    ));
    assert_eq!(volume.geometry().block_count, SIZE_MIN * 2 / 512);
}

#[test]
fn a_request_comes_back_with_its_buffer_even_when_it_fails() {
    let server = server();
    let mut spec = spec(&url(&server, ISCSI, 0), ISCSI);
    with_options(&mut spec, |options| {
        options.give_up = Some(Duration::from_millis(100))
    });
    let volume = open(&spec).expect("the volume opens");
    server.kill().expect("killed");
    let mut storage = TestStorage::new();
    let mut request = Request::new(Operation::Read {
        extent: Extent::new(0, 1),
    });
    request.buffer = Some(Buffer::allocate(512));
    (request.start, request.end) = (0, 512);
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    client.run(&mut request).expect_err("nobody is there");
    assert!(request.buffer.is_some());
}

#[test]
fn a_hurried_volume_does_not_wait_for_a_peer_that_is_away_or_says_nothing() {
    for backend in BOTH {
        for stalled in [false, true] {
            let server = server();
            let mut spec = spec(&url(&server, backend, 0), backend);
            with_options(&mut spec, |options| {
                options.give_up = Some(Duration::from_secs(600))
            });
            let volume = open(&spec).expect("the volume opens");
            let held = if stalled {
                signal(server.pid(), "STOP").expect("stopped");
                Some(server)
            } else {
                server.kill().expect("killed");
                None
            };
            let start = Instant::now();
            let mut storage = TestStorage::new();
            volume.hurry(Duration::from_secs(1));
            let mut client = VolumeClient::new(volume.clone(), &mut storage);
            client.write(0, &[1; 512]).expect_err("nobody answers");
            client.read(0, 512).expect_err("nobody answers");
            assert!(
                start.elapsed() < Duration::from_secs(12),
                "{:?}",
                start.elapsed()
            );
            drop(held);
        }
    }
}
