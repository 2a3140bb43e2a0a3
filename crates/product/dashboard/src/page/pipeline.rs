//! The life of an operation, from the stages of those that were followed: what `longshore explain` draws.

use longshore_api::sample::INTERVALS;
use longshore_model::pipeline::{Pipeline, of_server};
use longshore_report::diagram;
use maud::{Markup, PreEscaped, html};

use crate::activity::Activity;
use crate::figures::{MISSING, bytes, count, percent, time};
use crate::frame::{Frame, Section, page};
use crate::table::bar;

/// Kinds of operations that are drawn: the most frequent ones.
const KINDS: usize = 4;
/// Rows of the table of stages.
const ROWS: usize = 100;

#[must_use]
pub fn pipeline(frame: &Frame<'_>, activity: &Activity) -> String {
    let mut pipelines = of_server(&activity.facts(), None);
    pipelines.truncate(KINDS);
    let body = html! {
        div.heading {
            h1 { "Pipeline" }
            p { (activity.basis_text()) }
        }
        p.lead { "The server follows one operation in many through its stages. A client sees these times, and its own on top: " code { "longshore explain" } " measures both ends." }
        div id="part-pipelines" data-part="" data-refresh="5" {
            @if pipelines.is_empty() {
                p.empty { "No operation was followed. This page fills when clients send operations." }
            }
            @for pipeline in &pipelines { (drawn(pipeline)) }
        }
        section aria-labelledby="stages" {
            h2 id="stages" { "Stages" }
            div id="part-stages" data-part="" { (stages(activity)) }
        }
    };
    page(frame, Section::Pipeline, "Pipeline", &body)
}

fn drawn(pipeline: &Pipeline) -> Markup {
    let cell = |us: f64| {
        if us < 0.05 {
            MISSING.to_owned()
        } else {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // Not negative; far below 2^64.
            time(Some((us * 1e3) as u64))
        }
    };
    let title = diagram::title(pipeline);
    html! {
        figure.pipeline {
            // The drawing has them as text.
            figcaption.hidden { h2 { (title) } p { (diagram::summary(pipeline)) } }
            // The diagram escapes its texts, and has no address and no script in it.
            div.drawing tabindex="0" role="img" aria-label=(format!("Diagram: {title}. The table below has the same numbers.")) {
                (PreEscaped(diagram::svg(pipeline)))
            }
            details {
                summary { "As a table" }
                div.scroll tabindex="0" role="region" aria-label=(format!("{title}, as a table")) {
                    table {
                        thead { tr {
                            th scope="col" { "Element" }
                            th.number scope="col" { "Waits" }
                            th.number scope="col" { "Latency" }
                            th.number scope="col" { "Work" }
                            th.number scope="col" { "Of that medium" }
                            th.number scope="col" { "Total" }
                            th.number scope="col" { "Share" }
                        } }
                        tbody {
                            @for segment in &pipeline.segments {
                                tr {
                                    th scope="row" { (segment.stop.name()) }
                                    td.number { (cell(segment.queue_us)) }
                                    td.number { (cell(segment.latency_us)) }
                                    td.number { (cell(segment.work_us)) }
                                    td.number { (cell(segment.medium_us)) }
                                    td.number { (cell(segment.sum_us())) }
                                    td.number { (percent(100.0 * segment.share)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn stages(activity: &Activity) -> Markup {
    let mut all: Vec<_> = activity.rates.stages.iter().collect();
    all.sort_by_key(|stage| std::cmp::Reverse(stage.followed));
    html! {
        @if all.is_empty() {
            p.empty { "There are no followed operations." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="stages" {
                table.list {
                    thead { tr {
                        th scope="col" { "Volume" }
                        th scope="col" { "Protocol" }
                        th scope="col" { "Operation" }
                        th.number scope="col" { "Followed" }
                        th.number scope="col" { "Mean" }
                        th.number scope="col" { "99 % below" }
                        th scope="col" { "Parts" }
                        @for interval in INTERVALS { th.number scope="col" { (interval) } }
                    } }
                    tbody {
                        @for stage in all.iter().take(ROWS) {
                            @let parts = INTERVALS.into_iter().zip(stage.parts);
                            @let parts: Vec<(&str, f64)> = parts.collect();
                            tr {
                                th scope="row" { (stage.volume) }
                                td { (stage.protocol) }
                                td { (stage.direction) " up to " (bytes(stage.bytes_up_to)) }
                                td.number { (count(f64::from(u32::try_from(stage.followed).unwrap_or(u32::MAX)))) }
                                td.number { (time(Some(stage.mean_ns))) }
                                td.number { (time(Some(stage.p99_ns))) }
                                td.wide { (bar(&parts)) }
                                @for (name, part) in &parts { td.number { span.hidden { (name) " " } (percent(*part)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
