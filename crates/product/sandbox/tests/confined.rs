//! What a process can still do in the sandbox. Each case runs in a process of its own, which enters the sandbox and then
//! does what something that has taken it over would try.

use std::fs;
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, id};
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};
use longshore_reactor::{Engine, EngineChoice, EngineConfig, EngineError, IoUringRefusal, Waker};
use longshore_sandbox::{Layer, Policy, enter};
use longshore_tests::skip::skip;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::{ptrace, signal};
use nix::unistd::Pid;

/// The first argument of the process that enters the sandbox.
const INSIDE: &str = "--inside";

/// A signal that ends a process for a call that it must not make.
const SIGSYS: i32 = 31;

/// What the process inside is told.
struct Inside {
    folder: PathBuf,
    /// A port that the policy names, and one that it does not; both are listened on.
    named: u16,
    other: u16,
    /// An abstract socket of another process.
    neighbour: String,
    /// The process that has started this one.
    parent: i32,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The call succeeds, as outside.
    Works,
    /// The call fails with "permission denied" or "not permitted", and the process goes on.
    Refused,
    /// The process ends by a signal.
    Killed,
}

type Act = fn(&Inside) -> io::Result<()>;

/// The layer that decides, what is tried, and what becomes of it.
const CASES: [(Layer, &str, Fate, Act); 29] = [
    (
        Layer::Files,
        "a_volume_is_read_and_written",
        Fate::Works,
        use_volume,
    ),
    (
        Layer::Files,
        "a_state_file_is_replaced",
        Fate::Works,
        replace_state,
    ),
    (
        Layer::Files,
        "a_file_beside_a_volume_is_made",
        Fate::Works,
        |it| fs::write(it.folder.join("volumes/new"), "new"),
    ),
    (
        Layer::Files,
        "the_configuration_is_read",
        Fate::Works,
        |it| fs::read(it.folder.join("etc/config.toml")).map(drop),
    ),
    (
        Layer::Files,
        "the_configuration_is_not_written",
        Fate::Refused,
        |it| fs::write(it.folder.join("etc/config.toml"), "evil"),
    ),
    (Layer::Files, "shadow_is_not_read", Fate::Refused, |_| {
        fs::read("/etc/shadow").map(drop)
    }),
    (
        Layer::Files,
        "a_new_thread_reads_no_shadow_either",
        Fate::Refused,
        |_| {
            let thread = thread::spawn(|| fs::read("/etc/shadow").map(drop));
            thread.join().expect("it does not panic")
        },
    ),
    (
        Layer::Files,
        "a_link_leads_to_no_shadow",
        Fate::Refused,
        |it| fs::read(it.folder.join("volumes/link")).map(drop),
    ),
    (
        Layer::Files,
        "files_elsewhere_are_not_read",
        Fate::Refused,
        |it| fs::read(it.folder.join("elsewhere/secret")).map(drop),
    ),
    (
        Layer::Files,
        "files_elsewhere_are_not_made",
        Fate::Refused,
        |it| fs::write(it.folder.join("elsewhere/new"), ""),
    ),
    (
        Layer::Files,
        "files_elsewhere_are_not_truncated",
        Fate::Refused,
        |it| {
            let path = it.folder.join("elsewhere/secret");
            rustix::fs::open(
                path,
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC,
                rustix::fs::Mode::empty(),
            )
            .map(drop)
            .map_err(io::Error::from)
        },
    ),
    (
        Layer::Files,
        "files_elsewhere_are_not_removed",
        Fate::Refused,
        |it| fs::remove_file(it.folder.join("elsewhere/secret")),
    ),
    (
        Layer::Files,
        "a_volume_is_not_moved_elsewhere",
        Fate::Refused,
        |it| fs::rename(it.folder.join("volumes/a"), it.folder.join("elsewhere/a")),
    ),
    (
        Layer::Connections,
        "another_server_is_reached",
        Fate::Works,
        |it| TcpStream::connect(("127.0.0.1", it.named)).map(drop),
    ),
    (
        Layer::Connections,
        "elsewhere_is_not_reached",
        Fate::Refused,
        |it| TcpStream::connect(("127.0.0.1", it.other)).map(drop),
    ),
    (
        Layer::Listeners,
        "other_ports_are_not_listened_on",
        Fate::Refused,
        |_| TcpListener::bind("127.0.0.1:0").map(drop),
    ),
    (
        Layer::Neighbours,
        "abstract_sockets_of_others_are_not_reached",
        Fate::Refused,
        |it| {
            let address = SocketAddr::from_abstract_name(&it.neighbour)?;
            UnixStream::connect_addr(&address).map(drop)
        },
    ),
    (
        Layer::Calls,
        "threads_start_and_are_named",
        Fate::Works,
        |_| {
            let thread = thread::Builder::new()
                .name("named".to_owned())
                .spawn(|| ())?;
            thread.join().map_err(|_| io::Error::other("it panicked"))
        },
    ),
    (Layer::Calls, "others_get_no_signal", Fate::Refused, |it| {
        Ok(signal::kill(Pid::from_raw(it.parent), None)?)
    }),
    (
        Layer::Calls,
        "raw_sockets_are_not_made",
        Fate::Refused,
        |_| {
            socket2::Socket::new(
                socket2::Domain::IPV4,
                socket2::Type::RAW,
                Some(socket2::Protocol::ICMPV4),
            )
            .map(drop)
        },
    ),
    (
        Layer::Calls,
        "streams_that_are_not_tcp_are_not_made",
        Fate::Refused,
        |_| {
            socket2::Socket::new(
                socket2::Domain::IPV4,
                socket2::Type::STREAM,
                Some(socket2::Protocol::MPTCP),
            )
            .map(drop)
        },
    ),
    (
        Layer::Calls,
        "packets_of_the_network_are_not_seen",
        Fate::Refused,
        |_| socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None).map(drop),
    ),
    (Layer::Calls, "no_process_is_forked", Fate::Refused, |_| {
        Command::new("/bin/true").status().map(drop)
    }),
    (
        Layer::Calls,
        "the_user_does_not_change",
        Fate::Refused,
        |_| Ok(nix::unistd::setuid(nix::unistd::Uid::from_raw(65534))?),
    ),
    (
        Layer::Calls,
        "the_process_does_not_become_dumpable",
        Fate::Refused,
        |_| {
            Ok(rustix::process::set_dumpable_behavior(
                rustix::process::DumpableBehavior::Dumpable,
            )?)
        },
    ),
    (
        Layer::Calls,
        "a_program_that_is_run_ends_the_process",
        Fate::Killed,
        |_| Err(Command::new("/bin/true").exec()),
    ),
    (
        Layer::Calls,
        "tracing_ends_the_process",
        Fate::Killed,
        |it| Ok(ptrace::attach(Pid::from_raw(it.parent))?),
    ),
    (
        Layer::Calls,
        "reading_the_memory_of_others_ends_the_process",
        Fate::Killed,
        |it| {
            let mut bytes = [0; 8];
            let remote = RemoteIoVec {
                base: 0x1000,
                len: 8,
            };
            process_vm_readv(
                Pid::from_raw(it.parent),
                &mut [IoSliceMut::new(&mut bytes)],
                &[remote],
            )?;
            Ok(())
        },
    ),
    (
        Layer::Calls,
        "unsharing_ends_the_process",
        Fate::Killed,
        |_| Ok(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)?),
    ),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(INSIDE) {
        return inside(arguments);
    }
    let mut trials: Vec<Trial> = CASES
        .iter()
        .map(|(layer, name, fate, _)| Trial::test(*name, move || check(*layer, name, *fate)))
        .collect();
    trials.push(Trial::test(
        "no_ring_is_made_after_those_of_the_event_loops",
        rings,
    ));
    trials.push(Trial::test("datagrams_need_another_server", datagrams));
    trials.push(Trial::test(
        "a_process_of_threads_stays_outside_aloud",
        late,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A folder with a volume, state, a configuration and a secret.
fn scene() -> io::Result<tempfile::TempDir> {
    let scene = tempfile::tempdir()?;
    for folder in ["volumes", "state", "etc", "elsewhere"] {
        fs::create_dir(scene.path().join(folder))?;
    }
    fs::write(scene.path().join("volumes/a"), [0; 4096])?;
    fs::write(
        scene.path().join("etc/config.toml"),
        "sandbox = \"strict\"\n",
    )?;
    fs::write(scene.path().join("elsewhere/secret"), "secret")?;
    std::os::unix::fs::symlink("/etc/shadow", scene.path().join("volumes/link"))?;
    Ok(scene)
}

/// Runs a case in a process of its own. It prints the layers that hold, and what became of the call.
fn run(name: &str, how: &str) -> io::Result<Output> {
    let scene = scene()?;
    let (named, other) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let neighbour = format!("longshore-sandbox-{}-{name}", id());
    let _neighbour = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&neighbour)?)?;
    Command::new(std::env::current_exe()?)
        .args([INSIDE, how, name])
        .arg(scene.path())
        .args([
            named.local_addr()?.port().to_string(),
            other.local_addr()?.port().to_string(),
            neighbour,
            id().to_string(),
        ])
        .output()
}

fn check(layer: Layer, name: &str, fate: Fate) -> Result<(), Failed> {
    let output = run(name, "strict")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let held = lines.next().unwrap_or_default();
    if !held.contains(&layer.to_string()) {
        skip(format!("this kernel does not hold {layer}: {held}"));
        return Ok(());
    }
    let outcome = lines.next();
    let is_as_told = match fate {
        Fate::Works => outcome == Some("works"),
        Fate::Refused => outcome == Some("refused"),
        Fate::Killed => outcome.is_none() && output.status.signal() == Some(SIGSYS),
    };
    match is_as_told {
        true => Ok(()),
        false => Err(format!("{output:?}").into()),
    }
}

/// Without another server to connect to, there is nothing to ask for names.
fn datagrams() -> Result<(), Failed> {
    for (how, expected) in [("strict", "works"), ("alone", "refused")] {
        let output = run("datagrams", how)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.contains(&Layer::Calls.to_string()) {
            skip(format!("this kernel does not hold system calls: {text}"));
        } else if text.lines().nth(1) != Some(expected) {
            return Err(format!("{how}: {output:?}").into());
        }
    }
    Ok(())
}

/// A ring can be made as long as event loops start, and then no more.
fn rings() -> Result<(), Failed> {
    let first = run("ring", "strict")?;
    let text = String::from_utf8_lossy(&first.stdout).into_owned();
    if text.lines().nth(1) != Some("works") || !text.contains(&Layer::Calls.to_string()) {
        skip(format!("no ring, or no system calls: {text}"));
        return Ok(());
    }
    let later = run("ring", "sealed")?;
    let text = String::from_utf8_lossy(&later.stdout).into_owned();
    match text.lines().nth(1) {
        Some("refused") => Ok(()),
        _ => Err(format!("{later:?}").into()),
    }
}

fn make_ring() -> io::Result<()> {
    let made = Engine::new(
        EngineChoice::IoUring,
        EngineConfig::default(),
        Waker::new()?,
    );
    match made {
        Ok(_) => Ok(()),
        Err(EngineError::IoUring(IoUringRefusal::Forbidden)) => Err(Errno::EPERM.into()),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

/// Landlock would leave the other thread out.
fn late() -> Result<(), Failed> {
    let output = run("late", "threads")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.contains("not files") && text.contains("2 threads") {
        true => Ok(()),
        false => Err(format!("{output:?}").into()),
    }
}

fn inside(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut next = || arguments.next().expect("the test tells all");
    let (how, name) = (next(), next());
    let inside = Inside {
        folder: next().into(),
        named: next().parse().expect("a port"),
        other: next().parse().expect("a port"),
        neighbour: next(),
        parent: next().parse().expect("a process"),
    };
    if how == "threads" {
        thread::spawn(thread::park);
    }
    let held = enter(policy(&inside, &how));
    println!("{held}");
    if how == "sealed" {
        held.refuse_rings().expect("a further filter");
    }
    let act: Act = match CASES.iter().find(|(_, it, _, _)| *it == name) {
        Some((_, _, _, act)) => *act,
        None if name == "ring" => |_| make_ring(),
        None => |_| UdpSocket::bind("127.0.0.1:0").map(drop),
    };
    let outcome = act(&inside);
    match outcome {
        Ok(()) => println!("works"),
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EPERM | Errno::EACCES)
            ) =>
        {
            println!("refused");
        }
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

fn policy(inside: &Inside, how: &str) -> Policy {
    let mut policy = Policy::base();
    policy.file(&inside.folder.join("volumes/a"));
    policy.keep(&inside.folder.join("state"));
    policy.read(&inside.folder.join("etc/config.toml"));
    policy.listen(inside.named);
    if how == "strict" {
        policy.connect(inside.named);
    }
    policy
}

fn use_volume(inside: &Inside) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(inside.folder.join("volumes/a"))?;
    file.write_all(&[7; 512])?;
    file.set_len(8192)?;
    file.sync_all()?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    match rest.len() {
        7680 => Ok(()),
        length => Err(io::Error::other(format!("{length} bytes"))),
    }
}

/// As the server keeps its state: beside, flushed, renamed, and the folder flushed.
fn replace_state(inside: &Inside) -> io::Result<()> {
    let folder = inside.folder.join("state");
    fs::create_dir(folder.join("config"))?;
    let (fresh, path) = (folder.join("config/a.new"), folder.join("config/a"));
    for text in ["one", "two"] {
        let mut file = fs::File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
    }
    fs::remove_file(&path)?;
    fs::remove_dir(folder.join("config"))
}
