//! istgt: `istgt.conf`, and `auth.conf` with its secrets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::configuration::{Account, Authentication, Backend, Draft, Row, Rule, Target, Volume};
use crate::report::At;
use crate::source::{ImportError, Options, Source};
use crate::values;
use crate::words::{lines, syntax, words};

/// `[Section]` and the lines below it.
struct Section {
    name: String,
    at: At,
    settings: Vec<Setting>,
}

struct Setting {
    at: At,
    key: String,
    values: Vec<String>,
}

impl Setting {
    fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }
}

pub(crate) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let sections = sections(source)?;
    let mut reader = Reader::default();
    if let Some(source) = &options.authentication {
        for section in self::sections(source)? {
            reader.auth_group(&section, draft);
        }
    }
    // Logical units name groups that may stand behind them.
    for section in &sections {
        reader.group(section, draft);
    }
    for section in &sections {
        reader.unit(section, draft);
    }
    Ok(())
}

fn sections(source: &Source) -> Result<Vec<Section>, ImportError> {
    let mut sections: Vec<Section> = Vec::new();
    for line in lines(&source.text) {
        let at = |setting: String| At {
            file: source.name.clone(),
            line: line.number,
            setting,
        };
        if let Some(rest) = line.text.strip_prefix('[') {
            let (name, _) = rest
                .split_once(']')
                .ok_or_else(|| syntax(&source.name, line.number, "`[` without `]`"))?;
            sections.push(Section {
                name: name.trim().to_owned(),
                at: at(format!("[{}]", name.trim())),
                settings: Vec::new(),
            });
            continue;
        }
        let found = words(line.text).map_err(|what| syntax(&source.name, line.number, what))?;
        let Some(section) = sections.last_mut() else {
            return Err(syntax(
                &source.name,
                line.number,
                "this stands in front of the first [Section]",
            ));
        };
        let mut found = found.into_iter();
        let key = found.next().unwrap_or_default();
        let values: Vec<String> = found.collect();
        let is_group = normal(&section.name).starts_with("authgroup");
        let shown = match key.as_str() {
            _ if is_group || key.eq_ignore_ascii_case("Auth") => format!("{key} (secret)"),
            _ => format!("{key} {}", values.join(" ")).trim_end().to_owned(),
        };
        section.settings.push(Setting {
            at: at(shown),
            key,
            values,
        });
    }
    Ok(sections)
}

#[derive(Default)]
struct Reader {
    node_base: String,
    /// Tags of the portals of each group, in the order of its lines.
    portals: BTreeMap<String, Vec<u16>>,
    initiators: BTreeMap<String, Vec<String>>,
    authentication: BTreeMap<String, Authentication>,
}

/// `PortalGroup1` of section names and mappings.
fn normal(name: &str) -> String {
    name.to_ascii_lowercase()
}

impl Reader {
    fn auth_group(&mut self, section: &Section, draft: &mut Draft) {
        let mut group = Authentication::default();
        draft.ledger.mapped(&section.at, "accounts");
        for setting in &section.settings {
            let value = |index: usize| setting.value(index).to_owned();
            match (setting.key.as_str(), setting.values.len()) {
                ("Auth", 2 | 4) => {
                    let account = |user: String, secret: String| Account { user, secret };
                    group.accounts.push(account(value(0), value(1)));
                    if setting.values.len() == 4 && !value(2).is_empty() {
                        group.mutual.get_or_insert(account(value(2), value(3)));
                    }
                    draft.ledger.mapped(&setting.at, "accounts");
                }
                ("Comment", _) => draft.ledger.ignored(&setting.at, "a comment"),
                _ => draft
                    .ledger
                    .refused(&setting.at, "an account is `Auth \"user\" \"secret\"`"),
            }
        }
        self.authentication.insert(normal(&section.name), group);
    }

    fn group(&mut self, section: &Section, draft: &mut Draft) {
        let name = normal(&section.name);
        if name == "global" {
            self.global(section, draft);
        } else if name.starts_with("portalgroup") {
            self.portal_group(section, draft);
        } else if name.starts_with("initiatorgroup") {
            self.initiator_group(section, draft);
        } else if name == "unitcontrol" {
            draft.ledger.ignored(
                &section.at,
                "the control of istgt; `longshore volume` has the verbs",
            );
            for setting in &section.settings {
                draft.ledger.ignored(&setting.at, "the control of istgt");
            }
        } else if !name.starts_with("logicalunit") {
            draft
                .ledger
                .refused(&section.at, "this section is not known here");
            for setting in &section.settings {
                draft
                    .ledger
                    .refused(&setting.at, "this section is not known here");
            }
        }
    }

    fn global(&mut self, section: &Section, draft: &mut Draft) {
        draft.ledger.mapped(&section.at, "values of all targets");
        let mut wants_account = false;
        for setting in &section.settings {
            let value = setting.value(0);
            match setting.key.as_str() {
                "NodeBase" => {
                    value.clone_into(&mut self.node_base);
                    draft.ledger.mapped(&setting.at, "names of targets");
                }
                "NopInInterval" => draft.limit(&setting.at, "nop-interval", number_or(value, 20)),
                "DiscoveryAuthMethod" => {
                    wants_account = value.to_ascii_lowercase().contains("chap");
                    draft.ledger.mapped(&setting.at, "[discovery]");
                }
                "DiscoveryAuthGroup" => {
                    if let Some(group) = self.authentication.get(&normal(value)) {
                        draft.discovery = group.clone();
                        draft.ledger.mapped(&setting.at, "[discovery]");
                    } else if normal(value) == "none" {
                        draft.ledger.same_as_default(&setting.at);
                    } else if wants_account {
                        draft.ledger.refused(
                            &setting.at,
                            "the group is not there: give auth.conf by --auth",
                        );
                    } else {
                        draft
                            .ledger
                            .ignored(&setting.at, "discovery does not require CHAP");
                    }
                }
                // Of all targets; what a target says itself stands beside it.
                "MaxOutstandingR2T"
                | "DefaultTime2Wait"
                | "DefaultTime2Retain"
                | "FirstBurstLength"
                | "MaxBurstLength"
                | "MaxRecvDataSegmentLength"
                | "InitialR2T"
                | "ImmediateData" => {
                    draft
                        .ledger
                        .ignored(&setting.at, "the server's own values are at least as fast");
                }
                "Comment"
                | "PidFile"
                | "AuthFile"
                | "MediaDirectory"
                | "LogFacility"
                | "Timeout"
                | "MaxSessions"
                | "MaxConnections"
                | "MaxR2T"
                | "DataPDUInOrder"
                | "DataSequenceInOrder"
                | "ErrorRecoveryLevel" => {
                    draft.ledger.ignored(
                        &setting.at,
                        "the server has paths, limits and times of its own",
                    );
                }
                _ => draft
                    .ledger
                    .refused(&setting.at, "this key is not known here"),
            }
        }
    }

    fn portal_group(&mut self, section: &Section, draft: &mut Draft) {
        draft.ledger.mapped(&section.at, "listen.iscsi");
        let mut tags = Vec::new();
        for setting in &section.settings {
            match setting.key.as_str() {
                "Comment" => draft.ledger.ignored(&setting.at, "a comment"),
                "Portal" => {
                    // `Portal DA1 192.0.2.7:3260`; the label may be missing.
                    let text = setting.values.last().map_or("", String::as_str);
                    match address(text) {
                        Some(address) => {
                            let tag = draft.portal(&address);
                            tags.push(tag);
                            draft
                                .ledger
                                .mapped(&setting.at, format!("listen.iscsi, tag {tag}"));
                        }
                        None => draft
                            .ledger
                            .refused(&setting.at, "this is no IP address with a port"),
                    }
                }
                _ => draft
                    .ledger
                    .refused(&setting.at, "this key is not known here"),
            }
        }
        self.portals.insert(normal(&section.name), tags);
    }

    fn initiator_group(&mut self, section: &Section, draft: &mut Draft) {
        draft.ledger.mapped(&section.at, "initiators of rules");
        let mut names = Vec::new();
        for setting in &section.settings {
            let value = setting.value(0);
            match setting.key.as_str() {
                "Comment" => draft.ledger.ignored(&setting.at, "a comment"),
                "InitiatorName" if normal(value) == "all" => {
                    names.push("*".to_owned());
                    draft.ledger.mapped(&setting.at, "all initiators");
                }
                "InitiatorName" if values::iscsi_name(value) => {
                    names.push(value.to_ascii_lowercase());
                    draft.ledger.mapped(&setting.at, "initiators of a rule");
                }
                "InitiatorName" => draft.ledger.refused(
                    &setting.at,
                    "rules name those that are admitted; exceptions (`!`) and other names have no equivalent",
                ),
                "Netmask" if normal(value) == "all" => draft.ledger.same_as_default(&setting.at),
                "Netmask" => draft.ledger.refused(
                    &setting.at,
                    "initiators are admitted by name, not by address; use a firewall for addresses",
                ),
                _ => draft.ledger.refused(&setting.at, "this key is not known here"),
            }
        }
        self.initiators.insert(normal(&section.name), names);
    }

    fn unit(&mut self, section: &Section, draft: &mut Draft) {
        if !normal(&section.name).starts_with("logicalunit") {
            return;
        }
        let mut target = Target::default();
        let mut units = Units::default();
        let mut wants_account = false;
        for setting in &section.settings {
            let value = setting.value(0);
            match setting.key.as_str() {
                "TargetName" => {
                    target.name = match values::iscsi_name(value) {
                        true => value.to_owned(),
                        false => format!("{}:{value}", self.node_base),
                    };
                    match values::iscsi_name(&target.name) {
                        true => draft.ledger.mapped(&setting.at, target.name.clone()),
                        false => draft
                            .ledger
                            .refused(&setting.at, "this makes no iSCSI name"),
                    }
                }
                "TargetAlias" => {
                    target.alias = Some(value.to_owned()).filter(|alias| !alias.is_empty());
                    draft.ledger.mapped(&setting.at, "alias");
                }
                "Mapping" => self.mapping(setting, &mut target, draft),
                "AuthMethod" => {
                    wants_account = value.to_ascii_lowercase().contains("chap");
                    draft.ledger.mapped(&setting.at, "accounts");
                }
                "AuthGroup" => match self.authentication.get(&normal(value)) {
                    Some(group) => {
                        target.authentication = group.clone();
                        draft.ledger.mapped(&setting.at, "accounts");
                    }
                    None if normal(value) == "none" => draft.ledger.same_as_default(&setting.at),
                    None if wants_account => draft.ledger.refused(
                        &setting.at,
                        "the group is not there: give auth.conf by --auth",
                    ),
                    None => draft
                        .ledger
                        .ignored(&setting.at, "the unit does not require CHAP"),
                },
                "UseDigest" => draft
                    .ledger
                    .ignored(&setting.at, "initiators choose their digests"),
                "UnitType" if normal(value) == "disk" => draft.ledger.same_as_default(&setting.at),
                "UnitType" => draft.ledger.refused(&setting.at, "only disks are served"),
                "UnitInquiry" => {
                    units.inquiry = Some(setting.values.clone());
                    draft
                        .ledger
                        .mapped(&setting.at, "vendor, product and serial");
                }
                "BlockLength" => match value.parse() {
                    Ok(size @ (512 | 4096)) => {
                        units.block_size = Some(size);
                        draft.ledger.mapped(&setting.at, "block-size");
                    }
                    _ => draft
                        .ledger
                        .refused(&setting.at, "logical blocks have 512 or 4096 bytes here"),
                },
                "Comment" | "QueueDepth" | "RPM" | "FormFactor" | "PhysRecordLength" => draft
                    .ledger
                    .ignored(&setting.at, "the server finds its own value"),
                "UnitOnline" | "Online" => draft.ledger.same_as_default(&setting.at),
                "ReadOnly" if values::switch(value) == Some(true) => {
                    units.read_only = true;
                    draft.ledger.mapped(&setting.at, "read-only = true");
                }
                "ReadOnly" => draft.ledger.same_as_default(&setting.at),
                key if key.starts_with("LUN") => units.lun(setting, draft),
                _ => draft
                    .ledger
                    .refused(&setting.at, "this key is not known here"),
            }
        }
        if target.name.is_empty() {
            return draft
                .ledger
                .refused(&section.at, "a logical unit without `TargetName`");
        }
        draft
            .ledger
            .mapped(&section.at, format!("target {}", target.name));
        units.finish(&mut target, draft);
        if target.rules.len() == 1 && target.rules[0].names == ["*"] {
            target.rules.clear();
        }
        target
            .rules
            .sort_by_key(|rule| rule.names.iter().any(|name| name == "*"));
        draft.targets.push(target);
    }

    fn mapping(&self, setting: &Setting, target: &mut Target, draft: &mut Draft) {
        let (portals, initiators) = (normal(setting.value(0)), normal(setting.value(1)));
        let tags = self.portals.get(&portals);
        let names = self.initiators.get(&initiators);
        let (Some(tags), Some(names)) = (tags, names) else {
            return draft
                .ledger
                .refused(&setting.at, "one of these groups is not there");
        };
        let mut kept = Vec::new();
        for (tag, number) in tags.iter().zip(1_u16..) {
            if target.portal_groups.contains(tag) {
                continue;
            }
            target.portal_groups.push(*tag);
            // INQUIRY page 83h of istgt has the place of the portal in its group, from 1, as the relative target port.
            if draft.keep_port(target, *tag, number) {
                kept.push(number.to_string());
            } else {
                draft.ledger.note(
                    "istgt tells hosts the place of a portal in its portal group as the relative target port, so the numbers \
                     repeat from group to group and from target to target. The ports of all targets have different numbers \
                     here: the first with a number keeps it, the others get free ones",
                );
            }
        }
        let known = |name: &&String| !target.rules.iter().any(|rule| rule.names.contains(name));
        let names: Vec<String> = names.iter().filter(known).cloned().collect();
        if !names.is_empty() {
            target.rules.push(Rule {
                names,
                ..Rule::default()
            });
        }
        let to = match kept.is_empty() {
            true => "portal-groups and a rule".to_owned(),
            false => format!(
                "portal-groups, relative-port {}, and a rule",
                kept.join(" and ")
            ),
        };
        draft.ledger.mapped(&setting.at, to);
    }
}

/// The LUNs of one target while its lines are read.
#[derive(Default)]
struct Units {
    luns: BTreeMap<u32, Lun>,
    inquiry: Option<Vec<String>>,
    block_size: Option<u64>,
    read_only: bool,
}

#[derive(Default)]
struct Lun {
    path: Option<String>,
    size_bytes: Option<u64>,
    serial: Option<String>,
    read_only: bool,
}

impl Units {
    fn lun(&mut self, setting: &Setting, draft: &mut Draft) {
        let number = setting
            .key
            .strip_prefix("LUN")
            .and_then(|it| it.parse().ok());
        let Some(number) = number.filter(|it: &u32| *it <= 16_383) else {
            return draft
                .ledger
                .refused(&setting.at, "LUNs are numbers from 0 to 16383");
        };
        let lun = self.luns.entry(number).or_default();
        match setting.value(0) {
            "Storage" => {
                lun.path = Some(setting.value(1).to_owned());
                let size = setting.value(2);
                if !size.is_empty() && !size.eq_ignore_ascii_case("auto") {
                    lun.size_bytes = values::bytes(size);
                    if lun.size_bytes.is_none() {
                        return draft.ledger.refused(&setting.at, "this is no size");
                    }
                }
                draft.ledger.mapped(&setting.at, format!("LUN {number}"));
            }
            "Option" => match (setting.value(1), setting.value(2)) {
                ("Serial", serial) if values::printable(serial, 64) => {
                    lun.serial = Some(serial.to_owned());
                    draft.ledger.mapped(&setting.at, "serial");
                }
                (
                    "RPM" | "FormFactor" | "WriteCache" | "ReadCache" | "ATS" | "XCOPY" | "UNMAP"
                    | "WSAME",
                    _,
                ) => {
                    draft
                        .ledger
                        .ignored(&setting.at, "the server finds its own value");
                }
                ("ReadOnly", on) => {
                    lun.read_only = values::switch(on) == Some(true);
                    draft.ledger.mapped(&setting.at, "read-only");
                }
                _ => draft
                    .ledger
                    .refused(&setting.at, "this option is not known here"),
            },
            _ => draft.ledger.refused(
                &setting.at,
                "only `Storage` is served: no removable media, no passing through",
            ),
        }
    }

    fn finish(self, target: &mut Target, draft: &mut Draft) {
        let inquiry = |index: usize, max: usize| {
            let text = self.inquiry.as_ref()?.get(index)?.trim().to_owned();
            Some(text).filter(|text| values::printable(text, max))
        };
        let short = target
            .name
            .rsplit(':')
            .next()
            .unwrap_or_default()
            .to_owned();
        for (number, lun) in self.luns {
            let Some(path) = lun.path else { continue };
            let device = path.starts_with("/dev/");
            let name = draft.free_volume_name(&format!("{short}-{number}"));
            let serial = inquiry(3, 64).map(|serial| match number {
                0 => serial,
                _ => format!("{serial}L{number}"),
            });
            draft.volumes.push(Volume {
                name: name.clone(),
                backend: if device {
                    Backend::Block
                } else {
                    Backend::File
                },
                path: Some(path),
                size_bytes: lun.size_bytes.filter(|_| !device),
                block_size: self.block_size,
                read_only: lun.read_only || self.read_only,
                vendor: inquiry(0, 8),
                product: inquiry(1, 16),
                serial: lun.serial.or(serial),
                ..Volume::default()
            });
            draft.ledger.note(format!(
                "volume `{name}` has the worldwide name that follows from its UUID; take that of istgt from a host \
                 (`sg_inq --page=di`) and set `naa` if multipath or Windows shall know the disk again"
            ));
            target.rows.push(Row {
                number,
                volume: name,
                read_only: false,
            });
        }
    }
}

fn number_or(text: &str, default: u64) -> String {
    text.parse::<u64>().unwrap_or(default).to_string()
}

fn address(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = plain.parse().ok()?;
    Some(SocketAddr::new(ip, 3260).to_string())
}
