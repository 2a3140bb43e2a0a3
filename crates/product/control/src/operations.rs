//! Changes whose volumes still drain after their request was answered.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use longshore_api::change::{Applied, Revision};
use longshore_api::object::{Object, ObjectState};
use longshore_api::operation::{Operation, OperationState};

/// Operations that are remembered.
const OPERATIONS_MAX: usize = 256;

/// The operations of this process.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<VecDeque<(Revision, Vec<String>)>>);

impl Operations {
    /// Remembers a change that goes on. Returns its name.
    pub(crate) fn begin(&self, applied: &Applied) -> String {
        let mut operations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if operations.len() == OPERATIONS_MAX {
            operations.pop_front();
        }
        operations.push_back((applied.revision, applied.draining.clone()));
        applied.revision.0.to_string()
    }

    /// How far it has come, given the volumes as they are now.
    pub(crate) fn get(&self, id: &str, volumes: &[Object]) -> Option<Operation> {
        let wanted = Revision(id.parse().ok()?);
        let operations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (revision, names) = operations.iter().rev().find(|(it, _)| *it == wanted)?;
        let is_ending = |object: &&Object| {
            let ends = [ObjectState::Draining, ObjectState::Stuck];
            ends.contains(&object.state) && names.contains(&object.id.name)
        };
        let draining: Vec<String> = volumes
            .iter()
            .filter(is_ending)
            .map(|object| object.id.name.clone())
            .collect();
        Some(Operation {
            id: id.to_owned(),
            state: if draining.is_empty() {
                OperationState::Done
            } else {
                OperationState::Running
            },
            revision: *revision,
            draining,
        })
    }
}
