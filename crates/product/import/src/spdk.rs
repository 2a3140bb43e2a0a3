//! SPDK: JSON of `save_config`, which is a list of calls. They are carried out in order on a small model.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::configuration::{
    Account, Authentication, Backend, Draft, HostKeys, Key, Negotiated, Row, Rule, Subsystem,
    Target, Volume, host_rules,
};
use crate::json::{Node, parse};
use crate::report::Ledger;
use crate::source::{ImportError, Source};
use crate::values;

/// Names of targets are completed by this where `iscsi_set_options` says nothing else.
const NODE_BASE: &str = "iqn.2016-06.io.spdk";

pub(crate) fn read(source: &Source, draft: &mut Draft) -> Result<(), ImportError> {
    let root = parse(source)?;
    let subsystems: Vec<&Node> = match root.get("subsystems") {
        Some(list) => list.items().iter().collect(),
        // One of them alone is allowed as well.
        None if root.members().iter().any(|(name, _)| name == "config") => vec![&root],
        None => {
            return Err(ImportError::OtherFile {
                name: source.name.clone(),
                server: "SPDK",
                what: "it has neither `subsystems` nor `config`".to_owned(),
            });
        }
    };
    let mut machine = Machine::default();
    for subsystem in subsystems {
        if let Some(name) = subsystem.get("subsystem") {
            draft.ledger.same_as_default(&name.at);
        }
        for call in subsystem.list("config") {
            machine.call(call, draft);
            call.finish(&mut draft.ledger);
        }
        subsystem.finish(&mut draft.ledger);
    }
    root.finish(&mut draft.ledger);
    machine.end(draft);
    Ok(())
}

/// Objects that RPC calls have made so far.
#[derive(Default)]
struct Machine {
    /// Names of block devices and of their volumes.
    devices: BTreeMap<String, String>,
    portal_groups: BTreeMap<u64, Vec<u16>>,
    initiator_groups: BTreeMap<u64, Vec<String>>,
    authentication: BTreeMap<u64, Authentication>,
    node_base: Option<String>,
    /// Hosts by subsystem that admits no others.
    hosts: BTreeMap<String, Vec<(String, HostKeys)>>,
    /// Files of keys, by the names of the keys.
    keys: BTreeMap<String, String>,
    unnamed: u32,
}

impl Machine {
    fn call(&mut self, call: &Node, draft: &mut Draft) {
        let Some(method) = call.get("method") else {
            return call.refused_whole("a call without `method`", &mut draft.ledger);
        };
        let name = method.text().unwrap_or_default();
        let empty = empty();
        let params = call.get("params").unwrap_or(&empty);
        let done = match name.as_str() {
            "bdev_malloc_create" | "construct_malloc_bdev" => {
                self.device(params, Backend::Mem, "Malloc", draft)
            }
            "bdev_null_create" | "construct_null_bdev" => {
                self.device(params, Backend::Null, "Null", draft)
            }
            "bdev_aio_create" | "construct_aio_bdev" | "bdev_uring_create" => {
                self.device(params, Backend::File, "AIO", draft)
            }
            "nvmf_create_subsystem" | "nvmf_subsystem_create" => self.subsystem(params, draft),
            "nvmf_subsystem_add_ns" => self.namespace(params, draft),
            "nvmf_subsystem_add_host" => self.host(params),
            "nvmf_subsystem_add_listener" => listener(params, draft),
            "keyring_file_add_key" => self.keyring_file(params),
            "nvmf_create_transport" => transport(params, draft),
            "iscsi_create_portal_group" | "add_portal_group" => self.portal_group(params, draft),
            "iscsi_create_initiator_group" | "add_initiator_group" => {
                self.initiator_group(params, draft)
            }
            "iscsi_create_auth_group" | "add_iscsi_auth_group" => self.auth_group(params, draft),
            "iscsi_create_target_node" | "construct_target_node" => self.target(params, draft),
            "iscsi_set_discovery_auth" => self.discovery(params, draft),
            "iscsi_set_options" | "set_iscsi_options" => self.options(params, draft),
            other => return unknown_call(call, other, &mut draft.ledger),
        };
        match done {
            Ok(to) => call.mapped_where_taken(&to, &mut draft.ledger),
            Err(why) => call.refused_whole(&why, &mut draft.ledger),
        }
    }

    fn device(
        &mut self,
        params: &Node,
        backend: Backend,
        kind: &str,
        draft: &mut Draft,
    ) -> Result<String, String> {
        let ledger = &mut draft.ledger;
        let name = match params.get("name").and_then(Node::text) {
            Some(name) => name,
            None => {
                let number = self.unnamed;
                self.unnamed += 1;
                format!("{kind}{number}")
            }
        };
        let path = params.get("filename").or_else(|| params.get("fname"));
        let path = path.and_then(Node::text);
        let number = |key: &str| params.get(key).and_then(Node::number);
        let block_size = number("block_size").unwrap_or(512);
        let mut volume = Volume {
            backend,
            vendor: Some("INTEL".to_owned()),
            ..Volume::default()
        };
        if backend == Backend::File {
            let path = path.ok_or("`filename` is missing")?;
            if path.starts_with("/dev/") {
                volume.backend = Backend::Block;
            }
            volume.direct = true;
            volume.path = Some(path);
        } else {
            let blocks = number("num_blocks").ok_or("`num_blocks` is missing")?;
            let size = blocks
                .checked_mul(block_size)
                .ok_or("the size is beyond 64 bits")?;
            volume.size_bytes = Some(size);
        }
        match block_size {
            512 | 4096 => volume.block_size = Some(block_size),
            0 => {}
            _ => {
                return Err(format!(
                    "blocks of {block_size} bytes: there are 512 and 4096"
                ));
            }
        }
        volume.read_only = params.get("readonly").and_then(Node::switch) == Some(true);
        if let Some(uuid) = params.get("uuid") {
            volume.uuid = values::uuid(&uuid.text().unwrap_or_default());
        }
        for key in ["md_size", "dif_type"] {
            if number(key).is_some_and(|value| value != 0) {
                return Err(format!("`{key}`: protection information is not supported"));
            }
        }
        for (key, _) in params.members() {
            let known = matches!(
                key.as_str(),
                "name"
                    | "filename"
                    | "fname"
                    | "block_size"
                    | "num_blocks"
                    | "readonly"
                    | "uuid"
                    | "md_size"
                    | "dif_type"
            );
            if !known {
                params.ignore(key, "the server finds its own value", ledger);
            }
        }
        if backend == Backend::Mem {
            ledger.note(format!(
                "`{name}` is memory here and there: copy its content, or it begins empty"
            ));
        }
        volume.name = draft.free_volume_name(&name);
        let made = volume.name.clone();
        self.devices.insert(name, made.clone());
        draft.volumes.push(volume);
        Ok(format!("volume `{made}`"))
    }

    fn subsystem(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let nqn = text(params, "nqn")?;
        if !nqn.starts_with("nqn.") {
            return Err(format!("`{nqn}` is no NVMe qualified name"));
        }
        let serial = params.get("serial_number").and_then(Node::text);
        if !params
            .get("allow_any_host")
            .and_then(Node::switch)
            .unwrap_or(false)
        {
            self.hosts.insert(nqn.clone(), Vec::new());
        }
        if let Some(model) = params.get("model_number") {
            draft.ledger.ignored(
                &model.at,
                "the model is that of this server; hosts tell namespaces by UUID and NGUID",
            );
        }
        let why = "all namespaces are optimized";
        params.ignore("ana_reporting", why, &mut draft.ledger);
        for (key, _) in params.members() {
            if !matches!(
                key.as_str(),
                "nqn" | "serial_number" | "allow_any_host" | "model_number" | "ana_reporting"
            ) {
                params.ignore(key, "the server has limits of its own", &mut draft.ledger);
            }
        }
        draft.subsystems.push(Subsystem {
            nqn: nqn.clone(),
            serial: serial.filter(|serial| values::printable(serial, 20)),
            ..Subsystem::default()
        });
        Ok(format!("subsystem {nqn}"))
    }

    fn namespace(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let nqn = text(params, "nqn")?;
        let namespace = params.get("namespace").unwrap_or(params);
        let device = text(namespace, "bdev_name")?;
        let volume = self.volume(&device)?;
        let subsystem = subsystem_of(draft, &nqn)?;
        let next = subsystem.rows.iter().map(|row| row.number).max();
        let number = namespace.get("nsid").and_then(Node::number);
        let nsid = match number {
            Some(number) => u32::try_from(number).unwrap_or(u32::MAX),
            None => next.map_or(1, |next| next + 1),
        };
        if !(1..=16_384).contains(&nsid) {
            return Err(format!("NSID {nsid}: there are 1 to 16384"));
        }
        subsystem.rows.push(Row {
            number: nsid,
            volume: volume.clone(),
            read_only: false,
        });
        if let Some(volume) = draft.volume_mut(&volume) {
            let uuid = namespace.get("uuid").and_then(Node::text);
            let uuid = uuid.and_then(|uuid| values::uuid(&uuid));
            // Without an NGUID, SPDK shows the UUID of the block device as such.
            let device = volume.uuid.as_ref().or(uuid.as_ref());
            volume.nguid = device.and_then(|uuid| values::namespace_name(uuid, 32));
            volume.uuid = uuid.or(volume.uuid.take());
        }
        for (key, digits) in [("nguid", 32), ("eui64", 16)] {
            let Some(node) = namespace.get(key) else {
                continue;
            };
            let name = values::namespace_name(&node.text().unwrap_or_default(), digits);
            let Some(volume) = draft.volume_mut(&volume).filter(|_| name.is_some()) else {
                let text = format!("`{key}` has {digits} hexadecimal digits");
                draft.ledger.refused(&node.at, &text);
                continue;
            };
            match key {
                "nguid" => volume.nguid = name,
                _ => volume.eui64 = name,
            }
            draft
                .ledger
                .mapped(&node.at, format!("{key} of the volume"));
        }
        namespace.ignore(
            "anagrpid",
            "all namespaces are optimized",
            &mut draft.ledger,
        );
        for (key, why) in [
            (
                "no_auto_visible",
                "hosts of a subsystem see all of its namespaces; make a subsystem for some of them",
            ),
            ("hide_metadata", "metadata are not supported"),
        ] {
            namespace.refuse_unless(key, "false", why, &mut draft.ledger);
        }
        namespace.refuse(
            "ptpl_file",
            "reservations of SPDK are not taken over",
            &mut draft.ledger,
        );
        Ok(format!("NSID {nsid}, volume `{volume}`"))
    }

    fn host(&mut self, params: &Node) -> Result<String, String> {
        let nqn = text(params, "nqn")?;
        let host = text(params, "host")?;
        let keys = HostKeys {
            dhchap: self.key(params, "dhchap_key")?,
            dhchap_ctrl: self.key(params, "dhchap_ctrlr_key")?,
            tls: self.key(params, "psk")?,
            ..HostKeys::default()
        };
        match self.hosts.get_mut(&nqn) {
            Some(hosts) => hosts.push((host.clone(), keys)),
            None if keys != HostKeys::default() => {
                return Err(format!(
                    "{nqn} admits all hosts, so a key for one proves nothing"
                ));
            }
            None => return Ok("all hosts are admitted anyway".to_owned()),
        }
        Ok(format!("a rule for {host}"))
    }

    /// A key of the keyring, or of a file: SPDK took paths before it had a keyring.
    fn key(&self, params: &Node, name: &str) -> Result<Option<Key>, String> {
        let Some(key) = params.get(name).and_then(Node::text) else {
            return Ok(None);
        };
        match self.keys.get(&key) {
            Some(path) => Ok(Some(Key::File(path.clone()))),
            None if key.starts_with('/') => Ok(Some(Key::File(key))),
            None => Err(format!("`{name}`: there is no key `{key}` of a file")),
        }
    }

    fn keyring_file(&mut self, params: &Node) -> Result<String, String> {
        let (name, path) = (text(params, "name")?, text(params, "path")?);
        self.keys.insert(name, path);
        Ok("files of keys in rules; the user of the server has to be able to read them".to_owned())
    }

    fn portal_group(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let tag = params
            .get("tag")
            .and_then(Node::number)
            .ok_or("`tag` is missing")?;
        let mut tags = Vec::new();
        for portal in params.list("portals") {
            let address = address(portal, "host", "port", 3260)?;
            portal.ignore(
                "cpumask",
                "the server places its connections by itself",
                &mut draft.ledger,
            );
            tags.push(draft.portal(&address));
        }
        params.ignore("private", "all portals are in discovery", &mut draft.ledger);
        self.portal_groups.insert(tag, tags);
        Ok("listen.iscsi".to_owned())
    }

    fn initiator_group(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let tag = params
            .get("tag")
            .and_then(Node::number)
            .ok_or("`tag` is missing")?;
        let mut names = Vec::new();
        for initiator in params.list("initiators") {
            let name = initiator.text().unwrap_or_default();
            match name.as_str() {
                "ANY" | "ALL" => names.push("*".to_owned()),
                name if values::iscsi_name(name) => names.push(name.to_owned()),
                name => return Err(format!("`{name}` stands for no initiator here")),
            }
        }
        for mask in params.list("netmasks") {
            let text = mask.text().unwrap_or_default();
            match text.as_str() {
                "ANY" | "ALL" | "0.0.0.0/0" | "::/0" => draft.ledger.same_as_default(&mask.at),
                _ => draft.ledger.refused(
                    &mask.at,
                    "initiators are admitted by name, not by address; use a firewall for addresses",
                ),
            }
        }
        self.initiator_groups.insert(tag, names);
        Ok("initiators of rules".to_owned())
    }

    fn auth_group(&mut self, params: &Node, _: &mut Draft) -> Result<String, String> {
        let tag = params
            .get("tag")
            .and_then(Node::number)
            .ok_or("`tag` is missing")?;
        let mut group = Authentication::default();
        for entry in params.list("secrets") {
            let (one, mutual) = secrets(entry);
            group.accounts.extend(one);
            group.mutual = group.mutual.or(mutual);
        }
        self.authentication.insert(tag, group);
        Ok("accounts".to_owned())
    }

    fn target(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let name = text(params, "name")?;
        let base = self.node_base.as_deref().unwrap_or(NODE_BASE);
        let name = match values::iscsi_name(&name) {
            true => name,
            false => format!("{base}:{name}"),
        };
        let mut target = Target {
            name: name.clone(),
            alias: params.get("alias_name").and_then(Node::text),
            ..Target::default()
        };
        for lun in params.list("luns") {
            let volume = self.volume(&text(lun, "bdev_name")?)?;
            let number = lun.get("lun_id").and_then(Node::number).unwrap_or(0);
            let number = u32::try_from(number).ok().filter(|it| *it <= 16_383);
            target.rows.push(Row {
                number: number.ok_or("LUNs are numbers from 0 to 16383")?,
                volume,
                read_only: false,
            });
        }
        let chap = self.chap(params)?;
        target.authentication = chap;
        let mut mapped = Vec::new();
        for pair in params.list("pg_ig_maps") {
            let number = |key: &str| pair.get(key).and_then(Node::number).unwrap_or(0);
            let (portals, initiators) = (number("pg_tag"), number("ig_tag"));
            let tags = self.portal_groups.get(&portals);
            let names = self.initiator_groups.get(&initiators);
            let (Some(tags), Some(names)) = (tags, names) else {
                return Err(format!(
                    "portal group {portals} or initiator group {initiators} is not there"
                ));
            };
            for tag in tags {
                if !target.portal_groups.contains(tag) {
                    target.portal_groups.push(*tag);
                }
            }
            if !mapped.contains(&portals) {
                relative_port(pair, mapped.len(), tags, &mut target, draft);
                mapped.push(portals);
            }
            let known = |name: &&String| {
                !target
                    .rules
                    .iter()
                    .any(|rule: &Rule| rule.names.contains(name))
            };
            let names: Vec<String> = names.iter().filter(known).cloned().collect();
            if !names.is_empty() {
                target.rules.push(Rule {
                    names,
                    ..Rule::default()
                });
            }
        }
        if !target.rows.is_empty() {
            draft.ledger.note(
                "SPDK makes product, serial number and NAA name of a LUN from its block device; they are others here: \
                 take them from a host (`sg_inq`, `sg_inq --page=di`) for `product`, `serial` and `naa`",
            );
        }
        if params.list("pg_ig_maps").len() > 1 {
            draft.ledger.note(format!(
                "target {name} pairs portal groups with initiator groups; here its rules hold on all of its portals"
            ));
        }
        // A rule for everybody alone is none; behind others it stands last.
        target
            .rules
            .sort_by_key(|rule| rule.names.iter().any(|name| name == "*"));
        if target.rules.len() == 1 && target.rules[0].names == ["*"] {
            target.rules.clear();
        }
        for key in ["header_digest", "data_digest"] {
            if params.get(key).and_then(Node::switch) == Some(true) {
                let key = if key == "header_digest" {
                    "header-digest"
                } else {
                    "data-digest"
                };
                target
                    .negotiated
                    .push(Negotiated::Words(key, vec!["crc32c"]));
            }
        }
        params.ignore(
            "queue_depth",
            "limits.queue-depth holds for all sessions",
            &mut draft.ledger,
        );
        draft.targets.push(target);
        Ok(format!("target {name}"))
    }

    fn chap(&self, params: &Node) -> Result<Authentication, String> {
        let on = |key: &str| params.get(key).and_then(Node::switch) == Some(true);
        let group = params.get("chap_group").and_then(Node::number).unwrap_or(0);
        let (disabled, required, mutual) =
            (on("disable_chap"), on("require_chap"), on("mutual_chap"));
        if disabled || (!required && group == 0) {
            return Ok(Authentication::default());
        }
        let mut found = match self.authentication.get(&group) {
            Some(found) => found.clone(),
            None if required => return Err(format!("authentication group {group} is not there")),
            None => Authentication::default(),
        };
        if required && found.accounts.is_empty() {
            return Err(format!(
                "CHAP is required, and authentication group {group} has no account"
            ));
        }
        if !mutual {
            found.mutual = None;
        }
        Ok(found)
    }

    fn discovery(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        draft.discovery = self.chap(params)?;
        Ok("[discovery]".to_owned())
    }

    fn options(&mut self, params: &Node, draft: &mut Draft) -> Result<String, String> {
        let base = params.get("node_base").and_then(Node::text);
        if base.is_some() {
            self.node_base = base;
        }
        let seconds = |key: &str| params.get(key).and_then(Node::number);
        if let Some(interval) = seconds("nop_in_interval")
            && let Some(node) = params.get("nop_in_interval")
        {
            draft.limit(&node.at, "nop-interval", interval.to_string());
        }
        for (key, _) in params.members() {
            if !matches!(key.as_str(), "node_base" | "nop_in_interval") {
                params.ignore(key, "the server has limits of its own", &mut draft.ledger);
            }
        }
        Ok("names of targets, limits".to_owned())
    }

    fn volume(&self, device: &str) -> Result<String, String> {
        let volume = self.devices.get(device).cloned();
        volume.ok_or_else(|| format!("block device `{device}` is not there, or was refused"))
    }

    /// Rules of subsystems that name their hosts.
    fn end(self, draft: &mut Draft) {
        for (nqn, hosts) in self.hosts {
            let found = draft.subsystems.iter_mut().find(|it| it.nqn == nqn);
            let Some(subsystem) = found else { continue };
            if hosts.is_empty() {
                subsystem.rows.clear();
                draft.ledger.note(format!(
                    "subsystem {nqn} admits no host, so its map is empty here; add rules and `namespaces`"
                ));
            } else {
                subsystem.rules.extend(host_rules(hosts));
            }
        }
    }
}

fn empty() -> Node {
    let source = Source {
        name: String::new(),
        text: "{}".to_owned(),
    };
    parse(&source).expect("an empty object")
}

fn text(params: &Node, key: &str) -> Result<String, String> {
    let found = params.get(key).and_then(Node::text);
    found.ok_or_else(|| format!("`{key}` is missing"))
}

fn subsystem_of<'a>(draft: &'a mut Draft, nqn: &str) -> Result<&'a mut Subsystem, String> {
    let found = draft.subsystems.iter_mut().find(|it| it.nqn == nqn);
    found.ok_or_else(|| format!("subsystem `{nqn}` is not there, or was refused"))
}

fn address(node: &Node, host: &str, port: &str, default: u16) -> Result<String, String> {
    let ip = text(node, host)?;
    let port = match node.get(port).and_then(Node::text) {
        Some(port) => port
            .parse::<u16>()
            .map_err(|_| format!("`{port}` is no port"))?,
        None => default,
    };
    let plain = ip.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = plain
        .parse()
        .map_err(|_| format!("`{ip}` is no IP address"))?;
    Ok(SocketAddr::new(ip, port).to_string())
}

/// SPDK makes one port of each portal group of a target, and counts them from 0 (`spdk_scsi_dev_add_port`); INQUIRY page
/// 83h has that count as the relative target port. Of a group with several portals, the first has the number here.
fn relative_port(pair: &Node, place: usize, tags: &[u16], target: &mut Target, draft: &mut Draft) {
    let number = u16::try_from(place).unwrap_or(0);
    let Some(first) = tags.first() else { return };
    let keeps = draft.keep_port(target, *first, number);
    if let Some(group) = pair.get("pg_tag") {
        let to = match keeps {
            true => format!("portal-groups, relative-port {number}"),
            false => "portal-groups".to_owned(),
        };
        draft.ledger.mapped(&group.at, to);
    }
    if !keeps {
        draft.ledger.note(
            "SPDK tells hosts relative target port 0 for the first portal group of a target, 1 for the second, and so on. \
             0 is reserved by the standard, and the ports of all targets have different numbers here; ports that cannot \
             keep theirs get free ones",
        );
    }
}

fn listener(params: &Node, draft: &mut Draft) -> Result<String, String> {
    let nqn = text(params, "nqn")?;
    subsystem_of(draft, &nqn)
        .map(drop)
        .or_else(|why| match nqn.contains("discovery") {
            true => Ok(()),
            false => Err(why),
        })?;
    let place = params.get("listen_address").unwrap_or(params);
    let kind = text(place, "trtype")?;
    if !kind.eq_ignore_ascii_case("tcp") {
        return Err(format!("transport {kind}: only TCP is served"));
    }
    let secure = params.get("secure_channel").and_then(Node::switch) == Some(true);
    let address = address(place, "traddr", "trsvcid", 4420)?;
    let why = "it follows from the address";
    place.ignore("adrfam", why, &mut draft.ledger);
    params.ignore("sock_impl", "it tunes SPDK", &mut draft.ledger);
    let why = "all paths are optimized";
    params.refuse_unless("ana_state", "optimized", why, &mut draft.ledger);
    let list = match nqn.contains("discovery") {
        true => &mut draft.nvme_discovery,
        false => &mut draft.nvme,
    };
    // Listeners of one address may differ by their subsystems; here an address has one setting.
    let is_it = |entry: &&mut String| entry.split(',').next() == Some(&*address);
    let setting = if secure { "required" } else { "none" };
    let with = |setting: &str| match setting {
        "none" => address.clone(),
        setting => format!("{address},tls={setting}"),
    };
    match list.iter_mut().find(is_it) {
        Some(entry) if *entry != with(setting) => *entry = with("permitted"),
        Some(_) => {}
        None => list.push(with(setting)),
    }
    Ok(format!(
        "listen.nvme {address}; all listeners lead to all subsystems"
    ))
}

fn transport(params: &Node, draft: &mut Draft) -> Result<String, String> {
    let kind = text(params, "trtype")?;
    if !kind.eq_ignore_ascii_case("tcp") {
        return Err(format!("transport {kind}: only TCP is served"));
    }
    for (key, _) in params.members() {
        if key != "trtype" {
            let why = "the server has limits of its own";
            params.ignore(key, why, &mut draft.ledger);
        }
    }
    Ok("NVMe/TCP, with this server's limits".to_owned())
}

fn secrets(entry: &Node) -> (Option<Account>, Option<Account>) {
    let account = |user: &str, secret: &str| {
        let read = |key: &str| {
            entry
                .get(key)
                .and_then(Node::text)
                .filter(|it| !it.is_empty())
        };
        Some(Account {
            user: read(user)?,
            secret: read(secret)?,
        })
    };
    (account("user", "secret"), account("muser", "msecret"))
}

fn unknown_call(call: &Node, name: &str, ledger: &mut Ledger) {
    let tunes = name.ends_with("_set_options")
        || name.ends_with("_options")
        || name.starts_with("framework_")
        || name.starts_with("sock_")
        || name.starts_with("iobuf_")
        || name.starts_with("accel_")
        || matches!(
            name,
            "bdev_wait_for_examine"
                | "nvmf_set_config"
                | "nvmf_set_max_subsystems"
                | "log_set_flag"
                | "nvmf_set_crdt"
        );
    if tunes {
        call.ignored_whole("it tunes SPDK", ledger);
    } else if name == "bdev_set_qos_limit" {
        let why = "limits of volumes are `max-iops` and `max-bytes`: add them by hand";
        call.refused_whole(why, ledger);
    } else if name.starts_with("bdev_") {
        let why =
            "there is no backend for this block device; give its content as a file or a device";
        call.refused_whole(why, ledger);
    } else {
        call.refused_whole("this call has no equivalent", ledger);
    }
}
