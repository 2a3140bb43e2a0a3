//! Sessions of initiators and controllers of hosts, and their connections.

use longshore_api::access::Role;
use longshore_api::state::Session;
use maud::{Markup, html};

use crate::activity::Activity;
use crate::figures;
use crate::form::{Change, dialog};
use crate::frame::{Frame, Section, page};
use crate::page::volumes::place;
use crate::table::{ROWS_MAX, Selection, live};

#[must_use]
pub fn sessions(
    frame: &Frame<'_>,
    sessions: &[Session],
    activity: &Activity,
    filter: &str,
    number: usize,
) -> String {
    let selection = Selection {
        filter: filter.to_owned(),
        page: number.saturating_sub(1),
    };
    let matching = sessions.iter().filter(|it| {
        let mut texts = it
            .addresses
            .iter()
            .chain(&it.volumes)
            .chain([&it.peer_name, &it.target]);
        texts.any(|text| selection.matches(text))
    });
    let matching: Vec<Session> = matching.cloned().collect();
    let (shown, pages) = selection.cut(&matching);
    let path = Section::Sessions.path();
    let body = html! {
        div.heading { h1 { "Sessions" } }
        (selection.form(path, "sessions", matching.len(), sessions.len()))
        div id="part-list" data-part="" {
            (list(frame, shown, activity))
            (selection.links(path, pages))
        }
        section aria-labelledby="connections" {
            h2 id="connections" { "Connections" }
            (connections(activity))
        }
    };
    page(frame, Section::Sessions, "Sessions", &body)
}

/// A table of sessions.
pub(crate) fn list(frame: &Frame<'_>, sessions: &[Session], _: &Activity) -> Markup {
    let may_close = frame.viewer.may(Role::Operate);
    html! {
        @if sessions.is_empty() {
            p.empty { "No client is connected." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Sessions" {
                table.list {
                    thead { tr {
                        th scope="col" { "Client" }
                        th scope="col" { "Protocol" }
                        th scope="col" { "From" }
                        th scope="col" { "Uses" }
                        th scope="col" { "Volumes" }
                        th.number scope="col" { "Connections" }
                        th.number scope="col" { "For" }
                        @if may_close { th scope="col" data-needs-script="" { span.hidden { "Change" } } }
                    } }
                    tbody {
                        @for session in sessions {
                            tr {
                                th.path scope="row" { (session.peer_name) }
                                td { @if session.protocol == "iscsi" { "iSCSI" } @else if session.protocol == "nvme" { "NVMe/TCP" } @else { (session.protocol) } }
                                td.path { (session.addresses.join(", ")) }
                                td.path { (session.target) }
                                td { (volumes(session)) }
                                td.number { (session.connections) }
                                td.number { (figures::span(frame.time_ms.saturating_sub(session.since_ms))) }
                                @if may_close { td.act data-needs-script="" { (closing(session)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names of volumes that are shown.
const NAMES: usize = 4;

fn volumes(session: &Session) -> Markup {
    html! {
        @for (place_of, volume) in session.volumes.iter().take(NAMES).enumerate() {
            @if place_of > 0 { ", " }
            a href=(place(longshore_api::object::ObjectKind::Volume, volume)) { (volume) }
        }
        @if session.volumes.len() > NAMES { " and " (session.volumes.len() - NAMES) " more" }
    }
}

fn closing(session: &Session) -> Markup {
    let id = format!("close-{}", session.id);
    let title = format!("Close the session of {}", session.peer_name);
    let change = Change {
        id: &id,
        title: &title,
        method: "DELETE",
        path: &format!("/api/v1/sessions/{}", figures::encoded(&session.id)),
        verb: "Close the session",
        is_dangerous: true,
        ..Change::default()
    };
    let text = "The client is asked to log out, and then dropped. It may log in again.";
    dialog(&change, "Close", text, &[])
}

fn connections(activity: &Activity) -> Markup {
    let mut all: Vec<_> = activity.rates.connections.iter().collect();
    all.sort_by(|one, other| other.operations.total_cmp(&one.operations));
    html! {
        @if all.is_empty() {
            p.empty { "There are no connections." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="connections" {
                table.list {
                    thead { tr {
                        th scope="col" { "Peer" }
                        th scope="col" { "Protocol" }
                        th.number scope="col" { "Core" }
                        th.number scope="col" { "Operations/s" }
                        th.number scope="col" { "Received" }
                        th.number scope="col" { "Sent" }
                        th.number scope="col" { "To be sent" }
                    } }
                    tbody {
                        @for connection in all.iter().take(ROWS_MAX) {
                            tr data-peer=(connection.peer) {
                                th scope="row" { code { (connection.peer) } }
                                td { (connection.protocol) }
                                (live("core", &connection.core.to_string()))
                                (live("operations", &figures::count(connection.operations)))
                                (live("received", &figures::bytes_per_second(connection.received_bytes)))
                                (live("sent", &figures::bytes_per_second(connection.sent_bytes)))
                                (live("pending", &figures::bytes(connection.pending_bytes)))
                            }
                        }
                    }
                }
            }
            @if all.len() > ROWS_MAX { p.small { "The " (ROWS_MAX) " busiest of " (all.len()) " connections." } }
        }
    }
}
