//! Revisions of the API's objects: `config/` in the state directory (docs/formats/revisions.md).
//!
//! | name | what it is |
//! |---|---|
//! | `revision-0000000017` | the objects of the API as of revision 17, who changed what, and when |
//! | `intent` | what a change in progress has created, to be removed if the server dies before its revision is there |
//! | `lock` | held by the server that may change them |
//! | `*.new` | on its way to its name; removed at start |
//!
//! A file is written beside its place, flushed, renamed, and the directory flushed. The revision is there with the second
//! of these: a crash leaves the one before, or the new one, as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_api::change::{Revision, RevisionInfo};
use longshore_api::object::Document;
use longshore_wire::crc32c;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::growth::{GrownFile, shrink_all_back};
use super::step;

/// Revisions that are kept.
pub const KEPT: usize = 32;

/// How long another server may take to give up the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

const MAGIC: &str = "longshore-revision";
const VERSION: u32 = 1;
const REVISION: &str = "revision-";
const INTENT: &str = "intent";
const LOCK: &str = "lock";
const FRESH: &str = "new";

/// Why revisions cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{operation} {}: {source}; correct the path, its permissions or the free space", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another server changes the same objects.
    #[error(
        "another server uses the objects of the API in {}: stop it, or give one of them another --state-dir",
        path.display()
    )]
    Locked { path: PathBuf },
    /// A version of the format that this program does not know.
    #[error(
        "{} has version {version} of its format, and this program knows {VERSION}: use the program that wrote it, or a newer one",
        path.display()
    )]
    Newer { path: PathBuf, version: u32 },
    #[error(
        "{} is damaged: {reason}. Restore it from a backup, or remove it to return to the previous revision",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
}

impl StoreError {
    /// Whether the medium is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ))
    }
}

/// What is beside the objects of the API at a revision: the file and the volumes of the command line. It tells whether
/// they are the same at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Others {
    /// CRC-32C of their text.
    pub checksum: u32,
}

impl Others {
    /// Of a file's text, and what the command line says.
    #[must_use]
    pub fn of(file: Option<&str>, volumes: &str) -> Self {
        let file = file.unwrap_or_default();
        Self {
            checksum: checksum(&format!("{}\n{file}{volumes}", file.len())),
        }
    }
}

/// What a change in progress creates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Intent {
    /// The revision that it makes.
    pub revision: u64,
    /// Files that were not there before.
    pub files: Vec<NewFile>,
    /// Files that become longer.
    #[serde(default)]
    pub grown: Vec<GrownFile>,
}

/// A file that a change creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    pub path: PathBuf,
    pub size: u64,
}

/// The directory of the revisions, locked.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Whoever has it may change them.
    _lock: File,
    /// The revisions that are there, ascending.
    numbers: Vec<u64>,
}

impl Store {
    /// The place in a state directory.
    #[must_use]
    pub fn place(state_directory: &Path) -> PathBuf {
        state_directory.join("config")
    }

    /// Whether anything was stored below a state directory.
    #[must_use]
    pub fn is_there(state_directory: &Path) -> bool {
        Self::place(state_directory).is_dir()
    }

    /// Opens the directory, creating it if it is missing, and removes what a crash has left behind. A server that was
    /// killed may have its lock for a moment still.
    ///
    /// # Errors
    /// Another server uses it, or the system refuses something.
    pub fn open(state_directory: &Path) -> Result<Self, StoreError> {
        Self::open_within(state_directory, LOCK_PATIENCE)
    }

    /// The same, where another server is likely to have the lock, and the answer is wanted soon.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_soon(state_directory: &Path) -> Result<Self, StoreError> {
        Self::open_within(state_directory, LOCK_PATIENCE / 10)
    }

    fn open_within(state_directory: &Path, patience: Duration) -> Result<Self, StoreError> {
        let directory = Self::place(state_directory);
        if !directory.is_dir() {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&directory)
                .map_err(io("create", &directory))?;
            sync_directory(state_directory)?;
        }
        let lock = lock(&directory.join(LOCK), patience)?;
        let mut store = Self {
            directory,
            _lock: lock,
            numbers: Vec::new(),
        };
        store.numbers = store.list()?;
        store.recover()?;
        Ok(store)
    }

    /// The newest revision, or `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or has a format of a later version.
    pub fn newest(&self) -> Result<Option<(RevisionInfo, Document)>, StoreError> {
        let newest = self.numbers.last();
        newest.map(|number| self.read(*number)).transpose()
    }

    /// What was beside the objects of the API at the newest revision. `None`: a version before has written it.
    ///
    /// # Errors
    /// As for [`Self::newest`].
    pub fn others(&self) -> Result<Option<Others>, StoreError> {
        let Some(number) = self.numbers.last() else {
            return Ok(None);
        };
        let path = self.directory.join(name(*number));
        let lines = read_lines(&path)?;
        let line = lines.get(2);
        line.map(|line| from_json(&path, Some(line))).transpose()
    }

    /// A revision with the objects as they were.
    ///
    /// # Errors
    /// As for [`Self::newest`].
    pub fn at(&self, revision: Revision) -> Result<Option<Document>, StoreError> {
        if !self.numbers.contains(&revision.0) {
            return Ok(None);
        }
        self.read(revision.0).map(|(_, document)| Some(document))
    }

    /// What is kept, the newest first. Revisions that cannot be read are left out.
    #[must_use]
    pub fn history(&self) -> Vec<RevisionInfo> {
        let numbers = self.numbers.iter().rev();
        numbers
            .filter_map(|number| self.read(*number).ok().map(|(info, _)| info))
            .collect()
    }

    /// Makes a revision. When this returns, it is the one that the next start has.
    ///
    /// # Errors
    /// The system refuses something; the revision before is the newest still.
    pub fn commit(
        &mut self,
        info: &RevisionInfo,
        document: &Document,
        others: Others,
    ) -> Result<(), StoreError> {
        let number = info.revision.0;
        assert!(
            self.numbers.last().is_none_or(|last| *last < number),
            "revisions ascend"
        );
        let body = body(&[&to_json(info), &to_json(document), &to_json(&others)]);
        self.put(&name(number), &body)?;
        self.numbers.push(number);
        step!("pruned");
        self.prune();
        Ok(())
    }

    /// Writes down what a change is about to create.
    ///
    /// # Errors
    /// The system refuses something. Then nothing must be created.
    pub fn intend(&self, intent: &Intent) -> Result<(), StoreError> {
        self.put(INTENT, &body(&[&to_json(intent)]))
    }

    /// The change is through, or undone.
    ///
    /// # Errors
    /// The system refuses something. The next start finds out by the revision which of both it was.
    pub fn forget_intent(&self) -> Result<(), StoreError> {
        let path = self.directory.join(INTENT);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file as a whole.
    fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        let fresh = self.directory.join(format!("{name}.{FRESH}"));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| {
                file.write_all(body)?;
                file.sync_all()
            });
        step!("written");
        if let Err(source) = written {
            let _ = fs::remove_file(&fresh);
            return Err(io("write", &fresh)(source));
        }
        fs::rename(&fresh, &path).map_err(io("rename", &fresh))?;
        step!("renamed");
        // What may not be on the medium is refused, so the next start must not find it either.
        sync_directory(&self.directory).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })
    }

    /// Removes the oldest revisions beyond those that are kept.
    fn prune(&mut self) {
        while self.numbers.len() > KEPT {
            let oldest = self.numbers.remove(0);
            let path = self.directory.join(name(oldest));
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }

    fn list(&self) -> Result<Vec<u64>, StoreError> {
        let mut numbers = Vec::new();
        let entries = fs::read_dir(&self.directory).map_err(io("read", &self.directory))?;
        for entry in entries {
            let entry = entry.map_err(io("read", &self.directory))?;
            let file_name = entry.file_name();
            let Some(file_name) = file_name.to_str() else {
                continue;
            };
            if file_name.ends_with(&format!(".{FRESH}")) {
                let path = entry.path();
                fs::remove_file(&path).map_err(io("remove", &path))?;
            } else if let Some(number) = file_name.strip_prefix(REVISION)
                && let Ok(number) = number.parse()
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes what a change has created that has not come to its revision.
    fn recover(&self) -> Result<(), StoreError> {
        let path = self.directory.join(INTENT);
        if !path.exists() {
            return Ok(());
        }
        let lines = read_lines(&path)?;
        let intent: Intent = from_json(&path, lines.first())?;
        let is_through = self
            .numbers
            .last()
            .is_some_and(|newest| *newest >= intent.revision);
        if !is_through {
            for file in &intent.files {
                remove_unused(file);
            }
            shrink_all_back(&intent.grown);
        }
        self.forget_intent()
    }

    fn read(&self, number: u64) -> Result<(RevisionInfo, Document), StoreError> {
        let path = self.directory.join(name(number));
        let lines = read_lines(&path)?;
        let info: RevisionInfo = from_json(&path, lines.first())?;
        if info.revision.0 != number {
            let reason = format!("it holds revision {}", info.revision.0);
            return Err(StoreError::Damaged { path, reason });
        }
        let document = from_json(&path, lines.get(1))?;
        Ok((info, document))
    }
}

/// Removes a file that a change has created, unless somebody has written to it since.
pub(super) fn remove_unused(file: &NewFile) {
    let path = &file.path;
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.len() <= file.size && found.blocks() == 0 => {
            match fs::remove_file(path) {
                Ok(()) => {
                    tracing::info!("removed {}, left by an incomplete change", path.display())
                }
                Err(error) => tracing::warn!(
                    "cannot remove {}, left by an incomplete change: {error}",
                    path.display()
                ),
            }
        }
        Ok(_) => tracing::warn!(
            "{} was left by an incomplete change and has data: it stays",
            path.display()
        ),
        Err(_) => {}
    }
}

fn name(number: u64) -> String {
    format!("{REVISION}{number:010}")
}

/// Lines of JSON below a line with magic, version and checksum.
fn body(lines: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let checksum = checksum(&text);
    format!("{MAGIC} {VERSION} {checksum:08x}\n{text}").into_bytes()
}

fn checksum(text: &str) -> u32 {
    u32::from_le_bytes(crc32c(text.as_bytes()).to_bytes())
}

fn read_lines(path: &Path) -> Result<Vec<String>, StoreError> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    let damaged = |reason: &str| StoreError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    let (head, rest) = text
        .split_once('\n')
        .ok_or_else(|| damaged("it is cut off"))?;
    let words: Vec<&str> = head.split(' ').collect();
    let [magic, version, checksum] = words[..] else {
        return Err(damaged("its first line is not one of ours"));
    };
    if magic != MAGIC {
        return Err(damaged("its first line is not one of ours"));
    }
    let version: u32 = version
        .parse()
        .map_err(|_| damaged("its version is not a number"))?;
    if version > VERSION {
        let path = path.to_owned();
        return Err(StoreError::Newer { path, version });
    }
    if u32::from_str_radix(checksum, 16) != Ok(self::checksum(rest)) {
        return Err(damaged("its checksum does not match"));
    }
    Ok(rest.lines().map(str::to_owned).collect())
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("keys of objects are texts")
}

fn from_json<T: DeserializeOwned>(path: &Path, line: Option<&String>) -> Result<T, StoreError> {
    let line = line.map_or("", String::as_str);
    serde_json::from_str(line).map_err(|error| StoreError::Damaged {
        path: path.to_owned(),
        // The message could show a value.
        reason: format!("it cannot be read at column {}", error.column()),
    })
}

fn lock(path: &Path, patience: Duration) -> Result<File, StoreError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(io("open", path))?;
    // A process that was killed holds its locks until the kernel has ended what it had under way.
    for _ in 0..patience.as_millis() / LOCK_INTERVAL.as_millis() {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io("lock", path)(error.into())),
        }
    }
    let path = path.parent().unwrap_or(path).to_owned();
    Err(StoreError::Locked { path })
}

fn sync_directory(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(io("fsync", path))
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_api::change::Caller;
    use longshore_api::object::Keys;

    const OTHERS: Others = Others { checksum: 1 };

    fn info(revision: u64) -> RevisionInfo {
        RevisionInfo {
            revision: Revision(revision),
            time_ms: 1,
            caller: Caller {
                name: "uid 0".to_owned(),
                from: "test".to_owned(),
            },
            steps: vec!["add volume a".to_owned()],
        }
    }

    fn document(name: &str) -> Document {
        let mut document = Document::default();
        document.volumes.insert(name.to_owned(), Keys::new());
        document
    }

    fn names(store: &Store) -> Vec<String> {
        let entries = fs::read_dir(&store.directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_last_32_revisions_are_kept_and_the_newest_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        {
            let mut store = Store::open(directory.path()).unwrap();
            assert!(store.newest().unwrap().is_none());
            for number in 1..=40 {
                store
                    .commit(&info(number), &document(&format!("v{number}")), OTHERS)
                    .unwrap();
            }
        }
        let store = Store::open(directory.path()).unwrap();
        let (newest, found) = store.newest().unwrap().unwrap();
        assert_eq!((newest.revision, found), (Revision(40), document("v40")));
        let history = store.history();
        assert_eq!(history.len(), KEPT);
        assert_eq!((history[0].revision.0, history[31].revision.0), (40, 9));
        assert_eq!(store.at(Revision(9)).unwrap(), Some(document("v9")));
        assert_eq!(store.at(Revision(8)).unwrap(), None);
        let mode = fs::metadata(store.directory.join(name(40))).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
    }

    #[test]
    fn a_server_beside_another_does_not_get_the_objects() {
        let directory = tempfile::tempdir().unwrap();
        let first = Store::open(directory.path()).unwrap();
        let second = Store::open(directory.path()).unwrap_err();
        assert!(second.to_string().contains("--state-dir"), "{second}");
        drop(first);
        Store::open(directory.path()).unwrap();
    }

    #[test]
    fn damage_and_later_versions_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = {
            let mut store = Store::open(directory.path()).unwrap();
            store.commit(&info(1), &document("a"), OTHERS).unwrap();
            store.directory.join(name(1))
        };
        let whole = fs::read_to_string(&path).unwrap();
        let newest = || Store::open(directory.path()).unwrap().newest().unwrap_err();
        for (text, expected) in [
            (whole.replace("uid 0", "uid 1"), "checksum"),
            (whole[..20].to_owned(), "cut off"),
            (String::new(), "cut off"),
            (whole.replace("revision 1 ", "revision 2 "), "version 2"),
        ] {
            fs::write(&path, text).unwrap();
            let error = newest().to_string();
            assert!(
                error.contains(expected) && error.contains("revision-0000000001"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_a_change_left_behind_is_removed_unless_it_is_used_or_came_about() {
        let directory = tempfile::tempdir().unwrap();
        let new = |name: &str| NewFile {
            path: directory.path().join(name),
            size: 1 << 20,
        };
        let make = |file: &NewFile| {
            File::create(&file.path)
                .unwrap()
                .set_len(file.size)
                .unwrap();
        };
        let store = Store::open(directory.path()).unwrap();
        let files = vec![new("empty"), new("used"), new("absent")];
        let intent = |files: Vec<NewFile>| Intent {
            revision: 1,
            files,
            grown: Vec::new(),
        };
        store.intend(&intent(files)).unwrap();
        make(&new("empty"));
        fs::write(directory.path().join("used"), "data").unwrap();
        File::create(store.directory.join("revision-0000000001.new")).unwrap();
        drop(store);
        let mut store = Store::open(directory.path()).unwrap();
        assert_eq!(names(&store), ["lock"]);
        assert!(!new("empty").path.exists() && new("used").path.exists());

        let files = vec![new("empty")];
        store.intend(&intent(files)).unwrap();
        make(&new("empty"));
        store.commit(&info(1), &document("a"), OTHERS).unwrap();
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(names(&store), ["lock", "revision-0000000001"]);
        assert!(new("empty").path.exists());
    }
}
