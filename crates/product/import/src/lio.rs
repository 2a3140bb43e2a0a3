//! LIO: `saveconfig.json` as targetcli and rtslib write it.
//!
//! A target portal group without node ACLs and without `generate_node_acls` admits nobody; the target is disabled here,
//! as one without rules would be open.

use std::net::IpAddr;

use crate::configuration::{Account, Authentication, Backend, Draft, Row, Rule, Target, Volume};
use crate::json::{Node, Value, parse};
use crate::report::Ledger;
use crate::source::{ImportError, Source};
use crate::values;

/// Digits of LIO's worldwide names in front of those of the unit serial number: type 6, company 001405h.
const NAA_PREFIX: &str = "6001405";

/// The volume behind `/backstores/PLUGIN/NAME`.
struct Backstore {
    path: String,
    volume: String,
}

pub(crate) fn read(source: &Source, draft: &mut Draft) -> Result<(), ImportError> {
    let root = parse(source)?;
    if !root.is_object() {
        return Err(ImportError::OtherFile {
            name: source.name.clone(),
            server: "LIO",
            what: "it is no object with `storage_objects` and `targets`".to_owned(),
        });
    }
    let mut backstores = Vec::new();
    for object in root.list("storage_objects") {
        backstores.extend(storage_object(object, draft));
        object.finish(&mut draft.ledger);
    }
    let mut port = 0;
    for target in root.list("targets") {
        read_target(target, &backstores, &mut port, draft);
        target.finish(&mut draft.ledger);
    }
    if draft.targets.iter().any(|it| !it.relative_ports.is_empty()) {
        draft.ledger.note(
            "LIO does not store relative target ports; `relative-port` has those that Linux 6.4 and later give to the portal \
             groups of this file. Compare with `sg_inq --page=di` on a host: older kernels count the ports of each disk",
        );
    }
    for module in root.list("fabric_modules") {
        fabric_module(module, draft);
        module.finish(&mut draft.ledger);
    }
    root.finish(&mut draft.ledger);
    Ok(())
}

/// `None` where it is refused.
fn storage_object(object: &Node, draft: &mut Draft) -> Option<Backstore> {
    let (plugin, name) = (object.get("plugin")?, object.get("name")?);
    let (kind, label) = (plugin.text()?, name.text()?);
    let ledger = &mut draft.ledger;
    let dev = object.get("dev");
    let path = dev.and_then(Node::text);
    let on_device = path.as_ref().is_some_and(|path| path.starts_with("/dev/"));
    let null = object.get("nullio").map(|node| {
        let on = node.switch() == Some(true);
        match on {
            true => ledger.mapped(&node.at, "backend = \"null\""),
            false => ledger.same_as_default(&node.at),
        }
        on
    });
    let backend = match kind.as_str() {
        "block" => Backend::Block,
        "fileio" if on_device => Backend::Block,
        "fileio" => Backend::File,
        "ramdisk" if null == Some(true) => Backend::Null,
        "ramdisk" => Backend::Mem,
        _ => {
            let why = format!("backstore `{label}`: there is no backend for plugin `{kind}`");
            object.refused_whole(&why, ledger);
            return None;
        }
    };
    let mut volume = Volume {
        backend,
        vendor: Some("LIO-ORG".to_owned()),
        ..Volume::default()
    };
    if let (Some(dev), Some(path)) = (dev, &path)
        && matches!(backend, Backend::Block | Backend::File)
    {
        ledger.mapped(&dev.at, format!("path of volume `{label}`"));
        volume.path = Some(path.clone());
    } else if let Some(dev) = dev {
        ledger.ignored(&dev.at, "memory has no path");
    }
    if let Some(size) = object.get("size") {
        match (size.number(), backend) {
            (_, Backend::Block) => ledger.ignored(&size.at, "a device has its own size"),
            (Some(bytes), _) => {
                volume.size_bytes = Some(bytes);
                ledger.mapped(&size.at, format!("size of volume `{label}`"));
            }
            (None, _) => ledger.refused(&size.at, "this is no size"),
        }
    }
    switches(object, &mut volume, ledger);
    volume.product = product(object, &kind, &label);
    identity(object, &label, &mut volume, ledger);
    if let Some(attributes) = object.get("attributes") {
        self::attributes(attributes, &mut volume, ledger);
    }
    let groups = object.list("alua_tpgs");
    for group in groups {
        match groups.len() {
            1 => group.ignored_whole(
                "all ports are one target port group here, number 1, always active/optimized; hosts read its number anew",
                ledger,
            ),
            _ => group.refused_whole(
                "several target port groups (ALUA): here all ports are one, always active/optimized",
                ledger,
            ),
        }
    }
    object.ignore("aio", "the server chooses how it reads and writes", ledger);
    object.ignore("version", "of the file", ledger);
    object.ignore("control", "a name of the kernel's", ledger);

    volume.name = draft.free_volume_name(&label);
    draft
        .ledger
        .mapped(&plugin.at, format!("backend of volume `{}`", volume.name));
    draft
        .ledger
        .mapped(&name.at, format!("volume `{}`", volume.name));
    if volume.backend == Backend::Mem {
        draft.ledger.note(format!(
            "volume `{}` is memory here and there: copy its content, or it begins empty",
            volume.name
        ));
    }
    let backstore = Backstore {
        path: format!("/backstores/{kind}/{label}"),
        volume: volume.name.clone(),
    };
    draft.volumes.push(volume);
    Some(backstore)
}

fn switches(object: &Node, volume: &mut Volume, ledger: &mut Ledger) {
    if let Some(node) = object.get("readonly") {
        volume.read_only = node.switch() == Some(true);
        match volume.read_only {
            true => ledger.mapped(&node.at, "read-only = true"),
            false => ledger.same_as_default(&node.at),
        }
    }
    if let Some(node) = object.get("write_back") {
        let back = node.switch() != Some(false);
        if back || volume.backend == Backend::Mem || volume.backend == Backend::Null {
            ledger.same_as_default(&node.at);
        } else {
            volume.write_through = true;
            ledger.mapped(&node.at, "write-through = true");
        }
    }
}

/// Product identification: the name of the backstore where LIO was told so, as targetcli does unless configured
/// otherwise, else one that the kernel has for each plugin.
fn product(object: &Node, kind: &str, label: &str) -> Option<String> {
    let attributes = object.get("attributes");
    let alias = attributes.and_then(|it| it.get("emulate_model_alias"));
    if alias.and_then(Node::switch) == Some(true) {
        let name: String = label.chars().take(16).collect();
        // Peers see it padded with spaces.
        let name = name.trim().to_owned();
        return Some(name).filter(|it| values::printable(it, 16));
    }
    let product = match kind {
        "block" => "IBLOCK",
        "fileio" => "FILEIO",
        _ => "RAMDISK-MCP",
    };
    Some(product.to_owned())
}

fn identity(object: &Node, label: &str, volume: &mut Volume, ledger: &mut Ledger) {
    let Some(wwn) = object.get("wwn") else {
        ledger.note(format!(
            "backstore `{label}` has no `wwn` in the file: take serial number and name from a host (`sg_inq`)"
        ));
        return;
    };
    let serial = wwn.text().unwrap_or_default();
    if !values::printable(&serial, 64) {
        return ledger.refused(&wwn.at, "this is no serial number");
    }
    let digits: String = serial.chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.to_ascii_lowercase();
    let name: String = NAA_PREFIX.chars().chain(digits.chars()).take(32).collect();
    // The kernel leaves the rest zero where the serial number has fewer digits.
    volume.naa = Some(format!("naa.{name:0<32}"));
    volume.serial = Some(serial);
    ledger.mapped(&wwn.at, "serial and naa");
}

fn attributes(attributes: &Node, volume: &mut Volume, ledger: &mut Ledger) {
    for (name, _) in attributes.members() {
        let Some(node) = attributes.get(name) else {
            continue;
        };
        let on = node.switch() == Some(true);
        match name.as_str() {
            "block_size" => match node.number() {
                Some(size @ (512 | 4096)) => {
                    volume.block_size = Some(size);
                    ledger.mapped(&node.at, "block-size");
                }
                _ => ledger.refused(&node.at, "logical blocks have 512 or 4096 bytes here"),
            },
            "emulate_model_alias" => ledger.mapped(&node.at, "product"),
            "emulate_tpu"
            | "emulate_tpws"
            | "emulate_3pc"
            | "emulate_caw"
            | "emulate_pr"
            | "emulate_dpo"
            | "emulate_fua_write"
            | "emulate_rest_reord"
            | "emulate_tas"
            | "emulate_legacy_capacity"
            | "unmap_zeroes_data" => {
                ledger.ignored(&node.at, "the server always offers what the medium can do");
            }
            "emulate_ua_intlck_ctrl"
            | "emulate_fua_read"
            | "is_nonrot"
            | "enforce_pr_isids"
            | "emulate_rsoc"
            | "force_pr_aptpl"
            | "queue_depth"
            | "hw_queue_depth"
            | "hw_block_size"
            | "hw_max_sectors"
            | "hw_pi_prot_type"
            | "max_unmap_block_desc_count"
            | "max_unmap_lba_count"
            | "max_write_same_len"
            | "optimal_sectors"
            | "unmap_granularity"
            | "unmap_granularity_alignment"
            | "alua_support"
            | "pgr_support"
            | "submit_type"
            | "emulate_write_cache"
            | "complete_type" => {
                ledger.ignored(&node.at, "the server finds its own value");
            }
            "pi_prot_type" | "pi_prot_format" | "pi_prot_verify" if on => {
                ledger.refused(&node.at, "protection information is not supported");
            }
            "pi_prot_type" | "pi_prot_format" | "pi_prot_verify" => {
                ledger.same_as_default(&node.at);
            }
            _ => ledger.ignored(&node.at, "it tunes the kernel's target"),
        }
    }
}

/// A map of a portal group: LUN and volume; refused rows are left out.
fn luns(group: &Node, backstores: &[Backstore], ledger: &mut Ledger) -> Vec<Row> {
    let mut rows = Vec::new();
    for lun in group.list("luns") {
        lun.ignore("alias", "a name for the shell", ledger);
        lun.ignore(
            "alua_tg_pt_gp_name",
            "all ports are one target port group here",
            ledger,
        );
        let (Some(index), Some(object)) = (lun.get("index"), lun.get("storage_object")) else {
            ledger.refused(&lun.at, "a LUN without `index` or `storage_object`");
            continue;
        };
        let link = object.text().unwrap_or_default();
        let volume = backstores.iter().find(|backstore| backstore.path == link);
        let number = index.number().and_then(|it| u32::try_from(it).ok());
        match (number.filter(|it| *it <= 16_383), volume) {
            (None, _) => ledger.refused(&index.at, "LUNs are numbers from 0 to 16383"),
            (Some(_), None) => {
                ledger.same_as_default(&index.at);
                ledger.refused(&object.at, "this backstore is not there, or was refused");
            }
            (Some(number), Some(backstore)) => {
                ledger.mapped(&index.at, format!("LUN {number}"));
                ledger.mapped(&object.at, format!("volume `{}`", backstore.volume));
                rows.push(Row {
                    number,
                    volume: backstore.volume.clone(),
                    read_only: false,
                });
            }
        }
        lun.finish(ledger);
    }
    rows
}

/// `port` is the relative target port of the portal group before: LIO of Linux 6.4 and later numbers the portal groups of
/// all fabrics in the order in which they are enabled, which is that of the file.
fn read_target(target: &Node, backstores: &[Backstore], port: &mut u16, draft: &mut Draft) {
    let is_enabled = |group: &Node| group.get("enable").and_then(Node::switch) != Some(false);
    let groups = target.list("tpgs");
    let enabled = groups.iter().filter(|group| is_enabled(group)).count();
    let first = *port;
    *port = first.saturating_add(u16::try_from(enabled).unwrap_or(u16::MAX));
    let mut number = first;
    let fabric = target
        .get("fabric")
        .and_then(Node::text)
        .unwrap_or_default();
    let Some(name) = target.get("wwn") else {
        return target.refused_whole("a target without `wwn`", &mut draft.ledger);
    };
    if let Some(node) = target.get("fabric") {
        match fabric.as_str() {
            "iscsi" => draft.ledger.mapped(&node.at, "[[target]]"),
            _ => {
                let why = format!("targets of `{fabric}` are not iSCSI");
                return target.refused_whole(&why, &mut draft.ledger);
            }
        }
    }
    let iqn = name.text().unwrap_or_default();
    if !values::iscsi_name(&iqn) {
        return target.refused_whole("its name is no iSCSI name", &mut draft.ledger);
    }
    draft.ledger.mapped(&name.at, "name of the target");
    target.ignore("parameters", "of the fabric", &mut draft.ledger);
    let mut made: Option<Target> = None;
    for group in groups {
        if !is_enabled(group) {
            group.ignored_whole("the portal group is disabled", &mut draft.ledger);
            continue;
        }
        number = number.saturating_add(1);
        let mut read = portal_group(group, &iqn, backstores, draft);
        let tag = read.portal_groups.first().copied();
        read.relative_ports = vec![(tag, number)];
        group.finish(&mut draft.ledger);
        match &mut made {
            None => made = Some(read),
            Some(first) if same_but_portals(first, &read) => {
                first.portal_groups.extend(&read.portal_groups);
                first.relative_ports.extend(read.relative_ports);
            }
            Some(_) => draft.ledger.refused(
                &group.at,
                "its portal groups have different maps or rules, and a target has one of each here",
            ),
        }
    }
    draft.targets.push(made.unwrap_or(Target {
        name: iqn,
        disabled: true,
        ..Target::default()
    }));
}

fn same_but_portals(one: &Target, other: &Target) -> bool {
    let rules = |target: &Target| format!("{:?}", target.rules);
    one.rows == other.rows
        && one.authentication == other.authentication
        && one.negotiated == other.negotiated
        && rules(one) == rules(other)
}

fn portal_group(group: &Node, iqn: &str, backstores: &[Backstore], draft: &mut Draft) -> Target {
    let rows = luns(group, backstores, &mut draft.ledger);
    if let Some(tag) = group.get("tag") {
        draft
            .ledger
            .ignored(&tag.at, "portal group tags are given anew");
    }
    if let Some(enable) = group.get("enable") {
        draft.ledger.same_as_default(&enable.at);
    }
    let mut target = Target {
        name: iqn.to_owned(),
        rows,
        ..Target::default()
    };
    for portal in group.list("portals") {
        target.portal_groups.extend(read_portal(portal, draft));
        portal.finish(&mut draft.ledger);
    }
    let ledger = &mut draft.ledger;
    let mut demo = Demo::default();
    if let Some(attributes) = group.get("attributes") {
        demo.read(attributes, ledger);
    }
    if let Some(parameters) = group.get("parameters") {
        self::parameters(parameters, &mut target, ledger);
    }
    let own = chap(group, demo.authenticates, ledger);
    let acls = group.list("node_acls");
    for acl in acls {
        let rule = node_acl(acl, &target.rows, &demo, ledger);
        acl.finish(ledger);
        if let Some(rule) = rule {
            let nameless = demo.authenticates
                && rule.authentication.accounts.is_empty()
                && own.accounts.is_empty();
            if nameless {
                ledger.refused(
                    &acl.at,
                    "`authentication=1`, and the initiator has no CHAP account",
                );
            }
            target.rules.push(rule);
        }
    }
    if demo.admits_all {
        if demo.authenticates && own.accounts.is_empty() {
            ledger.refused(
                &group.at,
                "`authentication=1`, and no CHAP account for all initiators",
            );
        }
        if !target.rules.is_empty() || demo.read_only {
            target.rules.push(Rule {
                names: vec!["*".to_owned()],
                read_only: demo.read_only,
                ..Rule::default()
            });
        }
    } else if target.rules.is_empty() {
        target.disabled = true;
        ledger.note(format!(
            "target {iqn} admits nobody (no node ACLs, `generate_node_acls=0`), so it is disabled here"
        ));
    }
    target.authentication = own;
    target
}

/// How a portal group treats initiators without a node ACL.
#[derive(Debug)]
struct Demo {
    admits_all: bool,
    read_only: bool,
    authenticates: bool,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            admits_all: false,
            read_only: true,
            authenticates: true,
        }
    }
}

impl Demo {
    fn read(&mut self, attributes: &Node, ledger: &mut Ledger) {
        for (name, _) in attributes.members() {
            let Some(node) = attributes.get(name) else {
                continue;
            };
            let on = node.switch() == Some(true) || node.number().is_some_and(|it| it > 0);
            match name.as_str() {
                "authentication" => {
                    self.authenticates = on;
                    ledger.mapped(&node.at, "accounts, or none");
                }
                "generate_node_acls" => {
                    self.admits_all = on;
                    ledger.mapped(&node.at, "a rule for all initiators, or none");
                }
                "demo_mode_write_protect" => {
                    self.read_only = on;
                    ledger.mapped(&node.at, "read-only of the rule for all initiators");
                }
                "prod_mode_write_protect" if on => {
                    ledger.refused(&node.at, "write protection of all LUNs of node ACLs");
                }
                "t10_pi" | "fabric_prot_type" if on => {
                    ledger.refused(&node.at, "protection information is not supported");
                }
                "default_erl" if on => ledger.ignored(&node.at, "the error recovery level is 0"),
                _ => ledger.ignored(&node.at, "the server has limits and times of its own"),
            }
        }
        if !self.admits_all {
            self.read_only = false;
        }
    }
}

fn parameters(parameters: &Node, target: &mut Target, ledger: &mut Ledger) {
    for (name, _) in parameters.members() {
        let Some(node) = parameters.get(name) else {
            continue;
        };
        let text = node.text().unwrap_or_default();
        match (values::negotiated(name, &text), name.as_str()) {
            (Some(Ok(value)), _) => {
                target.negotiated.push(value);
                ledger.mapped(&node.at, "[target.iscsi]");
            }
            (Some(Err(why)), _) => ledger.refused(&node.at, why),
            (None, "TargetAlias") => {
                if text != "LIO Target" {
                    target.alias = Some(text).filter(|alias| !alias.is_empty());
                }
                ledger.mapped(&node.at, "alias");
            }
            (None, _) => ledger.ignored(&node.at, "the server negotiates this by itself"),
        }
    }
}

/// CHAP accounts that stand beside each other in an object.
fn chap(holder: &Node, used: bool, ledger: &mut Ledger) -> Authentication {
    let mut read = |user: &str, password: &str| {
        let (user, password) = (holder.get(user)?, holder.get(password)?);
        let account = Account {
            user: user.text().filter(|it| !it.is_empty())?,
            secret: password.text().filter(|it| !it.is_empty())?,
        };
        for node in [user, password] {
            match used {
                true => ledger.mapped(&node.at, "accounts"),
                false => {
                    ledger.ignored(&node.at, "`authentication=0`: the account is not asked for")
                }
            }
        }
        Some(account)
    };
    let own = read("chap_userid", "chap_password");
    let mutual = read("chap_mutual_userid", "chap_mutual_password");
    match used {
        true => Authentication {
            accounts: own.into_iter().collect(),
            mutual,
        },
        false => Authentication::default(),
    }
}

fn node_acl(acl: &Node, rows: &[Row], demo: &Demo, ledger: &mut Ledger) -> Option<Rule> {
    let name = acl.get("node_wwn")?;
    let initiator = name.text().unwrap_or_default();
    for (ignored, why) in [
        ("attributes", "the server has limits and times of its own"),
        ("parameters", "the server negotiates this by itself"),
        ("alias", "a name for the shell"),
    ] {
        acl.ignore(ignored, why, ledger);
    }
    if !values::iscsi_name(&initiator) {
        acl.refused_whole("its name is no iSCSI name", ledger);
        return None;
    }
    ledger.mapped(&name.at, "initiators of a rule");
    let mut own = Vec::new();
    for mapped in acl.list("mapped_luns") {
        mapped.ignore("alias", "a name for the shell", ledger);
        let number = |name: &str| {
            let node = mapped.get(name)?;
            Some((node, u32::try_from(node.number()?).ok()?))
        };
        let (Some((index, lun)), Some((group, group_lun))) = (number("index"), number("tpg_lun"))
        else {
            ledger.refused(&mapped.at, "a mapped LUN without `index` or `tpg_lun`");
            continue;
        };
        let protect = mapped.get("write_protect");
        let read_only = protect.is_some_and(|node| node.switch() == Some(true));
        if let Some(node) = protect {
            match read_only {
                true => ledger.mapped(&node.at, "read-only = true"),
                false => ledger.same_as_default(&node.at),
            }
        }
        match rows.iter().find(|row| row.number == group_lun) {
            Some(row) if lun <= 16_383 => {
                ledger.mapped(&index.at, format!("LUN {lun}"));
                ledger.mapped(&group.at, format!("volume `{}`", row.volume));
                own.push(Row {
                    number: lun,
                    volume: row.volume.clone(),
                    read_only,
                });
            }
            _ => ledger.refused(
                &group.at,
                "the portal group has no such LUN, or it was refused",
            ),
        }
        mapped.finish(ledger);
    }
    Some(Rule {
        names: vec![initiator],
        rows: Some(own),
        read_only: false,
        authentication: chap(acl, demo.authenticates, ledger),
        ..Rule::default()
    })
}

fn read_portal(portal: &Node, draft: &mut Draft) -> Option<u16> {
    let (address, port) = (portal.get("ip_address")?, portal.get("port")?);
    for (name, what) in [("iser", "iSER"), ("offload", "offload to a card")] {
        let Some(node) = portal.get(name) else {
            continue;
        };
        match &node.value {
            Value::Switch(true) => draft
                .ledger
                .refused(&node.at, format!("{what} is not supported")),
            _ => draft.ledger.same_as_default(&node.at),
        }
    }
    let text = address.text().unwrap_or_default();
    let ip = text
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let number = port.number().and_then(|it| u16::try_from(it).ok());
    let (Ok(ip), Some(number)) = (ip, number) else {
        draft
            .ledger
            .refused(&address.at, "this is no address with a port");
        return None;
    };
    let tag = draft.portal(&std::net::SocketAddr::new(ip, number).to_string());
    draft
        .ledger
        .mapped(&address.at, format!("listen.iscsi, tag {tag}"));
    draft.ledger.mapped(&port.at, "listen.iscsi");
    Some(tag)
}

fn fabric_module(module: &Node, draft: &mut Draft) {
    if let Some(name) = module.get("name") {
        draft.ledger.same_as_default(&name.at);
    }
    let on = module.get("discovery_enable_auth").is_some_and(|node| {
        let on = node.switch() == Some(true);
        match on {
            true => draft.ledger.mapped(&node.at, "[discovery]"),
            false => draft.ledger.same_as_default(&node.at),
        }
        on
    });
    let mut account = |user: &str, password: &str| {
        let (user, password) = (module.get(user)?, module.get(password)?);
        let read = Account {
            user: user.text().unwrap_or_default(),
            secret: password.text().unwrap_or_default(),
        };
        for node in [user, password] {
            match (on, node.is_nothing()) {
                (true, false) => draft.ledger.mapped(&node.at, "[discovery]"),
                (_, true) => draft.ledger.same_as_default(&node.at),
                (false, false) => draft
                    .ledger
                    .ignored(&node.at, "discovery asks for no account"),
            }
        }
        Some(read).filter(|read| on && !read.user.is_empty() && !read.secret.is_empty())
    };
    let own = account("discovery_userid", "discovery_password");
    let mutual = account("discovery_mutual_userid", "discovery_mutual_password");
    draft.discovery.accounts.extend(own);
    if mutual.is_some() {
        draft.discovery.mutual = mutual;
    }
}
