//! What is asked for and served at one time.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_api::change::Revision;
use longshore_api::object::{Keys, Object, ObjectId, ObjectKind, ObjectState};
use longshore_api::state::Session;

use super::super::exports::OpenVolumes;
use super::super::keys;
use super::super::listening::Listening;
use super::super::objects::{Described, Objects};
use crate::config::Config;
use crate::config::file::ConfigFile;
use crate::config::transmit::TransmitConfig;

/// What is asked for and served at one time.
#[derive(Clone)]
pub(super) struct Now {
    pub(super) revision: Revision,
    pub(super) file: Option<Arc<ConfigFile>>,
    pub(super) settings: Arc<Keys>,
    pub(super) objects: Arc<Objects>,
    pub(super) config: Arc<Config>,
    pub(super) open: Arc<OpenVolumes>,
    pub(super) listening: Arc<Listening>,
    pub(super) needs_restart: Vec<String>,
    pub(super) transmit: TransmitConfig,
}

impl Now {
    pub(super) fn object(&self, id: &ObjectId, described: &Described, uses: &Uses<'_>) -> Object {
        let mut facts = Keys::new();
        let mut state = match described.is_enabled() {
            true => ObjectState::Up,
            false => ObjectState::Disabled,
        };
        let used = uses.get(&*id.name).copied().unwrap_or(0);
        facts.insert("sessions".to_owned(), used.into());
        if let Some(volume) = self
            .open
            .get(&id.name)
            .filter(|_| id.kind == ObjectKind::Volume)
        {
            let (identity, geometry) = (volume.identity(), volume.geometry());
            facts.insert("size-bytes".to_owned(), geometry.size_bytes().into());
            facts.insert("block-size".to_owned(), geometry.block_size.into());
            facts.insert("uuid".to_owned(), identity.uuid.to_string().into());
            facts.insert("serial".to_owned(), identity.serial.clone().into());
            let condition = volume.condition();
            if !condition.is_sound() {
                state = ObjectState::Failed;
                facts.insert("failure".to_owned(), condition.to_string().into());
            }
        }
        Object {
            id: id.clone(),
            owner: described.owner,
            state,
            location: described.location.clone(),
            keys: keys::without_secrets(&described.keys),
            facts,
        }
    }
}

/// Sessions that use an object, by its name.
pub(super) type Uses<'a> = HashMap<&'a str, usize>;

/// Sessions that use objects of a kind.
pub(super) fn uses(kind: ObjectKind, sessions: &[Session]) -> Uses<'_> {
    let mut uses = Uses::new();
    for session in sessions {
        let used = match kind {
            ObjectKind::Volume => &session.volumes[..],
            ObjectKind::Target | ObjectKind::Subsystem => std::slice::from_ref(&session.target),
            ObjectKind::Setting => &[],
        };
        for name in used {
            *uses.entry(name).or_default() += 1;
        }
    }
    uses
}
