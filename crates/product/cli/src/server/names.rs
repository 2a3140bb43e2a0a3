//! Names that a running server knows, for completions in a shell.
//!
//! The server is the one that the words before name (`--server`), or the usual one. It has little time, and whatever goes
//! wrong shows as no candidates.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use longshore_api::envelope::Listing;
use serde_json::Value;

use super::client::Client;
use super::path::path;
use super::{AccessArguments, ServerArguments};
use crate::output::OutputFormat;

/// So long a shell may wait for all of it.
const PATIENCE: Duration = Duration::from_millis(500);
/// Candidates that are offered at most.
const CANDIDATES_MAX: usize = 1000;

/// A name, and what it is.
type Named = (String, String);

pub fn volumes() -> ArgValueCompleter {
    completer(|| objects("volumes", "state"))
}

/// iSCSI targets and NVMe subsystems.
pub fn targets() -> ArgValueCompleter {
    completer(|| {
        let mut all = objects("targets", "state")?;
        all.extend(objects("subsystems", "state")?);
        Some(all)
    })
}

/// Sessions and controllers, by their numbers.
pub fn sessions() -> ArgValueCompleter {
    completer(|| {
        let sessions = items("sessions")?;
        let named = sessions.iter().map(|it| {
            let what = format!("{} at {}", text(it, "peer-name"), text(it, "target"));
            (text(it, "id"), what)
        });
        Some(named.collect())
    })
}

/// Initiators and hosts: those of access rules, and those that are there now.
pub fn clients() -> ArgValueCompleter {
    completer(|| {
        let mut names = Vec::new();
        for (collection, key) in [("targets", "initiators"), ("subsystems", "hosts")] {
            for object in items(collection)? {
                let rules = object.pointer("/keys/access").and_then(Value::as_array);
                let lists = rules.into_iter().flatten().filter_map(|rule| rule.get(key));
                let of_rules = lists.filter_map(Value::as_array).flatten();
                names.extend(of_rules.filter_map(Value::as_str).map(str::to_owned));
            }
        }
        names.extend(items("sessions")?.iter().map(|it| text(it, "peer-name")));
        names.sort();
        names.dedup();
        Some(
            names
                .into_iter()
                .map(|name| (name, String::new()))
                .collect(),
        )
    })
}

pub fn tokens() -> ArgValueCompleter {
    completer(|| {
        let tokens = items("tokens")?;
        let named = tokens.iter().map(|it| (text(it, "name"), text(it, "role")));
        Some(named.collect())
    })
}

/// Revisions that are kept.
pub fn revisions() -> ArgValueCompleter {
    completer(|| {
        let revisions = get(&path(&["config", "revisions"]))?;
        let named = revisions.items.iter().map(|it| {
            let number = it.get("revision").and_then(Value::as_u64).unwrap_or(0);
            let steps = it.get("steps").and_then(Value::as_array);
            let steps = steps.into_iter().flatten().filter_map(Value::as_str);
            (number.to_string(), steps.collect::<Vec<_>>().join(", "))
        });
        Some(named.collect())
    })
}

fn completer(names: impl Fn() -> Option<Vec<Named>> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let current = current.to_string_lossy();
        let named = names().unwrap_or_default().into_iter();
        let fits = named.filter(|(name, _)| is_plain(name) && name.starts_with(&*current));
        let candidates = fits.map(|(name, what)| {
            let what: String = what.chars().filter(|c| !c.is_control()).collect();
            let help = (!what.is_empty()).then(|| what.into());
            CompletionCandidate::new(name).help(help)
        });
        candidates.take(CANDIDATES_MAX).collect::<Vec<_>>()
    })
}

/// Whether a shell takes it as it is. Clients choose their names, and what a shell inserts it may run later.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:@+/".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

fn objects(collection: &str, what: &str) -> Option<Vec<Named>> {
    let objects = items(collection)?;
    let named = objects.iter().map(|it| (text(it, "name"), text(it, what)));
    Some(named.collect())
}

fn items(collection: &str) -> Option<Vec<Value>> {
    Some(get(&path(&[collection]))?.items)
}

fn get(path: &str) -> Option<Listing<Value>> {
    let words: Vec<String> = std::env::args_os()
        .skip_while(|word| word != "--")
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let client: Client = arguments(&words)?.client().ok()?;
    client.get_within(path, PATIENCE)?.read().ok()
}

/// The options of a command line that name its server.
fn arguments(words: &[String]) -> Option<ServerArguments> {
    let option = |name: &str| {
        let place = words.iter().rposition(|word| {
            let rest = word.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        match words[place].split_once('=') {
            Some((_, value)) => Some(value.to_owned()),
            None => words.get(place + 1).cloned(),
        }
    };
    let server = option("--server").map(|text| text.parse());
    Some(ServerArguments {
        access: AccessArguments {
            server: server.transpose().ok()?,
            token_file: option("--token-file").map(Into::into),
            ca_file: option("--ca-file").map(Into::into),
        },
        output: OutputFormat::Text,
    })
}

fn text(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_the_one_of_the_words_before() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let access = arguments(&words)?.access;
            Some((access.server.map(|it| it.to_string()), access.token_file))
        };
        let expected = (Some("/s".to_owned()), Some("t".into()));
        assert_eq!(
            of("longshore --server /s --token-file=t volume show"),
            Some(expected)
        );
        assert_eq!(of("longshore volume show"), Some((None, None)));
        assert_eq!(of("longshore volume show --server ftp://x"), None);
    }

    #[test]
    fn what_a_shell_could_run_is_no_candidate() {
        assert!(is_plain("iqn.2026-11.com.example:a"));
        assert!(is_plain("nqn.2014-08.org:a@b/c+d_e"));
        for name in ["", "-x", "a b", "$(id)", "`id`", "a;b", "a'b", "a\nb", "ä"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
