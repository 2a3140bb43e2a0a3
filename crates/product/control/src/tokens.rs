//! Bearer tokens: 256 random bits each, of which the server keeps a SHA-256 in `tokens.json` of its state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_api::access::{NewToken, Role, TokenInfo, TokenRequest};
use longshore_api::problem::{Problem, ProblemCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::clock;

/// What tokens begin with, so that scanners of repositories and logs know them.
const PREFIX: &str = "longshore_";
/// The token that the first start makes.
const FIRST: &str = "admin";
/// The file with that token's secret.
const FIRST_FILE: &str = "admin-token";
/// Of the file's form.
const VERSION: u32 = 1;
const TOKENS_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Stored {
    #[serde(flatten)]
    info: TokenInfo,
    /// SHA-256 of the token, in 64 hexadecimal digits.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    version: u32,
    tokens: Vec<Stored>,
    /// The token for the API over TCP was made. Absent in files of version 0.1.
    #[serde(default)]
    has_had_first: Option<bool>,
}

/// A token that somebody has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub name: String,
    pub role: Role,
    /// Which token it is: another one of the same name has another.
    pub sha256: String,
}

/// The tokens of a server.
pub struct Tokens {
    path: Option<PathBuf>,
    /// Taken for a moment: who looks for a token waits for no disk.
    stored: Mutex<Arc<Known>>,
    /// Taken by who changes them, until the file is on the medium.
    changing: Mutex<()>,
}

/// What is in the file.
#[derive(Clone, Default)]
struct Known {
    tokens: Vec<Stored>,
    /// The first token was made, some time ago.
    has_had_first: bool,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the tokens of a state directory. Without one, there are none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(state_directory: Option<&Path>) -> io::Result<Self> {
        let path = state_directory.map(|directory| directory.join("tokens.json"));
        let stored = path.as_deref().map(read).transpose()?.flatten();
        Ok(Self {
            path,
            stored: Mutex::new(Arc::new(stored.unwrap_or_default())),
            changing: Mutex::new(()),
        })
    }

    /// Makes the token for the API over TCP, and leaves its secret in the state directory for the user of the server.
    /// Returns the file, unless that was done before: who has removed the token since does not get it back.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn make_first(&self) -> io::Result<Option<PathBuf>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let _changing = self.changing();
        let mut known = Known::clone(&self.known());
        if known.has_had_first {
            return Ok(None);
        }
        let secret = new_secret();
        let file = path.with_file_name(FIRST_FILE);
        write(&file, format!("{secret}\n").as_bytes())?;
        let is_free = |name: &String| !known.tokens.iter().any(|it| it.info.name == *name);
        let numbered = (2..).map(|number| format!("{FIRST}-{number}"));
        let mut names = std::iter::once(FIRST.to_owned()).chain(numbered);
        let info = TokenInfo {
            name: names.find(is_free).unwrap_or_default(),
            role: Role::Admin,
            created_ms: clock::now_ms(),
            expires_ms: None,
        };
        let sha256 = hash(&secret);
        known.tokens.push(Stored { info, sha256 });
        known.has_had_first = true;
        self.save(known)?;
        Ok(Some(file))
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.stored.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token by its secret, unless it has expired.
    pub(crate) fn find(&self, secret: &str) -> Option<Found> {
        let hash = hash(secret);
        let now = clock::now_ms();
        let mut found = None;
        for stored in &self.known().tokens {
            // All are compared, so that the time tells nothing.
            let is_it: bool = stored.sha256.as_bytes().ct_eq(hash.as_bytes()).into();
            if is_it && stored.info.expires_ms.is_none_or(|at| now < at) {
                found = Some(Found {
                    name: stored.info.name.clone(),
                    role: stored.info.role,
                    sha256: hash.clone(),
                });
            }
        }
        found
    }

    /// The role of a token by its hash, unless it is gone or has expired.
    pub(crate) fn role_of(&self, sha256: &str) -> Option<Role> {
        let now = clock::now_ms();
        let known = self.known();
        let found = known.tokens.iter().find(|it| it.sha256 == sha256)?;
        let is_valid = found.info.expires_ms.is_none_or(|at| now < at);
        is_valid.then_some(found.info.role)
    }

    #[must_use]
    pub fn list(&self) -> Vec<TokenInfo> {
        let known = self.known();
        known.tokens.iter().map(|it| it.info.clone()).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn get(&self, name: &str) -> Result<TokenInfo, Box<Problem>> {
        let known = self.known();
        let found = known.tokens.iter().find(|it| it.info.name == name);
        found.map(|it| it.info.clone()).ok_or_else(|| unknown(name))
    }

    /// Makes a token.
    ///
    /// # Errors
    /// There is one of that name, or it cannot be stored.
    pub fn create(&self, request: &TokenRequest) -> Result<NewToken, Box<Problem>> {
        check_name(&request.name)?;
        let created_ms = clock::now_ms();
        let expires_ms = request
            .expires_in_seconds
            .map(|seconds| created_ms.saturating_add(seconds.saturating_mul(1000)));
        let _changing = self.changing();
        let mut known = Known::clone(&self.known());
        if known.tokens.iter().any(|it| it.info.name == request.name) {
            let problem = Problem::new(ProblemCode::Exists, "there is a token of this name");
            return Err(Box::new(
                problem
                    .about(format!("token {}", request.name))
                    .advise("choose another name, or remove that token first"),
            ));
        }
        if known.tokens.len() >= TOKENS_MAX {
            let title = format!("there are {TOKENS_MAX} tokens already");
            let problem = Problem::new(ProblemCode::Invalid, title);
            return Err(Box::new(problem.advise("remove some that are not used")));
        }
        let info = TokenInfo {
            name: request.name.clone(),
            role: request.role,
            created_ms,
            expires_ms,
        };
        let token = new_secret();
        known.tokens.push(Stored {
            info: info.clone(),
            sha256: hash(&token),
        });
        self.change(known)?;
        Ok(NewToken { info, token })
    }

    /// Removes a token: it is refused from now on.
    ///
    /// # Errors
    /// There is none of that name, or that cannot be stored.
    pub fn remove(&self, name: &str) -> Result<(), Box<Problem>> {
        let _changing = self.changing();
        let mut known = Known::clone(&self.known());
        let number = known.tokens.len();
        known.tokens.retain(|it| it.info.name != name);
        if known.tokens.len() == number {
            return Err(unknown(name));
        }
        self.change(known)
    }

    /// The tokens are these from now on, on the medium and for callers.
    fn change(&self, known: Known) -> Result<(), Box<Problem>> {
        if self.path.is_none() {
            let title = "there is no state directory, so tokens cannot be stored";
            let problem = Problem::new(ProblemCode::NoStateDirectory, title);
            return Err(Box::new(
                problem.advise("start the server with --state-dir DIRECTORY"),
            ));
        }
        self.save(known).map_err(|error| not_stored(&error))
    }

    fn save(&self, known: Known) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Err(io::Error::other("there is no state directory"));
        };
        let document = Document {
            version: VERSION,
            tokens: known.tokens.clone(),
            has_had_first: Some(known.has_had_first),
        };
        let mut bytes = serde_json::to_vec_pretty(&document).map_err(io::Error::other)?;
        bytes.push(b'\n');
        write(path, &bytes)?;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(())
    }
}

fn unknown(name: &str) -> Box<Problem> {
    let problem = Problem::new(ProblemCode::NotFound, "there is no such token");
    let problem = problem.about(format!("token {name}"));
    Box::new(problem.advise("list the tokens: longshore token list"))
}

fn check_name(name: &str) -> Result<(), Box<Problem>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) {
        return Ok(());
    }
    let problem = Problem::new(ProblemCode::Invalid, "this is no name for a token");
    Err(Box::new(problem.advise(
        "use 1 to 64 letters, digits and the characters - _ . @",
    )))
}

fn not_stored(error: &io::Error) -> Box<Problem> {
    let title = format!("cannot store the tokens: {error}");
    let problem = Problem::new(ProblemCode::of_io(error), title);
    Box::new(problem.advise("correct the state directory (--state-dir) or its permissions"))
}

fn new_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> io::Result<Option<Known>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let document: Document = serde_json::from_slice(&bytes)?;
    if document.version > VERSION {
        let text = format!("a newer version wrote it: {}", document.version);
        return Err(io::Error::other(text));
    }
    let tokens = document.tokens;
    // Version 0.1 did not write it down. The token, or the file with its secret, shows that it was made.
    let is_there = || {
        tokens.iter().any(|it| it.info.name == FIRST) || path.with_file_name(FIRST_FILE).exists()
    };
    Ok(Some(Known {
        has_had_first: document.has_had_first.unwrap_or_else(is_there),
        tokens,
    }))
}

/// Replaces a file as a whole; readable for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn request(name: &str, seconds: Option<u64>) -> TokenRequest {
        TokenRequest {
            name: name.to_owned(),
            role: Role::Read,
            expires_in_seconds: seconds,
        }
    }

    #[test]
    fn the_first_token_is_in_a_file_of_the_owner_and_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        let file = tokens.make_first().unwrap().unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let secret = fs::read_to_string(&file).unwrap();
        let found = Tokens::open(Some(directory.path())).unwrap();
        let token = found.find(secret.trim()).unwrap();
        assert_eq!((token.name.as_str(), token.role), ("admin", Role::Admin));
        assert_eq!(found.make_first().unwrap(), None);
    }

    #[test]
    fn the_token_for_tcp_is_made_also_where_others_were_before_and_does_not_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        tokens.create(&request("admin", None)).unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        let file = tokens.make_first().unwrap().unwrap();
        let secret = fs::read_to_string(&file).unwrap();
        let found = tokens.find(secret.trim()).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("admin-2", Role::Admin));
        tokens.remove("admin-2").unwrap();
        fs::remove_file(&file).unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        assert_eq!(tokens.make_first().unwrap(), None);
        assert_eq!(tokens.get("admin").unwrap().role, Role::Read);
        assert!(tokens.get("admin-2").is_err());
    }

    #[test]
    fn a_token_of_version_0_1_is_not_made_twice() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        tokens.make_first().unwrap().unwrap();
        let path = directory.path().join("tokens.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = document.as_object_mut().unwrap();
        assert!(keys.remove("has-had-first").is_some());
        fs::write(&path, document.to_string()).unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        assert_eq!(tokens.make_first().unwrap(), None);
    }

    #[test]
    fn a_token_is_found_while_the_file_is_being_written() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Arc::new(Tokens::open(Some(directory.path())).unwrap());
        let new = tokens.create(&request("ci", None)).unwrap();
        let _writing = tokens.changing();
        let own = Arc::clone(&tokens);
        let reader = std::thread::spawn(move || own.find(&new.token).is_some());
        assert!(reader.join().unwrap());
    }

    #[test]
    fn without_a_state_directory_the_refusal_says_so() {
        let tokens = Tokens::open(None).unwrap();
        let refused = tokens.create(&request("ci", None)).unwrap_err();
        assert_eq!(refused.code, ProblemCode::NoStateDirectory);
        assert_eq!(refused.code.status(), 409);
    }

    #[test]
    fn secrets_are_not_stored_and_removed_or_expired_tokens_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        let new = tokens.create(&request("ci", None)).unwrap();
        let text = fs::read_to_string(directory.path().join("tokens.json")).unwrap();
        assert!(!text.contains(&new.token));
        assert!(tokens.find(&new.token).is_some());
        assert!(tokens.find("longshore_x").is_none());
        let expired = tokens.create(&request("old", Some(0))).unwrap();
        assert!(tokens.find(&expired.token).is_none());
        let twice = tokens.create(&request("ci", None)).unwrap_err();
        assert_eq!(twice.code, ProblemCode::Exists);
        tokens.remove("ci").unwrap();
        assert!(tokens.find(&new.token).is_none());
        assert_eq!(tokens.remove("ci").unwrap_err().code, ProblemCode::NotFound);
        assert!(tokens.create(&request("a b", None)).is_err());
    }
}
