//! Copies between files and memory volumes, whole and in pieces.

mod files;
mod interrupted;
mod last_flush;
mod volumes;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_initiator::options::Options;
use longshore_initiator::volume::Outage;
use longshore_reactor::EngineChoice;
use longshore_volume::{Volume, VolumeError, WriteCache};

use super::*;
use crate::endpoint::{Endpoint, Opened};
use crate::side::{Link, Side};

const K: u64 = 1024;

/// Files of a test; in memory where there is a tmpfs, since every copy flushes.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        Self(directory.unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A sparse file with these bytes at these offsets.
    fn sparse(&self, name: &str, size: u64, pieces: &[(u64, &[u8])]) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, *offset).unwrap();
        }
        path
    }

    fn set_length(&self, name: &str, length: u64) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.set_len(length).unwrap();
    }

    /// Whether the destination of a copy holds what its source does.
    fn are_alike(&self) -> bool {
        fs::read(self.path("destination")).unwrap() == fs::read(self.path("source")).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn job(source: &Path, destination: &Path) -> Job {
    Job {
        source: Endpoint::Path(source.to_owned()),
        destination: Endpoint::Path(destination.to_owned()),
        source_options: Options::default(),
        destination_options: Options::default(),
        settings: Settings {
            chunk: 64 * K,
            parallel: 3,
            ..Settings::default()
        },
        changes: None,
        journal: None,
        state_directory: None,
    }
}

fn with(mut job: Job, change: impl FnOnce(&mut Settings)) -> Job {
    change(&mut job.settings);
    job
}

#[derive(Default)]
struct Warnings(Vec<String>);

impl Observer for Warnings {
    fn progress(&mut self, progress: &Progress) {
        assert!(progress.start <= progress.done && progress.done <= progress.total);
    }
    fn warn(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn run(job: &Job) -> Report {
    copy(job, &Interrupt::new(), &mut Silent)
}

fn error(report: &Report) -> String {
    report.result.as_ref().unwrap_err().to_string()
}

fn garbage(length: u64, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| seed ^ u8::try_from(at % 251).unwrap() | 1)
        .collect()
}
