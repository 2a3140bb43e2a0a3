//! nvmet: JSON of `nvmetcli save`.
//!
//! A port of nvmet names the subsystems that it leads to. Here every listener leads to all subsystems.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::configuration::{Backend, Draft, HostKeys, Key, Row, Subsystem, Volume, host_rules};
use crate::json::{Node, parse};
use crate::report::Ledger;
use crate::source::{ImportError, Source};
use crate::values;

pub(crate) fn read(source: &Source, draft: &mut Draft) -> Result<(), ImportError> {
    let root = parse(source)?;
    if !root.is_object() {
        return Err(ImportError::OtherFile {
            name: source.name.clone(),
            server: "nvmet",
            what: "it is no object with `ports` and `subsystems`".to_owned(),
        });
    }
    let subsystems = root.list("subsystems").iter();
    let ruled: BTreeSet<String> = subsystems.flat_map(ruled_hosts).collect();
    let mut hosts = BTreeMap::new();
    for host in root.list("hosts") {
        hosts.extend(read_host(host, &ruled, &mut draft.ledger));
        host.finish(&mut draft.ledger);
    }
    for subsystem in root.list("subsystems") {
        read_subsystem(subsystem, &hosts, draft);
        subsystem.finish(&mut draft.ledger);
    }
    let mut leading = BTreeSet::new();
    for port in root.list("ports") {
        leading.insert(read_port(port, draft));
        port.finish(&mut draft.ledger);
    }
    let leading: Vec<_> = leading.into_iter().flatten().collect();
    if leading.windows(2).any(|pair| pair[0] != pair[1]) {
        draft.ledger.note(
            "ports lead to different subsystems there; here each listener leads to all that a host may use",
        );
    }
    root.finish(&mut draft.ledger);
    Ok(())
}

/// The hosts that a subsystem admits by name.
fn ruled_hosts(subsystem: &Node) -> Vec<String> {
    let admits_all = |node: &Node| node.get("allow_any_host").and_then(Node::switch);
    match subsystem.get("attr").and_then(admits_all) {
        Some(true) => Vec::new(),
        _ => subsystem
            .list("allowed_hosts")
            .iter()
            .filter_map(Node::text)
            .collect(),
    }
}

fn read_subsystem(subsystem: &Node, hosts: &BTreeMap<String, HostKeys>, draft: &mut Draft) {
    let ledger = &mut draft.ledger;
    let Some(name) = subsystem.get("nqn") else {
        return subsystem.refused_whole("a subsystem without `nqn`", ledger);
    };
    let nqn = name.text().unwrap_or_default();
    if !(nqn.starts_with("nqn.") && nqn.len() <= 223) {
        return subsystem.refused_whole(
            "its name is no NVMe qualified name (nqn.YYYY-MM.domain:name); hosts have to connect to a new one",
            ledger,
        );
    }
    ledger.mapped(&name.at, "nqn of a subsystem");
    let mut made = Subsystem {
        nqn: nqn.clone(),
        ..Subsystem::default()
    };
    let mut any_host = false;
    if let Some(attributes) = subsystem.get("attr") {
        for (key, _) in attributes.members() {
            let Some(node) = attributes.get(key) else {
                continue;
            };
            let text = node.text().unwrap_or_default();
            match key.as_str() {
                "allow_any_host" => {
                    any_host = node.switch() == Some(true);
                    ledger.mapped(&node.at, "rules of the subsystem");
                }
                "serial" if values::printable(&text, 20) => {
                    made.serial = Some(text);
                    ledger.mapped(&node.at, "serial of the subsystem");
                }
                "serial" => {
                    ledger.refused(&node.at, "a serial number has 1 to 20 ASCII characters")
                }
                "model" if text.is_empty() || text == "Linux" => ledger.ignored(
                    &node.at,
                    "the model is that of this server; hosts tell namespaces by UUID and NGUID",
                ),
                "model" => ledger.refused(&node.at, "the model of a subsystem cannot be chosen"),
                "pi_enable" if node.switch() == Some(true) => {
                    ledger.refused(&node.at, "protection information is not supported");
                }
                _ => ledger.ignored(&node.at, "the server finds its own value"),
            }
        }
    }
    subsystem.refuse(
        "passthru",
        "passing commands through to a controller",
        ledger,
    );
    let mut names = Vec::new();
    for host in subsystem.list("allowed_hosts") {
        let name = host.text().unwrap_or_default();
        match (any_host, name.starts_with("nqn.")) {
            (true, _) => ledger.ignored(&host.at, "`allow_any_host`: all are admitted anyway"),
            (false, true) => {
                ledger.mapped(&host.at, "hosts of a rule");
                names.push(name);
            }
            (false, false) => ledger.refused(&host.at, "this is no NVMe qualified name"),
        }
    }
    for namespace in subsystem.list("namespaces") {
        made.rows.extend(read_namespace(namespace, &nqn, draft));
        namespace.finish(&mut draft.ledger);
    }
    if !any_host {
        if names.is_empty() {
            made.rows.clear();
            draft.ledger.note(format!(
                "subsystem {nqn} admits no host, so its map is empty here; add rules and `namespaces`"
            ));
        } else {
            let with_keys = names.into_iter().map(|name| {
                let keys = hosts.get(&name).cloned().unwrap_or_default();
                (name, keys)
            });
            made.rules = host_rules(with_keys.collect());
        }
    }
    draft.subsystems.push(made);
}

fn read_namespace(namespace: &Node, nqn: &str, draft: &mut Draft) -> Option<Row> {
    let number = namespace.get("nsid");
    let device = namespace.get("device");
    let ledger = &mut draft.ledger;
    let path = device.and_then(|device| device.get("path"));
    let nsid = number
        .and_then(Node::number)
        .and_then(|it| u32::try_from(it).ok());
    let nsid = nsid.filter(|nsid| (1..=16_384).contains(nsid));
    let (Some(number), Some(nsid), Some(device), Some(path)) = (number, nsid, device, path) else {
        namespace.refused_whole(
            "a namespace needs `nsid` from 1 to 16384 and `device.path`",
            ledger,
        );
        return None;
    };
    let text = path.text().unwrap_or_default();
    let mut volume = Volume {
        backend: match text.starts_with("/dev/") {
            true => Backend::Block,
            false => Backend::File,
        },
        path: Some(text),
        ..Volume::default()
    };
    ledger.mapped(&number.at, format!("NSID {nsid}"));
    ledger.mapped(&path.at, "path of a volume");
    if let Some(node) = device.get("uuid") {
        volume.uuid = values::uuid(&node.text().unwrap_or_default());
        match volume.uuid {
            Some(_) => ledger.mapped(&node.at, "uuid of the volume"),
            None => ledger.same_as_default(&node.at),
        }
    }
    // Without one, nvmet shows hosts none.
    volume.nguid = Some("none".to_owned());
    if let Some(node) = device.get("nguid") {
        match values::namespace_name(&node.text().unwrap_or_default(), 32) {
            Some(nguid) => {
                volume.nguid = Some(nguid);
                ledger.mapped(&node.at, "nguid of the volume");
            }
            None => ledger.refused(&node.at, "an NGUID has 32 hexadecimal digits"),
        }
    }
    if let Some(node) = namespace.get("enable") {
        volume.disabled = node.switch() == Some(false) || node.number() == Some(0);
        match volume.disabled {
            true => ledger.mapped(&node.at, "enabled = false"),
            false => ledger.same_as_default(&node.at),
        }
    }
    if let Some(node) = namespace.get("ana_grpid") {
        match node.number() {
            Some(1) | None => ledger.same_as_default(&node.at),
            Some(_) => ledger.refused(&node.at, "ANA groups in different states"),
        }
    }
    namespace.ignore("ana", "the server finds its own value", ledger);
    if let Some(node) = namespace.get("buffered_io") {
        volume.direct = volume.backend == Backend::File && node.switch() == Some(false);
        match volume.direct {
            true => ledger.mapped(&node.at, "direct = true"),
            false => ledger.same_as_default(&node.at),
        }
    } else {
        // Devices are opened without the page cache there.
        volume.direct = volume.backend == Backend::Block;
    }
    let same = |other: &&Volume| other.path == volume.path && other.uuid == volume.uuid;
    if let Some(known) = draft.volumes.iter().find(same) {
        if known.nguid != volume.nguid
            && let Some(node) = device.get("nguid")
        {
            let why = "the same device has another NGUID in another namespace";
            draft.ledger.refused(&node.at, why);
        }
        return Some(Row {
            number: nsid,
            volume: known.name.clone(),
            read_only: false,
        });
    }
    let short = nqn.rsplit_once(':').map_or(nqn, |(_, short)| short);
    volume.name = draft.free_volume_name(&format!("{short}-{nsid}"));
    let row = Row {
        number: nsid,
        volume: volume.name.clone(),
        read_only: false,
    };
    draft.volumes.push(volume);
    Some(row)
}

/// The subsystems that it leads to, sorted; `None` where it is refused.
fn read_port(port: &Node, draft: &mut Draft) -> Option<Vec<String>> {
    let ledger = &mut draft.ledger;
    for (name, why) in [
        ("portid", "listeners have no numbers"),
        ("param", "the server has limits of its own"),
    ] {
        port.ignore(name, why, ledger);
    }
    let groups = port.list("ana_groups");
    for group in groups {
        let state = group
            .get("ana")
            .and_then(|ana| ana.get("state"))
            .and_then(Node::text);
        match state.as_deref() {
            None | Some("optimized") => group.default_whole(ledger),
            Some(_) => group.refused_whole("ANA groups in other states than optimized", ledger),
        }
    }
    port.refuse("referrals", "referrals of discovery", ledger);
    let mut subsystems: Vec<String> = Vec::new();
    for subsystem in port.list("subsystems") {
        let name = subsystem.text().unwrap_or_default();
        ledger.mapped(&subsystem.at, "all listeners lead to all subsystems");
        subsystems.push(name);
    }
    subsystems.sort();
    let address = port.get("addr")?;
    let field = |name: &str| {
        let node = address.get(name)?;
        Some((node, node.text().unwrap_or_default()))
    };
    let transport = field("trtype");
    if let Some((node, kind)) = &transport {
        match kind.as_str() {
            "tcp" => ledger.mapped(&node.at, "listen.nvme"),
            _ => {
                address.refused_whole(&format!("transport `{kind}`: only TCP is served"), ledger);
                return None;
            }
        }
    }
    for name in ["adrfam", "treq", "tsas"] {
        let Some((node, text)) = field(name) else {
            continue;
        };
        match text.as_str() {
            "tls1.3" | "required" => ledger.refused(&node.at, "keys for TLS are in the kernel, not in this file: add `tls=required` to the address, and `tls-key-files` to the rules"),
            _ => ledger.same_as_default(&node.at),
        }
    }
    let (Some((at, ip)), Some((service, port))) = (field("traddr"), field("trsvcid")) else {
        ledger.refused(&address.at, "an address needs `traddr` and `trsvcid`");
        return None;
    };
    match (ip.parse::<IpAddr>(), port.parse::<u16>()) {
        (Ok(ip), Ok(port)) => {
            let text = SocketAddr::new(ip, port).to_string();
            ledger.mapped(&at.at, "listen.nvme");
            ledger.mapped(&service.at, "listen.nvme");
            address.finish(ledger);
            if !draft.nvme.contains(&text) {
                draft.nvme.push(text);
            }
            Some(subsystems)
        }
        _ => {
            ledger.refused(&at.at, "this is no IP address with a port");
            None
        }
    }
}

/// A host and how it proves itself. Its attributes stand in `dhchap`, or begin with `dhchap_`.
fn read_host(
    host: &Node,
    ruled: &BTreeSet<String>,
    ledger: &mut Ledger,
) -> Option<(String, HostKeys)> {
    let name = host.get("nqn")?;
    let is_ruled = name.text().is_some_and(|name| ruled.contains(&name));
    ledger.ignored(&name.at, "hosts stand in the rules of subsystems");
    let group = host.get("dhchap");
    let find = |key: &str| {
        let own = group.and_then(|group| group.get(key));
        own.or_else(|| host.get(&format!("dhchap_{key}")))
    };
    let mut keys = HostKeys::default();
    for (key, slot, to) in [
        ("key", &mut keys.dhchap, "dhchap-secret-file of its rules"),
        (
            "ctrl_key",
            &mut keys.dhchap_ctrl,
            "dhchap-ctrl-secret-file of its rules",
        ),
    ] {
        let Some(node) = find(key) else { continue };
        let text = node.text().unwrap_or_default();
        match values::is_dhchap_secret(&text) {
            _ if node.is_nothing() => node.default_whole(ledger),
            _ if !is_ruled => {
                node.refused_whole("no subsystem has a rule for this host alone", ledger);
            }
            true => {
                *slot = Some(Key::Text(text));
                node.mapped_whole(to, ledger);
            }
            false => node.refused_whole("a secret has the form DHHC-1:HH:…:", ledger),
        }
    }
    if keys.dhchap_ctrl.is_some()
        && (keys.dhchap.is_none() || keys.dhchap == keys.dhchap_ctrl)
        && let Some(node) = find("ctrl_key")
    {
        keys.dhchap_ctrl = None;
        let why =
            "the controller proves itself to hosts that authenticate, with a secret of its own";
        ledger.refused(&node.at, why);
    }
    let authenticates = keys.dhchap.is_some();
    for (key, slot, known, to) in [
        (
            "hash",
            &mut keys.hash,
            &values::DHCHAP_HASHES[..],
            "dhchap-hashes of its rules",
        ),
        (
            "dhgroup",
            &mut keys.group,
            &values::DHCHAP_GROUPS[..],
            "dhchap-groups of its rules",
        ),
    ] {
        let Some(node) = find(key) else { continue };
        let text = node.text().unwrap_or_default();
        match known.iter().find(|row| row.0 == text) {
            _ if node.is_nothing() || !authenticates => {
                node.ignored_whole("the host does not authenticate", ledger);
            }
            Some((_, None)) => node.ignored_whole(
                "the host and the server agree on a group, which protects the secret from guesses",
                ledger,
            ),
            Some((_, Some(name))) => {
                *slot = Some((*name).to_owned());
                node.mapped_whole(to, ledger);
            }
            None => node.refused_whole("it is none that the server knows", ledger),
        }
    }
    Some((name.text()?, keys))
}
