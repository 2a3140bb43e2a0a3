//! Event loops, and where their time goes.

use maud::html;

use crate::activity::Activity;
use crate::figures::{count, percent};
use crate::frame::{Frame, Section, page};
use crate::table::{bar, live};

#[must_use]
pub fn cores(frame: &Frame<'_>, activity: &Activity) -> String {
    let rates = &activity.rates;
    let legend = [
        ("working", "working", "on operations and their bytes"),
        ("polling", "polling", "looking for work before it sleeps"),
        (
            "waiting",
            "waiting",
            "ready, and other processes have the core",
        ),
        ("asleep", "asleep", "until the kernel wakes it up"),
    ];
    let body = html! {
        div.heading {
            h1 { "Cores" }
            p data-live="basis" { (activity.basis_text()) }
        }
        p.lead { "Each core runs one event loop, which serves the connections that belong to it. " strong data-live="limited-by" { (rates.limited_by) } }
        ul.legend {
            @for (class, name, meaning) in legend {
                li { svg.swatch viewBox="0 0 10 10" aria-hidden="true" focusable="false" { rect class=(class) width="10" height="10" {} } strong { (name) } " " (meaning) }
            }
        }
        div.scroll tabindex="0" role="region" aria-label="Event loops" {
            table.list.cores {
                thead { tr {
                    th.number scope="col" { "Core" }
                    th scope="col" { "State" }
                    th scope="col" { "Time" }
                    th.number scope="col" { "Working" }
                    th.number scope="col" { "Polling" }
                    th.number scope="col" { "Waiting" }
                    th.number scope="col" { "Asleep" }
                    th.number scope="col" { "Operations/s" }
                    th.number scope="col" { "Turns/s" }
                } }
                tbody {
                    @for core in &rates.cores {
                        tr data-core=(core.core) {
                            th.number scope="row" { (core.core) }
                            td { @if core.answers { span.state.up { "answers" } } @else { span.state.failed { "silent" } } }
                            td.wide { (bar(&[("working", core.working), ("polling", core.polling), ("waiting", core.waiting), ("asleep", core.asleep)])) }
                            (live("working", &percent(core.working)))
                            (live("polling", &percent(core.polling)))
                            (live("waiting", &percent(core.waiting)))
                            (live("asleep", &percent(core.asleep)))
                            (live("operations", &count(core.operations)))
                            (live("turns", &count(core.turns)))
                        }
                    }
                }
            }
        }
        section aria-labelledby="busy" {
            h2 id="busy" { "Busy time" }
            figure.chart data-chart="working" {
                figcaption { "Mean working part of all event loops, in percent, of the last two minutes" }
                div.canvas data-needs-script="" data-canvas="" aria-hidden="true" {}
                details {
                    summary { "As a table" }
                    div.scroll tabindex="0" role="region" aria-label="Working part, as a table" {
                        table {
                            thead { tr { th scope="col" { "Time (UTC)" } th.number scope="col" { "Working" } } }
                            tbody data-history="" {
                                @for moment in &activity.history {
                                    tr data-time=(moment.time_ms) data-working=(format!("{:.1}", moment.working)) {
                                        th scope="row" { (&crate::figures::moment(moment.time_ms)[11..]) }
                                        td.number { (percent(moment.working)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    page(frame, Section::Cores, "Cores", &body)
}
