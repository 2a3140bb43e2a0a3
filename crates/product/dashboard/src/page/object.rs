//! One volume, target or subsystem: state, keys, map, access, and the forms that change it.

use longshore_api::access::Role;
use longshore_api::object::{Object, ObjectKind, ObjectState, Owner};
use longshore_api::state::Session;
use maud::{Markup, html};
use serde_json::Value;

use crate::activity::Activity;
use crate::figures;
use crate::form::{Change, Field, Kind, act, dialog, inline};
use crate::frame::{Frame, Section, page};
use crate::page::overview::reason;
use crate::page::sessions::list;
use crate::page::volumes::{link, load, place};
use crate::table::state;

/// The choice to end the use of what is removed.
const DRAIN: Field<'static> = Field::new(
    "drain",
    "Also while sessions use it: let accepted operations end first",
    "query",
    Kind::Flag,
);

/// `/ui/volumes/NAME`, `/ui/targets/NAME`, `/ui/subsystems/NAME`. `others`: targets for a volume, volumes for a target.
#[must_use]
pub fn object(
    frame: &Frame<'_>,
    object: &Object,
    others: &[Object],
    users: &[Session],
    activity: &Activity,
) -> String {
    let (kind, name) = (object.id.kind, object.id.name.as_str());
    let section = match kind {
        ObjectKind::Volume => Section::Volumes,
        ObjectKind::Target | ObjectKind::Subsystem => Section::Targets,
        ObjectKind::Setting => Section::Configuration,
    };
    let may_change = frame.viewer.may(Role::Admin);
    let is_ours = object.owner == Owner::Api;
    let body = html! {
        p.crumbs { a href=(section.path()) { (section.title()) } }
        div.heading {
            h1.name { (name) }
            div id="part-state" data-part="" { (state(object.state)) }
        }
        @if let Some(text) = reason(object) { p.notice.bad { (text) } }
        @if may_change && !is_ours {
            p.notice {
                "This " (kind) " belongs to the " (object.owner)
                @if let Some(location) = &object.location { " (" code { (location) } ")" }
                " and is changed there."
            }
        }
        div.columns {
            section aria-labelledby="facts" {
                h2 id="facts" { "Facts" }
                div id="part-facts" data-part="" { (facts(object)) }
            }
            section aria-labelledby="activity" {
                @if kind == ObjectKind::Volume {
                    h2 id="activity" { "Activity" }
                    (volume_load(activity, name))
                    h2 { "Mapped by" }
                    div id="part-maps" data-part="" { (mapped_by(others, name)) }
                    @if may_change { (map_volume(name, others)) }
                } @else {
                    h2 id="activity" { "Map" }
                    div id="part-maps" data-part="" { (map(object, may_change && is_ours)) }
                    @if may_change && is_ours { (map_entry(object, others)) }
                    h2 { "Access" }
                    div id="part-access" data-part="" { (access(object, may_change && is_ours)) }
                    @if may_change && is_ours { (admission(object)) }
                }
            }
        }
        section aria-labelledby="users" {
            h2 id="users" { "Sessions" }
            div id="part-sessions" data-part="" { (list(frame, users, activity)) }
        }
        @if may_change && is_ours {
            section.changes aria-labelledby="changes" data-needs-script="" {
                h2 id="changes" { "Changes" }
                (changes(object))
            }
        }
    };
    page(frame, section, name, &body)
}

fn facts(object: &Object) -> Markup {
    let hidden = ["luns", "namespaces", "access", "failure", "waits-for"];
    let all = object.keys.iter().chain(&object.facts);
    let shown = all.filter(|(key, _)| !hidden.contains(&key.as_str()));
    html! {
        dl.facts {
            div { dt { "owner" } dd { (object.owner) } }
            @for (key, value) in shown {
                div {
                    dt { (key) }
                    dd {
                        @match (key.as_str(), value.as_u64()) {
                            ("size-bytes", Some(bytes)) => { (figures::bytes(bytes)) " (" (bytes) " bytes)" }
                            _ => (figures::value(value))
                        }
                    }
                }
            }
        }
    }
}

fn volume_load(activity: &Activity, name: &str) -> Markup {
    let [operations, bytes, mean] = load(activity, name);
    html! {
        dl.figures data-volume=(name) {
            div { dt { "Operations per second" } dd data-live="operations" { (operations) } }
            div { dt { "Bytes per second" } dd data-live="bytes" { (bytes) } }
            div { dt { "Time of an operation" } dd data-live="mean" { (mean) } }
        }
    }
}

/// Entries of the map of a target: number and volume. `None`: it maps all volumes.
fn entries(object: &Object) -> Option<Vec<(u64, &str, bool)>> {
    let (list, key) = map_keys(object.id.kind);
    let Some(Value::Array(entries)) = object.keys.get(list) else {
        return None;
    };
    let entries = entries.iter().filter_map(|entry| {
        let number = entry.get(key)?.as_u64()?;
        let is_read_only = entry.get("read-only") == Some(&Value::Bool(true));
        Some((number, entry.get("volume")?.as_str()?, is_read_only))
    });
    Some(entries.collect())
}

const fn map_keys(kind: ObjectKind) -> (&'static str, &'static str) {
    match kind {
        ObjectKind::Subsystem => ("namespaces", "nsid"),
        ObjectKind::Target | ObjectKind::Volume | ObjectKind::Setting => ("luns", "lun"),
    }
}

const fn number_word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Subsystem => "NSID",
        ObjectKind::Target | ObjectKind::Volume | ObjectKind::Setting => "LUN",
    }
}

fn api_path(object: &Object) -> String {
    let name = figures::encoded(&object.id.name);
    format!("/api/v1/{}s/{name}", object.id.kind)
}

fn mapped_by(targets: &[Object], volume: &str) -> Markup {
    let mut rows = Vec::new();
    for target in targets {
        match entries(target) {
            None => rows.push((target, None)),
            Some(entries) => {
                let of = entries.into_iter().filter(|(_, name, _)| *name == volume);
                rows.extend(of.map(|(number, ..)| (target, Some(number))));
            }
        }
    }
    html! {
        @if rows.is_empty() {
            p.empty { "No target maps this volume: clients cannot reach it." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Targets that map this volume" {
                table {
                    thead { tr { th scope="col" { "Target" } th.number scope="col" { "LUN or NSID" } } }
                    tbody {
                        @for (target, number) in rows {
                            tr {
                                th.path scope="row" { (link(target)) }
                                td.number { @match number { Some(number) => (number), None => "in order" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Map this volume by a target of the API.
fn map_volume(volume: &str, targets: &[Object]) -> Markup {
    let ours = targets.iter().filter(|it| it.owner == Owner::Api);
    let (iscsi, nvme): (Vec<&Object>, Vec<&Object>) =
        ours.partition(|it| it.id.kind == ObjectKind::Target);
    let of = |targets: &[&Object], id, title, path, label| {
        let targets: Vec<(&str, &str)> = targets
            .iter()
            .map(|it| (it.id.name.as_str(), it.id.name.as_str()))
            .collect();
        let key = if label == "LUN" { "lun" } else { "nsid" };
        let change = Change {
            id,
            title,
            path,
            verb: "Map",
            creates: true,
            ..Change::default()
        };
        let fields = [
            Field::new("target", "Target", "path", Kind::Choice(&targets)),
            Field::new(key, label, "path", Kind::Number).required(),
            Field::new("volume", "Volume", "body", Kind::Text)
                .required()
                .value(volume),
        ];
        html! { @if !targets.is_empty() { (inline(&change, &fields)) } }
    };
    html! {
        (of(&iscsi, "map-lun", "Map to a LUN", "/api/v1/targets/{target}/luns/{lun}", "LUN"))
        (of(&nvme, "map-namespace", "Map to a namespace", "/api/v1/subsystems/{target}/namespaces/{nsid}", "NSID"))
    }
}

fn map(object: &Object, may_change: bool) -> Markup {
    let (list, _) = map_keys(object.id.kind);
    let word = number_word(object.id.kind);
    let Some(entries) = entries(object) else {
        return html! { p.empty { "It maps every volume, in order." } };
    };
    html! {
        @if entries.is_empty() {
            p.empty { "It maps no volume yet." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Map" {
                table {
                    thead { tr {
                        th.number scope="col" { (word) }
                        th scope="col" { "Volume" }
                        th scope="col" { "Access" }
                        @if may_change { th scope="col" data-needs-script="" { span.hidden { "Change" } } }
                    } }
                    tbody {
                        @for (number, volume, is_read_only) in entries {
                            tr {
                                th.number scope="row" { (number) }
                                td { a href=(place(ObjectKind::Volume, volume)) { (volume) } }
                                td { @if is_read_only { "read only" } @else { "read and write" } }
                                @if may_change {
                                    td.act data-needs-script="" {
                                        (unmap(&format!("{}/{list}/{number}", api_path(object)), word, number))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn unmap(path: &str, word: &str, number: u64) -> Markup {
    let id = format!("unmap-{number}");
    let change = Change {
        id: &id,
        title: &format!("Unmap {word} {number}"),
        method: "DELETE",
        path,
        verb: "Unmap",
        is_dangerous: true,
        ..Change::default()
    };
    let text = "Clients lose the disk. Its data stay.";
    dialog(&change, "Unmap", text, &[DRAIN])
}

fn map_entry(object: &Object, volumes: &[Object]) -> Markup {
    let (list, key) = map_keys(object.id.kind);
    let word = number_word(object.id.kind);
    let path = format!("{}/{list}/{{{key}}}", api_path(object));
    let names: Vec<String> = volumes.iter().map(|it| it.id.name.clone()).collect();
    let change = Change {
        id: "map",
        title: "Map a volume",
        path: &path,
        verb: "Map",
        creates: true,
        ..Change::default()
    };
    let fields = [
        Field::new(key, word, "path", Kind::Number).required(),
        Field::new("volume", "Volume", "body", Kind::Name(&names)).required(),
        Field::new("read-only", "Read only", "body", Kind::Flag),
    ];
    inline(&change, &fields)
}

const fn peer_keys(kind: ObjectKind) -> (&'static str, &'static str) {
    match kind {
        ObjectKind::Subsystem => ("hosts", "Host"),
        ObjectKind::Target | ObjectKind::Volume | ObjectKind::Setting => {
            ("initiators", "Initiator")
        }
    }
}

fn access(object: &Object, may_change: bool) -> Markup {
    let (key, word) = peer_keys(object.id.kind);
    let rules = match object.keys.get("access") {
        Some(Value::Array(rules)) => rules.as_slice(),
        _ => &[],
    };
    html! {
        @if rules.is_empty() {
            p.empty { "There is no rule: everybody who reaches the server may use it, with an account where it has some." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Access rules" {
                table {
                    thead { tr {
                        th scope="col" { (word) }
                        th scope="col" { "May" }
                        @if may_change { th scope="col" data-needs-script="" { span.hidden { "Change" } } }
                    } }
                    tbody {
                        @for (place, rule) in rules.iter().enumerate() {
                            @for (number, name) in names_of(rule, key).enumerate() {
                                tr {
                                    th.path scope="row" { @if name == "*" { "everybody (*)" } @else { (name) } }
                                    td { (rights(rule, key)) }
                                    @if may_change {
                                        td.act data-needs-script="" {
                                            (exclude(object, rules, name, &format!("deny-{place}-{number}")))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The names in a rule.
fn names_of<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    let names = rule.get(key).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn exclude(object: &Object, rules: &[Value], name: &str, id: &str) -> Markup {
    let (key, _) = peer_keys(object.id.kind);
    let path = format!("{}/access/{}", api_path(object), figures::encoded(name));
    let change = Change {
        id,
        title: &format!("Remove access of {name}"),
        method: "DELETE",
        path: &path,
        verb: "Remove",
        is_dangerous: true,
        ..Change::default()
    };
    let is_last = match rules {
        [rule] => rule.get("name").is_none() && names_of(rule, key).count() == 1,
        _ => false,
    };
    let text = if is_last {
        "This is the last rule, and without any rule everybody is admitted. The server refuses to remove it: first \
         admit others (* is everybody), or disable this."
    } else {
        "Its sessions end, unless another rule matches it. The volumes stay."
    };
    dialog(&change, "Remove", text, &[DRAIN])
}

/// What a rule allows.
fn rights(rule: &Value, names: &str) -> String {
    let mut text = match rule.get("read-only") {
        Some(Value::Bool(true)) => "read".to_owned(),
        _ => "read and write".to_owned(),
    };
    let more = rule.as_object().into_iter().flatten();
    for (key, _) in more.filter(|(key, _)| *key != names && *key != "read-only") {
        text += match key.as_str() {
            "luns" | "namespaces" => ", with a map of its own",
            "accounts" => ", with accounts of its own",
            "mutual" => ", mutually",
            _ => "",
        };
    }
    text
}

fn admission(object: &Object) -> Markup {
    let (_, word) = peer_keys(object.id.kind);
    let title = format!(
        "Admit {} {}",
        if word == "Host" { "a" } else { "an" },
        word.to_lowercase()
    );
    let change = Change {
        id: "admit",
        title: &title,
        path: &format!("{}/access/{{peer}}", api_path(object)),
        verb: "Admit",
        creates: true,
        ..Change::default()
    };
    let fields = [
        Field::new("peer", word, "path", Kind::Text)
            .required()
            .hint("Its name, or * for all that no other rule matches"),
        Field::new("read-only", "Read only", "body", Kind::Flag),
    ];
    inline(&change, &fields)
}

fn changes(object: &Object) -> Markup {
    let (kind, name) = (object.id.kind, object.id.name.as_str());
    let path = api_path(object);
    let list = match kind {
        ObjectKind::Volume => Section::Volumes.path(),
        _ => Section::Targets.path(),
    };
    let (word, action) = match object.state {
        ObjectState::Disabled => ("Enable", "enable"),
        _ => ("Disable", "disable"),
    };
    let (switch_path, resize_path) = (format!("{path}:{action}"), format!("{path}:resize"));
    let title = format!("Remove {kind} {name}");
    let removal = Change {
        id: "remove",
        title: &title,
        method: "DELETE",
        path: &path,
        next: Some(list),
        verb: "Remove",
        is_dangerous: true,
        ..Change::default()
    };
    let text = match kind {
        ObjectKind::Volume => {
            "The server forgets the volume. Its data stay where they are; those in memory are lost."
        }
        _ => "Its sessions end. The volumes that it maps stay.",
    };
    let removal_fields = [
        DRAIN,
        Field::new("force", "The same, without waiting", "query", Kind::Flag),
    ];
    html! {
        @if kind == ObjectKind::Volume {
            (inline(
                &Change { id: "resize", title: "Resize", method: "POST", path: &resize_path, verb: "Resize", ..Change::default() },
                &[Field::new("size", "New size", "body", Kind::Text).required().hint("Such as 20G. Volumes of files grow while they are served.")],
            ))
        }
        div.buttons {
            (act(&Change { id: "switch", method: "POST", path: &switch_path, verb: word, ..Change::default() }))
            (dialog(&removal, "Remove", text, &removal_fields))
        }
    }
}
