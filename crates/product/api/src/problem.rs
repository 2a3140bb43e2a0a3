//! Errors as the API tells them (RFC 9457, `application/problem+json`).

use std::fmt;
use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Problem {
    pub code: ProblemCode,
    /// What is wrong, in one sentence.
    pub title: String,
    /// What it is about: `volume a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// File, line and column: `longshore.toml:12:8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Further problems of the same request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Problem>,
}

impl Problem {
    #[must_use]
    pub fn new(code: ProblemCode, title: impl Into<String>) -> Self {
        Self {
            code,
            title: title.into(),
            object: None,
            location: None,
            advice: None,
            further: Vec::new(),
        }
    }

    #[must_use]
    pub fn about(mut self, object: impl fmt::Display) -> Self {
        self.object = Some(object.to_string());
        self
    }

    #[must_use]
    pub fn at(mut self, location: impl fmt::Display) -> Self {
        self.location = Some(location.to_string());
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.title)?;
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        for problem in &self.further {
            write!(f, "\n{problem}")?;
        }
        Ok(())
    }
}

/// The kinds of problems. Each is one status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemCode {
    /// 400: the request cannot be understood.
    BadRequest,
    /// 401: no valid token.
    Unauthenticated,
    /// 403: the token's role does not allow it.
    Forbidden,
    /// 404: there is no such object.
    NotFound,
    /// 405: the resource has no such method.
    MethodNotAllowed,
    /// 409: another owner describes the object.
    OtherOwner,
    /// 409: sessions use it.
    InUse,
    /// 409: it is there already, and is another.
    Exists,
    /// 409: another change is being carried out.
    Busy,
    /// 409: the server has no state directory to store it in.
    NoStateDirectory,
    /// 413: the request is too large.
    TooLarge,
    /// 412: the revision is another one.
    RevisionChanged,
    /// 422: what is asked for cannot be served.
    Invalid,
    /// 507: no space for what must be stored.
    NoSpace,
    /// 500: the system refused something.
    System,
    /// 503: the server is stopping, or does not answer.
    Unavailable,
}

impl ProblemCode {
    /// Of what could not be stored.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::System,
        }
    }

    /// The status code of HTTP.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::OtherOwner | Self::InUse | Self::Exists | Self::Busy | Self::NoStateDirectory => {
                409
            }
            Self::RevisionChanged => 412,
            Self::TooLarge => 413,
            Self::Invalid => 422,
            Self::System => 500,
            Self::Unavailable => 503,
            Self::NoSpace => 507,
        }
    }
}
