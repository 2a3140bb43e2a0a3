//! What a write asks for.

use longshore_api::object::{Keys, ObjectId};

use crate::map::CopyMap;
use crate::state::Tuned;

/// What a write asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is so already.
    Nothing,
    /// Objects of the API get these keys, or go (`None`): all or none of them.
    Objects {
        objects: Vec<(ObjectId, Option<Keys>)>,
        /// What must not be there yet.
        create: bool,
        /// Hosts may find another volume under a number that they know.
        replace: bool,
    },
    /// A volume that nobody uses is closed, and opened with these keys: who has it open knows it by its old names.
    Reopen {
        id: ObjectId,
        keys: Keys,
    },
    /// A setting of SCST as a whole gets this value, which has no effect beyond what is shown.
    Setting {
        name: &'static str,
        value: u64,
    },
    /// An attribute of a target or a group gets this value, which has no effect beyond what is shown. `None`: that of the
    /// beginning.
    Tune {
        what: Tuned,
        value: Option<String>,
    },
    /// The map of the copy manager becomes this one.
    Copies(CopyMap),
    CloseSession(String),
    /// The size of a volume is read again.
    Refresh(String),
}

impl Change {
    pub(crate) fn put(id: ObjectId, keys: Keys) -> Self {
        Self::objects(vec![(id, Some(keys))])
    }

    pub(crate) const fn objects(objects: Vec<(ObjectId, Option<Keys>)>) -> Self {
        Self::Objects {
            objects,
            create: false,
            replace: false,
        }
    }
}

/// A change, and what of the command has no effect here.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub change: Change,
    /// What the log says of the change.
    pub ignored: Vec<String>,
}

impl From<Change> for Wanted {
    fn from(change: Change) -> Self {
        Self {
            change,
            ignored: Vec::new(),
        }
    }
}
