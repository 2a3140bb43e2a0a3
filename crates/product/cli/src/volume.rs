//! `longshore volume`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::{Object, ObjectState};
use serde_json::{Value, json};

use crate::output::{Bytes, columns, printable};
use crate::server::change::{ChangeArguments, change as apply};
use crate::server::client::ClientError;
use crate::server::keys::{Setting, keys, patch};
use crate::server::path::path;
use crate::server::{ServerArguments, ended, names};

#[derive(Debug, Args)]
pub struct VolumeArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: VolumeVerb,
}

#[derive(Debug, Subcommand)]
enum VolumeVerb {
    /// List volumes with their state
    List,
    /// Show one volume and its keys
    Show {
        #[arg(add = names::volumes())]
        name: String,
    },
    /// Create a volume; one that is there with other keys stays as it is
    Create {
        name: String,
        /// Keys of a volume in the configuration file, such as backend=file path=/srv/a.img size=10G
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<Setting>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change keys of a volume; KEY= removes a key
    Set {
        #[arg(add = names::volumes())]
        name: String,
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<Setting>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change the size of a volume
    Resize {
        #[arg(add = names::volumes())]
        name: String,
        /// The new size, such as 20G
        size: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Stop serving a volume, and keep its definition
    Disable {
        #[arg(add = names::volumes())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Serve a volume again
    Enable {
        #[arg(add = names::volumes())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove a volume; its data stay
    Remove {
        #[arg(add = names::volumes())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub fn run(arguments: &VolumeArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

fn act(server: &ServerArguments, verb: &VolumeVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    let (options, method, place, body) = match verb {
        VolumeVerb::List => {
            let volumes: Listing<Object> = client.get(&path(&["volumes"]))?.read()?;
            return Ok(server.print(&volumes, |volumes| table(&volumes.items)));
        }
        VolumeVerb::Show { name } => {
            let volume: Versioned<Object> = client.get(&path(&["volumes", name]))?.read()?;
            return Ok(server.print(&volume, |volume| detail(&volume.body)));
        }
        VolumeVerb::Create {
            name,
            settings,
            change,
        } => {
            let body = Some(Value::Object(keys(settings)));
            let place = path(&["volumes", name]);
            return apply(server, &client, &change.creating(), ("PUT", &place), body);
        }
        VolumeVerb::Set {
            name,
            settings,
            change,
        } => {
            let body = Value::Object(patch(settings));
            (change, "PATCH", path(&["volumes", name]), Some(body))
        }
        VolumeVerb::Resize { name, size, change } => {
            let place = path(&["volumes", &format!("{name}:resize")]);
            (change, "POST", place, Some(json!({ "size": size })))
        }
        VolumeVerb::Disable { name, change } => {
            let place = path(&["volumes", &format!("{name}:disable")]);
            (change, "POST", place, None)
        }
        VolumeVerb::Enable { name, change } => {
            let place = path(&["volumes", &format!("{name}:enable")]);
            (change, "POST", place, None)
        }
        VolumeVerb::Remove { name, change } => (change, "DELETE", path(&["volumes", name]), None),
    };
    apply(server, &client, options, (method, &place), body)
}

/// The state of an object in a word.
pub fn state(state: ObjectState) -> &'static str {
    match state {
        ObjectState::Up => "up",
        ObjectState::Disabled => "disabled",
        ObjectState::Draining => "draining",
        ObjectState::Stuck => "stuck",
        ObjectState::Failed => "failed",
    }
}

/// A key or fact as a text.
pub fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

fn table(volumes: &[Object]) -> String {
    let rows = volumes.iter().map(|volume| {
        let size = volume.facts.get("size-bytes").and_then(Value::as_u64);
        vec![
            printable(&volume.id.name),
            state(volume.state).to_owned(),
            text_of(volume.keys.get("backend")),
            size.map_or_else(String::new, |size| Bytes(size).to_string()),
            volume.owner.to_string(),
            text_of(
                ["path", "url", "pool"]
                    .iter()
                    .find_map(|key| volume.keys.get(*key)),
            ),
        ]
    });
    columns(
        &["NAME", "STATE", "BACKEND", "SIZE", "OWNER", "PATH"],
        rows.collect(),
    )
}

/// Everything known of an object, a line each.
pub fn detail(object: &Object) -> String {
    let mut table = crate::output::Table::default();
    table.row("name", printable(&object.id.name));
    table.row("state", state(object.state));
    table.row("owner", object.owner);
    table.optional("location", object.location.as_ref());
    for (key, value) in object.keys.iter().chain(&object.facts) {
        let text = match (key.as_str(), value.as_u64()) {
            ("size-bytes", Some(bytes)) => format!("{bytes} ({})", Bytes(bytes)),
            _ => text_of(Some(value)),
        };
        table.row(key, text);
    }
    table.to_string()
}
