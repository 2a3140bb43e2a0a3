//! The Linux kernel's iSCSI initiator and NVMe host, in virtual machines, against the server.
//!
//! Each file in `tests/kernel/jobs` is one boot. Its first lines say what the host provides:
//!
//! ```text
//! # volume: NAME SIZE [options]   a file of that size, served as LUN 0, 1, … and NSID 1, 2, …
//! # portals: 2                    listeners for iSCSI (1); each is reached through a relay
//! # nvme: 1                       listeners for NVMe/TCP (0), likewise
//! # processors: 2                 of the guest (1)
//! # kernel: WORDS                 for the command line of the guest's kernel
//! # config: FILE                  a configuration file instead of the command line
//! # api: yes                      the host runs verbs of the control plane when asked (no)
//! # servers: guest                the servers run in the guest: Longshore, LIO and tgt are there (host)
//! # guest: secure                 Debian 13's kernel and programs, with TLS and authentication for NVMe (Debian 12's);
//!                                 next: those of Debian 14; general: Debian's general kernel, not the cloud kernel
//! # forwards: 2                   ports of the guest that clients on the host reach (0)
//! # secret: NAME TEXT             a file {folder}/NAME for the configuration or for clients, mode 0600
//! # limit: 600                    seconds
//! ```
//!
//! and its checks are counted one by one. A job may ask the host for things ([`Host::perform`]).

mod files;
mod header;
mod host;
mod places;
mod script;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::rotation::Part;
use crate::servers::Kind;
use crate::vm::guest::{Guest, Machine, Message};
use crate::vm::image;
use crate::vm::kernel::{Flavour, Kernel};
use crate::vm::system::System;
use crate::workspace;
use header::{GuestKind, Header};
use host::Host;

/// Guests at the same time: each keeps a processor busy.
const PARALLEL: usize = 2;

/// Jobs that run at each landing: one of each protocol that moves data, and changes of both.
const ALWAYS: &[&str] = &["changes", "digests", "nvme-commands"];

/// Jobs that run with all others alone: Debian 14 is no release yet, and its mirrors may lack what they had a day ago.
const NIGHTLY: &[&str] = &["nvme-tls-next"];

/// What udev makes the names below /dev/disk/by-id with.
const SCSI_ID: &str = "/usr/lib/udev/scsi_id";

/// MiB; the image unpacks to a third of it.
const MEMORY: u32 = 1024;

/// MiB for Debian 13's kernel.
const SECURE_MEMORY: u32 = 1536;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let kind = Kind::parse(arguments.value("--server")?.as_deref())?;
    let only = arguments.value("--only")?;
    let verbose = arguments.flag("--verbose");
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;

    let ledger = workspace::build_for_tests("ledger")?;
    if kind == Kind::Longshore {
        workspace::server_program()?;
    }
    let mut jobs = jobs()?;
    jobs.retain(|job| {
        only.as_ref()
            .is_none_or(|only| job.name.contains(only.as_str()))
    });
    if jobs.is_empty() {
        bail!("no job matches {only:?}");
    }
    if part != Part::All {
        jobs.retain(|job| !NIGHTLY.contains(&job.name.as_str()));
    }
    let is_always = |job: &Job| ALWAYS.contains(&job.name.as_str());
    // In the turn of the fuzz targets there is time for these alone.
    let jobs = part.choose_in(
        &[1, 2, 3],
        "kernel",
        jobs,
        |job| job.name.clone(),
        is_always,
    );
    let images = Images::make(&jobs, &ledger)?;
    let queue = Mutex::new(VecDeque::from(jobs));
    let total = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(job) = queue.lock().expect("no panics").pop_front() {
                        let started = Instant::now();
                        let counts = job
                            .run(kind, &images, verbose)
                            .with_context(|| format!("job {}", job.name))?;
                        println!("kernel {}: {counts} in {:.1?}", job.name, started.elapsed());
                        *total.lock().expect("no panics") += counts;
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().expect("workers do not panic"))
    })?;
    Ok(total.into_inner()?)
}

fn jobs() -> Result<Vec<Job>> {
    let folder = workspace::root().join("tests/kernel/jobs");
    let mut jobs = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let script = entry?.path();
        if script
            .extension()
            .is_some_and(|extension| extension == "sh")
        {
            let name = script
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            jobs.push(Job { name, script });
        }
    }
    // The longest first, so that no worker is left alone with one at the end.
    jobs.sort_by_cached_key(|job| {
        let limit = Header::read(&job.script).map_or(Duration::ZERO, |header| header.limit);
        (Reverse(limit), job.name.clone())
    });
    Ok(jobs)
}

/// What jobs share: a kernel and a part of the image for each kind of guest.
struct Images(BTreeMap<GuestKind, (Kernel, Vec<u8>)>);

impl Images {
    /// Makes what these jobs need.
    fn make(jobs: &[Job], ledger: &Path) -> Result<Self> {
        let mut images = BTreeMap::new();
        for job in jobs {
            let kind = Header::read(&job.script)?.guest();
            if images.contains_key(&kind) {
                continue;
            }
            let (kernel, image) = make_image(kind, ledger)?;
            println!(
                "kernel {}: image of {} MiB",
                kernel.version,
                image.len() >> 20
            );
            images.insert(kind, (kernel, image));
        }
        Ok(Self(images))
    }
}

fn make_image(kind: GuestKind, ledger: &Path) -> Result<(Kernel, Vec<u8>)> {
    let ledger = ledger.to_owned();
    if let GuestKind::Secure(release) = kind {
        let kernel = release.kernel()?;
        let root = release.programs()?;
        let system = System::Unpacked(&root);
        let image = image::base(&kernel, system, &[&image::SECURE], &[ledger])?;
        return Ok((kernel, image));
    }
    let kernel = Kernel::prepare(match kind {
        GuestKind::General => Flavour::General,
        GuestKind::Initiator | GuestKind::Servers | GuestKind::Secure(_) => Flavour::Cloud,
    })?;
    let image = match kind {
        GuestKind::Servers => {
            let contents = [&image::INITIATOR, &image::SERVERS];
            let programs = [workspace::server_program()?, SCSI_ID.into()];
            image::base(&kernel, System::Host, &contents, &programs)?
        }
        GuestKind::General => {
            let contents = [&image::INITIATOR, &image::GENERAL];
            image::base(&kernel, System::Host, &contents, &[ledger])?
        }
        GuestKind::Initiator | GuestKind::Secure(_) => {
            image::base(&kernel, System::Host, &[&image::INITIATOR], &[ledger])?
        }
    };
    Ok((kernel, image))
}

struct Job {
    name: String,
    script: PathBuf,
}

impl Job {
    fn run(&self, kind: Kind, images: &Images, verbose: bool) -> Result<Counts> {
        let header = Header::read(&self.script)?;
        if kind == Kind::Tgt
            && let Some(lack) = header.tgt_lacks()
        {
            println!("SKIPPED {}: tgt has no {lack}", self.name);
            return Ok(Counts::SKIPPED);
        }
        let folder = workspace::work_folder(&format!("kernel/{}", self.name))?;
        let mut host = Host::start(kind, &header, &folder)?;
        let job = image::job(&self.script, &host.settings(header.limit))?;
        let (kernel, base) = &images.0[&header.guest()];
        let guest = Machine {
            kernel,
            image: [base, &job],
            forwards: host.forwards(),
            drives: &[],
            memory: match header.guest() {
                GuestKind::Secure(_) => SECURE_MEMORY,
                GuestKind::Initiator | GuestKind::Servers | GuestKind::General => MEMORY,
            },
            processors: header.processors,
            kernel_words: &header.kernel_words,
            watchdog: header.limit,
            folder: &folder,
        };
        self.follow(guest.start()?, &mut host, verbose)
    }

    fn follow(&self, mut guest: Guest, host: &mut Host, verbose: bool) -> Result<Counts> {
        let mut counts = Counts::default();
        let failure = loop {
            match guest
                .next(None)
                .expect("without a limit of ours there is a message")
            {
                Message::Log(text) => println!("     {}: {text}", self.name),
                Message::Acknowledged(_) => {}
                Message::Check(check, Ok(())) => {
                    println!("ok   {} {check}", self.name);
                    counts += Counts::PASSED;
                }
                Message::Check(check, Err(why)) => {
                    println!("FAIL {} {check}: {why}", self.name);
                    counts += Counts::FAILED;
                }
                Message::Ask(request) => {
                    let answer = host.perform(&request);
                    if verbose || answer.is_err() {
                        let text = match &answer {
                            Ok(text) => text.clone(),
                            Err(error) => format!("failed: {error:#}"),
                        };
                        println!("     {}: {request}: {text}", self.name);
                    }
                    guest.answer(&answer)?;
                }
                Message::Verdict(Ok(())) if counts.passed + counts.failed == 0 => {
                    break Some("the job checked nothing".to_owned());
                }
                Message::Verdict(Ok(())) => break None,
                Message::Verdict(Err(why)) | Message::Ended(why) => break Some(why),
            }
        };
        if let Some(why) = &failure {
            println!("FAIL {}: {why}", self.name);
            counts += Counts::FAILED;
        }
        if counts.failed > 0 || verbose {
            println!(
                "--- console of {}\n{}",
                self.name,
                last_lines(&guest.console(), 150)
            );
            println!(
                "--- log of the server\n{}",
                last_lines(&host.server_log(), 60)
            );
        }
        Ok(counts)
    }
}

/// The end of a log.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
