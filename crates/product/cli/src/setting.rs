//! `longshore setting`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::{Object, SETTINGS};
use serde_json::Value;

use crate::output::{columns, printable};
use crate::server::change::{ChangeArguments, change as apply};
use crate::server::client::ClientError;
use crate::server::keys::{Setting, patch};
use crate::server::path::path;
use crate::server::{ServerArguments, ended};
use crate::volume::{detail, text_of};

#[derive(Debug, Args)]
pub struct SettingArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: SettingVerb,
}

#[derive(Debug, Subcommand)]
enum SettingVerb {
    /// List the settings that the file, the command line or the API describes
    List,
    /// Show one setting and its keys
    Show {
        #[arg(value_parser = SETTINGS)]
        name: String,
    },
    /// Change keys of a setting; KEY= removes a key
    Set {
        #[arg(value_parser = SETTINGS)]
        name: String,
        /// Keys of the setting in the configuration file, such as nagle-threshold=32
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<Setting>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove a setting of the API: its keys have their defaults again
    Remove {
        #[arg(value_parser = SETTINGS)]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub fn run(arguments: &SettingArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

fn act(server: &ServerArguments, verb: &SettingVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    match verb {
        SettingVerb::List => {
            let settings: Listing<Object> = client.get(&path(&["settings"]))?.read()?;
            Ok(server.print(&settings, |settings| table(&settings.items)))
        }
        SettingVerb::Show { name } => {
            let setting: Versioned<Object> = client.get(&path(&["settings", name]))?.read()?;
            Ok(server.print(&setting, |setting| detail(&setting.body)))
        }
        SettingVerb::Set {
            name,
            settings,
            change,
        } => {
            let body = Some(Value::Object(patch(settings)));
            let place = path(&["settings", name]);
            apply(server, &client, change, ("PATCH", &place), body)
        }
        SettingVerb::Remove { name, change } => {
            let place = path(&["settings", name]);
            apply(server, &client, change, ("DELETE", &place), None)
        }
    }
}

fn table(settings: &[Object]) -> String {
    let rows = settings.iter().map(|setting| {
        let keys = setting.keys.iter();
        let keys = keys.map(|(key, value)| format!("{key}={}", text_of(Some(value))));
        vec![
            printable(&setting.id.name),
            setting.owner.to_string(),
            keys.collect::<Vec<_>>().join(" "),
        ]
    });
    columns(&["NAME", "OWNER", "KEYS"], rows.collect())
}
