//! A server with many volumes behind many targets: its start, its memory, and one change.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use longshore_tests::api::VerbResult;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{ServerBuilder, free_port};

use super::Plan;
use crate::bench::page;
use crate::bench::rounds::Figure;

/// Volumes of a target.
const EACH: usize = 10;

/// A size of the configuration.
struct Size {
    volumes: usize,
    targets: usize,
}

/// What a round came to.
struct Sample {
    start: Duration,
    resident: u64,
    anonymous: u64,
    /// `longshore plan` of one more volume, the verb's own start included.
    plan: Duration,
    /// The same with `longshore apply`.
    apply: Duration,
    /// A volume that is created by the API, mapped, and removed.
    create: Duration,
    map: Duration,
    remove: Duration,
    highest: u64,
}

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let sizes: &[usize] = match plan.quick {
        true => &[0, 100],
        false => &[0, 1_000, 10_000],
    };
    let rounds = plan.rounds.min(3);
    let mut text = page::machine_and_commit()?;
    let _ = writeln!(
        text,
        "- {rounds} rounds; volumes of `null`, {EACH} in each target, all in the file\n"
    );
    text += "| volumes, targets | `ready` after | resident | of it anonymous | a volume | `plan` | `apply` | `volume create` | \
             `target map` | `volume remove` | peak |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    let mut alone = None;
    for &volumes in sizes {
        let size = Size {
            volumes,
            targets: volumes / EACH,
        };
        let samples = (0..rounds).map(|_| measure(plan, &size));
        let samples: Vec<Sample> = samples.collect::<Result<_>>()?;
        let milliseconds = |of: fn(&Sample) -> Duration| {
            let all = samples.iter().map(|it| of(it).as_secs_f64() * 1e3);
            format!("{:.0} ms", Figure::of(all.collect()).median)
        };
        let median = |of: fn(&Sample) -> u64| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        let anonymous = median(|it| it.anonymous);
        let before = *alone.get_or_insert(anonymous);
        let each = match volumes {
            0 => "–".to_owned(),
            _ => kib(anonymous.saturating_sub(before) / volumes as u64),
        };
        let line = format!(
            "| {}, {} | {} | {} | {} | {each} | {} | {} | {} | {} | {} | {} |\n",
            size.volumes,
            size.targets,
            milliseconds(|it| it.start),
            mib(median(|it| it.resident)),
            mib(anonymous),
            milliseconds(|it| it.plan),
            milliseconds(|it| it.apply),
            milliseconds(|it| it.create),
            milliseconds(|it| it.map),
            milliseconds(|it| it.remove),
            mib(median(|it| it.highest)),
        );
        print!("{line}");
        text += &line;
    }
    plan.publish("many-volumes", &text)?;
    Ok(sizes.len())
}

fn measure(plan: &Plan, size: &Size) -> Result<Sample> {
    let scratch = Scratch::new("many-volumes");
    let (file, socket) = (scratch.join("longshore.toml"), scratch.join("s"));
    std::fs::write(&file, document(size, false))?;
    let portal = free_port();
    let began = Instant::now();
    let server = ServerBuilder::with_program(plan.program.clone())
        .iscsi_at(portal, "")
        .argument("--config")
        .argument(&file.display().to_string())
        .argument("--socket")
        .argument(&socket.display().to_string())
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string())
        .start()?;
    let start = began.elapsed();
    let process = server.process();
    process.wait_until_at_rest();
    let (resident, anonymous) = (process.resident_bytes()?, process.anonymous_bytes()?);
    let ask = |words: &[&str], status: i32| -> Result<Duration> {
        let mut command = Command::new(&plan.program);
        command.args(words).env("LONGSHORE_SERVER", &socket);
        command.env_remove("LONGSHORE_TOKEN").stdin(Stdio::null());
        let began = Instant::now();
        let outcome = VerbResult::of(command);
        let took = began.elapsed();
        if outcome.code != Some(status) {
            bail!("{words:?}: {outcome:?}\n{}", server.log());
        }
        Ok(took)
    };
    std::fs::write(&file, document(size, true))?;
    let path = file.display().to_string();
    let planned = ask(&["plan", &path], 10)?;
    let apply = ask(&["apply", &path], 0)?;
    let create = ask(&["volume", "create", "more", "backend=null", "size=1G"], 0)?;
    let own = target("own");
    ask(&["target", "create", &own, "luns=[]"], 0)?;
    let map = ask(&["target", "map", &own, "more"], 0)?;
    let remove = ask(&["volume", "remove", "more"], 0)?;
    let highest = process.resident_bytes_max()?;
    Ok(Sample {
        start,
        resident,
        anonymous,
        plan: planned,
        apply,
        create,
        map,
        remove,
        highest,
    })
}

fn target(name: &str) -> String {
    format!("iqn.2026-11.local.longshore:{name}")
}

/// The configuration: all targets, and perhaps one volume more.
fn document(size: &Size, more: bool) -> String {
    let mut text = String::new();
    let volume = |text: &mut String, name: &str| {
        let _ = writeln!(
            text,
            "[[volume]]\nname = \"{name}\"\nbackend = \"null\"\nsize = \"1G\""
        );
    };
    for number in 0..size.volumes {
        volume(&mut text, &format!("v{number}"));
    }
    if more {
        volume(&mut text, "one-more");
    }
    let entry = |lun: usize, name: &str| format!("{{ lun = {lun}, volume = \"{name}\" }}");
    for number in 0..size.targets {
        let luns = (0..EACH).map(|lun| entry(lun, &format!("v{}", number * EACH + lun)));
        let luns: Vec<String> = luns.collect();
        let _ = writeln!(
            text,
            "[[target]]\nname = \"{}\"\nluns = [{}]",
            target(&format!("t{number}")),
            luns.join(", ")
        );
    }
    let _ = writeln!(
        text,
        "[[target]]\nname = \"{}\"\nluns = []",
        target("empty")
    );
    text
}

#[allow(clippy::cast_precision_loss)] // Memory is far below 2^52 bytes.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[allow(clippy::cast_precision_loss)]
fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}
