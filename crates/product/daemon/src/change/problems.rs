//! What is wrong with a configuration, as the API tells it.

use longshore_api::problem::{Problem, ProblemCode};

use super::store::StoreError;
use crate::config::problem::{Problem as ConfigProblem, ProblemKind};

/// Why nothing was changed.
pub(super) type Refused = Box<Problem>;

/// The same, and whether the record has it already.
pub(super) struct Refusal {
    pub problem: Refused,
    pub is_recorded: bool,
}

impl Refusal {
    pub(super) const fn recorded(problem: Refused) -> Self {
        Self {
            problem,
            is_recorded: true,
        }
    }
}

impl From<Refused> for Refusal {
    fn from(problem: Refused) -> Self {
        Self {
            problem,
            is_recorded: false,
        }
    }
}

pub(super) fn of_config(problem: &ConfigProblem) -> Problem {
    let code = match &problem.kind {
        ProblemKind::FileUnreadable { .. } => ProblemCode::System,
        _ => ProblemCode::Invalid,
    };
    let told = Problem::new(code, problem.kind.to_string());
    let Some(at) = &problem.location else {
        return told;
    };
    let path = at.path.to_string_lossy();
    match path.strip_prefix("api:") {
        Some(object) => {
            let title = format!("{object}: {}", told.title);
            Problem::new(code, title).about(object)
        }
        None => told.at(format!("{path}:{}:{}", at.line, at.column)),
    }
}

/// Several as one with further ones.
pub(super) fn together(problems: impl IntoIterator<Item = Problem>) -> Result<(), Box<Problem>> {
    let mut problems = problems.into_iter();
    let Some(mut first) = problems.next() else {
        return Ok(());
    };
    first.further.extend(problems);
    Err(Box::new(first))
}

pub(super) fn of_store(error: &StoreError) -> Box<Problem> {
    let code = match error.is_no_space() {
        true => ProblemCode::NoSpace,
        false => ProblemCode::System,
    };
    Box::new(Problem::new(code, error.to_string()))
}
