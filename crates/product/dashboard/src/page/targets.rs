//! Targets and subsystems: what they map, who may use them, who does.

use longshore_api::access::Role;
use longshore_api::object::Object;
use maud::{Markup, html};
use serde_json::Value;

use crate::figures::{self, MISSING};
use crate::form::{Change, Field, Kind, dialog};
use crate::frame::{Frame, Section, page};
use crate::page::volumes::link;
use crate::table::{Selection, state};

/// What the page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    pub targets: &'a [Object],
    pub subsystems: &'a [Object],
    pub filter: &'a str,
    /// The page of the list, from 1.
    pub page: usize,
}

#[must_use]
pub fn targets(frame: &Frame<'_>, content: &Targets<'_>) -> String {
    let selection = Selection {
        filter: content.filter.to_owned(),
        page: content.page.saturating_sub(1),
    };
    let all: Vec<&Object> = content.targets.iter().chain(content.subsystems).collect();
    let matching = all.iter().filter(|it| selection.matches(&it.id.name));
    let matching: Vec<&Object> = matching.copied().collect();
    let (shown, pages) = selection.cut(&matching);
    let path = Section::Targets.path();
    let body = html! {
        div.heading {
            h1 { "Targets and subsystems" }
            @if frame.viewer.may(Role::Admin) { div.buttons { (creation(true)) (creation(false)) } }
        }
        (selection.form(path, "targets", matching.len(), all.len()))
        div id="part-list" data-part="" {
            @if shown.is_empty() {
                p.empty {
                    @if all.is_empty() { "There are no targets yet." } @else { "No target matches the filter." }
                }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Targets and subsystems" {
                    table.list {
                        thead { tr {
                            th scope="col" { "Name" }
                            th scope="col" { "Protocol" }
                            th scope="col" { "State" }
                            th.number scope="col" { "Volumes" }
                            th scope="col" { "Access" }
                            th.number scope="col" { "Sessions" }
                            th scope="col" { "Owner" }
                        } }
                        tbody {
                            @for target in shown {
                                tr {
                                    th.path scope="row" { (link(target)) }
                                    td { (protocol(target)) }
                                    td { (state(target.state)) }
                                    td.number { (mapped(target)) }
                                    td { (access(target)) }
                                    td.number { (target.facts.get("sessions").map_or_else(|| MISSING.to_owned(), figures::value)) }
                                    td { (target.owner) }
                                }
                            }
                        }
                    }
                }
                (selection.links(path, pages))
            }
        }
    };
    page(frame, Section::Targets, "Targets", &body)
}

fn protocol(target: &Object) -> &'static str {
    use longshore_api::object::ObjectKind::{Setting, Subsystem, Target, Volume};
    match target.id.kind {
        Target => "iSCSI",
        Subsystem => "NVMe/TCP",
        Setting | Volume => MISSING,
    }
}

/// How many volumes; without a map, all of them.
fn mapped(target: &Object) -> String {
    let map = target
        .keys
        .get("luns")
        .or_else(|| target.keys.get("namespaces"));
    match map {
        Some(Value::Array(entries)) => entries.len().to_string(),
        _ => "all".to_owned(),
    }
}

/// Who may use it, in a few words.
fn access(target: &Object) -> String {
    let number = |key: &str| match target.keys.get(key) {
        Some(Value::Array(entries)) => entries.len(),
        _ => 0,
    };
    match (number("access"), number("accounts")) {
        (0, 0) => "everybody".to_owned(),
        (0, 1) => "1 account".to_owned(),
        (0, accounts) => format!("{accounts} accounts"),
        (1, _) => "1 rule".to_owned(),
        (rules, _) => format!("{rules} rules"),
    }
}

fn creation(is_iscsi: bool) -> Markup {
    let (id, title, path, next, hint) = if is_iscsi {
        (
            "create-target",
            "Create an iSCSI target",
            "/api/v1/targets/{name}",
            "/ui/targets/{name}",
            "An iSCSI name, such as iqn.2026-11.com.example:disks",
        )
    } else {
        (
            "create-subsystem",
            "Create an NVMe subsystem",
            "/api/v1/subsystems/{name}",
            "/ui/subsystems/{name}",
            "A qualified name, such as nqn.2026-11.com.example:disks",
        )
    };
    let change = Change {
        id,
        title,
        path,
        next: Some(next),
        creates: true,
        verb: "Create",
        ..Change::default()
    };
    let opens = if is_iscsi {
        "Create a target"
    } else {
        "Create a subsystem"
    };
    let text = "It maps no volume yet, and everybody who reaches the server may use it until it has a rule.";
    let fields = [Field::new("name", "Name", "path", Kind::Text)
        .required()
        .hint(hint)];
    dialog(&change, opens, text, &fields)
}
