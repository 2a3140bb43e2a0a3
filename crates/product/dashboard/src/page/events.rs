//! What happened, and who changed what.

use longshore_api::change::RevisionInfo;
use longshore_api::state::Event;
use maud::{Markup, html};

use crate::figures;
use crate::frame::{Frame, Section, page};
use crate::table::ROWS_MAX;

const TOPICS: [(&str, &str); 6] = [
    ("", "all"),
    ("change", "changes"),
    ("session", "sessions"),
    ("volume", "volumes"),
    ("audit", "audit"),
    ("log", "log"),
];

/// What the page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Happenings<'a> {
    /// In order of time, the newest first.
    pub events: &'a [Event],
    /// In order of time, the newest first.
    pub revisions: &'a [RevisionInfo],
    /// Events of this topic; empty: all events.
    pub topic: &'a str,
}

#[must_use]
pub fn events(frame: &Frame<'_>, content: &Happenings<'_>) -> String {
    let of_topic = content.events.iter();
    let of_topic = of_topic.filter(|it| content.topic.is_empty() || it.topic == content.topic);
    let of_topic: Vec<&Event> = of_topic.collect();
    let path = Section::Events.path();
    let body = html! {
        div.heading { h1 { "Events and audit" } }
        section aria-labelledby="events" {
            h2 id="events" { "Events" }
            nav.topics aria-label="Topics" {
                ul {
                    @for (topic, name) in TOPICS {
                        li {
                            a href=(if topic.is_empty() { path.to_owned() } else { format!("{path}?topic={topic}") })
                                aria-current=[(topic == content.topic).then_some("true")] { (name) }
                        }
                    }
                }
            }
            div id="part-events" data-part="" data-follows="all" {
                @if of_topic.is_empty() {
                    p.empty { "Nothing has happened yet." }
                } @else {
                    div.scroll tabindex="0" role="region" aria-labelledby="events" {
                        table.events.list { (rows(of_topic.iter().copied().take(2 * ROWS_MAX))) }
                    }
                    p.small { "The newest " (of_topic.len().min(2 * ROWS_MAX)) " of " (of_topic.len()) " that are kept. The command " code { "longshore events" } " has all." }
                }
            }
        }
        section aria-labelledby="audit" {
            h2 id="audit" { "Who changed what" }
            div id="part-audit" data-part="" {
                @if content.revisions.is_empty() {
                    p.empty { "The configuration has not been changed." }
                } @else {
                    div.scroll tabindex="0" role="region" aria-labelledby="audit" {
                        table.list {
                            thead { tr {
                                th.number scope="col" { "Revision" }
                                th scope="col" { "Time (UTC)" }
                                th scope="col" { "By" }
                                th scope="col" { "From" }
                                th scope="col" { "Steps" }
                            } }
                            tbody {
                                @for revision in content.revisions.iter().take(ROWS_MAX) {
                                    tr {
                                        th.number scope="row" { (revision.revision.0) }
                                        td.time { (figures::moment(revision.time_ms)) }
                                        td { (revision.caller.name) }
                                        td.path { (revision.caller.from) }
                                        td { (revision.steps.join("; ")) }
                                    }
                                }
                            }
                        }
                    }
                    p.small { "The file " code { "audit.log" } " of the state directory also has what was refused." }
                }
            }
        }
    };
    page(frame, Section::Events, "Events", &body)
}

/// Head and rows of a table of events.
pub(crate) fn rows<'a>(events: impl Iterator<Item = &'a Event>) -> Markup {
    html! {
        thead { tr { th scope="col" { "Time (UTC)" } th scope="col" { "Topic" } th scope="col" { "What happened" } } }
        tbody {
            @for event in events {
                tr {
                    td.time { (figures::moment(event.time_ms)) }
                    td { span.topic { (event.topic) } }
                    td { span { (event.message) } }
                }
            }
        }
    }
}
