//! Bearer tokens: 256 random bits each, of which the server keeps a SHA-256 in `tokens.json` of its state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// In hexadecimal digits.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    tokens: Vec<Stored>,
}

/// The tokens of a server.
pub struct Tokens {
    path: Option<PathBuf>,
    stored: Mutex<Vec<Stored>>,
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
            stored: Mutex::new(stored.unwrap_or_default()),
        })
    }

    /// Makes the first token, and leaves its secret in the state directory for the user of the server. Returns the file,
    /// unless there were tokens before.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn make_first(&self) -> io::Result<Option<PathBuf>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        if path.exists() {
            return Ok(None);
        }
        let secret = new_secret();
        let file = path.with_file_name(FIRST_FILE);
        write(&file, format!("{secret}\n").as_bytes())?;
        let info = TokenInfo {
            name: FIRST.to_owned(),
            role: Role::Admin,
            created_ms: clock::now_ms(),
            expires_ms: None,
        };
        let sha256 = hash(&secret);
        let mut stored = self.lock();
        stored.push(Stored { info, sha256 });
        self.save(&stored)?;
        Ok(Some(file))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stored>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and role of a token by its secret, unless it has expired.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<(String, Role)> {
        let hash = hash(secret);
        let now = clock::now_ms();
        let mut found = None;
        for stored in self.lock().iter() {
            // All are compared, so that the time tells nothing.
            let is_it: bool = stored.sha256.as_bytes().ct_eq(hash.as_bytes()).into();
            if is_it && stored.info.expires_ms.is_none_or(|at| now < at) {
                found = Some((stored.info.name.clone(), stored.info.role));
            }
        }
        found
    }

    #[must_use]
    pub fn list(&self) -> Vec<TokenInfo> {
        self.lock().iter().map(|it| it.info.clone()).collect()
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
        let mut stored = self.lock();
        if stored.iter().any(|it| it.info.name == request.name) {
            let problem = Problem::new(ProblemCode::Exists, "there is a token of this name");
            return Err(Box::new(
                problem
                    .about(format!("token {}", request.name))
                    .advise("choose another name, or remove that token first"),
            ));
        }
        if stored.len() >= TOKENS_MAX {
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
        let mut with_it = stored.clone();
        with_it.push(Stored {
            info: info.clone(),
            sha256: hash(&token),
        });
        self.save(&with_it).map_err(|error| not_stored(&error))?;
        *stored = with_it;
        Ok(NewToken { info, token })
    }

    /// Removes a token: it is refused from now on.
    ///
    /// # Errors
    /// There is none of that name, or that cannot be stored.
    pub fn remove(&self, name: &str) -> Result<(), Box<Problem>> {
        let mut stored = self.lock();
        let mut without = stored.clone();
        without.retain(|it| it.info.name != name);
        if without.len() == stored.len() {
            let problem = Problem::new(ProblemCode::NotFound, "there is no such token");
            return Err(Box::new(
                problem
                    .about(format!("token {name}"))
                    .advise("list the tokens: longshore token list"),
            ));
        }
        self.save(&without).map_err(|error| not_stored(&error))?;
        *stored = without;
        Ok(())
    }

    fn save(&self, tokens: &[Stored]) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Err(io::Error::other("there is no state directory"));
        };
        let document = Document {
            version: VERSION,
            tokens: tokens.to_vec(),
        };
        let mut bytes = serde_json::to_vec_pretty(&document).map_err(io::Error::other)?;
        bytes.push(b'\n');
        write(path, &bytes)
    }
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
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ProblemCode::NoSpace,
        _ => ProblemCode::System,
    };
    let problem = Problem::new(code, format!("cannot store the tokens: {error}"));
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

fn read(path: &Path) -> io::Result<Option<Vec<Stored>>> {
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
    Ok(Some(document.tokens))
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
        assert_eq!(
            found.find(secret.trim()),
            Some(("admin".to_owned(), Role::Admin))
        );
        assert_eq!(found.make_first().unwrap(), None);
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
