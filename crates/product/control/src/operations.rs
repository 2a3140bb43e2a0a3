//! Changes whose volumes still drain after their request was answered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use longshore_api::change::{Applied, Revision};
use longshore_api::object::{Object, ObjectState};
use longshore_api::operation::{Operation, OperationState};
use longshore_api::plane::ControlPlane;

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

    /// How far it has come.
    pub(crate) fn get(&self, id: &str, plane: &dyn ControlPlane) -> Option<Operation> {
        let wanted = Revision(id.parse().ok()?);
        let names = {
            let operations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = operations.iter().rev().find(|(it, _)| *it == wanted);
            found?.1.clone()
        };
        let volumes = plane.objects(longshore_api::object::ObjectKind::Volume);
        // Asked last: a volume that is closed by now has told what became of it.
        let failures = plane.failed_flushes(wanted);
        Some(operation(id, wanted, &names, &volumes, &failures))
    }
}

fn operation(
    id: &str,
    revision: Revision,
    names: &[String],
    volumes: &[Object],
    failures: &BTreeMap<String, String>,
) -> Operation {
    let leaving = |wanted: ObjectState| {
        let ours = volumes.iter().filter(|it| names.contains(&it.id.name));
        let ours = ours.filter(move |it| it.state == wanted);
        ours.map(|it| it.id.name.clone())
    };
    let mut draining: Vec<String> = leaving(ObjectState::Draining).collect();
    let is_running = !draining.is_empty();
    draining.extend(leaving(ObjectState::Stuck));
    draining.sort();
    let waits_for = volumes.iter().filter(|it| draining.contains(&it.id.name));
    let waits_for = waits_for.filter_map(|it| {
        let text = it.facts.get("waits-for")?.as_str()?;
        Some((it.id.name.clone(), text.to_owned()))
    });
    let waits_for = waits_for.collect();
    let failure = failures.iter().map(|(volume, reason)| {
        format!("volume {volume} may have lost what was written: its last flush failed: {reason}")
    });
    let failure: Vec<String> = failure.collect();
    Operation {
        id: id.to_owned(),
        state: match (is_running, draining.is_empty(), failure.is_empty()) {
            (true, ..) => OperationState::Running,
            (false, false, _) => OperationState::Stuck,
            (false, true, false) => OperationState::Failed,
            (false, true, true) => OperationState::Done,
        },
        revision,
        draining,
        waits_for,
        failure: (!failure.is_empty()).then(|| failure.join("; ")),
    }
}
