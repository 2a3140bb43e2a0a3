//! The configuration: all objects as tables of the file, a plan before each change, and earlier revisions.

use longshore_api::access::Role;
use longshore_api::change::RevisionInfo;
use longshore_api::object::Document;
use longshore_api::tables::tables;
use maud::{Markup, html};

use crate::figures;
use crate::frame::{Frame, Section, page};
use crate::table::ROWS_MAX;

/// What the page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Objects of all owners.
    pub all: &'a Document,
    /// Those of the API.
    pub of_api: &'a Document,
    /// In order of time, the newest first.
    pub revisions: &'a [RevisionInfo],
}

#[must_use]
pub fn configuration(frame: &Frame<'_>, content: &Configuration<'_>) -> String {
    let may_change = frame.viewer.may(Role::Admin);
    let text = tables(content.all);
    let body = html! {
        div.heading {
            h1 { "Configuration" }
            p id="part-revision" data-part="" { "Revision " (frame.status.revision.0) }
        }
        @if !frame.status.needs_restart.is_empty() {
            p.notice {
                "These settings of the file take effect at the next start: "
                (frame.status.needs_restart.join(", "))
            }
        }
        section aria-labelledby="running" {
            h2 id="running" { "What is served" }
            p {
                "All objects, as tables of the configuration file. Secrets show as " code { "\"set\"" } "."
                @if let Some(file) = &frame.status.config_file { " The file of this server is " code { (file) } "." }
            }
            div id="part-running" data-part="" {
                @if text.is_empty() {
                    p.empty { "There are no objects." }
                } @else {
                    pre.source tabindex="0" role="region" aria-labelledby="running" { (text) }
                }
            }
        }
        @if may_change {
            section aria-labelledby="edit" data-needs-script="" {
                h2 id="edit" { "Change the objects of the API" }
                p { "Edit the document, look at the plan, then apply it. Objects of the file and the command line are not in it." }
                (editor(frame, content.of_api))
            }
            @if frame.status.config_file.is_some() {
                section aria-labelledby="reload" data-needs-script="" {
                    h2 id="reload" { "Read the file again" }
                    (planned("reload-file", "POST", "/api/v1/config:reload", &html! {}))
                }
            }
        }
        section aria-labelledby="revisions" {
            h2 id="revisions" { "Revisions" }
            div id="part-revisions" data-part="" { (revisions(frame, content.revisions)) }
        }
    };
    page(frame, Section::Configuration, "Configuration", &body)
}

/// A change that shows its plan first.
fn planned(id: &str, method: &str, path: &str, fields: &Markup) -> Markup {
    html! {
        form.planned id=(id) data-needs-script="" data-method=(method) data-path=(path) novalidate {
            (fields)
            p.problem role="alert" {}
            div.plan data-plan="" tabindex="-1" role="status" {}
            div.buttons {
                button type="submit" data-step="plan" { "Show the plan" }
                button.primary type="submit" data-step="apply" hidden { "Apply the plan" }
            }
        }
    }
}

fn editor(frame: &Frame<'_>, document: &Document) -> Markup {
    // Maps with texts for keys have a JSON form.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    let fields = html! {
        div.field {
            label for="document" { "Document (JSON)" }
            textarea id="document" name="document" rows="16" spellcheck="false" autocomplete="off" data-document="" aria-describedby="document-hint" { (text) }
            p.hint id="document-hint" { "As of revision " (frame.status.revision.0) ". Removing what sessions use is refused unless they may drain." }
        }
        div.field {
            label.flag for="editor-drain" { input id="editor-drain" name="drain" type="checkbox" data-in="query"; " Let sessions that use removed objects drain" }
        }
    };
    planned("editor", "PUT", "/api/v1/config", &fields)
}

fn revisions(frame: &Frame<'_>, revisions: &[RevisionInfo]) -> Markup {
    let may_change = frame.viewer.may(Role::Admin);
    html! {
        @if revisions.is_empty() {
            p.empty { "The configuration has not been changed." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="revisions" {
                table.list {
                    thead { tr {
                        th.number scope="col" { "Revision" }
                        th scope="col" { "Time (UTC)" }
                        th scope="col" { "By" }
                        th scope="col" { "Steps" }
                        @if may_change { th scope="col" data-needs-script="" { span.hidden { "Change" } } }
                    } }
                    tbody {
                        @for revision in revisions.iter().take(ROWS_MAX) {
                            @let number = revision.revision.0;
                            tr {
                                th.number scope="row" { (number) }
                                td.time { (figures::moment(revision.time_ms)) }
                                td { (revision.caller.name) }
                                td { (revision.steps.join("; ")) }
                                @if may_change {
                                    td.act data-needs-script="" {
                                        @if revision.revision != frame.status.revision { (rollback(number)) }
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

fn rollback(number: u64) -> Markup {
    let (id, title) = (
        format!("rollback-{number}"),
        format!("rollback-{number}-title"),
    );
    let path = format!("/api/v1/config/revisions/{number}:rollback");
    html! {
        button.quiet type="button" data-opens=(id) aria-haspopup="dialog" { "Roll back" span.hidden { " to revision " (number) } }
        dialog id=(id) aria-labelledby=(title) {
            h2 id=(title) { "Roll back to revision " (number) }
            p { "The objects of the API become what they were then." }
            (planned(&format!("{id}-form"), "POST", &path, &html! {}))
            div.buttons { button type="button" data-close="" { "Close" } }
        }
    }
}
