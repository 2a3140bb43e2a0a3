//! Pages for those who are not logged in, and of failures.

use longshore_api::problem::Problem;
use maud::html;

use crate::frame::{Theme, bare};

/// The way in. `refusal`: why the last try failed.
#[must_use]
pub fn log_in(theme: Theme, refusal: Option<&str>) -> String {
    let body = html! {
        h1 { "Log in" }
        @if let Some(refusal) = refusal { p.notice.bad role="alert" { (refusal) } }
        p { "On the server, " code { "longshore dashboard" } " prints a URL that logs a browser in once. Open it, or enter the code behind its " code { "#" } "." }
        form.login method="post" action="/login" {
            label for="code" { "Code" }
            input id="code" name="code" type="password" required autocomplete="off" spellcheck="false" aria-describedby="code-hint";
            p.hint id="code-hint" { "It is valid for two minutes and once." }
            button.primary type="submit" { "Log in" }
        }
    };
    bare(theme, "Log in", &body)
}

/// Why there is no page.
#[must_use]
pub fn failure(theme: Theme, problem: &Problem) -> String {
    let body = html! {
        h1 { (problem.title) }
        @if let Some(object) = &problem.object { p { (object) } }
        @if let Some(advice) = &problem.advice { p { (advice) } }
        p { a href="/" { "To the overview" } }
    };
    bare(theme, "Not shown", &body)
}
