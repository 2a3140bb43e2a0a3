//! QEMU's own iSCSI block driver against the server: images converted to and from `iscsi://`,
//! compared, and patterns written and verified.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longshore_tests::random::Random;

use crate::arguments::Arguments;
use crate::command::run_checked;
use crate::counts::Counts;
use crate::servers::{Backend, Kind, Setup};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(120);
const VOLUME_SIZE: u64 = 256 << 20;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let kind = Kind::parse(arguments.value("--server")?.as_deref())?;
    arguments.finish()?;
    let folder = workspace::work_folder("qemu")?;
    let source = folder.join("source.qcow2");
    make_source(&folder, &source)?;
    let mut counts = Counts::default();
    for block_size in [512, 4096] {
        for engine in ["io_uring", "epoll"] {
            let name = format!("qemu {block_size}-{engine}");
            let _ = std::fs::remove_file(folder.join("disk0.img"));
            let setup = Setup {
                kind,
                backend: Backend::File,
                size: VOLUME_SIZE,
                block_size,
                engine,
                portals: 1,
                below: &[],
                folder: &folder,
                keep_file: false,
                lockable_bytes: None,
            };
            let started = Instant::now();
            let server = setup.start()?;
            let url = server.url(0);
            for (step, result) in steps(&folder, &source, &url) {
                match result {
                    Ok(()) => {
                        println!("ok   {name} {step}");
                        counts += Counts::PASSED;
                    }
                    Err(error) => {
                        println!("FAIL {name} {step}: {error:#}\n{}", server.log());
                        counts += Counts::FAILED;
                    }
                }
            }
            println!("{name}: done in {:.1?}", started.elapsed());
        }
    }
    Ok(counts)
}

/// An image with data, holes and zeros, as large as the volume.
fn make_source(folder: &Path, source: &Path) -> Result<()> {
    let raw = folder.join("source.raw");
    let mut bytes = vec![0; 1 << 20];
    let file = std::fs::File::create(&raw)?;
    file.set_len(VOLUME_SIZE)?;
    let mut random = Random::new(2);
    for _ in 0..48 {
        random.fill(&mut bytes);
        let offset = random.below(VOLUME_SIZE / 4096 - 256) * 4096;
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, offset)?;
    }
    tool(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2"],
        &[&raw, source],
    )
}

fn steps(folder: &Path, source: &Path, url: &str) -> Vec<(&'static str, Result<()>)> {
    let url = Path::new(url);
    let back = folder.join("back.qcow2");
    vec![
        ("info", tool("qemu-img", &["info", "-f", "raw"], &[url])),
        (
            "convert-to",
            tool(
                "qemu-img",
                &["convert", "-n", "-f", "qcow2", "-O", "raw"],
                &[source, url],
            ),
        ),
        (
            "compare",
            tool(
                "qemu-img",
                &["compare", "-f", "qcow2", "-F", "raw"],
                &[source, url],
            ),
        ),
        (
            "convert-from",
            tool(
                "qemu-img",
                &["convert", "-f", "raw", "-O", "qcow2"],
                &[url, &back],
            ),
        ),
        (
            "compare-copy",
            tool(
                "qemu-img",
                &["compare", "-f", "qcow2", "-F", "qcow2"],
                &[source, &back],
            ),
        ),
        (
            "write-and-verify",
            qemu_io(url, &["write -P 0x5a 1M 3M", "flush", "read -P 0x5a 1M 3M"]),
        ),
        (
            "write-with-fua",
            qemu_io(url, &["write -f -P 0x77 8M 64k", "read -P 0x77 8M 64k"]),
        ),
        (
            "write-zeros-and-unmap",
            qemu_io(
                url,
                &["write -z -u 1M 2M", "read -P 0 1M 2M", "read -P 0x5a 3M 1M"],
            ),
        ),
        (
            "discard",
            qemu_io(url, &["discard 3M 1M", "flush", "read 3M 1M"]),
        ),
        (
            "many-at-once",
            qemu_io(
                url,
                &[
                    "aio_write -P 1 16M 512k",
                    "aio_write -P 2 17M 512k",
                    "aio_write -P 3 18M 512k",
                    "aio_write -P 4 19M 512k",
                    "aio_flush",
                    "read -P 1 16M 512k",
                    "read -P 2 17M 512k",
                    "read -P 3 18M 512k",
                    "read -P 4 19M 512k",
                ],
            ),
        ),
    ]
}

fn qemu_io(url: &Path, commands: &[&str]) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for text in commands {
        command.args(["-c", text]);
    }
    let output = run_checked(command.arg(url), LIMIT)?;
    // qemu-io ends with status 0 even when a pattern does not fit.
    match output
        .lines()
        .find(|line| line.contains("failed") || line.contains("error"))
    {
        None => Ok(()),
        Some(line) => anyhow::bail!("{line}"),
    }
}

fn tool(name: &str, arguments: &[&str], paths: &[&Path]) -> Result<()> {
    run_checked(Command::new(name).args(arguments).args(paths), LIMIT)
        .map(drop)
        .with_context(|| format!("{name} {}", arguments.join(" ")))
}
