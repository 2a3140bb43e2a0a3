//! The list of volumes, and the form that creates one.

use longshore_api::access::Role;
use longshore_api::object::{Object, ObjectKind};
use maud::{Markup, html};
use serde_json::Value;

use crate::activity::Activity;
use crate::figures::{self, MISSING};
use crate::form::{Change, Field, Kind, dialog};
use crate::frame::{Frame, Section, page};
use crate::table::{Selection, live, state};

#[must_use]
pub fn volumes(
    frame: &Frame<'_>,
    volumes: &[Object],
    activity: &Activity,
    filter: &str,
    number: usize,
) -> String {
    let selection = Selection {
        filter: filter.to_owned(),
        page: number.saturating_sub(1),
    };
    let matching: Vec<&Object> = volumes
        .iter()
        .filter(|it| selection.matches(&it.id.name) || selection.matches(&storage(it)))
        .collect();
    let (shown, pages) = selection.cut(&matching);
    let path = Section::Volumes.path();
    let body = html! {
        div.heading {
            h1 { "Volumes" }
            @if frame.viewer.may(Role::Admin) { (creation()) }
        }
        (selection.form(path, "volumes", matching.len(), volumes.len()))
        div id="part-list" data-part="" {
            @if shown.is_empty() {
                p.empty {
                    @if volumes.is_empty() { "There are no volumes yet." } @else { "No volume matches the filter." }
                }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Volumes" {
                    table.list {
                        thead { tr {
                            th scope="col" { "Name" }
                            th scope="col" { "State" }
                            th.number scope="col" { "Size" }
                            th.number scope="col" { "Operations/s" }
                            th.number scope="col" { "Bytes/s" }
                            th.number scope="col" { "Time" }
                            th.number scope="col" { "Sessions" }
                            th scope="col" { "Storage" }
                            th scope="col" { "Owner" }
                        } }
                        tbody { @for volume in shown { (row(volume, activity)) } }
                    }
                }
                (selection.links(path, pages))
            }
        }
    };
    page(frame, Section::Volumes, "Volumes", &body)
}

fn row(volume: &Object, activity: &Activity) -> Markup {
    let [operations, bytes, mean] = load(activity, &volume.id.name);
    html! {
        tr data-volume=(volume.id.name) {
            th scope="row" { (link(volume)) }
            td { (state(volume.state)) }
            td.number { (size(volume)) }
            (live("operations", &operations)) (live("bytes", &bytes)) (live("mean", &mean))
            td.number { (fact(volume, "sessions")) }
            td.path { (storage(volume)) }
            td { (volume.owner) }
        }
    }
}

/// The way to an object's page.
pub(crate) fn link(object: &Object) -> Markup {
    html! { a href=(place(object.id.kind, &object.id.name)) { (object.id.name) } }
}

/// The path of an object's page.
pub(crate) fn place(kind: ObjectKind, name: &str) -> String {
    format!("/ui/{kind}s/{}", figures::encoded(name))
}

/// Operations and bytes per second and the mean time of a volume.
pub(crate) fn load(activity: &Activity, name: &str) -> [String; 3] {
    let found = activity.rates.volumes.iter().find(|it| it.name == name);
    let Some(rates) = found else {
        return [MISSING; 3].map(str::to_owned);
    };
    [
        figures::count(rates.operations()),
        figures::bytes_per_second(rates.read_bytes + rates.written_bytes),
        figures::time(rates.mean_ns),
    ]
}

pub(crate) fn size(volume: &Object) -> String {
    let size = volume.facts.get("size-bytes").and_then(Value::as_u64);
    size.map_or_else(|| MISSING.to_owned(), figures::bytes)
}

fn fact(object: &Object, name: &str) -> String {
    let found = object.facts.get(name);
    found.map_or_else(|| MISSING.to_owned(), figures::value)
}

fn storage(volume: &Object) -> String {
    let text = |key: &str| volume.keys.get(key).and_then(Value::as_str);
    let backend = text("backend").unwrap_or(MISSING);
    match text("path").or_else(|| text("url")) {
        Some(place) => format!("{backend} {place}"),
        None => backend.to_owned(),
    }
}

fn creation() -> Markup {
    let change = Change {
        id: "create",
        title: "Create a volume",
        path: "/api/v1/volumes/{name}",
        next: Some("/ui/volumes/{name}"),
        creates: true,
        verb: "Create",
        ..Change::default()
    };
    let backends = [
        ("file", "file"),
        ("block", "block device"),
        ("pool", "volume of a pool"),
        ("mem", "memory of the server"),
        ("null", "null: zeros, for measurements"),
        ("iscsi", "volume of an iSCSI target"),
        ("nvme-tcp", "volume of an NVMe/TCP subsystem"),
    ];
    let sizes = [("", "512"), ("4096", "4096")];
    let fields = [
        Field::new("name", "Name", "path", Kind::Text)
            .required()
            .hint("1 to 64 letters, digits and . _ -"),
        Field::new("backend", "Storage", "body", Kind::Choice(&backends)).value("file"),
        Field::new("path", "Path", "body", Kind::Text)
            .hint("On the server. A file that is not there is created if a size is given.")
            .of_backends("file block"),
        Field::new("pool", "Pool", "body", Kind::Text)
            .hint("Its name in the file, or the paths of all its drives with + between them")
            .of_backends("pool"),
        Field::new("url", "URL", "body", Kind::Text)
            .hint("iscsi://HOST[:PORT]/IQN/LUN or nvme+tcp://HOST[:PORT]/NQN/NSID")
            .of_backends("iscsi nvme-tcp"),
        Field::new("size", "Size", "body", Kind::Text)
            .hint("Such as 20G; K, M, G, T are powers of 1024.")
            .of_backends("file pool mem null"),
        Field::new("block-size", "Block size", "body", Kind::Choice(&sizes)).hint("In bytes"),
        Field::new("read-only", "Read only", "body", Kind::Flag),
    ];
    dialog(&change, "Create a volume", "", &fields)
}
