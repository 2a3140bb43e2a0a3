//! The objects that the trees show, in a form in which a path finds them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use longshore_api::object::{Keys, ObjectId, ObjectKind, Owner};
use serde_json::{Value, json};

use crate::map::{COPY_TARGET, CopyMap};

pub use crate::map::Lun;

/// The name of the rule for initiators of no group.
pub const DEFAULT_GROUP: &str = "Default";

#[derive(Clone, Debug)]
pub struct Device {
    pub owner: Owner,
    /// Keys as they were set, with secrets.
    pub keys: Keys,
    pub size_bytes: u64,
    pub serial: String,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub owner: Owner,
    /// With secrets, and with a map.
    pub keys: Keys,
    /// Its map for initiators of no group.
    pub luns: BTreeMap<u64, Lun>,
    pub groups: Vec<Group>,
    /// Places of the groups, by name.
    places: HashMap<String, usize>,
    /// By the names of their directories.
    pub sessions: BTreeMap<String, Session>,
    /// While it is served.
    pub served: Option<Served>,
}

/// What the server knows of a target that it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The number that the server tells it by.
    pub id: u32,
    /// Relative identifier of its port, the first one of several.
    pub relative_port: u16,
}

/// A rule of a target.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub initiators: Vec<String>,
    pub luns: BTreeMap<u64, Lun>,
}

/// A session of an initiator.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub id: String,
    pub initiator: String,
    pub target: String,
    pub connections: Vec<Connection>,
    /// The group whose map it has.
    pub group: Option<String>,
}

/// A connection of a session, with the counters of its transmit policy since it is open.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub address: String,
    pub commands: u64,
    /// Commands that are in progress.
    pub active: u64,
    pub policy: String,
    pub nagle: bool,
    pub busy: u64,
    pub max_busy: u64,
    pub avg_busy: f64,
    pub idles: u64,
    pub reads: u64,
    pub reads_in_nagle: u64,
}

/// A map in which a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub target: String,
    pub group: Option<String>,
    pub lun: u64,
}

/// What the trees show.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub devices: BTreeMap<String, Device>,
    pub targets: BTreeMap<String, Target>,
    /// Maps of targets, by device.
    pub exports: HashMap<String, Vec<Export>>,
    /// Maps of subsystems name them.
    pub in_subsystems: HashMap<String, usize>,
    /// Targets that the trees do not show, by the relative identifiers of their ports.
    pub hidden_ports: BTreeMap<u16, String>,
    /// All cores of the machine, as a mask in hexadecimal digits.
    pub cpu_mask: String,
    /// The value of `limits.queue-depth`, in commands.
    pub queue_depth: u64,
    /// The value of `limits.nop-interval`, in seconds.
    pub nop_interval: Duration,
    /// The value of `limits.nop-timeout`, in seconds.
    pub nop_timeout: Duration,
    /// Settings of SCST as a whole that were written.
    pub settings: BTreeMap<&'static str, u64>,
    /// Attributes without effect that were written.
    pub tuned: BTreeMap<Tuned, String>,
    pub copies: CopyMap,
    /// How often accounts that are not in effect had changed.
    pub waiting_changes: u64,
    /// Keys of the setting `discovery`.
    pub discovery: Keys,
    /// Keys of the setting `transmit`.
    pub transmit: Keys,
    pub nagle: Nagle,
    /// How to look at a path. `None`: what is below `/dev` is a device.
    pub look_at: Option<fn(&str) -> Option<PathKind>>,
}

/// Adaptive Nagle as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nagle {
    /// In requests, or `infinite`.
    pub threshold: String,
    /// A number of requests.
    pub margin: u32,
}

/// An attribute of a target, or of one of its groups, that has no effect here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuned {
    pub target: String,
    pub group: Option<String>,
    pub attribute: &'static str,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    File,
    BlockDevice,
}

/// A mask of so many cores, as Linux writes it: groups of 32, the highest first.
#[must_use]
pub fn cpu_mask(cores: usize) -> String {
    let full = vec!["ffffffff"; cores / 32];
    let rest = (1_u64 << (cores % 32)) - 1;
    let width = (cores % 32).div_ceil(4);
    let rest = (rest > 0).then(|| format!("{rest:0width$x}"));
    let groups: Vec<String> = rest
        .into_iter()
        .chain(full.into_iter().map(str::to_owned))
        .collect();
    groups.join(",")
}

impl State {
    #[must_use]
    pub fn new(
        devices: BTreeMap<String, Device>,
        targets: impl IntoIterator<Item = (String, Owner, Keys)>,
        sessions: Vec<Session>,
    ) -> Self {
        let mut copies = CopyMap::default();
        copies.follow(devices.keys());
        let mut state = Self {
            copies,
            devices,
            cpu_mask: cpu_mask(1),
            queue_depth: 512,
            nop_interval: Duration::from_secs(30),
            nop_timeout: Duration::from_secs(30),
            ..Self::default()
        };
        for (name, owner, keys) in targets {
            state.targets.insert(name, Target::new(owner, keys));
        }
        for mut session in sessions {
            let Some(target) = state.targets.get_mut(&session.target) else {
                continue;
            };
            session.group = target.group_of(&session.initiator).map(str::to_owned);
            let mut name = session.initiator.replace('/', "_");
            if target.sessions.contains_key(&name) {
                name = format!("{name}_{}", session.id);
            }
            target.sessions.insert(name, session);
        }
        for (name, target) in &state.targets {
            let groups = target.groups.iter();
            let maps = std::iter::once((None, &target.luns))
                .chain(groups.map(|group| (Some(&group.name), &group.luns)));
            for (group, luns) in maps {
                for (lun, entry) in luns {
                    let exports = state.exports.entry(entry.device.clone()).or_default();
                    exports.push(Export {
                        target: name.clone(),
                        group: group.cloned(),
                        lun: *lun,
                    });
                }
            }
        }
        state
    }

    /// Notes what the server knows of a target.
    pub fn serve(&mut self, target: &str, served: Served) {
        match self.targets.get_mut(target) {
            Some(target) => target.served = Some(served),
            None => {
                let port = served.relative_port;
                self.hidden_ports.insert(port, target.to_owned());
            }
        }
    }

    /// The name of a target as it is known, for any spelling: iSCSI compares names in lower case (RFC 7143 §4.2.7.1).
    pub(crate) fn target_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if !self.targets.contains_key(name) {
            let lower = name.to_ascii_lowercase();
            if self.targets.contains_key(&lower) {
                return lower.into();
            }
        }
        name.into()
    }

    /// Whether there is this target, and this group of it. The copy manager's is one of them.
    #[must_use]
    pub fn has(&self, target: &str, group: Option<&str>) -> bool {
        let found = self.targets.get(target);
        found.is_some_and(|it| group.is_none_or(|name| it.group(name).is_some()))
            || target == COPY_TARGET && group.is_none()
    }

    /// Whether a path is that of a block device. Where nothing can be seen, its folder decides.
    pub(crate) fn is_block_device(&self, path: &str) -> bool {
        let seen = self.look_at.and_then(|look_at| look_at(path));
        seen.map_or_else(
            || path.starts_with("/dev/"),
            |kind| kind == PathKind::BlockDevice,
        )
    }

    /// The maps of targets in which a device is.
    #[must_use]
    pub fn exports_of(&self, device: &str) -> &[Export] {
        self.exports.get(device).map_or(&[], Vec::as_slice)
    }

    /// A map of a target.
    #[must_use]
    pub fn luns(&self, target: &str, group: Option<&str>) -> Option<&BTreeMap<u64, Lun>> {
        if target == COPY_TARGET {
            return group.is_none().then(|| self.copies.luns());
        }
        let target = self.targets.get(target)?;
        match group {
            None => Some(&target.luns),
            Some(group) => Some(&target.group(group)?.luns),
        }
    }
}

impl Target {
    fn new(owner: Owner, keys: Keys) -> Self {
        let groups: Vec<Group> = rules(&keys)
            .enumerate()
            .filter_map(|(place, rule)| {
                let name = group_name(place, rule)?;
                Some(Group {
                    name,
                    initiators: initiators(rule).map(str::to_owned).collect(),
                    luns: luns(rule.get("luns").or_else(|| keys.get("luns"))),
                })
            })
            .collect();
        let names = groups.iter().enumerate();
        Self {
            owner,
            luns: luns(keys.get("luns")),
            places: names
                .map(|(place, group)| (group.name.clone(), place))
                .collect(),
            groups,
            keys,
            sessions: BTreeMap::new(),
            served: None,
        }
    }

    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.places.get(name).map(|place| &self.groups[*place])
    }

    /// The group whose map an initiator has.
    fn group_of(&self, initiator: &str) -> Option<&str> {
        let matches = |group: &&Group| group.initiators.iter().any(|it| covers(it, initiator));
        self.groups.iter().find(matches).map(|group| &*group.name)
    }

    /// Whether it is served.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.keys.get("enabled") != Some(&Value::Bool(false))
    }
}

/// Whether a pattern of initiators' names covers a name.
fn covers(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase().into_bytes();
    let name = name.to_ascii_lowercase().into_bytes();
    let (mut at, mut place) = (0, 0);
    // The last star, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[place] => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                place = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

fn rules(keys: &Keys) -> impl Iterator<Item = &Keys> {
    let rules = keys.get("access").and_then(Value::as_array);
    rules.into_iter().flatten().filter_map(Value::as_object)
}

fn initiators(rule: &Keys) -> impl Iterator<Item = &str> {
    let names = rule.get("initiators").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// The group that a rule is. `None`: it is for initiators of no group.
fn group_name(place: usize, rule: &Keys) -> Option<String> {
    match rule.get("name").and_then(Value::as_str) {
        Some(DEFAULT_GROUP) => None,
        Some(name) => Some(name.to_owned()),
        None if rule.len() == 1 && initiators(rule).eq(["*"]) => None,
        None => Some(format!("rule{}", place + 1)),
    }
}

fn luns(list: Option<&Value>) -> BTreeMap<u64, Lun> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let entries = list.filter_map(|entry| {
        let lun = Lun {
            device: entry.get("volume")?.as_str()?.to_owned(),
            read_only: entry.get("read-only") == Some(&Value::Bool(true)),
        };
        Some((entry.get("lun")?.as_u64()?, lun))
    });
    entries.collect()
}

fn luns_value(luns: &BTreeMap<u64, Lun>) -> Value {
    let entries = luns.iter().map(|(number, lun)| match lun.read_only {
        true => json!({"lun": number, "volume": lun.device, "read-only": true}),
        false => json!({"lun": number, "volume": lun.device}),
    });
    entries.collect()
}

pub(crate) fn volume(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Volume,
        name: name.to_owned(),
    }
}

#[must_use]
pub fn target(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Target,
        name: name.to_owned(),
    }
}

/// A target while it is changed: its keys, with rules to edit.
pub(crate) struct Edited {
    keys: Keys,
    pub luns: BTreeMap<u64, Lun>,
    /// Its rules, those for initiators of no group among them.
    rules: Vec<EditedGroup>,
    /// What it was. `None`: the target is new.
    before: Option<(BTreeMap<u64, Lun>, Vec<EditedGroup>)>,
}

/// A rule while it is changed.
#[derive(Clone, PartialEq)]
pub(crate) struct EditedGroup {
    rule: Keys,
    /// It is for initiators of no group.
    is_default: bool,
    pub name: String,
    pub initiators: Vec<String>,
    pub luns: BTreeMap<u64, Lun>,
    /// Its initiators and its map as they were. `None`: it is new.
    before: Option<(Vec<String>, BTreeMap<u64, Lun>)>,
}

impl EditedGroup {
    pub fn new(name: &str) -> Self {
        Self {
            rule: Keys::new(),
            is_default: false,
            name: name.to_owned(),
            initiators: Vec::new(),
            luns: BTreeMap::new(),
            before: None,
        }
    }

    /// The rule for initiators of no group that says nothing but whether they are let in.
    fn default_for(initiators: &[&str]) -> Self {
        let initiators: Vec<String> = initiators.iter().map(|&it| it.to_owned()).collect();
        let mut rule = Keys::new();
        rule.insert("name".to_owned(), DEFAULT_GROUP.into());
        rule.insert("initiators".to_owned(), initiators.clone().into());
        Self {
            rule,
            is_default: true,
            name: DEFAULT_GROUP.to_owned(),
            before: Some((initiators.clone(), BTreeMap::new())),
            initiators,
            luns: BTreeMap::new(),
        }
    }

    fn of(target: &Target, place: usize, rule: &Keys) -> Self {
        let name = group_name(place, rule);
        let initiators: Vec<String> = initiators(rule).map(str::to_owned).collect();
        let luns = luns(rule.get("luns").or_else(|| target.keys.get("luns")));
        Self {
            rule: rule.clone(),
            is_default: name.is_none(),
            name: name.unwrap_or_else(|| DEFAULT_GROUP.to_owned()),
            before: Some((initiators.clone(), luns.clone())),
            initiators,
            luns,
        }
    }

    fn is_pattern(name: &str) -> bool {
        name.contains(['*', '?'])
    }

    fn has_all(&self) -> bool {
        self.initiators.iter().any(|it| it == "*")
    }

    /// A pattern in front of a name that it covers would decide for it.
    fn rank(&self) -> Option<(bool, bool)> {
        let names = self.initiators.iter();
        names
            .map(|name| (name == "*", Self::is_pattern(name)))
            .max()
    }

    /// What the rule says and was not edited stays as it was written.
    fn into_value(mut self) -> Value {
        let (initiators, luns) = match &self.before {
            Some((initiators, luns)) => (*initiators != self.initiators, *luns != self.luns),
            None => (true, true),
        };
        if !self.is_default || initiators {
            self.rule.insert("name".to_owned(), self.name.into());
        }
        if initiators {
            self.initiators.sort_by_key(|name| Self::is_pattern(name));
            self.rule
                .insert("initiators".to_owned(), self.initiators.into());
        }
        if luns {
            self.rule.insert("luns".to_owned(), luns_value(&self.luns));
        }
        Value::Object(self.rule)
    }
}

impl Edited {
    /// It lets nobody in.
    pub fn new() -> Self {
        let mut keys = Keys::new();
        keys.insert("enabled".to_owned(), false.into());
        Self {
            keys,
            luns: BTreeMap::new(),
            rules: vec![EditedGroup::default_for(&[])],
            before: None,
        }
    }

    pub fn of(target: &Target) -> Self {
        let own = rules(&target.keys).enumerate();
        let mut rules: Vec<EditedGroup> = own
            .map(|(place, rule)| EditedGroup::of(target, place, rule))
            .collect();
        if rules.is_empty() {
            // A target without rules lets all initiators in.
            rules.push(EditedGroup::default_for(&["*"]));
        }
        Self {
            keys: target.keys.clone(),
            luns: target.luns.clone(),
            before: Some((target.luns.clone(), rules.clone())),
            rules,
        }
    }

    pub fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }

    pub fn group(&mut self, name: &str) -> Option<&mut EditedGroup> {
        let mut groups = self.rules.iter_mut().filter(|rule| !rule.is_default);
        groups.find(|group| group.name == name)
    }

    pub fn add_group(&mut self, name: &str) {
        self.rules.push(EditedGroup::new(name));
    }

    pub fn remove_group(&mut self, name: &str) {
        self.rules.retain(|it| it.is_default || it.name != name);
    }

    /// A map of it.
    pub fn map(&mut self, group: Option<&str>) -> Option<&mut BTreeMap<u64, Lun>> {
        match group {
            None => Some(&mut self.luns),
            Some(group) => Some(&mut self.group(group)?.luns),
        }
    }

    /// Initiators of no group are let in when their map gets its first entry, and kept out when it loses its last one, or
    /// a group names all initiators. A rule that names some of them stays.
    fn follow_map(&mut self) {
        let of_groups = |rules: &[EditedGroup]| {
            let mut groups = rules.iter().filter(|rule| !rule.is_default);
            groups.any(EditedGroup::has_all)
        };
        let any_has_all = self.rules.iter().any(EditedGroup::has_all);
        let (was_empty, group_had_all) = match &self.before {
            Some((luns, rules)) => (luns.is_empty(), of_groups(rules)),
            None => (true, false),
        };
        let group_takes_all = of_groups(&self.rules) && !group_had_all;
        let is_empty = self.luns.is_empty();
        for rule in &mut self.rules {
            if !rule.is_default || rule.rule.contains_key("luns") {
                continue;
            }
            let lets_all_in = rule.initiators == ["*"];
            if lets_all_in && (group_takes_all || (is_empty && !was_empty)) {
                rule.initiators.clear();
            } else if rule.initiators.is_empty() && was_empty && !is_empty && !any_has_all {
                rule.initiators.push("*".to_owned());
            }
        }
    }

    /// Its keys. Rules and maps that were not edited stay as they were written.
    pub fn keys(mut self) -> Keys {
        self.follow_map();
        let (luns, rules) = match &self.before {
            Some((luns, rules)) => (*luns != self.luns, *rules != self.rules),
            None => (true, true),
        };
        if luns {
            self.keys.insert("luns".to_owned(), luns_value(&self.luns));
        }
        if !rules {
            return self.keys;
        }
        if self.rules.is_empty() {
            // Without rules it would let all initiators in.
            self.rules.push(EditedGroup::default_for(&[]));
        }
        self.rules
            .sort_by_key(|rule| (rule.is_default && rule.rank().is_none(), rule.rank()));
        let access = self.rules.into_iter().map(EditedGroup::into_value);
        let access: Vec<Value> = access.collect();
        self.keys.insert("access".to_owned(), Value::Array(access));
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_names_as_the_server_matches_them() {
        for (pattern, name, expected) in [
            ("iqn.2026-11.a:b", "IQN.2026-11.a:b", true),
            ("iqn.*", "iqn.2026-11.a:b", true),
            ("*:b", "iqn.2026-11.a:b", true),
            ("iqn.20??-11.*:?", "iqn.2026-11.a:b", true),
            ("iqn.2026-11.a:bc", "iqn.2026-11.a:b", false),
            ("*c", "iqn.2026-11.a:b", false),
            ("", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(covers(pattern, name), expected, "{pattern} {name}");
        }
    }
}
