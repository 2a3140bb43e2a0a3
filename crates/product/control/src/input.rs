//! What requests bring: bodies of JSON, options of changes.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{CONTENT_LENGTH, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use longshore_api::change::{ChangeOptions, Revision};
use longshore_api::problem::{Problem, ProblemCode};
use serde::de::DeserializeOwned;

use crate::answer::Failure;

/// Longest body: a document of some 10,000 volumes and 1,000 targets has a tenth of it.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;
/// So long a body may take to come.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of a body, which may have any content.
pub(crate) struct Body(pub Bytes);

/// A body of JSON.
pub(crate) struct Input<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Input<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Body(body) = Body::from_request(request, state).await?;
        parse(&body).map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > BODY_BYTES_MAX) {
            return Err(too_large());
        }
        let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state));
        match body.await {
            Err(_) => Err(bad_request("the body did not come in time")),
            Ok(Err(error)) if error.status().as_u16() == 413 => Err(too_large()),
            Ok(Err(error)) => Err(bad_request(error.body_text())),
            Ok(Ok(body)) => Ok(Self(body)),
        }
    }
}

/// Reads the document of a body.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let problem = Problem::new(
            ProblemCode::BadRequest,
            "the body is not what is expected here",
        );
        let problem = problem.at(format_args!("body:{line}:{column}"));
        // The library's text may repeat a value, and that may be a secret.
        let advice = match error.classify() {
            serde_json::error::Category::Data => "correct the keys and values; see /openapi.json",
            _ => "send one JSON document",
        };
        problem.advise(advice).into()
    })
}

fn too_large() -> Failure {
    let title = format!("the body is longer than {} MiB", BODY_BYTES_MAX >> 20);
    Problem::new(ProblemCode::TooLarge, title).into()
}

pub(crate) fn bad_request(title: impl Into<String>) -> Failure {
    Problem::new(ProblemCode::BadRequest, title).into()
}

/// How a change is asked for: `?drain`, `?force`, `?replace`, `?dry-run`, `If-Match` and `If-None-Match: *`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub options: ChangeOptions,
    /// Only the plan is wanted.
    pub dry_run: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let mut asked = Self::default();
        for (name, value) in query(parts.uri.query().unwrap_or_default()) {
            let value = match value.as_str() {
                "" | "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(bad_request(format!("`{name}` is true or false"))),
            };
            match name.as_str() {
                "drain" => asked.options.drain = value,
                "force" => asked.options.force = value,
                "replace" => asked.options.replace = value,
                "dry-run" => asked.dry_run = value,
                _ => {
                    let text =
                        format!("`{name}` is no option here; use drain, force, replace or dry-run");
                    return Err(bad_request(text));
                }
            }
        }
        if let Some(revision) = parts.headers.get(IF_MATCH) {
            let text = revision.to_str().unwrap_or_default();
            asked.options.revision = if_match(text)?;
        }
        if let Some(tag) = parts.headers.get(IF_NONE_MATCH) {
            if tag.as_bytes().trim_ascii() != b"*" {
                let text = "If-None-Match is `*` here: change only what is not there yet";
                return Err(bad_request(text));
            }
            asked.options.create = true;
        }
        Ok(asked)
    }
}

/// The revision of an `If-Match`; `*`: any.
fn if_match(text: &str) -> Result<Option<Revision>, Failure> {
    if text.trim() == "*" {
        return Ok(None);
    }
    let digits = text.trim().strip_prefix("W/").unwrap_or(text.trim());
    let number = digits.trim_matches('"').parse();
    number
        .map(|number| Some(Revision(number)))
        .map_err(|_| bad_request("If-Match is not a revision; send the ETag of an earlier answer"))
}

/// Names and values of a query.
pub(crate) fn query(text: &str) -> Vec<(String, String)> {
    pairs(text).collect()
}

/// The same, one after the other.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_encoding::percent_decode_str(&text);
        decoded.decode_utf8_lossy().into_owned()
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_a_revision() {
        assert_eq!(if_match("\"12\"").unwrap(), Some(Revision(12)));
        assert_eq!(if_match("W/\"12\"").unwrap(), Some(Revision(12)));
        assert_eq!(if_match("12").unwrap(), Some(Revision(12)));
        assert_eq!(if_match("*").unwrap(), None);
        assert!(if_match("\"x\"").is_err());
    }

    #[test]
    fn a_query_is_decoded() {
        assert_eq!(
            query("topics=a%2Cb&drain"),
            [
                ("topics".to_owned(), "a,b".to_owned()),
                ("drain".to_owned(), String::new())
            ]
        );
        assert!(query("").is_empty());
    }
}
