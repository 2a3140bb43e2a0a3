//! Today's `scst.conf`: handlers with devices, target drivers with targets, LUNs and groups.

use std::collections::BTreeMap;

use super::access::{listen_everywhere, pattern};
use super::blocks::{self, Statement};
use super::device::{Device, Made};
use crate::configuration::{Account, Draft, Row, Rule, Target};
use crate::report::At;
use crate::source::{ImportError, Options, Source};
use crate::values;

/// Volumes by the names of devices; `None` where there is no LUN.
type Devices = BTreeMap<String, Option<String>>;

pub(super) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let statements = blocks::parse(source)?;
    let mut devices = Devices::new();
    for statement in &statements {
        if statement.key == "HANDLER" {
            handler(statement, options, &mut devices, draft);
        }
    }
    let mut iscsi = false;
    for statement in &statements {
        match statement.key.as_str() {
            "HANDLER" => {}
            "TARGET_DRIVER" if statement.value() == "iscsi" => {
                iscsi = true;
                driver(statement, &devices, draft);
            }
            "TARGET_DRIVER" if statement.value() == "copy_manager" => {
                let why = "the server's EXTENDED COPY reaches all LUNs of a session";
                statement.each(&mut |at| draft.ledger.ignored(at, why));
            }
            "TARGET_DRIVER" if statement.statements().is_empty() => {
                draft
                    .ledger
                    .ignored(&statement.at, "nothing is served by it");
            }
            "TARGET_DRIVER" => {
                statement.each(&mut |at| draft.ledger.refused(at, "only iSCSI is served"));
            }
            "DEVICE_GROUP" => {
                let why = "target port groups (ALUA) of some devices: here all ports are one, always active/optimized";
                statement.each(&mut |at| draft.ledger.refused(at, why));
            }
            "setup_id"
            | "threads"
            | "max_tasklet_cmd"
            | "poll_us"
            | "suspend"
            | "trace_level"
            | "force_global_sgv_pool"
            | "trace_mcmds"
            | "trace_cmds" => {
                draft.ledger.ignored(&statement.at, "it tunes SCST");
            }
            _ => statement.each(&mut |at| draft.ledger.refused(at, "this is not known here")),
        }
    }
    if iscsi {
        listen_everywhere(draft);
    }
    Ok(())
}

/// Whether a line is as scstadmin would lose it.
fn odd(statement: &Statement, draft: &mut Draft) -> bool {
    let separated = |word: &String| word.contains(';');
    let why = if statement.key.contains(';') || statement.values.iter().any(separated) {
        "`;` does not part statements: one stands on each line"
    } else if statement.lost && !matches!(statement.key.as_str(), "IncomingUser" | "OutgoingUser") {
        "scstadmin reads three words of a line: put values with blanks into quotes"
    } else {
        return false;
    };
    statement.each(&mut |at| draft.ledger.refused(at, why));
    true
}

fn handler(handler: &Statement, options: &Options<'_>, devices: &mut Devices, draft: &mut Draft) {
    let name = handler.value();
    if !matches!(name, "vdisk_fileio" | "vdisk_blockio" | "vdisk_nullio") {
        if handler.statements().is_empty() {
            return draft.ledger.ignored(&handler.at, "it has no device");
        }
        let why = format!("handler `{name}`: there are disks from files, devices and nothing");
        return handler.each(&mut |at| draft.ledger.refused(at, why.clone()));
    }
    draft.ledger.mapped(&handler.at, "backends of volumes");
    for statement in handler.statements() {
        if odd(statement, draft) {
            continue;
        }
        if statement.key != "DEVICE" {
            draft.ledger.ignored(&statement.at, "it tunes SCST");
            continue;
        }
        let label = statement.value();
        let mut device = Device::new(name);
        for attribute in statement.statements() {
            if !odd(attribute, draft) {
                let pair = (attribute.key.as_str(), attribute.value());
                device.attribute(&attribute.at, pair, options.accept_unsafe_cache, draft);
            }
        }
        match device.finish(&statement.at, label, draft) {
            Made::Volume(volume) => {
                draft
                    .ledger
                    .mapped(&statement.at, format!("volume `{}`", volume.name));
                devices.insert(label.to_owned(), Some(volume.name.clone()));
                draft.volumes.push(*volume);
            }
            Made::Nothing => {
                draft
                    .ledger
                    .mapped(&statement.at, "no volume: a dummy has no medium");
                devices.insert(label.to_owned(), None);
            }
            Made::Refused => {}
        }
    }
}

fn driver(driver: &Statement, devices: &Devices, draft: &mut Draft) {
    draft.ledger.mapped(&driver.at, "targets");
    for statement in driver.statements() {
        if odd(statement, draft) {
            continue;
        }
        match statement.key.as_str() {
            "TARGET" => target(statement, devices, draft),
            "enabled" => enabled(statement, draft),
            "IncomingUser" | "OutgoingUser" => match account(statement) {
                Some(account) if statement.key == "IncomingUser" => {
                    draft.discovery.accounts.push(account);
                    draft.ledger.mapped(&statement.at, "[discovery]");
                }
                Some(account) => {
                    draft.discovery.mutual = Some(account);
                    draft.ledger.mapped(&statement.at, "[discovery]");
                }
                None => draft
                    .ledger
                    .refused(&statement.at, "an account is a user and a secret"),
            },
            "iSNSServer" if !statement.value().is_empty() => draft.ledger.refused(
                &statement.at,
                "the server does not register with an iSNS server",
            ),
            "link_local"
            | "isns_entity_target_name"
            | "internal_portal"
            | "trace_level"
            | "iSNSServer"
            | "open_state" => {
                draft.ledger.ignored(&statement.at, "it tunes SCST");
            }
            _ => draft
                .ledger
                .refused(&statement.at, "this attribute is not known here"),
        }
    }
}

fn enabled(statement: &Statement, draft: &mut Draft) {
    match values::switch(statement.value()) {
        Some(true) => draft.ledger.same_as_default(&statement.at),
        _ => draft.ledger.refused(
            &statement.at,
            "the driver is disabled: no target is served there, and all would be here",
        ),
    }
}

/// `IncomingUser "user secret"`, or without quotes.
fn account(statement: &Statement) -> Option<Account> {
    let joined = statement.values.join(" ");
    let mut parts = joined.split_whitespace();
    let (user, secret) = (parts.next()?, parts.next()?);
    parts.next().is_none().then(|| Account {
        user: user.to_owned(),
        secret: secret.to_owned(),
    })
}

fn target(statement: &Statement, devices: &Devices, draft: &mut Draft) {
    let name = statement.value();
    if !values::iscsi_name(name) {
        return statement.each(&mut |at| draft.ledger.refused(at, "this is no iSCSI name"));
    }
    let mut target = Target {
        name: name.to_owned(),
        // SCST's targets begin disabled.
        disabled: true,
        ..Target::default()
    };
    for inner in statement.statements() {
        if odd(inner, draft) {
            continue;
        }
        match inner.key.as_str() {
            "LUN" => target.rows.extend(lun(inner, devices, draft)),
            "GROUP" => group(inner, &mut target, devices, draft),
            "enabled" => {
                target.disabled = values::switch(inner.value()) != Some(true);
                draft.ledger.mapped(&inner.at, "enabled");
            }
            _ => attribute(inner, &mut target, draft),
        }
    }
    if !target.rules.is_empty() {
        if target.rows.is_empty() {
            draft.ledger.note(format!(
                "target {name}: initiators of no group see no disk there, and are refused here"
            ));
        } else {
            target.rules.push(Rule {
                names: vec!["*".to_owned()],
                ..Rule::default()
            });
        }
    }
    draft.ledger.mapped(&statement.at, format!("target {name}"));
    draft.targets.push(target);
}

fn lun(statement: &Statement, devices: &Devices, draft: &mut Draft) -> Option<Row> {
    let number = statement
        .value()
        .parse::<u32>()
        .ok()
        .filter(|it| *it <= 16_383);
    let device = statement.values.get(1).map_or("", String::as_str);
    let mut row = Row {
        number: number.unwrap_or_default(),
        volume: String::new(),
        read_only: false,
    };
    for inner in statement.statements() {
        match inner.key.as_str() {
            "read_only" => {
                row.read_only = values::switch(inner.value()) == Some(true);
                match row.read_only {
                    true => draft.ledger.mapped(&inner.at, "read-only = true"),
                    false => draft.ledger.same_as_default(&inner.at),
                }
            }
            _ => draft
                .ledger
                .refused(&inner.at, "this attribute of a LUN is not known here"),
        }
    }
    let at = &statement.at;
    match (number, devices.get(device)) {
        (None, _) => draft.ledger.refused(at, "LUNs are numbers from 0 to 16383"),
        (Some(_), None) => draft
            .ledger
            .refused(at, "this device is not there, or was refused"),
        (Some(_), Some(None)) => draft.ledger.mapped(at, "no LUN: a dummy has no medium"),
        (Some(number), Some(Some(volume))) => {
            draft
                .ledger
                .mapped(at, format!("LUN {number}, volume `{volume}`"));
            row.volume.clone_from(volume);
            return Some(row);
        }
    }
    None
}

fn group(statement: &Statement, target: &mut Target, devices: &Devices, draft: &mut Draft) {
    let mut rule = Rule {
        rows: Some(Vec::new()),
        ..Rule::default()
    };
    for inner in statement.statements() {
        if odd(inner, draft) {
            continue;
        }
        match inner.key.as_str() {
            "LUN" => {
                let row = lun(inner, devices, draft);
                rule.rows.get_or_insert_default().extend(row);
            }
            "INITIATOR" => match pattern(inner.value()) {
                Ok(name) => {
                    rule.names.push(name);
                    draft.ledger.mapped(&inner.at, "initiators of a rule");
                }
                Err(why) => draft.ledger.refused(&inner.at, why),
            },
            "addr_method" | "cpu_mask" | "io_grouping_type" | "black_hole" => {
                ignored_or_refused(&inner.at, &inner.key, inner.value(), draft);
            }
            _ => inner.each(&mut |at| draft.ledger.refused(at, "this is not known here")),
        }
    }
    if rule.names.is_empty() {
        return draft
            .ledger
            .ignored(&statement.at, "the group has no initiator");
    }
    draft.ledger.mapped(&statement.at, "a rule");
    target.rules.push(rule);
}

fn ignored_or_refused(at: &At, key: &str, value: &str, draft: &mut Draft) {
    match (key, value) {
        ("black_hole", "0" | "") => draft.ledger.same_as_default(at),
        ("black_hole", _) => draft
            .ledger
            .refused(at, "commands are never dropped on purpose"),
        _ => draft
            .ledger
            .ignored(at, "the server places connections by itself"),
    }
}

fn relative_port(at: &At, value: &str, target: &mut Target, draft: &mut Draft) {
    match value.parse::<u16>() {
        Ok(0) => draft.ledger.same_as_default(at),
        Ok(number) => match draft.owner_of_port(number) {
            Some(other) => {
                let why = format!("{other} has this relative target port already");
                draft.ledger.refused(at, why);
            }
            None => {
                target.relative_ports = vec![(None, number)];
                draft.ledger.mapped(at, "relative-port");
            }
        },
        Err(_) => draft
            .ledger
            .refused(at, "relative target ports are numbers from 1 to 65535"),
    }
}

fn attribute(statement: &Statement, target: &mut Target, draft: &mut Draft) {
    let (at, key, value) = (&statement.at, statement.key.as_str(), statement.value());
    match key {
        "IncomingUser" | "OutgoingUser" => match account(statement) {
            Some(account) if key == "IncomingUser" => {
                target.authentication.accounts.push(account);
                draft.ledger.mapped(at, "accounts");
            }
            Some(account) => {
                target.authentication.mutual = Some(account);
                draft.ledger.mapped(at, "mutual");
            }
            None => draft
                .ledger
                .refused(at, "an account is a user and a secret"),
        },
        "rel_tgt_id" => relative_port(at, value, target, draft),
        "alias" => {
            target.alias = Some(value.to_owned()).filter(|alias| !alias.is_empty());
            draft.ledger.mapped(at, "alias");
        }
        "allowed_portal" => match value.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
            Ok(ip) => {
                let tag = draft.portal(&std::net::SocketAddr::new(ip, 3260).to_string());
                target.portal_groups.push(tag);
                draft.ledger.mapped(at, format!("listen.iscsi, tag {tag}"));
            }
            Err(_) if value == "*" => draft.ledger.same_as_default(at),
            Err(_) => draft
                .ledger
                .refused(at, "a pattern of addresses; name each address"),
        },
        "per_portal_acl" if values::switch(value) == Some(true) => {
            draft.ledger.refused(
                at,
                "initiators are admitted by name, not by address and name",
            );
        }
        "per_portal_acl" => draft.ledger.same_as_default(at),
        "redirect" if value.is_empty() => draft.ledger.same_as_default(at),
        "redirect" => draft.ledger.refused(at, "set `moved-to` by hand"),
        "NopInInterval" | "NopInTimeout" => match value.parse::<u64>() {
            Ok(seconds) => {
                let key = if key == "NopInInterval" {
                    "nop-interval"
                } else {
                    "nop-timeout"
                };
                draft.limit(at, key, seconds.to_string());
            }
            Err(_) => draft.ledger.refused(at, "this is no number of seconds"),
        },
        "QueuedCommands" => draft.ledger.ignored(
            at,
            "`limits.queue-depth` holds for all sessions, and is 512 by itself",
        ),
        "RspTimeout"
        | "MaxSessions"
        | "MaxXmitDataSegmentLength"
        | "addr_method"
        | "cpu_mask"
        | "io_grouping_type"
        | "trace_level"
        | "comment"
        | "black_hole"
        | "forward_src"
        | "forward_dst"
        | "forwarding"
        | "thread_pid"
        | "aen_disabled" => {
            ignored_or_refused(at, key, value, draft);
        }
        _ => match values::negotiated(key, value) {
            Some(Ok(negotiated)) => {
                target.negotiated.push(negotiated);
                draft.ledger.mapped(at, "[target.iscsi]");
            }
            Some(Err(why)) => draft.ledger.refused(at, why),
            None => draft.ledger.refused(at, "this attribute is not known here"),
        },
    }
}
