//! The secrets of hosts that a configuration file names.

use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::Value;

use super::secret_file::{Found, KeyError, Shown};
use crate::output::columns;

/// The keys of a rule or volume that name a file, and what proves itself by it.
const KEYS: [(&str, &str); 4] = [
    ("dhchap-secret-file", "host"),
    ("dhchap-ctrl-secret-file", "controller"),
    ("tls-key-file", "both, by TLS"),
    ("tls-key-files", "both, by TLS"),
];

/// All secrets of a configuration.
#[derive(Debug, Serialize)]
pub(super) struct Secrets {
    secrets: Vec<Row>,
}

/// One file that is named.
#[derive(Debug, Serialize)]
struct Row {
    /// The subsystem of the rule, or the name of the remote volume.
    of: String,
    hosts: Vec<String>,
    proves: &'static str,
    file: PathBuf,
    #[serde(flatten)]
    found: Option<Found>,
    /// Why the server would not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Secrets {
    /// Whether the server would take all of them.
    pub(super) fn is_whole(&self) -> bool {
        self.secrets.iter().all(|row| row.problem.is_none())
    }
}

impl Shown for Secrets {
    fn text(&self) -> String {
        if self.secrets.is_empty() {
            return "no secrets of hosts\n".to_owned();
        }
        let cells = |row: &Row| {
            let state = match (&row.problem, &row.found) {
                (Some(problem), _) => problem.clone(),
                (None, Some(found)) => found.fingerprint.clone(),
                (None, None) => String::new(),
            };
            vec![
                row.of.clone(),
                row.hosts.join(", "),
                row.proves.to_owned(),
                row.file.display().to_string(),
                state,
            ]
        };
        let headings = ["OF", "HOSTS", "PROVES", "FILE", "FINGERPRINT"];
        columns(&headings, self.secrets.iter().map(cells).collect())
    }
}

pub(super) fn list(file: &Path) -> Result<Secrets, KeyError> {
    let text = std::fs::read_to_string(file).map_err(|source| KeyError::Read {
        path: file.into(),
        source,
    })?;
    let document: toml::Table = text.parse().map_err(|source| KeyError::Configuration {
        path: file.into(),
        source: Box::new(source),
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut secrets = Vec::new();
    for subsystem in tables(document.get("subsystem")) {
        for rule in tables(subsystem.get("access")) {
            let hosts = rule.get("hosts").and_then(Value::as_array);
            let hosts = hosts.into_iter().flatten().filter_map(Value::as_str);
            let hosts: Vec<String> = hosts.map(str::to_owned).collect();
            secrets.extend(rows(rule, &text_of(subsystem, "nqn"), &hosts, folder));
        }
    }
    for volume in tables(document.get("volume")) {
        secrets.extend(rows(volume, &text_of(volume, "name"), &[], folder));
    }
    Ok(Secrets { secrets })
}

fn rows(table: &toml::Table, of: &str, hosts: &[String], folder: &Path) -> Vec<Row> {
    let row = |proves, path: &str| {
        let file = place(folder, Path::new(path));
        let (found, problem) = match Found::in_file(&file) {
            Ok(found) if found.exposed => {
                let problem = "others can read or replace it: chmod 600".to_owned();
                (Some(found), Some(problem))
            }
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Row {
            of: of.to_owned(),
            hosts: hosts.to_vec(),
            proves,
            file,
            found,
            problem,
        }
    };
    let mut rows = Vec::new();
    for (key, proves) in KEYS {
        let value = table.get(key);
        let listed = value.and_then(Value::as_array).into_iter().flatten();
        let paths = value.into_iter().chain(listed).filter_map(Value::as_str);
        rows.extend(paths.map(|path| row(proves, path)));
    }
    rows
}

/// Where a secret file is, as the server finds it: a credential of the service manager, or beside the configuration.
fn place(folder: &Path, path: &Path) -> PathBuf {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|_| path.is_relative());
    let credential = credentials.map(|directory| Path::new(&directory).join(path));
    match credential.filter(|path| path.is_file()) {
        Some(credential) => credential,
        None => folder.join(path),
    }
}

/// The tables of an array of tables.
fn tables(value: Option<&Value>) -> impl Iterator<Item = &toml::Table> {
    let array = value.and_then(Value::as_array);
    array.into_iter().flatten().filter_map(Value::as_table)
}

fn text_of(table: &toml::Table, key: &str) -> String {
    let text = table.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
