//! Parts of targets and subsystems: logical units, namespaces, access rules.
//!
//! A part is one entry of a list of its object. Each change reads the list, changes the entry, and writes it back on the
//! condition that nobody has changed the configuration meanwhile; otherwise it tries again.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing::{MethodRouter, delete, put};
use longshore_api::access::Role;
use longshore_api::change::{Applied, Wish};
use longshore_api::envelope::Versioned;
use longshore_api::object::{Keys, ObjectId, ObjectKind};
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::Value;

use crate::answer::{Answer, Failure};
use crate::app::App;
use crate::caller::Known;
use crate::change::change;
use crate::input::{Asked, Input, bad_request};
use crate::resources::objects::find;
use crate::route::{CHANGE_QUERY, Content, Route, of};

/// How often a change is tried again that another one overtook.
const TRIES: usize = 5;

/// A list of an object, and the key by which an entry is found.
#[derive(Clone, Copy, Debug)]
enum List {
    Luns,
    Namespaces,
    Initiators,
    Hosts,
}

impl List {
    const fn kind(self) -> ObjectKind {
        match self {
            Self::Luns | Self::Initiators => ObjectKind::Target,
            Self::Namespaces | Self::Hosts => ObjectKind::Subsystem,
        }
    }

    /// The key of the list.
    const fn key(self) -> &'static str {
        match self {
            Self::Luns => "luns",
            Self::Namespaces => "namespaces",
            Self::Initiators | Self::Hosts => "access",
        }
    }

    /// The key of an entry that finds it.
    const fn finder(self) -> &'static str {
        match self {
            Self::Luns => "lun",
            Self::Namespaces => "nsid",
            Self::Initiators => "initiators",
            Self::Hosts => "hosts",
        }
    }

    const fn is_rule(self) -> bool {
        matches!(self, Self::Initiators | Self::Hosts)
    }
}

struct Names {
    list: List,
    path: &'static str,
    ids: [&'static str; 2],
    summaries: [&'static str; 2],
}

const NAMES: [Names; 4] = [
    Names {
        list: List::Luns,
        path: "/api/v1/targets/{name}/luns/{lun}",
        ids: ["mapLun", "unmapLun"],
        summaries: [
            "Map a volume to a logical unit number: `{\"volume\": \"a\"}`",
            "Unmap a logical unit number",
        ],
    },
    Names {
        list: List::Namespaces,
        path: "/api/v1/subsystems/{name}/namespaces/{nsid}",
        ids: ["mapNamespace", "unmapNamespace"],
        summaries: [
            "Map a volume to a namespace identifier: `{\"volume\": \"a\"}`",
            "Unmap a namespace identifier",
        ],
    },
    Names {
        list: List::Initiators,
        path: "/api/v1/targets/{name}/access/{initiator}",
        ids: ["allowInitiator", "denyInitiator"],
        summaries: [
            "Admit an initiator, with these keys of [[target.access]]",
            "Remove the rule of an initiator",
        ],
    },
    Names {
        list: List::Hosts,
        path: "/api/v1/subsystems/{name}/access/{host}",
        ids: ["allowHost", "denyHost"],
        summaries: [
            "Admit a host, with these keys of [[subsystem.access]]",
            "Remove the rule of a host",
        ],
    },
];

pub(crate) fn routes() -> Vec<Route> {
    NAMES.iter().flat_map(of_list).collect()
}

fn of_list(names: &Names) -> [Route; 2] {
    let list = names.list;
    let [put_id, delete_id] = names.ids;
    let [put_summary, delete_summary] = names.summaries;
    let admin = Some(Role::Admin);
    let applied = Content::Json(of::<Versioned<Applied>>);
    let route = |method, id, summary, body, handler: MethodRouter<Arc<App>>| Route {
        query: CHANGE_QUERY,
        body,
        ..Route::new(method, names.path, id, summary, admin, applied, handler)
    };
    let body: Option<crate::route::Of> = Some(of::<Keys>);
    [
        route(
            "PUT",
            put_id,
            put_summary,
            body,
            put(move |state, known, place, asked, body| {
                put_entry(state, known, list, place, asked, body)
            }),
        ),
        route(
            "DELETE",
            delete_id,
            delete_summary,
            None,
            delete(move |state, known, place, asked| {
                delete_entry(state, known, list, place, asked)
            }),
        ),
    ]
}

type MapPath = Path<(String, String)>;

async fn put_entry(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    list: List,
    Path((name, entry)): MapPath,
    asked: Asked,
    Input(keys): Input<Keys>,
) -> Answer {
    let creates = asked.options.create;
    let edit = move |entries: &mut Vec<Value>| {
        if creates && is_there_already(list, entries, &entry, &keys)? {
            return Ok(());
        }
        put_into(list, entries, &entry, keys.clone())
    };
    edit_list(&app, known, list, name, asked, edit).await
}

async fn delete_entry(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    list: List,
    Path((name, entry)): MapPath,
    asked: Asked,
) -> Answer {
    let edit = move |entries: &mut Vec<Value>| take_from(list, entries, &entry);
    edit_list(&app, known, list, name, asked, edit).await
}

/// Changes the list of an object as it is at some revision.
async fn edit_list(
    app: &Arc<App>,
    known: Known,
    list: List,
    name: String,
    asked: Asked,
    edit: impl Fn(&mut Vec<Value>) -> Result<(), Failure>,
) -> Answer {
    let mut tries = 0;
    loop {
        let kind = list.kind();
        let wanted = name.clone();
        let (revision, object) = app
            .read(move |app| {
                let revision = app.plane.revision();
                (revision, find(app, kind, &wanted))
            })
            .await?;
        let object = object?;
        let mut entries = match object.keys.get(list.key()) {
            Some(Value::Array(entries)) => entries.clone(),
            None if list.is_rule() => Vec::new(),
            _ => return Err(maps_all(list, &object.id)),
        };
        edit(&mut entries)?;
        let id = object.id;
        let patch = Keys::from_iter([(list.key().to_owned(), Value::Array(entries))]);
        let mut conditional = asked;
        conditional.options.revision = asked.options.revision.or(Some(revision));
        let wish = Wish::Patch { id, patch };
        tries += 1;
        match change(app, known.clone(), conditional, wish).await {
            Err(failure)
                if failure.code() == ProblemCode::RevisionChanged
                    && asked.options.revision.is_none()
                    && tries < TRIES => {}
            answer => return answer,
        }
    }
}

fn maps_all(list: List, id: &ObjectId) -> Failure {
    let title = format!("it has no `{}`: it maps every volume in order", list.key());
    let problem = Problem::new(ProblemCode::Invalid, title).about(id);
    let advice = format!(
        "first give it `{}` with the volumes that it is to map",
        list.key()
    );
    problem.advise(advice).into()
}

/// Whether a name in a rule is that name. iSCSI names are the same in capitals.
fn is_peer(list: List, name: &Value, wanted: &str) -> bool {
    let is_it = |name: &str| match list {
        List::Initiators => name.eq_ignore_ascii_case(wanted),
        _ => name == wanted,
    };
    name.as_str().is_some_and(is_it)
}

/// Whether an entry is the one of that name or number.
fn is_entry(list: List, entry: &Value, wanted: &str) -> bool {
    match entry.get(list.finder()) {
        Some(Value::Array(names)) => names.iter().any(|name| is_peer(list, name, wanted)),
        Some(Value::Number(number)) => number.to_string() == wanted,
        _ => false,
    }
}

fn put_into(
    list: List,
    entries: &mut Vec<Value>,
    wanted: &str,
    mut keys: Keys,
) -> Result<(), Failure> {
    let finder = if list.is_rule() {
        Value::Array(vec![wanted.into()])
    } else {
        let number: u64 = wanted
            .parse()
            .map_err(|_| bad_request(format!("`{wanted}` is not a number")))?;
        number.into()
    };
    keys.insert(list.finder().to_owned(), finder);
    let place = entries
        .iter()
        .position(|entry| is_entry(list, entry, wanted));
    if list.is_rule() {
        // Another rule may name it among others.
        leave_rule(list, entries, wanted);
        // The first rule that matches decides: one that is there keeps its place.
        let place = place.unwrap_or(entries.len()).min(entries.len());
        entries.insert(place, Value::Object(keys));
    } else {
        entries.retain(|entry| !is_entry(list, entry, wanted));
        entries.push(Value::Object(keys));
        let number = |entry: &Value| entry.get(list.finder()).and_then(Value::as_u64);
        entries.sort_by_key(number);
    }
    Ok(())
}

/// Whether there is such an entry with the same keys.
fn is_there_already(
    list: List,
    entries: &[Value],
    wanted: &str,
    keys: &Keys,
) -> Result<bool, Failure> {
    let Some(entry) = entries.iter().find(|entry| is_entry(list, entry, wanted)) else {
        return Ok(false);
    };
    let told = |keys: &Keys| {
        let mut keys = keys.clone();
        keys.retain(|key, value| {
            ![list.finder(), "name"].contains(&key.as_str()) && *value != Value::Bool(false)
        });
        keys
    };
    if entry.as_object().is_some_and(|its| told(its) == told(keys)) {
        return Ok(true);
    }
    let title = format!("`{}` has an entry `{wanted}` with other keys", list.key());
    let problem = Problem::new(ProblemCode::Exists, title);
    let advice = "remove it first, or replace it: PUT without If-None-Match";
    Err(problem.advise(advice).into())
}

fn take_from(list: List, entries: &mut Vec<Value>, wanted: &str) -> Result<(), Failure> {
    if !entries.iter().any(|entry| is_entry(list, entry, wanted)) {
        let title = format!("there is no entry `{wanted}` in `{}`", list.key());
        return Err(Problem::new(ProblemCode::NotFound, title).into());
    }
    if list.is_rule() {
        leave_rule(list, entries, wanted);
        if entries.is_empty() {
            return Err(would_open(wanted));
        }
    } else {
        entries.retain(|entry| !is_entry(list, entry, wanted));
    }
    Ok(())
}

/// Who takes a right away is not to give it to all.
fn would_open(wanted: &str) -> Failure {
    let title = format!("`{wanted}` has the last rule, and without any rule everybody is admitted");
    let problem = Problem::new(ProblemCode::Invalid, title);
    let advice = "to admit others, give them rules first (`*`: everybody); to admit nobody, disable the target or \
                  subsystem; to do without rules, set `access` to []";
    problem.advise(advice).into()
}

/// Takes a name out of the rules. A rule that is for nobody then goes, unless it has a name: that one is a group, and
/// empty groups may be.
fn leave_rule(list: List, entries: &mut Vec<Value>, wanted: &str) {
    entries.retain_mut(|entry| {
        if !is_entry(list, entry, wanted) {
            return true;
        }
        let has_name = entry.get("name").is_some();
        let Some(Value::Array(names)) = entry.get_mut(list.finder()) else {
            return true;
        };
        names.retain(|name| !is_peer(list, name, wanted));
        has_name || !names.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(value: Value) -> Vec<Value> {
        match value {
            Value::Array(entries) => entries,
            _ => panic!("a list"),
        }
    }

    fn keys(value: Value) -> Keys {
        match value {
            Value::Object(keys) => keys,
            _ => panic!("keys"),
        }
    }

    #[test]
    fn an_entry_of_a_map_is_replaced_and_the_map_stays_in_order() {
        let mut luns = entries(json!([{"lun": 0, "volume": "a"}, {"lun": 10, "volume": "b"}]));
        put_into(List::Luns, &mut luns, "2", keys(json!({"volume": "c"}))).unwrap();
        put_into(List::Luns, &mut luns, "0", keys(json!({"volume": "d"}))).unwrap();
        let expected = json!([
            {"lun": 0, "volume": "d"}, {"lun": 2, "volume": "c"}, {"lun": 10, "volume": "b"}
        ]);
        assert_eq!(luns, entries(expected));
        take_from(List::Luns, &mut luns, "2").unwrap();
        assert_eq!(luns.len(), 2);
        assert!(take_from(List::Luns, &mut luns, "2").is_err());
        assert!(put_into(List::Luns, &mut luns, "x", Keys::new()).is_err());
    }

    #[test]
    fn a_name_is_in_one_rule_and_a_rule_for_nobody_goes() {
        let mut rules = entries(json!([{"initiators": ["iqn.a", "iqn.b"], "read-only": true}]));
        put_into(List::Initiators, &mut rules, "iqn.a", Keys::new()).unwrap();
        // In the place of the rule that named it.
        let expected = json!([
            {"initiators": ["iqn.a"]}, {"initiators": ["iqn.b"], "read-only": true}
        ]);
        assert_eq!(rules, entries(expected));
        take_from(List::Initiators, &mut rules, "IQN.b").unwrap();
        assert_eq!(rules, entries(json!([{"initiators": ["iqn.a"]}])));
        put_into(List::Initiators, &mut rules, "iqn.A", Keys::new()).unwrap();
        assert_eq!(rules, entries(json!([{"initiators": ["iqn.A"]}])));
        let mut hosts = entries(json!([{"hosts": ["nqn.a"]}]));
        assert!(take_from(List::Hosts, &mut hosts, "nqn.A").is_err());
    }

    #[test]
    fn rules_with_names_stay_when_they_are_for_nobody() {
        let group = json!({"name": "group", "initiators": []});
        let used = json!({"name": "used", "initiators": ["iqn.a"], "read-only": true});
        let mut rules = entries(json!([group, used, {"initiators": ["iqn.b"]}]));
        take_from(List::Initiators, &mut rules, "iqn.b").unwrap();
        assert_eq!(rules, entries(json!([group, used])));
        take_from(List::Initiators, &mut rules, "iqn.a").unwrap();
        let emptied = json!({"name": "used", "initiators": [], "read-only": true});
        assert_eq!(rules, entries(json!([group, emptied])));
        put_into(List::Initiators, &mut rules, "iqn.c", Keys::new()).unwrap();
        assert_eq!(
            rules,
            entries(json!([group, emptied, {"initiators": ["iqn.c"]}]))
        );
    }

    #[test]
    fn the_last_rule_is_not_removed_because_everybody_would_be_admitted() {
        for (list, key, name) in [
            (List::Initiators, "initiators", "iqn.a"),
            (List::Initiators, "initiators", "*"),
            (List::Hosts, "hosts", "nqn.a"),
        ] {
            let mut rules = entries(json!([{key: [name]}]));
            let refused = take_from(list, &mut rules, name).unwrap_err();
            assert_eq!(refused.code(), ProblemCode::Invalid);
            assert!(refused.problem().title.contains("everybody is admitted"));
            let mut rules = entries(json!([{key: [name]}, {key: ["x"]}]));
            take_from(list, &mut rules, name).unwrap();
            assert_eq!(rules, entries(json!([{key: ["x"]}])));
        }
    }

    #[test]
    fn what_creates_an_entry_does_not_replace_one_with_other_keys() {
        let rules = entries(json!([
            {"name": "group", "initiators": ["iqn.a", "iqn.b"], "read-only": true, "luns": []}
        ]));
        let ask = |wanted: &str, its: Value| {
            is_there_already(List::Initiators, &rules, wanted, &keys(its))
                .map_err(|failure| failure.code())
        };
        assert_eq!(ask("iqn.c", json!({})), Ok(false));
        assert_eq!(ask("IQN.A", json!({})), Err(ProblemCode::Exists));
        let same = json!({"read-only": true, "luns": []});
        assert_eq!(ask("iqn.a", same), Ok(true));
        let luns = entries(json!([{"lun": 1, "volume": "a", "read-only": true}]));
        let ask = |its: Value| is_there_already(List::Luns, &luns, "1", &keys(its)).is_ok();
        assert!(ask(json!({"volume": "a", "read-only": true})));
        assert!(!ask(json!({"volume": "a"})));
    }
}
