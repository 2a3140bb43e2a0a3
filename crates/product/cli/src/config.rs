//! `longshore config`

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use longshore_api::change::RevisionInfo;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::Document;
use longshore_api::tables::tables;

use crate::output::{columns, printable, time};
use crate::server::change::{ChangeArguments, change};
use crate::server::client::ClientError;
use crate::server::path::path;
use crate::server::{ServerArguments, ended, names};

#[derive(Debug, Args)]
pub struct ConfigArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print the running configuration as tables of the configuration file; secrets show as "set"
    Export {
        /// Only objects of this owner
        #[arg(
            long,
            value_name = "file|command-line|api",
            hide_possible_values = true
        )]
        owner: Option<OwnerName>,
    },
    /// List the kept revisions
    History,
    /// Print the objects of the API at a revision
    Show {
        #[arg(add = names::revisions())]
        revision: u64,
    },
    /// Make the objects of the API what they were at a revision
    Rollback {
        #[arg(value_name = "REVISION", add = names::revisions())]
        to: u64,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// As the API calls them.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
enum OwnerName {
    File,
    CommandLine,
    Api,
}

impl OwnerName {
    const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::CommandLine => "command-line",
            Self::Api => "api",
        }
    }
}

pub fn run(arguments: &ConfigArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

fn act(server: &ServerArguments, verb: &ConfigVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    match verb {
        ConfigVerb::Export { owner } => {
            let mut place = path(&["config"]);
            if let Some(owner) = owner {
                place += &format!("?owner={}", owner.name());
            }
            let document: Versioned<Document> = client.get(&place)?.read()?;
            Ok(server.print(&document, |document| tables(&document.body)))
        }
        ConfigVerb::History => {
            let place = path(&["config", "revisions"]);
            let revisions: Listing<RevisionInfo> = client.get(&place)?.read()?;
            Ok(server.print(&revisions, |revisions| history(&revisions.items)))
        }
        ConfigVerb::Show { revision } => {
            let place = path(&["config", "revisions", &revision.to_string()]);
            let document: Versioned<Document> = client.get(&place)?.read()?;
            Ok(server.print(&document, |document| tables(&document.body)))
        }
        ConfigVerb::Rollback {
            to,
            change: options,
        } => {
            let place = path(&["config", "revisions", &format!("{to}:rollback")]);
            change(server, &client, options, ("POST", &place), None)
        }
    }
}

fn history(revisions: &[RevisionInfo]) -> String {
    let rows = revisions.iter().map(|revision| {
        vec![
            revision.revision.0.to_string(),
            time(revision.time_ms),
            printable(&revision.caller.name),
            printable(&revision.steps.join("; ")),
        ]
    });
    columns(&["REVISION", "TIME (UTC)", "BY", "STEPS"], rows.collect())
}

#[cfg(test)]
mod tests {
    use longshore_api::object::Keys;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_export_is_a_file_that_can_be_read_again() {
        let keys = |value: Value| match value {
            Value::Object(keys) => keys,
            _ => panic!("keys"),
        };
        let mut document = Document::default();
        let volume = json!({"backend": "file", "path": "/srv/a \"b\".img", "read-only": true});
        document.volumes.insert("a".to_owned(), keys(volume));
        let target =
            json!({"luns": [{"lun": 0, "volume": "a"}], "access": [{"initiators": ["*"]}]});
        let name = "iqn.2026-11.x:y";
        document.targets.insert(name.to_owned(), keys(target));
        let text = tables(&document);
        let read: Keys = toml::from_str(&text).unwrap();
        assert_eq!(read["volume"][0]["path"], "/srv/a \"b\".img");
        assert_eq!(read["target"][0]["name"], name);
        assert_eq!(read["target"][0]["access"][0]["initiators"][0], "*");
    }
}
