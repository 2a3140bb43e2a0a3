//! `scst.conf` of the procfs era: `[HANDLER h]`, `[GROUP g]`, `[ASSIGNMENT g]`, `[OPTIONS]`, `[TARGETS enable]`.
//!
//! Groups belong to all targets there: `Default` holds for everybody, `Default_NAME` for one target. The targets stand
//! in iscsi-scstd's own file, so their names are given beside.

use std::collections::BTreeMap;

use super::access::{listen_everywhere, pattern};
use super::device::{Device, Made};
use crate::configuration::{Draft, Row, Rule, Target};
use crate::report::At;
use crate::source::{ImportError, Options, Source};
use crate::values;
use crate::words::{lines, syntax};

#[derive(Default)]
struct Group {
    initiators: Vec<String>,
    rows: Vec<Row>,
}

enum Section {
    Handler(String),
    Group(String),
    Assignment(String),
    Other,
}

pub(super) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let mut section = None;
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut devices: BTreeMap<String, Option<String>> = BTreeMap::new();
    for line in lines(&source.text) {
        let at = At {
            file: source.name.clone(),
            line: line.number,
            setting: line.text.to_owned(),
        };
        if let Some(rest) = line.text.strip_prefix('[') {
            let inner = rest.split_once(']');
            let (inner, _) =
                inner.ok_or_else(|| syntax(&source.name, line.number, "`[` without `]`"))?;
            section = Some(begin(inner, &at, &mut groups, draft));
            continue;
        }
        let (key, rest) = line
            .text
            .split_once(char::is_whitespace)
            .unwrap_or((line.text, ""));
        let fields: Vec<&str> = rest.split(',').map(str::trim).collect();
        match (&section, key) {
            (Some(Section::Handler(handler)), "DEVICE") => {
                device(&at, handler, &fields, options, &mut devices, draft);
            }
            (Some(Section::Group(group)), "USER") => match pattern(rest.trim()) {
                Ok(name) => {
                    groups
                        .entry(group.clone())
                        .or_default()
                        .initiators
                        .push(name);
                    draft.ledger.mapped(&at, "initiators of a rule");
                }
                Err(why) => draft.ledger.refused(&at, why),
            },
            (Some(Section::Assignment(group)), "DEVICE") => {
                let row = assignment(&at, &fields, &devices, draft);
                groups.entry(group.clone()).or_default().rows.extend(row);
            }
            (Some(Section::Other), _) => draft.ledger.ignored(&at, "the server has its own way"),
            (Some(_), _) => draft.ledger.refused(&at, "this is not known here"),
            (None, _) => {
                let what = "this stands in front of the first [section]";
                return Err(syntax(&source.name, line.number, what));
            }
        }
    }
    targets(source, options, groups, draft);
    Ok(())
}

fn begin(inner: &str, at: &At, groups: &mut BTreeMap<String, Group>, draft: &mut Draft) -> Section {
    let (kind, name) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
    let name = name.trim().to_owned();
    match kind {
        "HANDLER" => {
            draft.ledger.mapped(at, "backends of volumes");
            Section::Handler(name)
        }
        "GROUP" => {
            groups.entry(name.clone()).or_default();
            draft.ledger.mapped(at, "a rule");
            Section::Group(name)
        }
        "ASSIGNMENT" => {
            draft.ledger.mapped(at, "a map");
            Section::Assignment(name)
        }
        "OPTIONS" | "TARGETS" => {
            draft.ledger.ignored(at, "the server has its own way");
            Section::Other
        }
        _ => {
            draft.ledger.refused(at, "this section is not known here");
            Section::Other
        }
    }
}

/// `DEVICE name,path,OPTION|OPTION,block size,T10 identifier`.
fn device(
    at: &At,
    handler: &str,
    fields: &[&str],
    options: &Options<'_>,
    devices: &mut BTreeMap<String, Option<String>>,
    draft: &mut Draft,
) {
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let flags: Vec<&str> = field(2)
        .split('|')
        .filter(|flag| !flag.is_empty())
        .collect();
    let kind = match handler {
        "vdisk" if flags.contains(&"NULLIO") => "vdisk_nullio",
        "vdisk" if flags.contains(&"BLOCKIO") => "vdisk_blockio",
        "vdisk" => "vdisk_fileio",
        "vdisk_fileio" | "vdisk_blockio" | "vdisk_nullio" => handler,
        _ => {
            return draft.ledger.refused(
                at,
                format!("handler `{handler}`: only virtual disks are served"),
            );
        }
    };
    let mut device = Device::new(kind);
    // Each part has an entry of its own in the report.
    let part = |setting: String| At {
        setting,
        ..at.clone()
    };
    let mut set = |key: &str, value: &str| {
        let at = part(format!("{} {key} {value}", field(0)));
        device.attribute(&at, (key, value), options.accept_unsafe_cache, draft);
    };
    if !field(1).is_empty() && kind != "vdisk_nullio" {
        set("filename", field(1));
    }
    for flag in flags {
        match flag {
            "WRITE_THROUGH" => set("write_through", "1"),
            "READ_ONLY" => set("read_only", "1"),
            "O_DIRECT" => set("o_direct", "1"),
            "NV_CACHE" => set("nv_cache", "1"),
            "REMOVABLE" => set("removable", "1"),
            "NULLIO" | "BLOCKIO" => {}
            other => set(other, "1"),
        }
    }
    if !field(3).is_empty() {
        set("blocksize", field(3));
    }
    if !field(4).is_empty() {
        set("t10_dev_id", field(4));
    }
    match device.finish(at, field(0), draft) {
        Made::Volume(volume) => {
            draft.ledger.mapped(at, format!("volume `{}`", volume.name));
            devices.insert(field(0).to_owned(), Some(volume.name.clone()));
            draft.volumes.push(*volume);
        }
        Made::Nothing => {
            devices.insert(field(0).to_owned(), None);
        }
        Made::Refused => {}
    }
}

/// Reads an assignment `DEVICE name,LUN,options`.
fn assignment(
    at: &At,
    fields: &[&str],
    devices: &BTreeMap<String, Option<String>>,
    draft: &mut Draft,
) -> Option<Row> {
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let number = field(1).parse::<u32>().ok().filter(|it| *it <= 16_383);
    let read_only = field(2).split('|').any(|flag| flag == "READ_ONLY");
    match (number, devices.get(field(0))) {
        (None, _) => draft.ledger.refused(at, "LUNs are numbers from 0 to 16383"),
        (Some(_), None) => draft
            .ledger
            .refused(at, "this device is not there, or was refused"),
        (Some(_), Some(None)) => draft.ledger.mapped(at, "no LUN: a dummy has no medium"),
        (Some(number), Some(Some(volume))) => {
            draft
                .ledger
                .mapped(at, format!("LUN {number}, volume `{volume}`"));
            return Some(Row {
                number,
                volume: volume.clone(),
                read_only,
            });
        }
    }
    None
}

fn targets(
    source: &Source,
    options: &Options<'_>,
    groups: BTreeMap<String, Group>,
    draft: &mut Draft,
) {
    let own = |name: &str| groups.get(&format!("Default_{name}"));
    let mut names = options.targets.clone();
    for group in groups.keys() {
        let name = group
            .strip_prefix("Default_")
            .filter(|name| values::iscsi_name(name));
        if let Some(name) = name
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        let at = At {
            file: source.name.clone(),
            line: 1,
            setting: "targets".to_owned(),
        };
        let why = "their names stand in iscsi-scstd's file; give each by `--target NAME`";
        return draft.ledger.refused(&at, why);
    }
    listen_everywhere(draft);
    for name in &names {
        let fallback = own(name).or_else(|| groups.get("Default"));
        let mut target = Target {
            name: name.clone(),
            rows: fallback.map(|group| group.rows.clone()).unwrap_or_default(),
            ..Target::default()
        };
        for (label, group) in &groups {
            if label == "Default" || label.starts_with("Default_") || group.initiators.is_empty() {
                continue;
            }
            target.rules.push(Rule {
                names: group.initiators.clone(),
                rows: Some(group.rows.clone()),
                ..Rule::default()
            });
        }
        if !target.rules.is_empty() && fallback.is_some() {
            target.rules.push(Rule {
                names: vec!["*".to_owned()],
                ..Rule::default()
            });
        }
        draft.targets.push(target);
    }
}
