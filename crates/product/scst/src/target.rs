//! Targets: their attributes as keys, CHAP users, groups, LUNs.

use longshore_api::object::Keys;
use serde_json::{Value, json};

use crate::change::{Change, Wanted};
use crate::command::{self, parameters, switch, word};
use crate::device::Attribute;
use crate::errno::{EBADSLT, EEXIST, EROFS, Refusal};
use crate::state::{DEFAULT_GROUP, Edited, Lun, State, Target, Tuned, target};

/// Negotiated values: attribute, key of `[target.iscsi]`, default, kind.
const NEGOTIATED: [(&str, &str, &str, Kind); 8] = [
    ("HeaderDigest", "header-digest", "None,CRC32C", Kind::Digest),
    ("DataDigest", "data-digest", "None,CRC32C", Kind::Digest),
    ("ImmediateData", "immediate-data", "Yes", Kind::Switch),
    ("InitialR2T", "initial-r2t", "No", Kind::Switch),
    (
        "MaxRecvDataSegmentLength",
        "max-recv-data-segment-length",
        "262144",
        Kind::Number,
    ),
    (
        "MaxBurstLength",
        "max-burst-length",
        "1048576",
        Kind::Number,
    ),
    (
        "FirstBurstLength",
        "first-burst-length",
        "262144",
        Kind::Number,
    ),
    (
        "MaxOutstandingR2T",
        "max-outstanding-r2t",
        "8",
        Kind::Number,
    ),
];

/// Attributes with one value here.
const FIXED: [(&str, &str); 9] = [
    ("MaxXmitDataSegmentLength", "1048576"),
    ("MaxSessions", "0"),
    ("RspTimeout", "90"),
    ("per_portal_acl", "0"),
    ("addr_method", "PERIPHERAL"),
    ("black_hole", "0"),
    ("io_grouping_type", "auto"),
    ("aen_disabled", "0"),
    ("comment", ""),
];

/// Attributes of a group with one value here.
/// `cpu_mask` has all cores, however many these are.
pub(crate) const GROUP_FIXED: [(&str, &str); 4] = [
    ("cpu_mask", ""),
    ("addr_method", "PERIPHERAL"),
    ("black_hole", "0"),
    ("io_grouping_type", "auto"),
];

/// Whether a text is a value of an attribute.
type IsValue = fn(&str) -> bool;

/// Attributes of targets and groups that tune SCST, each with a test of its values. Configurations carry them, and nothing
/// here depends on them: a value is kept while the server runs, and shown.
const TUNED: [(&str, IsValue); 10] = [
    ("QueuedCommands", is_number),
    ("NopInInterval", is_number),
    ("NopInTimeout", is_number),
    ("RspTimeout", is_number),
    ("MaxXmitDataSegmentLength", is_number),
    ("aen_disabled", |value| matches!(value, "0" | "1")),
    ("addr_method", |value| {
        matches!(value, "PERIPHERAL" | "FLAT" | "LUN")
    }),
    ("io_grouping_type", |value| {
        matches!(value, "auto" | "this_group_only" | "never") || is_number(value)
    }),
    ("cpu_mask", |value| {
        let digits = value.bytes().all(|it| it.is_ascii_hexdigit() || it == b',');
        digits && value.bytes().any(|it| it.is_ascii_hexdigit())
    }),
    ("comment", |value| !value.contains(char::is_control)),
];

fn is_number(value: &str) -> bool {
    command::number(value).is_some_and(|it| it <= u32::MAX.into())
}

/// Whether a text is a value of an attribute that tunes SCST.
pub(crate) fn is_tuning(name: &str, value: &str) -> bool {
    let row = TUNED.iter().find(|row| row.0 == name);
    row.is_some_and(|row| row.1(value))
}

/// Attributes that are added and removed.
pub(crate) const DYNAMIC: [&str; 3] = ["IncomingUser", "OutgoingUser", "allowed_portal"];

#[derive(Clone, Copy)]
enum Kind {
    Number,
    Switch,
    Digest,
}

impl Kind {
    fn shown(self, value: &Value) -> String {
        match (self, value) {
            (Self::Switch, Value::Bool(true)) => "Yes".to_owned(),
            (Self::Switch, _) => "No".to_owned(),
            (Self::Digest, Value::Array(list)) => {
                let words = list
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|word| match word {
                        "crc32c" => "CRC32C",
                        _ => "None",
                    });
                words.collect::<Vec<_>>().join(",")
            }
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        }
    }

    fn read(self, value: &str) -> Option<Value> {
        Some(match self {
            Self::Number => value.parse::<u64>().ok()?.into(),
            Self::Switch => switch(value)?.into(),
            Self::Digest => {
                let words = value.split([',', ' ']).filter(|it| !it.is_empty());
                let words = words.map(|word| match word.to_ascii_lowercase().as_str() {
                    "none" => Some("none"),
                    "crc32c" => Some("crc32c"),
                    _ => None,
                });
                words
                    .collect::<Option<Vec<_>>>()
                    .filter(|it| !it.is_empty())?
                    .into()
            }
        })
    }
}

/// The user and the secret of an account as the attribute shows them. In place of a secret in a file, the file is shown
/// in brackets, which no command takes for a secret.
fn account(table: &Value) -> String {
    let text = |key| table.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("secret") {
        "" => format!("{} ({})", text("user"), text("secret-file")),
        secret => format!("{} {secret}", text("user")),
    }
}

fn accounts(keys: &Keys) -> &[Value] {
    keys.get("accounts")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// `NAME`, `NAME1`, `NAME2`, …
fn numbered(name: &str, place: usize) -> String {
    match place {
        0 => name.to_owned(),
        place => format!("{name}{place}"),
    }
}

/// The place of an attribute among those of its name.
fn place_of(name: &str, of: &str) -> Option<usize> {
    match name.strip_prefix(of)? {
        "" => Some(0),
        digits if digits.starts_with(|it: char| matches!(it, '1'..='9')) => digits.parse().ok(),
        _ => None,
    }
}

/// The attributes of accounts that there are.
pub(crate) fn account_names(keys: &Keys) -> impl Iterator<Item = String> {
    let users = (0..accounts(keys).len()).map(|place| numbered("IncomingUser", place));
    let mutual = keys.get("mutual").map(|_| "OutgoingUser".to_owned());
    users.chain(mutual)
}

/// The attribute of an account. Only the owner reads it.
pub(crate) fn account_attribute(keys: &Keys, name: &str) -> Option<Attribute> {
    let table = match name {
        "OutgoingUser" => keys.get("mutual")?,
        _ => accounts(keys).get(place_of(name, "IncomingUser")?)?,
    };
    Some(Attribute {
        mode: 0o600,
        ..Attribute::settable(account(table), true)
    })
}

/// A write to the attribute of an account that is there.
pub(crate) fn write_account(keys: &mut Keys, name: &str, value: &str) -> Result<(), Refusal> {
    let read = read_account(value)?;
    match place_of(name, "IncomingUser") {
        Some(place) => list(keys, "accounts")[place] = read,
        None => drop(keys.insert("mutual".to_owned(), read)),
    }
    Ok(())
}

pub(crate) fn names(target: &Target) -> Vec<String> {
    let negotiated = NEGOTIATED.iter().map(|row| row.0);
    let fixed = FIXED.iter().map(|row| row.0);
    let own = [
        "enabled",
        "alias",
        "redirect",
        "QueuedCommands",
        "NopInInterval",
        "NopInTimeout",
        "cpu_mask",
        "rel_tgt_id",
        "tid",
    ];
    let users = account_names(&target.keys);
    let portals = target.keys.get("portal-groups").and_then(Value::as_array);
    let portals = (0..portals.map_or(0, Vec::len)).map(|place| numbered("allowed_portal", place));
    let all = own
        .into_iter()
        .chain(negotiated)
        .chain(fixed)
        .map(str::to_owned);
    all.chain(users).chain(portals).collect()
}

pub(crate) fn attribute(state: &State, target: &Target, name: &str) -> Option<Attribute> {
    let keys = &target.keys;
    if let Some((_, value)) = FIXED.iter().find(|row| row.0 == name) {
        return Some(Attribute::settable(*value, false));
    }
    if let Some((_, key, default, kind)) = NEGOTIATED.iter().find(|row| row.0 == name) {
        let table = keys.get("iscsi").and_then(|table| table.get(key));
        let value = table.map_or_else(|| (*default).to_owned(), |value| kind.shown(value));
        return Some(Attribute::settable(value, table.is_some()));
    }
    if name == "OutgoingUser" || place_of(name, "IncomingUser").is_some() {
        return account_attribute(keys, name);
    }
    if let Some(place) = place_of(name, "allowed_portal") {
        let tag = keys.get("portal-groups")?.as_array()?.get(place)?;
        return Some(Attribute::settable(tag.to_string(), true));
    }
    Some(match name {
        // scstadmin writes it by itself, and takes a key for another attribute.
        "enabled" => Attribute::settable(u8::from(target.is_enabled()).to_string(), false),
        "alias" => {
            let alias = keys
                .get("alias")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Attribute::settable(alias, !alias.is_empty())
        }
        "redirect" => {
            let moved = keys
                .get("moved-to")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let permanent = keys.get("moved-permanently") == Some(&Value::Bool(true));
            let kind = if permanent { "permanent" } else { "temp" };
            let value = if moved.is_empty() {
                String::new()
            } else {
                format!("{moved} {kind}")
            };
            Attribute::settable(value, !moved.is_empty())
        }
        "QueuedCommands" => Attribute::settable(state.queue_depth.to_string(), false),
        "NopInInterval" => Attribute::settable(state.nop_interval.as_secs().to_string(), false),
        "NopInTimeout" => Attribute::settable(state.nop_timeout.as_secs().to_string(), false),
        "cpu_mask" => Attribute::settable(state.cpu_mask.clone(), false),
        "rel_tgt_id" => {
            let given = given_port(keys);
            let served = target.served.map(|it| u64::from(it.relative_port));
            let number = given.or(served).unwrap_or(0);
            Attribute::settable(number.to_string(), given.is_some())
        }
        "tid" => Attribute::fixed(target.served.map_or(0, |it| it.id).to_string()),
        _ => return None,
    })
}

/// The relative identifier that a target is given: that of its port in the first portal group.
fn given_port(keys: &Keys) -> Option<u64> {
    let given = keys.get("relative-port")?;
    let by_group = || {
        let groups = given.as_object()?.iter();
        let first = groups.min_by_key(|(tag, _)| tag.parse::<u16>().ok())?;
        first.1.as_u64()
    };
    given.as_u64().or_else(by_group)
}

/// Sets it. SCST shows 0 until it gives a number itself.
fn set_port(state: &State, name: &str, keys: &mut Keys, value: &str) -> Result<(), Refusal> {
    let number = command::number(value).and_then(|number| u16::try_from(number).ok());
    let number = number.ok_or_else(|| {
        Refusal::invalid(format!(
            "rel_tgt_id {value}: relative target ports are numbers from 1 to 65535"
        ))
    })?;
    if number == 0 {
        keys.remove("relative-port");
        return Ok(());
    }
    let mut others = state.targets.iter().filter(|(other, _)| *other != name);
    let taken = others.find(|(_, other)| {
        let served = other.served.map(|it| u64::from(it.relative_port));
        given_port(&other.keys).or(served) == Some(number.into())
    });
    let taken = taken.map(|(other, _)| other);
    if let Some(other) = taken.or_else(|| state.hidden_ports.get(&number)) {
        let text = format!("rel_tgt_id {number} is that of target {other}");
        return Err(Refusal::new(EBADSLT, text));
    }
    keys.insert("relative-port".to_owned(), number.into());
    Ok(())
}

pub(crate) fn missing(name: &str) -> Refusal {
    Refusal::missing(format!("there is no target {name}"))
}

fn edited<'a>(state: &'a State, name: &str) -> Result<(&'a Target, Edited), Refusal> {
    let found = state.targets.get(name).ok_or_else(|| missing(name))?;
    Ok((found, Edited::of(found)))
}

fn put(name: &str, edited: Edited) -> Change {
    Change::put(target(name), edited.keys())
}

/// Reads `USER SECRET`, as the attributes of accounts have it.
fn read_account(value: &str) -> Result<Value, Refusal> {
    let (user, secret) = word(value);
    if secret.starts_with('(') && secret.ends_with(')') {
        let text = format!("the account of {user} has its secret in a file: {secret} is no secret");
        return Err(Refusal::invalid(text));
    }
    match user.is_empty() || secret.is_empty() || secret.contains(char::is_whitespace) {
        true => Err(Refusal::invalid("an account is a user and a secret")),
        false => Ok(json!({"user": user, "secret": secret})),
    }
}

fn list<'a>(keys: &'a mut Keys, key: &str) -> &'a mut Vec<Value> {
    let value = keys.entry(key).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("it is a list now"),
    }
}

/// Adds a dynamic attribute.
pub(crate) fn add_attribute(keys: &mut Keys, name: &str, value: &str) -> Result<(), Refusal> {
    match name {
        "IncomingUser" => {
            let account = read_account(value)?;
            let accounts = list(keys, "accounts");
            if accounts
                .iter()
                .any(|it| it.get("user") == account.get("user"))
            {
                let text = format!("there is an account of {} already", account["user"]);
                return Err(Refusal::new(EEXIST, text));
            }
            accounts.push(account);
        }
        "OutgoingUser" => {
            if keys.contains_key("mutual") {
                return Err(Refusal::new(
                    EEXIST,
                    "there is one OutgoingUser, and it is there already",
                ));
            }
            keys.insert("mutual".to_owned(), read_account(value)?);
        }
        "allowed_portal" => {
            let tag = value.parse::<u16>().map_err(|_| {
                Refusal::unsupported(format!(
                    "allowed_portal {value}: a target is bound to portal groups, by their tags; see [listen] iscsi"
                ))
            })?;
            list(keys, "portal-groups").push(tag.into());
        }
        _ => {
            return Err(Refusal::invalid(format!(
                "a target has no attribute `{name}` to add"
            )));
        }
    }
    Ok(())
}

/// Carries out `add_target NAME parameters`.
pub(crate) fn add(state: &State, name: &str, rest: &str) -> Result<Change, Refusal> {
    if state.targets.contains_key(name) {
        return Err(Refusal::new(
            EEXIST,
            format!("target {name} is there already"),
        ));
    }
    let mut edited = Edited::new();
    for (key, value) in
        parameters(rest).map_err(|bad| Refusal::invalid(format!("`{}` is not key=value", bad.0)))?
    {
        add_attribute(edited.keys_mut(), key, value)?;
    }
    Ok(Change::Objects {
        objects: vec![(target(name), Some(edited.keys()))],
        create: true,
        replace: false,
    })
}

/// Carries out `del_target NAME`.
pub(crate) fn remove(state: &State, name: &str) -> Result<Change, Refusal> {
    match state.targets.contains_key(name) {
        true => Ok(Change::objects(vec![(target(name), None)])),
        false => Err(missing(name)),
    }
}

/// `add_target_attribute TARGET NAME VALUE`.
pub(crate) fn add_target_attribute(
    state: &State,
    name: &str,
    rest: &str,
) -> Result<Change, Refusal> {
    let (_, mut edited) = edited(state, name)?;
    let (attribute, value) = word(rest);
    add_attribute(edited.keys_mut(), attribute, value)?;
    Ok(put(name, edited))
}

/// `del_target_attribute TARGET NAME VALUE`; of an account, the user will do.
pub(crate) fn remove_target_attribute(
    state: &State,
    name: &str,
    rest: &str,
) -> Result<Change, Refusal> {
    let (_, mut edited) = edited(state, name)?;
    let (attribute, value) = word(rest);
    remove_attribute(edited.keys_mut(), name, attribute, value)?;
    Ok(put(name, edited))
}

/// Removes a dynamic attribute of an owner; of an account, the user will do.
pub(crate) fn remove_attribute(
    keys: &mut Keys,
    owner: &str,
    attribute: &str,
    value: &str,
) -> Result<(), Refusal> {
    let gone = || Refusal::missing(format!("{owner} has no {attribute} `{}`", word(value).0));
    match attribute {
        "IncomingUser" => {
            let accounts = list(keys, "accounts");
            let place = accounts
                .iter()
                .position(|it| it.get("user").and_then(Value::as_str) == Some(word(value).0))
                .ok_or_else(gone)?;
            accounts.remove(place);
            if accounts.is_empty() {
                keys.remove("accounts");
            }
        }
        "OutgoingUser" => drop(keys.remove("mutual").ok_or_else(gone)?),
        "allowed_portal" => {
            let tag = value.parse().ok();
            let tags = list(keys, "portal-groups");
            let place = tags
                .iter()
                .position(|it| it.as_u64() == tag && tag.is_some())
                .ok_or_else(gone)?;
            tags.remove(place);
        }
        _ => {
            let text = format!("a target has no attribute `{attribute}` to remove");
            return Err(Refusal::invalid(text));
        }
    }
    Ok(())
}

/// The value of an attribute without effect, where one was written.
pub(crate) fn tuned<'a>(
    state: &'a State,
    target: &str,
    group: Option<&str>,
    name: &str,
) -> Option<&'a String> {
    let (what, _) = without_effect(target, group, name)?;
    state.tuned.get(&what)
}

/// An attribute without effect, and what its values are. None: it has an effect.
fn without_effect(target: &str, group: Option<&str>, name: &str) -> Option<(Tuned, IsValue)> {
    let (attribute, is_value) = TUNED.iter().find(|row| row.0 == name)?;
    let what = Tuned {
        target: target.to_owned(),
        group: group.map(str::to_owned),
        attribute,
    };
    Some((what, *is_value))
}

/// The value of an attribute of a group that has one value here.
pub(crate) fn of_group<'a>(state: &'a State, name: &str) -> &'a str {
    let row = GROUP_FIXED.iter().find(|row| row.0 == name);
    match name {
        "cpu_mask" => &state.cpu_mask,
        _ => row.map_or("", |row| row.1),
    }
}

/// A write to an attribute without effect. None: the attribute has one.
pub(crate) fn tune(
    state: &State,
    target: &str,
    group: Option<&str>,
    name: &str,
    value: &str,
) -> Option<Result<Wanted, Refusal>> {
    let (what, is_value) = without_effect(target, group, name)?;
    let Some(found) = state.targets.get(target) else {
        return Some(Err(missing(target)));
    };
    let default = match group {
        Some(_) => of_group(state, name).to_owned(),
        None => attribute(state, found, name)?.value,
    };
    let now = state.tuned.get(&what).unwrap_or(&default);
    if now == value {
        return Some(Ok(Change::Nothing.into()));
    }
    if value == default {
        return Some(Ok(Change::Tune { what, value: None }.into()));
    }
    if !is_value(value) {
        let text = format!("{name}: `{value}` is no value of it");
        return Some(Err(Refusal::invalid(text)));
    }
    let ignored = vec![format!(
        "target {target}: {name} {value} has no effect here"
    )];
    let value = Some(value.to_owned());
    Some(Ok(Wanted {
        change: Change::Tune { what, value },
        ignored,
    }))
}

/// A write to an attribute.
pub(crate) fn write(state: &State, name: &str, key: &str, value: &str) -> Result<Change, Refusal> {
    let (found, mut edited) = edited(state, name)?;
    let now = attribute(state, found, key);
    let now = now.ok_or_else(|| Refusal::missing(format!("a target has no attribute {key}")))?;
    if now.value == value {
        return Ok(Change::Nothing);
    }
    let bad = || Refusal::invalid(format!("{key}: `{value}` is no value of it"));
    let keys = edited.keys_mut();
    if let Some((_, own, default, kind)) = NEGOTIATED.iter().find(|row| row.0 == key) {
        let read = kind.read(value).ok_or_else(bad)?;
        let table = keys.entry("iscsi").or_insert_with(|| json!({}));
        let table = table.as_object_mut().ok_or_else(bad)?;
        match kind.shown(&read) == *default {
            true => drop(table.remove(*own)),
            false => drop(table.insert((*own).to_owned(), read)),
        }
        if table.is_empty() {
            keys.remove("iscsi");
        }
        return Ok(put(name, edited));
    }
    if key == "OutgoingUser" || place_of(key, "IncomingUser").is_some() {
        write_account(keys, key, value)?;
        return Ok(put(name, edited));
    }
    match key {
        "enabled" => drop(keys.insert("enabled".to_owned(), switch(value).ok_or_else(bad)?.into())),
        "rel_tgt_id" => set_port(state, name, keys, value)?,
        "alias" if value.is_empty() => drop(keys.remove("alias")),
        "alias" => drop(keys.insert("alias".to_owned(), value.into())),
        "redirect" => {
            let (address, kind) = word(value);
            keys.remove("moved-to");
            keys.remove("moved-permanently");
            if !address.is_empty() {
                keys.insert("moved-to".to_owned(), address.into());
                let permanent = kind.starts_with("perm");
                keys.insert("moved-permanently".to_owned(), permanent.into());
            }
        }
        _ => return Err(fixed(key, value)),
    }
    Ok(put(name, edited))
}

/// What has one value here was to get another.
pub(crate) fn fixed(key: &str, value: &str) -> Refusal {
    let why = match key {
        "tid" => return Refusal::new(EROFS, "tid cannot be set"),
        _ => "the server has one value of it",
    };
    Refusal::unsupported(format!("{key} {value}: {why}"))
}

/// A logical unit number as commands have it.
pub(crate) fn lun(text: &str) -> Result<u64, Refusal> {
    let number = command::number(text).filter(|it| *it < 16_384);
    number
        .ok_or_else(|| Refusal::invalid(format!("LUN `{text}`: LUNs are numbers from 0 to 16383")))
}

/// A command to the map of a target or a group.
pub(crate) fn luns(
    state: &State,
    name: &str,
    group: Option<&str>,
    verb: &str,
    rest: &str,
) -> Result<Change, Refusal> {
    let (_, mut edited) = edited(state, name)?;
    let lost = || {
        Refusal::missing(format!(
            "target {name} has no group {}",
            group.unwrap_or("")
        ))
    };
    let map = edited.map(group).ok_or_else(lost)?;
    let mut replace = false;
    match verb {
        "add" | "replace" => {
            let (device, rest) = word(rest);
            let (lun, rest) = word(rest);
            let lun = self::lun(lun)?;
            if !state.devices.contains_key(device) {
                return Err(Refusal::invalid(format!("there is no device {device}")));
            }
            let mut entry = Lun {
                device: device.to_owned(),
                read_only: false,
            };
            for (key, value) in parameters(rest)
                .map_err(|bad| Refusal::invalid(format!("`{}` is not key=value", bad.0)))?
            {
                match (key, switch(value)) {
                    ("read_only", Some(on)) => entry.read_only = on,
                    _ => {
                        return Err(Refusal::invalid(format!(
                            "a LUN has no parameter {key}={value}"
                        )));
                    }
                }
            }
            if verb == "add" && map.contains_key(&lun) {
                return Err(Refusal::new(EEXIST, format!("LUN {lun} is there already")));
            }
            if map
                .iter()
                .any(|(other, it)| *other != lun && it.device == device)
            {
                let text = format!("device {device} is in this map already");
                return Err(Refusal::new(EEXIST, text));
            }
            replace = map.insert(lun, entry).is_some();
        }
        "del" => {
            let lun = self::lun(rest.trim())?;
            let gone = || Refusal::missing(format!("there is no LUN {lun}"));
            map.remove(&lun).ok_or_else(gone)?;
        }
        "clear" => map.clear(),
        _ => return Err(unknown(verb)),
    }
    Ok(Change::Objects {
        objects: vec![(target(name), Some(edited.keys()))],
        create: false,
        replace,
    })
}

pub(crate) fn unknown(verb: &str) -> Refusal {
    Refusal::invalid(format!("`{verb}` is no command of this file"))
}

/// A command to `ini_groups/mgmt`.
pub(crate) fn groups(state: &State, name: &str, verb: &str, rest: &str) -> Result<Change, Refusal> {
    let (_, mut edited) = edited(state, name)?;
    let group = rest.trim();
    let is_there = edited.group(group).is_some();
    match verb {
        "create" if is_there => {
            return Err(Refusal::new(
                EEXIST,
                format!("group {group} is there already"),
            ));
        }
        "create" => {
            check_group(group)?;
            edited.add_group(group);
        }
        "del" if !is_there => return Err(Refusal::missing(format!("there is no group {group}"))),
        "del" => edited.remove_group(group),
        _ => return Err(unknown(verb)),
    }
    Ok(put(name, edited))
}

pub(crate) fn check_group(name: &str) -> Result<(), Refusal> {
    let is_name = !name.is_empty()
        && name != DEFAULT_GROUP
        && !name.starts_with('.')
        && name.len() <= 128
        && !name.contains(['/', ' ', '\t']);
    match is_name {
        true => Ok(()),
        false => Err(Refusal::invalid(format!(
            "`{name}` is no name of a group here"
        ))),
    }
}

/// A command to the initiators of a group.
pub(crate) fn initiators(
    state: &State,
    name: &str,
    group: &str,
    verb: &str,
    rest: &str,
) -> Result<Change, Refusal> {
    let (_, mut edited) = edited(state, name)?;
    edit_initiators(&mut edited, group, verb, rest)?;
    Ok(put(name, edited))
}

pub(crate) fn edit_initiators(
    edited: &mut Edited,
    group: &str,
    verb: &str,
    rest: &str,
) -> Result<(), Refusal> {
    let lost = |name: &str| Refusal::missing(format!("there is no group {name}"));
    let own = edited.group(group).ok_or_else(|| lost(group))?;
    let (initiator, rest) = word(rest);
    let mut names = own.initiators.iter();
    let place = names.position(|it| it.eq_ignore_ascii_case(initiator));
    let gone = || Refusal::missing(format!("group {group} has no initiator {initiator}"));
    match verb {
        "add" => {
            if place.is_some() {
                return Err(Refusal::new(
                    EEXIST,
                    format!("{initiator} is there already"),
                ));
            }
            if initiator.is_empty() || initiator.contains(['/', '#', '!']) {
                return Err(Refusal::invalid(format!(
                    "initiator `{initiator}`: rules name the initiators that they admit, without `!`, `#` and `/`"
                )));
            }
            own.initiators.push(initiator.to_owned());
        }
        "del" => drop(own.initiators.remove(place.ok_or_else(gone)?)),
        "move" => {
            let moved = own.initiators.remove(place.ok_or_else(gone)?);
            let to = rest.trim();
            edited
                .group(to)
                .ok_or_else(|| lost(to))?
                .initiators
                .push(moved);
        }
        "clear" => own.initiators.clear(),
        _ => return Err(unknown(verb)),
    }
    Ok(())
}
