//! Changes of objects: what a wish makes of those of the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_api::change::Wish;
use longshore_api::object::{Document, Keys, ObjectId, ObjectKind, Owner};
use longshore_api::problem::{Problem, ProblemCode};

use super::super::objects::{self, Described};
use super::super::problems::{self, Refused};
use super::super::{keys, plan};
use super::now::Now;
use super::parts::Plane;
use crate::config::file::ConfigFile;

/// What a wish asks for.
pub(super) struct Wanted {
    pub(super) file: Option<Arc<ConfigFile>>,
    /// The file was read again.
    pub(super) is_file_new: bool,
    pub(super) api: BTreeMap<ObjectId, Arc<Described>>,
}

impl Plane {
    /// The objects that a wish asks for.
    pub(super) fn wanted(&self, now: &Now, wish: &Wish) -> Result<Wanted, Refused> {
        let mut wanted = Wanted {
            file: now.file.clone(),
            is_file_new: false,
            api: plan::owned_by(&now.objects, Owner::Api),
        };
        let named = match wish {
            Wish::Put { id, .. }
            | Wish::Patch { id, .. }
            | Wish::Enable { id, .. }
            | Wish::Remove { id } => Some(objects::normal_id(id)),
            Wish::Replace(_) | Wish::ReadFile | Wish::Rollback(_) => None,
        };
        match wish {
            Wish::ReadFile => {
                if let Some(file) = &now.file {
                    let file = ConfigFile::load(&file.path);
                    let file = file.map_err(|problem| Box::new(problems::of_config(&problem)))?;
                    wanted.file = Some(Arc::new(file));
                    wanted.is_file_new = true;
                }
            }
            Wish::Replace(document) => wanted.api = replaced(now, document, &wanted.api)?,
            Wish::Rollback(revision) => {
                let document = self.stored(*revision)?;
                wanted.api = replaced(now, &document, &wanted.api)?;
            }
            Wish::Put { keys, .. } => {
                let id = &named.expect("a wish with an object");
                put(now, &mut wanted.api, id, keys.clone())?;
            }
            Wish::Patch { patch, .. } => {
                let id = &named.expect("a wish with an object");
                let before = changeable(now, id)?;
                let mut keys = match before {
                    Some(before) => before.keys.clone(),
                    // Settings have their values whether somebody describes them or not.
                    None if id.kind == ObjectKind::Setting => Keys::new(),
                    None => return Err(unknown(id)),
                };
                keys::merge(&mut keys, patch);
                put(now, &mut wanted.api, id, keys)?;
            }
            Wish::Enable { enabled, .. } => {
                let id = &named.expect("a wish with an object");
                let before = changeable(now, id)?.ok_or_else(|| unknown(id))?;
                let mut keys = before.keys.clone();
                match enabled {
                    true => keys.remove("enabled"),
                    false => keys.insert("enabled".to_owned(), false.into()),
                };
                put(now, &mut wanted.api, id, keys)?;
            }
            Wish::Remove { .. } => {
                let id = &named.expect("a wish with an object");
                remove(now, &mut wanted.api, id)?;
            }
        }
        Ok(wanted)
    }
}

/// An object that the API may change, if there is one of that name.
fn changeable<'a>(now: &'a Now, id: &ObjectId) -> Result<Option<&'a Described>, Refused> {
    let Some(object) = now.objects.get(id) else {
        return Ok(None);
    };
    if object.owner == Owner::Api || object.is_default {
        return Ok(Some(object));
    }
    let (title, advice) = match &object.location {
        Some(_) => (
            format!("{id} is described by the configuration file"),
            "change it there and reload the file (SIGHUP), or take it out of the file first",
        ),
        None => (
            format!("{id} is described on the command line"),
            "change the command line and start the server again",
        ),
    };
    let mut problem = Problem::new(ProblemCode::OtherOwner, title).about(id);
    problem.location.clone_from(&object.location);
    Err(Box::new(problem.advise(advice)))
}

fn unknown(id: &ObjectId) -> Refused {
    let problem = Problem::new(ProblemCode::NotFound, format!("there is no {id}")).about(id);
    Box::new(problem.advise(format!("see `longshore {} list`", id.kind)))
}

/// Puts an object of the API in its place, or adds it.
fn put(
    now: &Now,
    api: &mut BTreeMap<ObjectId, Arc<Described>>,
    id: &ObjectId,
    mut keys: Keys,
) -> Result<(), Refused> {
    let before = changeable(now, id)?;
    keys::restore_secrets(id, &mut keys, before.map(|object| &object.keys))?;
    let object = Described::of_api(id, keys)?;
    if id.kind == ObjectKind::Setting && object.keys.is_empty() {
        // Without keys it says nothing, and would yet keep the file from saying something.
        api.remove(id);
        return Ok(());
    }
    // The same object has no new text to be read.
    let is_same = api.get(id).is_some_and(|old| old.keys == object.keys);
    if !is_same {
        api.insert(id.clone(), object);
    }
    Ok(())
}

fn remove(
    now: &Now,
    api: &mut BTreeMap<ObjectId, Arc<Described>>,
    id: &ObjectId,
) -> Result<(), Refused> {
    let object = changeable(now, id)?.ok_or_else(|| unknown(id))?;
    if object.is_default {
        let title = format!("{id} is there by default");
        let problem = Problem::new(ProblemCode::OtherOwner, title).about(id);
        return Err(Box::new(problem.advise(format!(
            "disable it with `longshore {} disable`, or describe another {} in the configuration file",
            id.kind, id.kind
        ))));
    }
    api.remove(id);
    if id.kind == ObjectKind::Volume {
        let others: Vec<(ObjectId, Keys)> = api
            .iter()
            .filter_map(|(other, object)| {
                let left = plan::without_volume(&object.keys, &id.name)?;
                Some((other.clone(), left))
            })
            .collect();
        for (other, keys) in others {
            let object = Described::of_api(&other, keys)?;
            api.insert(other, object);
        }
    }
    Ok(())
}

/// The objects of the API if they are those of a document.
fn replaced(
    now: &Now,
    document: &Document,
    before: &BTreeMap<ObjectId, Arc<Described>>,
) -> Result<BTreeMap<ObjectId, Arc<Described>>, Refused> {
    let mut api = BTreeMap::new();
    let mut found = Vec::new();
    for kind in ObjectKind::ALL {
        for (name, keys) in document.of_kind(kind) {
            let name = name.clone();
            let id = objects::normal_id(&ObjectId { kind, name });
            if let Some(old) = before.get(&id) {
                api.insert(id.clone(), Arc::clone(old));
            }
            // What the file says alike is the file's.
            if let Some(other) = now.objects.get(&id)
                && other.owner != Owner::Api
                && (other.keys == *keys || keys::without_secrets(&other.keys) == *keys)
            {
                continue;
            }
            if let Err(problem) = put(now, &mut api, &id, keys.clone()) {
                found.push(*problem);
            }
        }
    }
    problems::together(found)?;
    Ok(api)
}
