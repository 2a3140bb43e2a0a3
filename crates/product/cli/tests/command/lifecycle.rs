//! From `ready` to the end: addresses, signals, the service manager, the log.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::support::Run;
use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::process::Process;

const TARGET: &str = "iqn.2026-11.local.longshore:default";
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

#[test]
fn the_ready_line_has_every_address_and_they_accept() {
    let run = Run::serve_memory(&["--iscsi", "127.0.0.1:0,tag=2"]).start();
    let addresses = run.addresses();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        assert_ne!(address.port(), 0);
        TcpStream::connect(address).unwrap();
    }
    assert_eq!(run.stdout().lines().count(), 1);
}

#[test]
fn the_ready_line_has_every_address_of_nvme_and_they_accept() {
    let volume = ["--volume", "disk0,backend=mem,size=1M"];
    let nvme = ["--nvme", "127.0.0.1:0", "--nvme", "127.0.0.1:0"];
    let discovery = ["--nvme-discovery", "127.0.0.1:0"];
    let run = Run::serve(&[&volume[..], &nvme, &discovery].concat()).start();
    assert_eq!(run.addresses(), []);
    let (nvme, discovery) = (run.addresses_of("nvme"), run.addresses_of("nvme-discovery"));
    assert_eq!((nvme.len(), discovery.len()), (2, 1));
    for address in nvme.iter().chain(&discovery) {
        TcpStream::connect(address).unwrap();
    }
    let expected = format!(
        "ready nvme={},{} nvme-discovery={}\n",
        nvme[0], nvme[1], discovery[0]
    );
    assert_eq!(run.stdout(), expected);
}

#[test]
fn both_protocols_are_named_in_the_ready_line_and_connect_lines() {
    let run = Run::serve_memory(&["--nvme", "127.0.0.1:0", "--print-connect"]).start();
    let (iscsi, nvme) = (run.addresses(), run.addresses_of("nvme"));
    let stdout = run.stdout();
    let ready = format!("ready iscsi={} nvme={}", iscsi[0], nvme[0]);
    assert_eq!(stdout.lines().last(), Some(&ready[..]));
    for line in [
        format!("subsystem {SUBSYSTEM} at {}", nvme[0]),
        "  NSID 1 is volume disk0 (1M)".to_owned(),
        format!(
            "    nvme discover --transport=tcp --traddr=127.0.0.1 --trsvcid={}",
            nvme[0].port()
        ),
        format!(
            "    nvme connect --transport=tcp --traddr=127.0.0.1 --trsvcid={} --nqn={SUBSYSTEM}",
            nvme[0].port()
        ),
    ] {
        assert!(
            stdout.lines().any(|found| found == line),
            "{line}: {stdout}"
        );
    }
}

#[test]
fn both_families_are_served_on_both_engines() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    for engine in ["auto", "epoll"] {
        let both = [
            "--iscsi",
            "[::1]:0",
            "--nvme",
            "[::1]:0",
            "--nvme",
            "127.0.0.1:0",
        ];
        let run = Run::serve_memory(&[&both[..], &["--engine", engine]].concat()).start();
        for address in run.addresses() {
            let initiator = Initiator::log_in(address, &Login::default()).unwrap();
            initiator.log_out().unwrap();
        }
        for address in run.addresses_of("nvme") {
            is_greeted(address);
        }
    }
}

/// An ICReq is answered by an ICResp: it is NVMe/TCP that is spoken there.
fn is_greeted(address: SocketAddr) {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(&request).unwrap();
    let mut response = [0; 128];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(response[..8], [1, 0, 128, 0, 128, 0, 0, 0]);
}

#[test]
fn connect_lines_stand_in_front_of_the_ready_line() {
    let run = Run::serve_memory(&["--print-connect"]).start();
    let stdout = run.stdout();
    assert!(
        stdout.starts_with(&format!("target {TARGET} at 127.0.0.1:")),
        "{stdout}"
    );
    assert!(
        stdout.lines().last().unwrap().starts_with("ready iscsi="),
        "{stdout}"
    );
}

#[test]
fn either_signal_ends_it_with_status_0() {
    for name in ["TERM", "INT"] {
        let mut run = Run::serve_memory(&[]).start();
        run.signal(name);
        assert_eq!(run.end().code(), Some(0), "{}", run.stderr());
        assert!(run.stderr().contains("stopped"), "{}", run.stderr());
    }
}

#[test]
fn a_session_that_stays_is_given_its_time_and_no_more() {
    let config = "[limits]\ndrain-timeout = \"300ms\"\n";
    let mut run = Run::serve_memory(&["--config", "{dir}/x.toml"])
        .with_file("x.toml", config)
        .start();
    let _session = Initiator::log_in(run.addresses()[0], &Login::default()).unwrap();
    let asked = Instant::now();
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{}", run.stderr());
    let took = asked.elapsed();
    assert!(
        (Duration::from_millis(250)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut run = Run::serve_memory(&[]).start();
    let _session = Initiator::log_in(run.addresses()[0], &Login::default()).unwrap();
    run.signal("TERM");
    run.wait_for("the first signal to be seen", |run| {
        run.stderr().contains("SIGTERM: completing")
    });
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(143), "{}", run.stderr());
}

#[test]
fn a_volume_that_grew_is_taken_up_on_sighup() {
    let mut run = Run::serve(&[
        "--volume",
        "disk0,backend=file,path={dir}/d.img,size=1M",
        "--iscsi",
        "127.0.0.1:0",
    ])
    .start();
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(run.path("d.img"))
        .unwrap();
    image.set_len(2 << 20).unwrap();
    run.signal("HUP");
    run.wait_for("the new size", |run| run.stderr().contains("after=2097152"));
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn the_service_manager_hears_of_readiness_reload_and_the_end() {
    let run = Run::serve_memory(&[]);
    let socket = UnixDatagram::bind(run.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let path = run.path("notify");
    let mut run = run.with(|command| {
        command.env("NOTIFY_SOCKET", path);
    });
    run = run.start();
    let hear = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let ready = hear();
    assert!(
        ready.starts_with("READY=1\nSTATUS=ready iscsi=127.0.0.1:"),
        "{ready}"
    );
    run.signal("HUP");
    let reloading = hear();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(hear().starts_with("READY=1\n"));
    run.signal("TERM");
    assert_eq!(hear().trim_end(), "STOPPING=1");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn the_service_manager_hears_that_a_server_lives_while_all_event_loops_answer() {
    let run = Run::serve_memory(&[]);
    let socket = UnixDatagram::bind(run.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let path = run.path("notify");
    let run = run.with(|command| {
        command
            .env("NOTIFY_SOCKET", path)
            .env("WATCHDOG_USEC", "300000");
    });
    let _run = run.start();
    let mut bytes = [0; 512];
    let mut alive = 0;
    while alive < 3 {
        let length = socket.recv(&mut bytes).unwrap();
        alive +=
            usize::from(&bytes[..length] == b"WATCHDOG=1\n" || &bytes[..length] == b"WATCHDOG=1");
    }
}

/// Passes a socket as the service manager does, with its name if it has one, on another descriptor, as `LISTEN_FDS_FIRST_FD`
/// allows: a test without unsafe code cannot choose descriptor 3.
fn with_socket(run: Run, socket: TcpListener, name: &str) -> Run {
    run.with(|command| {
        command.stdin(Stdio::from(OwnedFd::from(socket)));
        command
            .env("LISTEN_FDS", "1")
            .env("LISTEN_FDS_FIRST_FD", "0")
            .env("LISTEN_FDNAMES", name)
            .env_remove("LISTEN_PID");
    })
}

fn listener() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn a_socket_that_is_passed_replaces_the_default_listener() {
    let (socket, address) = listener();
    let run = Run::serve(&["--volume", "disk0,backend=mem,size=1M"]);
    let run = with_socket(run, socket, "longshore.socket").start();
    assert_eq!(run.addresses(), [address]);
    Initiator::log_in(address, &Login::default())
        .unwrap()
        .log_out()
        .unwrap();
}

#[test]
fn a_socket_that_is_passed_takes_what_is_configured_for_its_address() {
    let (socket, address) = listener();
    let portal = format!("{address},tag=7");
    let run = Run::serve_memory(&["--iscsi", &portal, "--config", "{dir}/x.toml"]).with_file(
        "x.toml",
        "[[target]]\nname = \"iqn.2026-11.local.longshore:default\"\nportal-groups = [7]\n",
    );
    let run = with_socket(run, socket, "longshore.socket").start();
    let addresses = run.addresses();
    assert_eq!(addresses.len(), 2);
    assert_eq!(addresses[0], address);
    Initiator::log_in(address, &Login::default())
        .unwrap()
        .log_out()
        .unwrap();
}

#[test]
fn a_socket_that_is_passed_is_for_what_its_name_says() {
    for name in ["iscsi", "nvme", "nvme-discovery"] {
        let (socket, address) = listener();
        let run = Run::serve(&["--volume", "disk0,backend=mem,size=1M"]);
        let run = with_socket(run, socket, name).start();
        assert_eq!(run.stdout(), format!("ready {name}={address}\n"));
        if name != "iscsi" {
            is_greeted(address);
        }
    }
}

#[test]
fn a_socket_without_a_name_is_for_what_is_configured_at_its_address() {
    let (socket, address) = listener();
    let run = Run::serve_memory(&["--nvme", &address.to_string()]);
    let run = with_socket(run, socket, "longshore.socket").start();
    assert_eq!(run.addresses_of("nvme"), [address]);
    assert_eq!(run.addresses().len(), 1);
}

#[test]
fn every_line_of_a_json_log_is_an_object() {
    let run = Run::serve_memory(&["--log-format", "json", "--log-level", "debug"]);
    let mut run = run.start();
    Initiator::log_in(run.addresses()[0], &Login::default())
        .unwrap()
        .log_out()
        .unwrap();
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0));
    let log = run.stderr();
    assert!(log.lines().count() >= 3, "{log}");
    for line in log.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(object.get(key).is_some(), "{key} is missing in {line}");
        }
    }
}

#[test]
fn secrets_do_not_get_into_the_log() {
    let config = format!(
        "[[target]]\nname = \"{TARGET}\"\n\
         accounts = [{{ user = \"alice\", secret = \"correct-horse-battery\" }}]\n"
    );
    let mut run = Run::serve_memory(&["--config", "{dir}/x.toml", "--log-level", "trace"])
        .with_file("x.toml", &config)
        .start();
    let mut initiator = Initiator::connect(run.addresses()[0]).unwrap();
    let status = initiator.try_login(&Login::default()).unwrap();
    assert_eq!(
        status >> 8,
        2,
        "an initiator that proves nothing is refused: {status:04x}"
    );
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0));
    assert!(!run.stderr().contains("horse"), "{}", run.stderr());
}

#[test]
fn a_standard_error_that_nobody_reads_does_not_stop_the_server() {
    let (reader, writer) = std::io::pipe().unwrap();
    let run = Run::serve_memory(&["--log-level", "trace"]);
    let mut run = run.start_with_stderr(Stdio::from(writer));
    // Far more lines than a pipe of 64 KiB holds.
    for _ in 0..300 {
        Initiator::log_in(run.addresses()[0], &Login::default())
            .unwrap()
            .log_out()
            .unwrap();
    }
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0));
    drop(reader);
}

/// Major and minor version of the kernel.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

#[test]
fn the_log_says_what_becomes_of_busy_polling() {
    let log_with = |options: &[&str]| {
        let mut run = Run::serve_memory(options).start();
        run.signal("TERM");
        assert_eq!(run.end().code(), Some(0));
        run.stderr()
    };
    let said = "only receives poll the network card";
    for engine in ["auto", "epoll"] {
        let log = log_with(&["--engine", engine, "--busy-poll", "20"]);
        // One line for all event loops of a kernel that is too old, or newer and without CONFIG_NET_RX_BUSY_POLL.
        let least = usize::from(kernel() < (6, 9));
        let lines = log.matches(said).count();
        assert!((least..=1).contains(&lines), "{log}");
    }
    let log = log_with(&["--prefer-busy-poll"]);
    assert!(!log.contains(said), "{log}");
    let warning = "prefer-busy-poll has no effect without busy-poll";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}

#[test]
fn a_configuration_is_checked_without_serving() {
    let mut run = Run::serve(&["--config", "{dir}/x.toml", "--check"])
        .with_file("x.toml", include_str!("../../../../../dist/longshore.toml"))
        .spawn();
    assert_eq!(run.end().code(), Some(0), "{}", run.stderr());
    assert_eq!(run.stdout(), "the configuration is in order\n");
}

#[test]
fn an_idle_server_is_up_soon_and_small() {
    let begun = Instant::now();
    let run = Run::serve_memory(&["--cores", "0"]).start();
    let took = begun.elapsed();
    // A busy machine and a build without optimisation are allowed for; SPECIFICATION.md has the
    // figures of the optimised server.
    let process = Process::new(run.pid());
    let used = process.cpu_time().unwrap();
    assert!(used < Duration::from_secs(2), "{used:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // Pages of the program are many without optimisation, and shared.
    let own = process.anonymous_bytes().unwrap();
    assert!(own < 8 << 20, "{own} bytes");
}
