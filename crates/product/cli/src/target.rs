//! `longshore target`: iSCSI targets and NVMe subsystems, told apart by their names.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use longshore_api::change::Revision;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::{Keys, Object, ObjectKind};
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::{Value, json};

use crate::output::{columns, printable};
use crate::server::change::{ChangeArguments, change as apply};
use crate::server::client::{Client, ClientError};
use crate::server::keys::{Setting, keys, patch};
use crate::server::path::path;
use crate::server::{ServerArguments, ended, names};
use crate::volume::{detail, state};

#[derive(Debug, Args)]
pub struct TargetArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: TargetVerb,
}

#[derive(Debug, Subcommand)]
enum TargetVerb {
    /// List iSCSI targets and NVMe subsystems
    List,
    /// Show a target (iqn., eui., naa.) or a subsystem (nqn.)
    Show {
        #[arg(add = names::targets())]
        name: String,
    },
    /// Create a target or subsystem; one that is there with other keys stays as it is
    Create {
        name: String,
        /// Keys of a target or subsystem in the configuration file; values of lists are JSON
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change keys; KEY= removes a key
    Set {
        #[arg(add = names::targets())]
        name: String,
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<Setting>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Map a volume to a logical unit number or namespace identifier
    Map {
        #[arg(add = names::targets())]
        name: String,
        #[arg(add = names::volumes())]
        volume: String,
        /// LUN or NSID [default: the lowest free number]
        #[arg(long, value_name = "N", visible_aliases = ["lun", "nsid"])]
        number: Option<u64>,
        /// Refuse writes through this number
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Take a volume off the map
    Unmap {
        #[arg(add = names::targets())]
        name: String,
        #[arg(add = names::volumes())]
        volume: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Admit an initiator or host by name
    Allow {
        #[arg(add = names::targets())]
        name: String,
        /// Its iSCSI name or host NQN, or "*" for all that no other rule names
        #[arg(add = names::clients())]
        client: String,
        /// Refuse writes through this map
        #[arg(long)]
        read_only: bool,
        /// CHAP: it proves that it is this user, whose secret is in that file of the server; repeatable
        ///
        /// In place of the accounts of the target.
        #[arg(long = "account", value_name = "USER=FILE")]
        accounts: Vec<Account>,
        /// CHAP: the target proves that it is this user
        #[arg(long, value_name = "USER=FILE", requires = "accounts")]
        mutual: Option<Account>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove the rule of an initiator or host
    ///
    /// While the initiator or host has open sessions, the change is refused and names them, unless --drain or --force is
    /// given. With these, the sessions see no volume any more, and end: those of iSCSI are asked for a logout and closed
    /// after `limits.drain-timeout`, controllers of NVMe after 2 s. New logins are rejected. If another rule, such as "*",
    /// still admits the initiator or host, its sessions stay, with the map of that rule.
    Deny {
        #[arg(add = names::targets())]
        name: String,
        #[arg(add = names::clients())]
        client: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Stop serving a target or subsystem, and keep its definition
    Disable {
        #[arg(add = names::targets())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Serve a target or subsystem again
    Enable {
        #[arg(add = names::targets())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove a target or subsystem; volumes stay
    Remove {
        #[arg(add = names::targets())]
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// A CHAP user, and the file of the server with the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    user: String,
    secret_file: String,
}

impl FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Users may have `=`, and paths hardly do.
        match text.rsplit_once('=') {
            Some((user, file)) if !user.is_empty() && !file.is_empty() => Ok(Self {
                user: user.to_owned(),
                secret_file: file.to_owned(),
            }),
            _ => Err("write USER=FILE, such as host1=/etc/longshore/host1.secret".to_owned()),
        }
    }
}

impl Account {
    fn keys(&self) -> Value {
        json!({ "user": self.user, "secret-file": self.secret_file })
    }
}

pub fn run(arguments: &TargetArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

/// The words of the API for a kind of target.
struct Words {
    collection: &'static str,
    /// The key of the map, and of a number in it.
    map: &'static str,
    number: &'static str,
    first: u64,
}

/// NVMe qualified names are those of subsystems.
fn words(name: &str) -> Words {
    if name.starts_with("nqn.") {
        Words {
            collection: "subsystems",
            map: "namespaces",
            number: "nsid",
            first: 1,
        }
    } else {
        Words {
            collection: "targets",
            map: "luns",
            number: "lun",
            first: 0,
        }
    }
}

fn act(server: &ServerArguments, verb: &TargetVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    let of = |name: &str| path(&[words(name).collection, name]);
    let action =
        |name: &str, action: &str| path(&[words(name).collection, &format!("{name}:{action}")]);
    let (options, method, place, body) = match verb {
        TargetVerb::List => {
            let mut all: Listing<Object> = client.get(&path(&["targets"]))?.read()?;
            let subsystems: Listing<Object> = client.get(&path(&["subsystems"]))?.read()?;
            all.items.extend(subsystems.items);
            return Ok(server.print(&all, |all| table(&all.items)));
        }
        TargetVerb::Show { name } => {
            let found: Versioned<Object> = client.get(&of(name))?.read()?;
            return Ok(server.print(&found, |found| detail(&found.body)));
        }
        TargetVerb::Map {
            name,
            volume,
            number,
            read_only,
            change,
        } => return map(server, &client, (name, volume), *number, *read_only, change),
        TargetVerb::Unmap {
            name,
            volume,
            change,
        } => return unmap(server, &client, (name, volume), change),
        TargetVerb::Create {
            name,
            settings,
            change,
        } => {
            let body = Some(Value::Object(keys(settings)));
            let options = change.creating();
            return apply(server, &client, &options, ("PUT", &of(name)), body);
        }
        TargetVerb::Set {
            name,
            settings,
            change,
        } => (change, "PATCH", of(name), Some(patch(settings))),
        TargetVerb::Allow {
            name,
            client,
            read_only,
            accounts,
            mutual,
            change,
        } => {
            let place = path(&[words(name).collection, name, "access", client]);
            let mut rule = read_only_keys(*read_only);
            if !accounts.is_empty() {
                let accounts = accounts.iter().map(Account::keys).collect();
                rule.insert("accounts".to_owned(), Value::Array(accounts));
            }
            if let Some(mutual) = mutual {
                rule.insert("mutual".to_owned(), mutual.keys());
            }
            (change, "PUT", place, Some(rule))
        }
        TargetVerb::Deny {
            name,
            client,
            change,
        } => {
            let place = path(&[words(name).collection, name, "access", client]);
            (change, "DELETE", place, None)
        }
        TargetVerb::Disable { name, change } => (change, "POST", action(name, "disable"), None),
        TargetVerb::Enable { name, change } => (change, "POST", action(name, "enable"), None),
        TargetVerb::Remove { name, change } => (change, "DELETE", of(name), None),
    };
    let body = body.map(Value::Object);
    apply(server, &client, options, (method, &place), body)
}

fn read_only_keys(read_only: bool) -> Keys {
    let mut keys = Keys::new();
    if read_only {
        keys.insert("read-only".to_owned(), json!(true));
    }
    keys
}

/// Numbers and volumes of a map.
fn entries(object: &Object, words: &Words) -> Vec<(u64, String)> {
    let entries = object.keys.get(words.map).and_then(Value::as_array);
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|entry| {
            let number = entry.get(words.number)?.as_u64()?;
            let volume = entry.get("volume")?.as_str()?;
            Some((number, volume.to_owned()))
        })
        .collect()
}

fn map(
    server: &ServerArguments,
    client: &Client,
    (name, volume): (&str, &str),
    number: Option<u64>,
    read_only: bool,
    options: &ChangeArguments,
) -> Result<ExitCode, ClientError> {
    let words = words(name);
    let mut options = options.clone();
    let number = match number {
        Some(number) => number,
        None => {
            let answer = client.get(&path(&[words.collection, name]))?;
            let object: Versioned<Object> = answer.read()?;
            let taken = entries(&object.body, &words);
            let known = taken.iter().find(|(_, it)| it == volume);
            let is_free = |number: &u64| !taken.iter().any(|(it, _)| it == number);
            // Nobody is to take the number meanwhile.
            options.revision = options
                .revision
                .or(answer.revision.map(|Revision(revision)| revision));
            match known {
                Some((number, _)) => *number,
                None => (words.first..).find(is_free).unwrap_or(words.first),
            }
        }
    };
    let mut body = read_only_keys(read_only);
    body.insert("volume".to_owned(), json!(volume));
    let place = path(&[words.collection, name, words.map, &number.to_string()]);
    let body = Some(Value::Object(body));
    apply(server, client, &options, ("PUT", &place), body)
}

fn unmap(
    server: &ServerArguments,
    client: &Client,
    (name, volume): (&str, &str),
    options: &ChangeArguments,
) -> Result<ExitCode, ClientError> {
    let words = words(name);
    let answer = client.get(&path(&[words.collection, name]))?;
    let object: Versioned<Object> = answer.read()?;
    let entries = entries(&object.body, &words);
    let Some((number, _)) = entries.iter().find(|(_, it)| it == volume) else {
        let title = format!("it has no map entry for volume {volume}");
        let problem = Problem::new(ProblemCode::NotFound, title).about(object.body.id);
        let advice = format!("longshore target show {name} prints its map");
        return Err(ClientError::Refused(Box::new(problem.advise(advice))));
    };
    let place = path(&[words.collection, name, words.map, &number.to_string()]);
    let mut options = options.clone();
    options.revision = options
        .revision
        .or(answer.revision.map(|Revision(revision)| revision));
    apply(server, client, &options, ("DELETE", &place), None)
}

fn table(targets: &[Object]) -> String {
    let rows = targets.iter().map(|target| {
        let words = words(&target.id.name);
        let map = match target.keys.get(words.map) {
            None => "all volumes".to_owned(),
            Some(_) => {
                let entries = entries(target, &words);
                let entries = entries
                    .iter()
                    .map(|(number, volume)| format!("{number}={volume}"));
                printable(&entries.collect::<Vec<_>>().join(" "))
            }
        };
        vec![
            printable(&target.id.name),
            match target.id.kind {
                ObjectKind::Subsystem => "nvme".to_owned(),
                _ => "iscsi".to_owned(),
            },
            state(target.state).to_owned(),
            target.owner.to_string(),
            map,
        ]
    });
    columns(
        &["NAME", "PROTOCOL", "STATE", "OWNER", "MAP"],
        rows.collect(),
    )
}
