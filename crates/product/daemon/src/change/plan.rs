//! The difference of two states as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use longshore_api::change::{Action, KeyChange, Plan, Step};
use longshore_api::object::{DISCOVERY, Keys, ObjectId, ObjectKind, Owner};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::Session;
use longshore_iscsi::server::directory::{Authentication, ChapAccount};
use longshore_pool::PoolOptions;
use longshore_server::config::{SubsystemConfig, TargetConfig};
use serde_json::Value;

use super::exports::Views;
use super::keys;
use super::objects::{Described, Objects};
use crate::backends;
use crate::config::Config;
use crate::config::size::Size;

/// Settings of the file outside of objects that take effect while the server runs.
const TAKEN_OVER: [&str; 8] = [
    "engine.transmit",
    "engine.nagle-",
    "engine.send",
    "discovery.",
    "iscsi.",
    "pool",
    LISTENERS[0],
    LISTENERS[1],
];

/// Settings of listeners, which come and go by themselves. `listen.nvme-discovery` is one of them.
const LISTENERS: [&str; 2] = ["listen.iscsi", "listen.nvme"];

/// Keys of a volume that can change while it is open.
const IN_PLACE: [&str; 13] = [
    "size",
    "read-only",
    "enabled",
    "max-iops",
    "max-read-iops",
    "max-write-iops",
    "max-bytes",
    "max-read-bytes",
    "max-write-bytes",
    "burst",
    "compression",
    "quota",
    "reserve",
];

/// The steps from one state to another, in the order in which they are carried out: volumes come before the maps that need
/// them, and go after the maps that had them.
pub(super) fn steps(before: &Objects, after: &Objects) -> Vec<Step> {
    let mut added = Vec::new();
    let mut changed = Vec::new();
    let mut removed = Vec::new();
    // Both are in the order of their names, so that one walk over both finds what belongs together.
    let mut old_objects = before.0.iter().peekable();
    let mut gone = Vec::new();
    for (id, object) in &after.0 {
        while let Some(only_old) = old_objects.next_if(|(old, _)| *old < id) {
            gone.push(only_old);
        }
        let old = old_objects.next_if(|(old, _)| *old == id);
        match old.map(|(_, old)| old) {
            None if object.is_default => {}
            None => added.push(step(Action::Add, id, object, &Keys::new(), &object.normal)),
            Some(old) => {
                let is_same = std::sync::Arc::ptr_eq(old, object);
                let changes = match is_same {
                    true => Vec::new(),
                    false => keys::differences(&old.normal, &object.normal),
                };
                if !changes.is_empty() {
                    changed.push(step_of(Action::Change, id, object, changes));
                } else if old.owner != object.owner {
                    changed.push(step_of(Action::Adopt, id, object, Vec::new()));
                }
            }
        }
    }
    for (id, object) in gone.into_iter().chain(old_objects) {
        if !object.is_default {
            removed.push(step(
                Action::Remove,
                id,
                object,
                &object.normal,
                &Keys::new(),
            ));
        }
    }
    // Those of the file are told as settings.
    let is_told = |step: &Step| step.id.kind != ObjectKind::Setting || step.owner == Owner::Api;
    let place = |step: &Step| match (step.action, step.id.kind) {
        (Action::Add, ObjectKind::Volume) => 0,
        (Action::Change | Action::Adopt, ObjectKind::Volume) => 1,
        (Action::Add, _) => 2,
        (Action::Change | Action::Adopt, _) => 3,
        (Action::Remove, ObjectKind::Target | ObjectKind::Subsystem | ObjectKind::Setting) => 4,
        (Action::Remove, ObjectKind::Volume) => 5,
    };
    let mut steps: Vec<Step> = added.into_iter().chain(changed).chain(removed).collect();
    steps.retain(is_told);
    steps.sort_by_key(place);
    steps
}

fn step(action: Action, id: &ObjectId, object: &Described, before: &Keys, after: &Keys) -> Step {
    step_of(action, id, object, keys::differences(before, after))
}

fn step_of(action: Action, id: &ObjectId, object: &Described, changes: Vec<KeyChange>) -> Step {
    Step {
        action,
        id: id.clone(),
        owner: object.owner,
        effect: effect(action, id.kind, &changes),
        changes,
    }
}

fn effect(action: Action, kind: ObjectKind, changes: &[KeyChange]) -> Option<String> {
    let starts = |prefixes: &[&str]| {
        changes
            .iter()
            .any(|change| prefixes.iter().any(|prefix| change.key.starts_with(prefix)))
    };
    let effect = match (action, kind) {
        (Action::Remove, ObjectKind::Volume) => "accepted commands end first; the data stay",
        (Action::Remove, ObjectKind::Target | ObjectKind::Subsystem) => "its sessions end",
        (_, ObjectKind::Setting) if starts(&["accounts", "mutual", "chap"]) => "for new sessions",
        (Action::Change, ObjectKind::Volume) if starts(&["size"]) => {
            "hosts are notified of the new size"
        }
        (Action::Change, ObjectKind::Volume) if starts(&["compression"]) => {
            "for what is written from now on"
        }
        (Action::Change, ObjectKind::Volume) if starts(&["enabled"]) => {
            "hosts are notified of added and removed numbers"
        }
        (Action::Change, ObjectKind::Target | ObjectKind::Subsystem)
            if starts(&["luns", "namespaces", "access", "enabled"]) =>
        {
            "hosts are notified of added and removed numbers"
        }
        (Action::Change, ObjectKind::Target) if starts(&["accounts", "mutual", "chap"]) => {
            "for new logins"
        }
        (Action::Change, ObjectKind::Target) if starts(&["iscsi", "alias"]) => "for new sessions",
        _ => return None,
    };
    Some(effect.to_owned())
}

/// The settings outside of objects that change: those that are taken over, and the keys of those that need a restart.
/// `started` is what the server was started with.
pub(super) fn settings(
    before: &Keys,
    after: &Keys,
    started: &Keys,
) -> (Vec<KeyChange>, Vec<String>) {
    let is_taken_over = |key: &str| {
        key == "listen.allow-open" || TAKEN_OVER.iter().any(|prefix| key.starts_with(prefix))
    };
    let mut taken_over = keys::differences(before, after);
    let is_listener = |key: &str| LISTENERS.iter().any(|prefix| key.starts_with(prefix));
    taken_over.retain(|change| is_taken_over(&change.key) && !is_listener(&change.key));
    let needs_restart = keys::differences(started, after);
    let needs_restart = needs_restart.into_iter().map(|change| change.key);
    let needs_restart = needs_restart.filter(|key| !is_taken_over(key)).collect();
    (taken_over, needs_restart)
}

/// Whether a volume has to be closed and opened again for these changes, and by which keys.
#[must_use]
pub fn replacing_keys(changes: &[KeyChange]) -> Vec<&str> {
    let replacing = changes
        .iter()
        .filter(|change| !IN_PLACE.contains(&&*change.key) && !names_the_same_pool(change));
    replacing.map(|change| &*change.key).collect()
}

/// Whether only the list of drives differs: of a pool that is open, to which drives were added or from which some were
/// removed.
fn names_the_same_pool(change: &KeyChange) -> bool {
    let drives = |value: &Option<Value>| {
        let text = value.as_ref()?.as_str()?;
        let drives = text.split('+').map(PathBuf::from);
        text.contains('/').then(|| drives.collect::<Vec<_>>())
    };
    change.key == "pool"
        && drives(&change.before)
            .zip(drives(&change.after))
            .is_some_and(|(before, after)| backends::are_of_one_pool(&before, &after))
}

/// Refuses what cannot be done while volumes are open, and what hosts would take for what they know.
///
/// `size_of` tells the size of an open volume.
pub(super) fn check(
    plan: &Plan,
    after: &Objects,
    configs: (&Config, &Config),
    sessions: &[Session],
    replace: bool,
    open: &dyn Fn(&str) -> Option<Open>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let located = |id: &ObjectId, title: String, advice: &str| {
        let mut problem = Problem::new(ProblemCode::Invalid, title).about(id);
        problem.location = after.get(id).and_then(|object| object.location.clone());
        problem.advise(advice)
    };
    let views = (Views::of(configs.0), Views::of(configs.1));
    for step in plan.steps.iter().filter(|it| it.action == Action::Change) {
        let id = &step.id;
        if id.kind != ObjectKind::Volume {
            let of_target = sessions.iter().filter(|session| session.target == id.name);
            let renumbered: BTreeSet<String> = of_target
                .flat_map(|session| views.0.renumbered(&views.1, session))
                .collect();
            if !renumbered.is_empty() && !replace {
                let renumbered: Vec<String> = renumbered.into_iter().collect();
                let title = format!(
                    "{id}: its hosts would confuse volumes: {}",
                    renumbered.join("; ")
                );
                problems.push(located(
                    id,
                    title,
                    "use another number, log the hosts out first, or use --replace. A volume with `enabled = false` \
                     keeps its number",
                ));
            }
            continue;
        }
        let Some(open) = open(&id.name) else { continue };
        let replacing = replacing_keys(&step.changes);
        if !replacing.is_empty() && !replace {
            let title = format!(
                "{id}: {} cannot change while it is served",
                replacing.join(", ")
            );
            problems.push(located(
                id,
                title,
                "remove the volume and add it again, or use --replace",
            ));
            continue;
        }
        let path = |config: &Config| {
            let mut volumes = config.volumes.iter();
            let source = volumes.find(|source| source.spec.name == id.name)?;
            Some(match source.spec.options::<PoolOptions>() {
                Some(pool) if !pool.drives.is_empty() => {
                    let name = pool.volume.clone().unwrap_or_else(|| id.name.clone());
                    (pool.drives.clone(), name)
                }
                _ => (vec![source.spec.path.clone()?], String::new()),
            })
        };
        if !replacing.is_empty() && path(configs.0).is_some_and(|it| path(configs.1) == Some(it)) {
            let title = format!(
                "{id}: {} cannot change while its file, its device or its volume of a pool is open",
                replacing.join(", ")
            );
            problems.push(located(
                id,
                title,
                "disable the volume, change it, and enable it",
            ));
            continue;
        }
        if replacing.is_empty() {
            problems.extend(
                check_size(id, step, &open).map(|(title, advice)| located(id, title, advice)),
            );
            let opens = |value: &Option<Value>| value.as_ref() != Some(&Value::Bool(true));
            let writes = step
                .changes
                .iter()
                .any(|change| change.key == "read-only" && opens(&change.after));
            if writes && open.read_only {
                let title = format!("{id}: it is open for reading only");
                problems.push(located(
                    id,
                    title,
                    "disable the volume, make it writable, and enable it",
                ));
            }
        }
    }
    problems
}

/// What is known of a volume that is open.
pub(super) struct Open {
    pub size_bytes: u64,
    /// It was opened for reading only.
    pub read_only: bool,
    /// Its size is what its keys say.
    pub grows: bool,
}

/// Why a volume cannot have the size that it is to have, and what to do.
fn check_size(id: &ObjectId, step: &Step, open: &Open) -> Option<(String, &'static str)> {
    let change = step.changes.iter().find(|change| change.key == "size")?;
    let size = match change.after.as_ref()? {
        Value::Number(number) => number.as_u64()?,
        Value::String(text) => Size::parse(text).ok()?.0,
        _ => return None,
    };
    if size < open.size_bytes {
        let title = format!(
            "{id}: it has {} and cannot shrink to {}",
            Size(open.size_bytes),
            Size(size)
        );
        return Some((
            title,
            "copy the data to a new, smaller volume, or keep the size",
        ));
    }
    if size > open.size_bytes && !open.grows {
        let title = format!("{id}: only volumes of files and of pools grow while they are served");
        return Some((
            title,
            "remove the volume and add it again, or use --replace",
        ));
    }
    None
}

/// Who uses what would go, one line each.
pub(super) fn users(configs: (&Config, &Config), sessions: &[Session]) -> Vec<String> {
    let views = (Views::of(configs.0), Views::of(configs.1));
    let losses = sessions.iter();
    losses
        .filter_map(|session| views.0.loss(&views.1, session))
        .collect()
}

/// Maps of API objects without a volume: what remains of them when it goes.
pub(super) fn without_volume(keys: &Keys, volume: &str) -> Option<Keys> {
    let mut left = keys.clone();
    let mut found = false;
    let mut clear = |keys: &mut Keys| {
        for map in ["luns", "namespaces"] {
            if let Some(Value::Array(entries)) = keys.get_mut(map) {
                let before = entries.len();
                entries.retain(|entry| entry.get("volume").and_then(Value::as_str) != Some(volume));
                found |= entries.len() != before;
            }
        }
    };
    clear(&mut left);
    if let Some(Value::Array(rules)) = left.get_mut("access") {
        rules
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(clear);
    }
    found.then_some(left)
}

/// Objects by the owner that has them now, for those that only may change them.
pub(super) fn owned_by(
    objects: &Objects,
    owner: Owner,
) -> BTreeMap<ObjectId, std::sync::Arc<Described>> {
    let owned = objects
        .0
        .iter()
        .filter(|(_, object)| object.owner == owner && !object.is_default);
    owned
        .map(|(id, object)| (id.clone(), std::sync::Arc::clone(object)))
        .collect()
}

/// Adds the targets and subsystems whose secrets have changed in files that keys name.
pub(super) fn add_secrets(plan: &mut Plan, after: &Objects, configs: (&Config, &Config)) {
    let old: BTreeMap<&str, &TargetConfig> = configs
        .0
        .targets
        .iter()
        .map(|target| (target.name.as_str(), target))
        .collect();
    for target in &configs.1.targets {
        let name = target.name.as_str();
        let Some(before) = old.get(name) else {
            continue;
        };
        if is_same_secret(before, target) || plan.steps.iter().any(|step| step.id.name == name) {
            continue;
        }
        let id = ObjectId {
            kind: ObjectKind::Target,
            name: name.to_owned(),
        };
        let Some(object) = after.get(&id) else {
            continue;
        };
        let change = KeyChange {
            key: "accounts".to_owned(),
            before: Some("set".into()),
            after: Some("set".into()),
        };
        plan.steps
            .push(step_of(Action::Change, &id, object, vec![change]));
    }
    for subsystem in &configs.1.subsystems {
        let name = subsystem.nqn.as_str();
        let mut before = configs.0.subsystems.iter();
        let Some(before) = before.find(|known| known.nqn == subsystem.nqn) else {
            continue;
        };
        let of_rules = |subsystem: &SubsystemConfig| {
            let rules = subsystem.hosts.iter();
            rules
                .map(|rule| rule.credentials.clone())
                .collect::<Vec<_>>()
        };
        if of_rules(before) == of_rules(subsystem)
            || plan.steps.iter().any(|step| step.id.name == name)
        {
            continue;
        }
        let id = ObjectId {
            kind: ObjectKind::Subsystem,
            name: name.to_owned(),
        };
        if let Some(object) = after.get(&id) {
            let change = KeyChange {
                key: "access".to_owned(),
                before: Some("set".into()),
                after: Some("set".into()),
            };
            plan.steps
                .push(step_of(Action::Change, &id, object, vec![change]));
        }
    }
    let is_told = plan
        .steps
        .iter()
        .any(|step| step.id.kind == ObjectKind::Setting && step.id.name == DISCOVERY);
    if !is_same(&configs.0.discovery, &configs.1.discovery) && plan.settings.is_empty() && !is_told
    {
        plan.settings.push(KeyChange {
            key: "discovery.accounts".to_owned(),
            before: Some("set".into()),
            after: Some("set".into()),
        });
    }
}

fn is_same_secret(one: &TargetConfig, other: &TargetConfig) -> bool {
    let of_rules = |target: &TargetConfig| {
        let rules = target.access.iter();
        rules
            .map(|rule| rule.authentication.clone().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    let (ours, others) = (of_rules(one), of_rules(other));
    is_same(&one.authentication, &other.authentication)
        && ours.len() == others.len()
        && ours
            .iter()
            .zip(&others)
            .all(|(one, other)| is_same(one, other))
}

fn is_same(one: &Authentication, other: &Authentication) -> bool {
    let is_same_account = |one: &ChapAccount, other: &ChapAccount| {
        one.name == other.name && one.secret == other.secret
    };
    match (&one.chap, &other.chap) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            let mutual = match (&one.mutual, &other.mutual) {
                (None, None) => true,
                (Some(one), Some(other)) => is_same_account(one, other),
                _ => false,
            };
            mutual
                && one.accounts.len() == other.accounts.len()
                && one
                    .accounts
                    .iter()
                    .zip(&other.accounts)
                    .all(|(one, other)| is_same_account(one, other))
        }
        _ => false,
    }
}
