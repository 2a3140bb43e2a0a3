//! What all pages share: head, navigation, who looks, and the state of the server.

use longshore_api::access::Role;
use longshore_api::state::Status;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::assets;

/// Colours that a viewer chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Those of the system.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    /// By the name that the script writes into the cookie.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        match name {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// Who looks at a page.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// `uid 0`, `token ci`
    pub name: String,
    pub role: Role,
    pub theme: Theme,
    /// There is a cookie to give back.
    pub can_log_out: bool,
}

impl Viewer {
    pub(crate) const fn may(&self, needed: Role) -> bool {
        self.role.allows(needed)
    }
}

/// What all pages show.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub viewer: &'a Viewer,
    pub status: &'a Status,
    /// Now, by the clock of the server.
    pub time_ms: u64,
}

/// The entries of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Overview,
    Volumes,
    Targets,
    Sessions,
    Cores,
    Pipeline,
    Events,
    Configuration,
}

impl Section {
    const ALL: [Self; 8] = [
        Self::Overview,
        Self::Volumes,
        Self::Targets,
        Self::Sessions,
        Self::Cores,
        Self::Pipeline,
        Self::Events,
        Self::Configuration,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Volumes => "Volumes",
            Self::Targets => "Targets",
            Self::Sessions => "Sessions",
            Self::Cores => "Cores",
            Self::Pipeline => "Pipeline",
            Self::Events => "Events",
            Self::Configuration => "Configuration",
        }
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Volumes => "/ui/volumes",
            Self::Targets => "/ui/targets",
            Self::Sessions => "/ui/sessions",
            Self::Cores => "/ui/cores",
            Self::Pipeline => "/ui/pipeline",
            Self::Events => "/ui/events",
            Self::Configuration => "/ui/configuration",
        }
    }

    /// Lines of a drawing of 20 by 20.
    const fn icon(self) -> &'static str {
        match self {
            Self::Overview => "M3 3h6v8H3zM11 3h6v4h-6zM11 9h6v8h-6zM3 13h6v4H3z",
            Self::Volumes => {
                "M4 5.5c0-3.3 12-3.3 12 0s-12 3.3-12 0v9c0 3.3 12 3.3 12 0v-9M4 10c0 3.3 12 3.3 12 0"
            }
            Self::Targets => {
                "M10 3a7 7 0 1 0 .01 0M10 7a3 3 0 1 0 .01 0M10 1v4M10 15v4M1 10h4M15 10h4"
            }
            Self::Sessions => "M3 4h14v9H3zM7 17h6M10 13v4",
            Self::Cores => "M6 6h8v8H6zM8 3v3M12 3v3M8 14v3M12 14v3M3 8h3M3 12h3M14 8h3M14 12h3",
            Self::Pipeline => "M3 6h10M11 3l3 3-3 3M17 14H7M9 11l-3 3 3 3",
            Self::Events => "M4 5h12M4 10h12M4 15h7",
            Self::Configuration => "M4 6h6M14 6h2M4 14h2M10 14h6M12 4v4M8 12v4",
        }
    }
}

/// The head of a document.
fn head(title: &str, status: Option<&Status>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Longshore" }
            link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
            link rel="stylesheet" href=(assets::path("uPlot.css"));
            link rel="stylesheet" href=(assets::path("dashboard.css"));
            @if status.is_some() {
                script src=(assets::path("uPlot.js")) defer {}
            }
            script type="module" src=(assets::path("dashboard.js")) {}
        }
    }
}

/// A drawing beside a word. It says nothing by itself.
fn icon(lines: &str) -> Markup {
    html! {
        svg.icon viewBox="0 0 20 20" aria-hidden="true" focusable="false" {
            path d=(lines);
        }
    }
}

/// The mark of the product: a crane over water.
fn mark() -> Markup {
    PreEscaped(
        "<svg class=\"mark\" viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\">\
         <path d=\"M5 16V4h13M5 7l4-3M15 4v4M13 8h4v4h-4z\"/>\
         <path class=\"water\" d=\"M2 20c2-2 4-2 6 0s4 2 6 0 4-2 6 0\"/></svg>"
            .to_owned(),
    )
}

/// A whole page of a section.
pub(crate) fn page(frame: &Frame<'_>, section: Section, title: &str, content: &Markup) -> String {
    let Frame { viewer, status, .. } = frame;
    let theme = viewer.theme.name();
    let is_well = status.health.alive && status.health.ready;
    let document = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme) {
            (head(title, Some(status)))
            body data-revision=(status.revision.0) data-pid=(status.pid) {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    a.brand href="/" { (mark()) span { "Longshore" } }
                    p.health id="part-health" data-part="" {
                        @if is_well {
                            span.state.up { "serving" }
                        } @else {
                            span.state.failed { "not ready" }
                        }
                        @if !status.needs_restart.is_empty() {
                            " " span.state.draining { "restart pending" }
                        }
                    }
                    div.who {
                        span.live data-needs-script="" {
                            span.dot data-live-state="off" aria-hidden="true" {}
                            span data-live-text="" { "connecting" }
                        }
                        label.theme data-needs-script="" {
                            span.hidden { "Colours" }
                            select id="theme" {
                                @for (value, text) in [("system", "System"), ("light", "Light"), ("dark", "Dark")] {
                                    option value=(value) selected[theme == value] { (text) }
                                }
                            }
                        }
                        span.viewer { span.name title=(viewer.name) { (viewer.name) } span.role { (viewer.role) } }
                        @if viewer.can_log_out {
                            form method="post" action="/logout" { button.quiet type="submit" { "Log out" } }
                        }
                    }
                }
                nav.sections aria-label="Sections" {
                    ul {
                        @for entry in Section::ALL {
                            li {
                                a href=(entry.path()) aria-current=[(entry == section).then_some("page")] {
                                    (icon(entry.icon())) (entry.title())
                                }
                            }
                        }
                    }
                    p.version { "Longshore " (status.version) br; (status.engine) ", process " (status.pid) }
                }
                main id="content" tabindex="-1" {
                    noscript {
                        p.notice { "Without JavaScript, pages can be read and do not change by themselves. Reload a page for new numbers; make changes with the command " code { "longshore" } "." }
                    }
                    (content)
                }
                p.hidden id="announcement" role="status" {}
            }
        }
    };
    document.into_string()
}

/// A page for those who are not logged in, or of a failure.
pub(crate) fn bare(theme: Theme, title: &str, content: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.name()) {
            (head(title, None))
            body.bare {
                main id="content" {
                    p.brand { (mark()) span { "Longshore" } }
                    (content)
                }
            }
        }
    };
    document.into_string()
}
