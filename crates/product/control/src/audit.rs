//! The audit log: who asked for which change, and what came of it.
//!
//! Lines of JSON in `audit.log` of the state directory, readable by the server's user alone. An *intent* is on the medium
//! before anything is changed; its *outcome* follows. Both have the same `id`. At 16 MiB the file becomes `audit.log.1`;
//! eight old files are kept. Neither holds secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longshore_api::change::{Caller, Revision};
use serde::Serialize;

use crate::clock;

/// A file that is longer than this is put aside.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Old files that are kept.
const OLD_FILES: usize = 8;

/// See the module documentation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Log>);

#[derive(Debug)]
struct Log {
    /// Taken while a line goes to the medium.
    writer: Mutex<Writer>,
    /// Taken for a moment: who reads it waits for no disk.
    last: Mutex<Option<LastChange>>,
}

/// How the last change of the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastChange {
    pub is_done: bool,
    pub time_ms: u64,
}

#[derive(Debug)]
struct Writer {
    /// None: there is no state directory, and the log of the server is all.
    file: Option<(PathBuf, File)>,
    bytes: u64,
    bytes_max: u64,
    next: u64,
}

/// A change that was announced. Its end is to be told.
#[derive(Debug)]
#[must_use = "the outcome belongs into the audit log"]
pub struct Intent {
    audit: Audit,
    id: String,
    caller: Caller,
    /// It changes the configuration.
    has_revision: bool,
    began: Instant,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Line<'a> {
    kind: &'static str,
    id: &'a str,
    time_ms: u64,
    #[serde(flatten)]
    caller: &'a Caller,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_us: Option<u64>,
}

impl Audit {
    /// Opens the file in a state directory, or none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(state_directory: Option<&Path>) -> io::Result<Self> {
        let path = state_directory.map(|directory| directory.join("audit.log"));
        let file = path.map(|path| open(&path).map(|file| (path, file)));
        let file = file.transpose()?;
        let bytes = match &file {
            Some((_, file)) => file.metadata()?.len(),
            None => 0,
        };
        let writer = Writer {
            file,
            bytes,
            bytes_max: FILE_BYTES_MAX,
            next: 1,
        };
        Ok(Self(Arc::new(Log {
            writer: Mutex::new(writer),
            last: Mutex::default(),
        })))
    }

    /// How the last change of the configuration ended, if there was one since the start.
    #[must_use]
    pub fn last_change(&self) -> Option<LastChange> {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is about to change something. Returns when that is on the medium. `before` is the revision now, and
    /// `steps` one line for each step.
    ///
    /// # Errors
    /// It cannot be written. Then nothing must be changed.
    pub fn intent(
        &self,
        caller: &Caller,
        before: Option<Revision>,
        steps: &[String],
    ) -> io::Result<Intent> {
        let mut writer = self.writer();
        let id = format!("{}-{}", std::process::id(), writer.next);
        writer.next += 1;
        writer.write(&Line {
            kind: "intent",
            id: &id,
            time_ms: clock::now_ms(),
            caller,
            revision: before,
            steps: Some(steps),
            error: None,
            duration_us: None,
        })?;
        drop(writer);
        tracing::info!(
            caller = caller.name,
            from = caller.from,
            "change begins: {}",
            steps.join("; ")
        );
        Ok(Intent {
            audit: self.clone(),
            id,
            caller: caller.clone(),
            has_revision: before.is_some(),
            began: Instant::now(),
        })
    }
}

impl Intent {
    /// What came of it: the revision from now on, if there is one, or why nothing was changed.
    pub fn outcome(self, outcome: Result<Option<Revision>, &str>) {
        let duration = self.began.elapsed();
        let (revision, error) = match outcome {
            Ok(revision) => (revision, None),
            Err(error) => (None, Some(error)),
        };
        let line = Line {
            kind: "outcome",
            id: &self.id,
            time_ms: clock::now_ms(),
            caller: &self.caller,
            revision,
            steps: None,
            error,
            duration_us: Some(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        };
        if self.has_revision {
            let last = LastChange {
                is_done: error.is_none(),
                time_ms: line.time_ms,
            };
            let place = &self.audit.0.last;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        }
        let written = self.audit.writer().write(&line);
        if let Err(problem) = written {
            tracing::error!(
                "cannot write the audit log: {problem}; free space in the state directory"
            );
        }
        let Caller { name, from } = &self.caller;
        match (error, revision) {
            (Some(error), _) => tracing::warn!(caller = name, from, error, "change refused"),
            (None, Some(Revision(revision))) => {
                tracing::info!(caller = name, from, revision, "change done");
            }
            (None, None) => tracing::info!(caller = name, from, "change done"),
        }
    }
}

impl Writer {
    fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line).map_err(io::Error::other)?;
        bytes.push(b'\n');
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        if self.bytes + bytes.len() as u64 > self.bytes_max && self.bytes > 0 {
            rotate(path)?;
            *file = open(path)?;
            self.bytes = 0;
        }
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

/// `audit.log` becomes `audit.log.1`, and so on; the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..OLD_FILES).rev() {
        match fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, numbered(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    fn caller() -> Caller {
        Caller {
            name: "uid 1000".to_owned(),
            from: "/run/longshore.sock".to_owned(),
        }
    }

    #[test]
    fn an_intent_is_written_before_its_outcome_and_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let audit = Audit::open(Some(directory.path())).unwrap();
        let path = directory.path().join("audit.log");
        let steps = ["add volume a".to_owned()];
        let intent = audit.intent(&caller(), Some(Revision(3)), &steps).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        assert_eq!(audit.last_change(), None);
        intent.outcome(Ok(Some(Revision(4))));
        assert!(audit.last_change().is_some_and(|last| last.is_done));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["kind"], "intent");
        assert_eq!(lines[0]["steps"][0], "add volume a");
        assert_eq!(lines[1]["revision"], 4);
        assert_eq!(lines[0]["id"], lines[1]["id"]);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn full_files_are_put_aside_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let audit = Audit::open(Some(directory.path())).unwrap();
        audit.writer().bytes_max = 200;
        for _ in 0..40 {
            audit
                .intent(&caller(), None, &[])
                .unwrap()
                .outcome(Err("no"));
        }
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), OLD_FILES + 1);
        assert_eq!(names.last().unwrap(), "audit.log.8");
    }

    #[test]
    fn how_the_last_change_ended_is_known_while_a_line_is_being_written() {
        let audit = Audit::open(None).unwrap();
        let intent = audit.intent(&caller(), Some(Revision(1)), &[]).unwrap();
        intent.outcome(Ok(Some(Revision(2))));
        let _writing = audit.writer();
        let own = audit.clone();
        let reader = std::thread::spawn(move || own.last_change());
        assert!(reader.join().unwrap().is_some_and(|last| last.is_done));
    }

    #[test]
    fn without_a_state_directory_changes_are_possible() {
        let audit = Audit::open(None).unwrap();
        audit
            .intent(&caller(), None, &[])
            .unwrap()
            .outcome(Ok(None));
    }
}
