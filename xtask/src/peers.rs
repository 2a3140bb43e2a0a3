//! `cargo xtask peers`: the initiator library against servers that no one here wrote. Debian's tgt
//! runs on this machine; LIO and nvmet of Linux run in a guest, once for the whole run, behind
//! forwarded ports. The tests themselves are `tests/peers`, to which this passes addresses:
//!
//! | variable | addresses, separated by spaces |
//! |---|---|
//! | `LONGSHORE_PEER_TGT` | both portals |
//! | `LONGSHORE_PEER_LIO` | both portals of the open target, portal with CHAP, with mutual CHAP |
//! | `LONGSHORE_PEER_NVMET` | both ports |
//! | `LONGSHORE_PEER_CONTROL` | where the guest takes commands, a line each |

mod guest;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_tests::tgt::{Account, Tgt, TgtVolume};

use crate::arguments::Arguments;
use crate::command::run_captured;
use crate::counts::{Counts, count_tests};
use crate::kernel::last_lines;
use crate::programs;
use crate::rotation::{Part, TURNS};
use crate::workspace;
use guest::TargetGuest;

const PEERS: [&str; 4] = ["longshore", "tgt", "lio", "nvmet"];

/// All tests, against all peers.
const LIMIT: Duration = Duration::from_secs(600);

/// The same when each place of each workload is cut.
const EXHAUSTIVE_LIMIT: Duration = Duration::from_secs(3600);

/// Bytes of each volume of tgt.
const VOLUME_SIZE: u64 = 64 << 20;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let only = arguments.value("--only")?;
    let test = arguments.value("--test")?;
    let exhaustive = arguments.flag("--exhaustive");
    let verbose = arguments.flag("--verbose");
    let stay = arguments.flag("--stay");
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;
    if let Some(only) = &only
        && !PEERS.contains(&only.as_str())
    {
        bail!("--only {only}: one of {}", PEERS.join(", "));
    }
    let wanted = |peer: &str| only.as_ref().is_none_or(|only| only == peer);
    let limit = if exhaustive || stay {
        EXHAUSTIVE_LIMIT
    } else {
        LIMIT
    };

    let program = workspace::server_program()?;
    let mut command = programs::command("longshore-tests/peers")?;
    command.args(["--format", "pretty"]);
    // Tests are named PEER::FACT, or KIND-PEER::FACT.
    command.args(test.as_deref().or(only.as_deref()));
    command.env("LONGSHORE_BIN", program);
    if exhaustive {
        command.env("LONGSHORE_EXHAUSTIVE", "1");
    }
    if let Part::Turn(turn) = part {
        println!(
            "part {} of {TURNS}: a quarter of the facts about each peer; `cargo xtask peers` runs all",
            turn + 1
        );
        command.env("LONGSHORE_PEER_FACTS", format!("{turn}/{TURNS}"));
    }

    let tgt = wanted("tgt").then(start_tgt).transpose()?;
    if let Some(tgt) = &tgt {
        let portals = [tgt.portal(0), tgt.portal(1)];
        command.env("LONGSHORE_PEER_TGT", words(&portals));
    }
    let guest = (wanted("lio") || wanted("nvmet"))
        .then(|| TargetGuest::start(limit))
        .transpose()?;
    if let Some(guest) = &guest {
        println!("guest: targets are up after {:.1?}", guest.started_in);
        command.env("LONGSHORE_PEER_LIO", words(&guest.lio));
        command.env("LONGSHORE_PEER_NVMET", words(&guest.nvmet));
        command.env("LONGSHORE_PEER_CONTROL", guest.control.to_string());
    }

    if stay {
        return wait_for_enter(&command);
    }
    let started = Instant::now();
    let ended = run_captured(&mut command, limit)?;
    let mut counts = count_tests(&ended.output);
    for line in ended.output.lines().filter(|line| is_result(line)) {
        println!("{line}");
    }
    if !ended.is_success() && counts.failed == 0 {
        println!("FAIL peers: the tests ended {}", ended.how());
        counts += Counts::FAILED;
    }
    let console = guest.map(TargetGuest::stop).transpose()?;
    if counts.failed > 0 || verbose {
        println!("{}", ended.output);
        if let Some(console) = console {
            println!("--- console of the guest\n{}", last_lines(&console, 150));
        }
    }
    println!("peers: {counts} in {:.1?}", started.elapsed());
    Ok(counts)
}

/// Leaves the peers up for tests and commands that are started by hand.
fn wait_for_enter(command: &Command) -> Result<Counts> {
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default();
        println!("export {}='{}'", name.display(), value.display());
    }
    println!("up until this is ended by Enter");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(Counts::default())
}

fn is_result(line: &str) -> bool {
    line.starts_with("test ") && line.contains(" ... ")
}

fn words(addresses: &[SocketAddr]) -> String {
    let words: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    words.join(" ")
}

/// Three targets: open, with CHAP, and with mutual CHAP. The open one has blocks of 512 and 4096
/// bytes, and leaves the initiator a choice where tgt would leave it none.
fn start_tgt() -> Result<Tgt> {
    let folder = workspace::work_folder("peers")?;
    let volume = |name: &str, block_size| -> Result<TgtVolume> {
        let path = folder.join(name);
        std::fs::File::create(&path)?.set_len(VOLUME_SIZE)?;
        Ok(TgtVolume {
            backing_store_type: "rdwr",
            path,
            block_size,
        })
    };
    let open = [volume("tgt-open.img", 512)?, volume("tgt-wide.img", 4096)?];
    let tgt = Tgt::start(&[], 2, &open).context("start tgt")?;
    for (key, value) in [
        ("HeaderDigest", "CRC32C,None"),
        ("DataDigest", "CRC32C,None"),
        ("InitialR2T", "No"),
        ("MaxRecvDataSegmentLength", "65536"),
    ] {
        tgt.set(key, value)?;
    }
    let alice = Account {
        user: "alice",
        secret: "longshore-secret",
    };
    let server = Account {
        user: "server",
        secret: "longshore-mutual",
    };
    let chap = [volume("tgt-chap.img", 512)?];
    tgt.add_target("iqn.2026-11.local.longshore.peer:chap", &chap, alice, None)?;
    let mutual = [volume("tgt-mutual.img", 512)?];
    let name = "iqn.2026-11.local.longshore.peer:mutual";
    tgt.add_target(name, &mutual, alice, Some(server))?;
    Ok(tgt)
}
