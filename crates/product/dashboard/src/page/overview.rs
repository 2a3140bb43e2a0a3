//! What is served, what is wrong, what limits.

use longshore_api::object::{Object, ObjectState};
use longshore_api::state::Event;
use maud::{Markup, html};

use crate::activity::Activity;
use crate::figures::{self, MISSING};
use crate::frame::{Frame, Section, page};
use crate::page::events::rows;
use crate::page::volumes::{link, load};
use crate::table::live;

/// Volumes and events that are shown.
const ROWS: usize = 8;

/// What the page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Overview<'a> {
    pub volumes: &'a [Object],
    /// Targets of iSCSI and subsystems of NVMe.
    pub targets: &'a [Object],
    /// In order of time, the newest first.
    pub events: &'a [Event],
    pub activity: &'a Activity,
}

#[must_use]
pub fn overview(frame: &Frame<'_>, content: &Overview<'_>) -> String {
    let status = frame.status;
    let activity = content.activity;
    let rates = &activity.rates;
    let total = totals(activity);
    let uptime = frame.time_ms.saturating_sub(status.started_ms);
    let body = html! {
        div.heading {
            h1 { "Overview" }
            p { "Up for " (figures::span(uptime)) ", revision " span data-live="revision" { (status.revision.0) } }
        }
        div.cards {
            (served(frame))
            (wrong(frame, content))
            section.card.limits aria-labelledby="limits" {
                h2 id="limits" { "What limits it" }
                p.large data-live="limited-by" { (rates.limited_by) }
                p.small data-live="basis" { (activity.basis_text()) }
                p { a href=(Section::Cores.path()) { "Where the cores spend time" } " · " a href=(Section::Pipeline.path()) { "the life of an operation" } }
            }
        }
        section aria-labelledby="now" {
            h2 id="now" { "Now" }
            dl.figures {
                @for (name, key, text) in total {
                    div { dt { (name) } dd data-live=(key) { (text) } }
                }
            }
            (chart(activity))
        }
        div.columns {
            section aria-labelledby="busiest" {
                h2 id="busiest" { "Busiest volumes" }
                (busiest(content))
            }
            section aria-labelledby="latest" {
                h2 id="latest" { "Latest events" }
                div id="part-events" data-part="" {
                    @if content.events.is_empty() {
                        p.empty { "Nothing has happened yet." }
                    } @else {
                        div.scroll tabindex="0" role="region" aria-labelledby="latest" {
                            table.events.latest { (rows(content.events.iter().take(ROWS))) }
                        }
                    }
                }
                p { a href=(Section::Events.path()) { "All events" } }
            }
        }
        section aria-labelledby="addresses" {
            h2 id="addresses" { "Addresses" }
            (addresses(frame))
        }
    };
    page(frame, Section::Overview, "Overview", &body)
}

fn served(frame: &Frame<'_>) -> Markup {
    let status = frame.status;
    let count = |number: usize, one: &str, many: &str, section: Section| {
        let word = if number == 1 { one } else { many };
        html! { li { a href=(section.path()) { strong { (number) } " " (word) } } }
    };
    html! {
        section.card aria-labelledby="served" {
            h2 id="served" { "What is served" }
            ul.counts id="part-counts" data-part="" {
                (count(status.volumes, "volume", "volumes", Section::Volumes))
                (count(status.targets, "iSCSI target", "iSCSI targets", Section::Targets))
                (count(status.subsystems, "NVMe subsystem", "NVMe subsystems", Section::Targets))
                (count(status.sessions, "session", "sessions", Section::Sessions))
            }
        }
    }
}

/// Reasons of the health, settings that wait, objects that are not served as they should be.
fn wrong(frame: &Frame<'_>, content: &Overview<'_>) -> Markup {
    let health = &frame.status.health;
    let failing = content.volumes.iter().chain(content.targets);
    let failing: Vec<&Object> = failing
        .filter(|it| !matches!(it.state, ObjectState::Up | ObjectState::Disabled))
        .collect();
    let volumes = content.activity.rates.volumes.iter();
    let errors: Vec<_> = volumes.filter(|it| it.errors > 0).collect();
    let needs_restart = &frame.status.needs_restart;
    let is_well = health.alive
        && health.ready
        && health.reasons.is_empty()
        && failing.is_empty()
        && errors.is_empty()
        && needs_restart.is_empty();
    html! {
        section.card aria-labelledby="wrong" {
            h2 id="wrong" { "What is wrong" }
            div id="part-wrong" data-part="" {
                @if is_well {
                    p.large { span.state.up { "nothing" } }
                    p.small { "All event loops answer, and all enabled objects are served." }
                } @else {
                    ul.wrong {
                        @for reason in &health.reasons { li.bad { (reason) } }
                        @if health.reasons.is_empty() && !(health.alive && health.ready) {
                            li.bad { "The server is not ready." }
                        }
                        @for object in failing.iter().take(ROWS) {
                            li.bad {
                                (link(object)) " is " (figures::state(object.state))
                                @if let Some(text) = reason(object) { ": " (text) }
                            }
                        }
                        @if failing.len() > ROWS { li.bad { "and " (failing.len() - ROWS) " more objects" } }
                        @for volume in errors.iter().take(ROWS) {
                            li.warn { "Volume " (volume.name) ": " (volume.errors) " failed operations since the start" }
                        }
                        @for key in needs_restart.iter().take(ROWS) {
                            li.warn { code { (key) } " takes effect at the next start" }
                        }
                    }
                }
            }
        }
    }
}

/// Why an object is not served.
pub(crate) fn reason(object: &Object) -> Option<&str> {
    let text = object
        .facts
        .get("failure")
        .or_else(|| object.facts.get("waits-for"));
    text?.as_str()
}

/// Names, names for the script, and numbers.
fn totals(activity: &Activity) -> [(&'static str, &'static str, String); 5] {
    let rates = &activity.rates;
    let sum = |of: fn(&longshore_api::rates::VolumeRates) -> f64| -> f64 {
        rates.volumes.iter().map(of).sum()
    };
    let memory = if rates.memory_budget_bytes == 0 {
        MISSING.to_owned()
    } else {
        let (used, budget) = (rates.memory_used_bytes, rates.memory_budget_bytes);
        format!("{} of {}", figures::bytes(used), figures::bytes(budget))
    };
    [
        (
            "Operations per second",
            "operations",
            figures::count(rates.operations()),
        ),
        (
            "Read",
            "read-bytes",
            figures::bytes_per_second(sum(|it| it.read_bytes)),
        ),
        (
            "Written",
            "written-bytes",
            figures::bytes_per_second(sum(|it| it.written_bytes)),
        ),
        (
            "Time of an operation",
            "mean",
            figures::time(mean(activity)),
        ),
        ("Payload memory", "memory", memory),
    ]
}

/// Mean time of the operations that were followed.
fn mean(activity: &Activity) -> Option<u64> {
    let stages = activity.rates.stages.iter();
    let (followed, sum) = stages.fold((0_u64, 0_u64), |(followed, sum), it| {
        let more = it.followed.saturating_mul(it.mean_ns);
        (followed + it.followed, sum.saturating_add(more))
    });
    sum.checked_div(followed)
}

/// Operations of the last minutes. The chart is drawn from the table by the script.
fn chart(activity: &Activity) -> Markup {
    html! {
        figure.chart data-chart="operations" {
            figcaption { "Operations per second of the last two minutes" }
            div.canvas data-needs-script="" data-canvas="" aria-hidden="true" {}
            details {
                summary { "As a table" }
                div.scroll tabindex="0" role="region" aria-label="Operations per second, as a table" {
                    table {
                        thead { tr {
                            th scope="col" { "Time (UTC)" }
                            th.number scope="col" { "Reads/s" }
                            th.number scope="col" { "Writes/s" }
                            th.number scope="col" { "Read" }
                            th.number scope="col" { "Written" }
                        } }
                        tbody data-history="" {
                            @for moment in &activity.history {
                                tr data-time=(moment.time_ms) data-reads=(format!("{:.1}", moment.reads)) data-writes=(format!("{:.1}", moment.writes)) {
                                    th scope="row" { (&figures::moment(moment.time_ms)[11..]) }
                                    td.number { (figures::count(moment.reads)) }
                                    td.number { (figures::count(moment.writes)) }
                                    td.number { (figures::bytes_per_second(moment.read_bytes)) }
                                    td.number { (figures::bytes_per_second(moment.written_bytes)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn busiest(content: &Overview<'_>) -> Markup {
    let mut volumes: Vec<&Object> = content.volumes.iter().collect();
    let operations = |object: &Object| {
        let rates = content.activity.rates.volumes.iter();
        let found = rates.into_iter().find(|it| it.name == object.id.name);
        found.map_or(0.0, longshore_api::rates::VolumeRates::operations)
    };
    let mut busy: Vec<(f64, &Object)> = volumes.drain(..).map(|it| (operations(it), it)).collect();
    busy.sort_by(|one, other| other.0.total_cmp(&one.0));
    html! {
        @if busy.is_empty() {
            p.empty { "There are no volumes. " a href=(Section::Volumes.path()) { "Volumes" } " has a form to create one." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="busiest" {
                table {
                    thead { tr {
                        th scope="col" { "Volume" }
                        th.number scope="col" { "Operations/s" }
                        th.number scope="col" { "Bytes/s" }
                        th.number scope="col" { "Time" }
                    } }
                    tbody {
                        @for (_, volume) in busy.iter().take(ROWS) {
                            @let [operations, bytes, mean] = load(content.activity, &volume.id.name);
                            tr data-volume=(volume.id.name) {
                                th scope="row" { (link(volume)) }
                                (live("operations", &operations)) (live("bytes", &bytes)) (live("mean", &mean))
                            }
                        }
                    }
                }
            }
            p { a href=(Section::Volumes.path()) { "All volumes" } }
        }
    }
}

fn addresses(frame: &Frame<'_>) -> Markup {
    html! {
        div id="part-addresses" data-part="" {
            @if frame.status.listeners.is_empty() {
                p.empty { "The server listens on no address." }
            } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="addresses" {
                    table {
                        thead { tr { th scope="col" { "Service" } th scope="col" { "Address" } } }
                        tbody {
                            @for listener in &frame.status.listeners {
                                tr { th scope="row" { (listener.service) } td { code { (listener.address) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}
