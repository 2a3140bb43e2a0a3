//! `longshore plan` and `longshore apply`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use longshore_api::envelope::Versioned;
use longshore_api::object::{Document, Keys};
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
    /// The server's own configuration file, or a file of volumes, targets and subsystems that
    /// replace all objects of the API [default: the server's own file]
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
        "{}: `{key}` is a setting of the server and belongs in its own file; name that file, or keep only \
         [[volume]], [[target]] and [[subsystem]] tables in this one", path.display()
    )]
    Setting { path: PathBuf, key: String },
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
    let document = match read(file) {
        Ok(document) => document,
        Err(error) => return crate::exit::fail(&error),
    };
    let body = serde_json::to_value(document).ok();
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

/// The objects of a file.
fn read(path: &Path) -> Result<Document, FileError> {
    let text = fs::read_to_string(path).map_err(|source| FileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    objects(path, &text)
}

fn objects(path: &Path, text: &str) -> Result<Document, FileError> {
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
    let mut document = Document::default();
    for (key, value) in tables {
        let known = TABLES.iter().find(|(table, _)| *table == key);
        let (Some((table, name_key)), Value::Array(entries)) = (known, value) else {
            return Err(FileError::Setting {
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
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Document, String> {
        objects(Path::new("x.toml"), text).map_err(|error| error.to_string())
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
    fn what_is_wrong_is_told_with_its_place() {
        let message = read("[[volume]]\nname = \"a\"\nsize == 1\n").unwrap_err();
        assert!(message.starts_with("x.toml:3:"), "{message}");
        let message = read("[engine]\ncores = \"0\"\n").unwrap_err();
        assert!(
            message.contains("`engine` is a setting of the server"),
            "{message}"
        );
        let message = read("[[volume]]\nbackend = \"mem\"\n").unwrap_err();
        assert!(message.contains("has no `name`"), "{message}");
        let twice = "[[volume]]\nname = \"a\"\n[[volume]]\nname = \"a\"\n";
        assert!(read(twice).unwrap_err().contains("two tables"));
    }
}
