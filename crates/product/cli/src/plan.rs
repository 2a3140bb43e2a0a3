//! `longshore plan` and `longshore apply`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use longshore_api::envelope::Versioned;
use longshore_api::object::{DISCOVERY, Document, Keys, PATHS, TRANSMIT, TRANSMIT_KEYS};
use longshore_api::state::Status;
use serde_json::Value;

use crate::server::change::{ChangeArguments, change};
use crate::server::client::{Client, ClientError};
use crate::server::{ServerArguments, ended};

#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(flatten)]
    source: Source,

    /// Refuse unless the configuration is at this revision
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ApplyArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Debug, Args)]
struct Source {
    /// The server's own configuration file, or a file of volumes, targets, subsystems and settings
    /// that replace all objects of the API [default: the server's own file]
    file: Option<PathBuf>,
}

/// Why a file cannot be sent.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read {}: {source}; correct the path or its permissions", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        path: PathBuf,
        line: usize,
        column: usize,
        message: String,
    },
    #[error(
        "{}: there is no table `{key}`; objects are [[volume]], [[target]], [[subsystem]] and [discovery]", path.display()
    )]
    Unknown { path: PathBuf, key: String },
    #[error("{}: a [[{table}]] has no `{key}`; add it", path.display())]
    Nameless {
        path: PathBuf,
        table: &'static str,
        key: &'static str,
    },
    #[error("{}: two tables [[{table}]] have the name `{name}`; rename one of them", path.display())]
    Twice {
        path: PathBuf,
        table: &'static str,
        name: String,
    },
}

pub fn plan(arguments: &PlanArguments) -> ExitCode {
    let options = ChangeArguments {
        dry_run: true,
        revision: arguments.revision,
        ..ChangeArguments::default()
    };
    run(&arguments.server, &arguments.source, &options)
}

pub fn apply(arguments: &ApplyArguments) -> ExitCode {
    run(&arguments.server, &arguments.source, &arguments.change)
}

fn run(server: &ServerArguments, source: &Source, options: &ChangeArguments) -> ExitCode {
    let client = match server.client() {
        Ok(client) => client,
        Err(error) => return crate::exit::fail(&error),
    };
    let file = match source.file.as_deref() {
        Some(file) => match is_own(&client, file) {
            Ok(true) => None,
            Ok(false) => Some(file),
            Err(error) => return crate::exit::fail(&error),
        },
        None => None,
    };
    let Some(file) = file else {
        let request = ("POST", "/api/v1/config:reload");
        return ended(change(server, &client, options, request, None));
    };
    let mut objects = match read(file) {
        Ok(objects) => objects,
        Err(error) => return crate::exit::fail(&error),
    };
    if let Some(warning) = objects.warning(file) {
        eprintln!("warning: {warning}");
    }
    // A server on another machine has other files at these paths, and says so.
    if client.is_local() {
        let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let folder = whole.parent().unwrap_or(Path::new("/"));
        objects.start_paths_at(folder);
    }
    let body = serde_json::to_value(objects.document).ok();
    let request = ("PUT", "/api/v1/config");
    ended(change(server, &client, options, request, body))
}

/// Whether a file is the one that the server was started with.
fn is_own(client: &Client, file: &Path) -> Result<bool, ClientError> {
    let status: Versioned<Status> = client.get("/api/v1/")?.read()?;
    let own = status.body.config_file;
    let own = own.and_then(|own| fs::canonicalize(own).ok());
    Ok(own.is_some() && fs::canonicalize(file).ok() == own)
}

/// The tables of objects.
const TABLES: [(&str, &str); 3] = [("volume", "name"), ("target", "name"), ("subsystem", "nqn")];

/// Settings of the server, which a file that was imported has beside its objects.
const SETTINGS: [&str; 10] = [
    "api",
    "iscsi",
    "limits",
    "listen",
    "log",
    "pool",
    "sandbox",
    "sandbox-paths",
    "sandbox-ports",
    "state-dir",
];

/// What a file has to say.
#[derive(Debug, Default)]
struct Objects {
    document: Document,
    /// Settings of the server, which are not sent.
    settings: Vec<String>,
}

impl Objects {
    fn warning(&self, path: &Path) -> Option<String> {
        if self.settings.is_empty() {
            return None;
        }
        Some(format!(
            "{}: {} left out: a server has these settings from its own file alone; put them there and name that file",
            path.display(),
            self.settings.join(", ")
        ))
    }

    /// Relative paths start at a folder, as those of a configuration file do.
    fn start_paths_at(&mut self, folder: &Path) {
        let document = &mut self.document;
        let tables = [
            &mut document.volumes,
            &mut document.targets,
            &mut document.subsystems,
            &mut document.settings,
        ];
        for keys in tables.into_iter().flat_map(|table| table.values_mut()) {
            for (key, value) in keys {
                start_at(folder, key, value);
            }
        }
    }
}

fn start_at(folder: &Path, key: &str, value: &mut Value) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                start_at(folder, key, value);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|it| start_at(folder, key, it)),
        Value::String(path) if PATHS.contains(&key) => {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
        _ => {}
    }
}

/// The objects of a file.
fn read(path: &Path) -> Result<Objects, FileError> {
    let text = fs::read_to_string(path).map_err(|source| FileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    objects(path, &text)
}

fn objects(path: &Path, text: &str) -> Result<Objects, FileError> {
    let tables: Keys = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = &text[..start];
        FileError::Syntax {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.chars().rev().take_while(|it| *it != '\n').count() + 1,
            message: error.message().to_owned(),
        }
    })?;
    let mut found = Objects::default();
    let document = &mut found.document;
    for (key, value) in tables {
        let value = match (&*key, value) {
            (DISCOVERY, Value::Object(keys)) => {
                document.settings.insert(key, keys);
                continue;
            }
            ("engine", Value::Object(keys)) => {
                let (own, rest): (Keys, Keys) = keys
                    .into_iter()
                    .partition(|(key, _)| TRANSMIT_KEYS.contains(&&**key));
                if !own.is_empty() {
                    document.settings.insert(TRANSMIT.to_owned(), own);
                }
                if !rest.is_empty() {
                    found.settings.push("[engine]".to_owned());
                }
                continue;
            }
            (_, value) => value,
        };
        if SETTINGS.contains(&&*key) {
            found.settings.push(match value {
                Value::Object(_) => format!("[{key}]"),
                Value::Array(_) if key == "pool" => format!("[[{key}]]"),
                _ => format!("`{key}`"),
            });
            continue;
        }
        let known = TABLES.iter().find(|(table, _)| *table == key);
        let (Some((table, name_key)), Value::Array(entries)) = (known, value) else {
            return Err(FileError::Unknown {
                path: path.to_owned(),
                key,
            });
        };
        let objects = match *table {
            "volume" => &mut document.volumes,
            "target" => &mut document.targets,
            _ => &mut document.subsystems,
        };
        for entry in entries {
            let (Value::Object(mut keys), table) = (entry, *table) else {
                continue;
            };
            let Some(Value::String(name)) = keys.remove(*name_key) else {
                return Err(FileError::Nameless {
                    path: path.to_owned(),
                    table,
                    key: name_key,
                });
            };
            if objects.insert(name.clone(), keys).is_some() {
                return Err(FileError::Twice {
                    path: path.to_owned(),
                    table,
                    name,
                });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Document, String> {
        let found = objects(Path::new("x.toml"), text);
        found
            .map(|it| it.document)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_an_imported_file_are_left_out_and_its_paths_start_at_its_folder() {
        let text = "[listen]\niscsi = [\"192.0.2.1\"]\n[limits]\nqueue-depth = 64\n\
             [[volume]]\nname = \"a\"\npath = \"/srv/a\"\n\
             [[target]]\nname = \"iqn.2026-11.x:y\"\n\
             accounts = [{ user = \"u\", secret-file = \"x.secrets/u\" }]\n";
        let path = Path::new("/etc/x.toml");
        let mut found = objects(path, text).unwrap();
        let warning = found.warning(path).unwrap();
        assert!(warning.contains("[limits], [listen] left out"), "{warning}");
        found.start_paths_at(Path::new("/etc"));
        let document = found.document;
        assert_eq!(document.volumes["a"]["path"], "/srv/a");
        let target = &document.targets["iqn.2026-11.x:y"];
        assert_eq!(target["accounts"][0]["secret-file"], "/etc/x.secrets/u");
    }

    #[test]
    fn tables_become_objects_by_name() {
        let document = read(
            "[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"1G\"\n\
             [[subsystem]]\nnqn = \"nqn.2026-11.x:y\"\nnamespaces = [{ nsid = 1, volume = \"a\" }]\n",
        )
        .unwrap();
        assert_eq!(document.volumes["a"]["size"], "1G");
        assert_eq!(
            document.subsystems["nqn.2026-11.x:y"]["namespaces"][0]["nsid"],
            1
        );
    }

    #[test]
    fn every_setting_of_the_complete_example_is_known() {
        let example = include_str!("../../../../dist/longshore.toml");
        let found = objects(Path::new("longshore.toml"), example).unwrap();
        assert!(found.settings.contains(&"[listen]".to_owned()));
        assert!(!found.document.targets.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let message = read("[[volume]]\nname = \"a\"\nsize == 1\n").unwrap_err();
        assert!(message.starts_with("x.toml:3:"), "{message}");
        let message = read("[[volumes]]\nname = \"a\"\n").unwrap_err();
        assert!(message.contains("no table `volumes`"), "{message}");
        let message = read("[[volume]]\nbackend = \"mem\"\n").unwrap_err();
        assert!(message.contains("has no `name`"), "{message}");
        let twice = "[[volume]]\nname = \"a\"\n[[volume]]\nname = \"a\"\n";
        assert!(read(twice).unwrap_err().contains("two tables"));
    }
}
