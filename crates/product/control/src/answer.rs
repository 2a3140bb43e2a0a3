//! Answers: JSON documents with a version, and problems (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longshore_api::change::Revision;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::problem::{Problem, ProblemCode};
use serde::Serialize;

/// What a handler gives: a response, or why not.
pub(crate) type Answer = Result<Response, Failure>;

/// A problem as a response.
#[derive(Debug)]
pub(crate) struct Failure(Box<Problem>);

impl Failure {
    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }

    pub(crate) fn code(&self) -> ProblemCode {
        self.0.code
    }
}

impl From<Box<Problem>> for Failure {
    fn from(problem: Box<Problem>) -> Self {
        Self(problem)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// The members of RFC 9457 with ours.
#[derive(Serialize)]
struct ProblemDocument<'a> {
    r#type: String,
    status: u16,
    #[serde(flatten)]
    problem: &'a Problem,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.0.code.status();
        let code = serde_json::to_value(self.0.code).unwrap_or_default();
        let document = ProblemDocument {
            r#type: format!("urn:longshore:problem:{}", code.as_str().unwrap_or("other")),
            status,
            problem: &self.0,
        };
        let mut response = bytes("application/problem+json", to_json(&document));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.0.code == ProblemCode::Unauthenticated {
            let challenge = HeaderValue::from_static("Bearer realm=\"longshore\"");
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// A document of its own.
pub(crate) fn document(body: impl Serialize) -> Response {
    json(&Versioned::new(body))
}

/// A document and the revision that it belongs to.
pub(crate) fn at_revision(revision: Revision, body: impl Serialize) -> Response {
    with_revision(document(body), revision)
}

pub(crate) fn list<T: Serialize>(items: Vec<T>) -> Response {
    json(&Listing::new(items))
}

/// Adds the revision, which a change can name in `If-Match`.
pub(crate) fn with_revision(mut response: Response, Revision(revision): Revision) -> Response {
    if let Ok(value) = HeaderValue::try_from(format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

pub(crate) fn json(body: &impl Serialize) -> Response {
    bytes("application/json", to_json(body))
}

/// Types of the API are maps with texts for keys: they have a JSON form.
fn to_json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_else(|error| {
        tracing::error!("an answer has no JSON form: {error}");
        b"{}".to_vec()
    })
}

pub(crate) fn bytes(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// A task of the API has panicked or was given up.
pub(crate) fn unavailable(title: &str) -> Failure {
    let problem = Problem::new(ProblemCode::Unavailable, title);
    problem
        .advise("try again; the log of the server says more")
        .into()
}
