//! Errors of writes, as Linux numbers them.

use longshore_api::problem::{Problem, ProblemCode};

pub const ENOENT: i32 = 2;
pub const E2BIG: i32 = 7;
pub const EIO: i32 = 5;
pub const EACCES: i32 = 13;
pub const EBUSY: i32 = 16;
pub const EEXIST: i32 = 17;
pub const EINVAL: i32 = 22;
pub const ENOSPC: i32 = 28;
pub const EROFS: i32 = 30;
pub const EBADSLT: i32 = 57;
pub const EOPNOTSUPP: i32 = 95;
pub const ETIMEDOUT: i32 = 110;

/// Why a write does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    /// For the log: a write can tell a number alone.
    pub text: String,
}

impl Refusal {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { errno, text }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(EINVAL, text)
    }

    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self::new(EOPNOTSUPP, text)
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(ENOENT, text)
    }
}

/// The error of a write whose change was refused.
#[must_use]
pub const fn of_problem(problem: &Problem) -> i32 {
    match problem.code {
        ProblemCode::NotFound => ENOENT,
        ProblemCode::Exists => EEXIST,
        ProblemCode::InUse | ProblemCode::Busy | ProblemCode::RevisionChanged => EBUSY,
        ProblemCode::OtherOwner => EROFS,
        ProblemCode::Unauthenticated | ProblemCode::Forbidden => EACCES,
        ProblemCode::TooLarge => E2BIG,
        ProblemCode::NoSpace => ENOSPC,
        ProblemCode::Unavailable => ETIMEDOUT,
        ProblemCode::NoStateDirectory | ProblemCode::MethodNotAllowed => EOPNOTSUPP,
        ProblemCode::Invalid | ProblemCode::BadRequest => EINVAL,
        ProblemCode::System => EIO,
    }
}
