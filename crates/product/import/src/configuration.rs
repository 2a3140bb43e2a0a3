//! The new configuration: what importers fill in, and its TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use crate::report::{At, Ledger, Report};
use crate::source::Source;

/// Where a volume's blocks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Backend {
    Null,
    Mem,
    #[default]
    File,
    Block,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Volume {
    pub name: String,
    pub disabled: bool,
    pub backend: Backend,
    pub path: Option<String>,
    pub size_bytes: Option<u64>,
    pub block_size: Option<u64>,
    pub read_only: bool,
    pub direct: bool,
    pub write_through: bool,
    pub serial: Option<String>,
    pub vendor: Option<String>,
    pub product: Option<String>,
    pub naa: Option<String>,
    pub nguid: Option<String>,
    pub eui64: Option<String>,
    pub uuid: Option<String>,
}

/// A row of a target's or a subsystem's map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// LUN of a target, NSID of a subsystem.
    pub number: u32,
    pub volume: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub user: String,
    pub secret: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Authentication {
    pub accounts: Vec<Account>,
    pub mutual: Option<Account>,
}

/// An access rule: `[[target.access]]` or `[[subsystem.access]]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub names: Vec<String>,
    /// `None`: the map of the target or subsystem.
    pub rows: Option<Vec<Row>>,
    pub read_only: bool,
    /// Of rules of targets.
    pub authentication: Authentication,
    /// Of rules of subsystems.
    pub keys: HostKeys,
}

/// A secret or a key, as the source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Itself. It gets a file of its own.
    Text(String),
    /// The path of a file with it.
    File(String),
}

/// How hosts of a rule prove themselves, and open TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostKeys {
    pub dhchap: Option<Key>,
    pub dhchap_ctrl: Option<Key>,
    /// Name of the one hash function.
    pub hash: Option<String>,
    /// Name of the one Diffie-Hellman group.
    pub group: Option<String>,
    pub tls: Option<Key>,
}

/// The rules of a subsystem for its hosts: those without keys share one, each other has its own.
pub(crate) fn host_rules(hosts: Vec<(String, HostKeys)>) -> Vec<Rule> {
    let (plain, own): (Vec<_>, Vec<_>) = hosts
        .into_iter()
        .partition(|(_, keys)| *keys == HostKeys::default());
    let own = own.into_iter().map(|(name, keys)| Rule {
        names: vec![name],
        keys,
        ..Rule::default()
    });
    let shared = (!plain.is_empty()).then(|| Rule {
        names: plain.into_iter().map(|(name, _)| name).collect(),
        ..Rule::default()
    });
    own.chain(shared).collect()
}

/// A value of `[target.iscsi]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Negotiated {
    Number(&'static str, u64),
    Switch(&'static str, bool),
    Words(&'static str, Vec<&'static str>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub name: String,
    pub alias: Option<String>,
    pub disabled: bool,
    /// Portal groups of the target. Empty: all.
    pub portal_groups: Vec<u16>,
    /// Relative identifiers of its ports, with the portal group where it has several.
    pub relative_ports: Vec<(Option<u16>, u16)>,
    pub rows: Vec<Row>,
    pub authentication: Authentication,
    pub negotiated: Vec<Negotiated>,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Subsystem {
    pub nqn: String,
    pub serial: Option<String>,
    pub rows: Vec<Row>,
    pub rules: Vec<Rule>,
}

/// An address of `[listen]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portal {
    pub address: String,
    pub tag: u16,
}

/// What an importer fills in while it reads.
#[derive(Debug)]
pub(crate) struct Draft {
    pub ledger: Ledger,
    pub volumes: Vec<Volume>,
    pub targets: Vec<Target>,
    pub subsystems: Vec<Subsystem>,
    pub iscsi: Vec<Portal>,
    pub nvme: Vec<String>,
    pub nvme_discovery: Vec<String>,
    pub discovery: Authentication,
    limits: BTreeMap<&'static str, String>,
    source: String,
}

/// A secret that stands in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// Name of the file with the secret, without its folder.
    pub name: String,
    pub secret: String,
}

/// The configuration for Longshore.
#[derive(Debug)]
pub struct Configuration {
    source: String,
    volumes: Vec<Volume>,
    targets: Vec<Target>,
    subsystems: Vec<Subsystem>,
    iscsi: Vec<Portal>,
    nvme: Vec<String>,
    nvme_discovery: Vec<String>,
    discovery: Authentication,
    limits: BTreeMap<&'static str, String>,
    open: bool,
}

/// A configuration and how it came about.
#[derive(Debug)]
pub struct Imported {
    pub configuration: Configuration,
    pub report: Report,
}

impl Draft {
    pub fn new(source: &Source) -> Self {
        Self {
            ledger: Ledger::default(),
            volumes: Vec::new(),
            targets: Vec::new(),
            subsystems: Vec::new(),
            iscsi: Vec::new(),
            nvme: Vec::new(),
            nvme_discovery: Vec::new(),
            discovery: Authentication::default(),
            limits: BTreeMap::new(),
            source: source.name.clone(),
        }
    }

    /// A name that volumes may have and that no volume has yet.
    pub fn free_volume_name(&self, wanted: &str) -> String {
        let taken = |name: &str| self.volumes.iter().any(|volume| volume.name == name);
        unique(wanted, taken)
    }

    pub fn volume_mut(&mut self, name: &str) -> Option<&mut Volume> {
        self.volumes.iter_mut().find(|volume| volume.name == name)
    }

    /// The target with a port of this relative identifier.
    pub fn owner_of_port(&self, identifier: u16) -> Option<&str> {
        let has = |target: &&Target| target.relative_ports.iter().any(|it| it.1 == identifier);
        self.targets
            .iter()
            .find(has)
            .map(|target| target.name.as_str())
    }

    /// Keeps the relative identifier of a port of `target`, which is not among the targets yet. Tells whether it can be
    /// kept: 0 is none, and the ports of all targets have different ones.
    pub fn keep_port(&self, target: &mut Target, tag: u16, identifier: u16) -> bool {
        let mut own = target.relative_ports.iter();
        let is_taken = own.any(|(port, taken)| *port == Some(tag) || *taken == identifier);
        let keeps = identifier != 0 && !is_taken && self.owner_of_port(identifier).is_none();
        if keeps {
            target.relative_ports.push((Some(tag), identifier));
        }
        keeps
    }

    /// Sets a value of `[limits]`, which all targets share.
    pub fn limit(&mut self, at: &At, key: &'static str, value: String) {
        match self.limits.get(key) {
            Some(other) if *other != value => self.ledger.ignored(
                at,
                format!("`limits.{key}` holds for all targets, and is {other} already"),
            ),
            _ => {
                self.ledger.mapped(at, format!("limits.{key} = {value}"));
                self.limits.insert(key, value);
            }
        }
    }

    /// The tag of a portal, which is added when it is new.
    pub fn portal(&mut self, address: &str) -> u16 {
        if let Some(portal) = self.iscsi.iter().find(|portal| portal.address == address) {
            return portal.tag;
        }
        let tag = self.iscsi.iter().map(|portal| portal.tag).max();
        let tag = tag.map_or(1, |tag| tag.saturating_add(1));
        self.iscsi.push(Portal {
            address: address.to_owned(),
            tag,
        });
        tag
    }

    pub fn finish(mut self) -> Imported {
        let secrets: BTreeSet<&str> = self
            .accounts()
            .map(|account| account.secret.as_str())
            .collect();
        if secrets.iter().any(|secret| secret.len() < 12) {
            self.ledger.note(
                "a CHAP secret has fewer than 12 bytes, so it can be found by trying; choose longer ones",
            );
        }
        for target in &self.targets {
            let (ports, given) = (target.portal_groups.len(), target.relative_ports.len());
            if given > 0 && ports > given {
                self.ledger.note(format!(
                    "target {}: `relative-port` has the numbers of {given} of {ports} ports, as each portal is a port here; \
                     the others get free numbers",
                    target.name
                ));
            }
        }
        let open = self.is_open();
        if open {
            self.ledger.note(
                "the source admits initiators or hosts without CHAP and without a rule on addresses that other machines \
                 reach; `listen.allow-open = true` keeps this. Add rules, and remove that line",
            );
        }
        let configuration = Configuration {
            source: self.source,
            volumes: self.volumes,
            targets: self.targets,
            subsystems: self.subsystems,
            iscsi: self.iscsi,
            nvme: self.nvme,
            nvme_discovery: self.nvme_discovery,
            discovery: self.discovery,
            limits: self.limits,
            open,
        };
        Imported {
            configuration,
            report: self.ledger.into_report(),
        }
    }

    fn accounts(&self) -> impl Iterator<Item = &Account> {
        let targets = self.targets.iter().flat_map(|target| {
            let rules = target.rules.iter().map(|rule| &rule.authentication);
            rules.chain([&target.authentication])
        });
        targets
            .chain([&self.discovery])
            .flat_map(|it| it.accounts.iter().chain(&it.mutual))
    }

    fn is_open(&self) -> bool {
        let target_open = |target: &Target| {
            let authenticated = !target.authentication.accounts.is_empty();
            let admits_all = |rule: &Rule| {
                rule.names.iter().any(|name| name == "*") && rule.authentication.accounts.is_empty()
            };
            let by_name = !target.rules.is_empty() && !target.rules.iter().any(admits_all);
            !authenticated && !by_name
        };
        let subsystem_open = |subsystem: &Subsystem| {
            let admits_all = |rule: &Rule| rule.names.iter().any(|name| name == "*");
            subsystem.rules.is_empty() || subsystem.rules.iter().any(admits_all)
        };
        let far = |address: &str| !is_loopback(address);
        let iscsi = self.iscsi.iter().any(|portal| far(&portal.address));
        let nvme = self.nvme.iter().any(|address| far(address));
        (iscsi && self.targets.iter().any(target_open))
            || (nvme && self.subsystems.iter().any(subsystem_open))
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `wanted` with letters that names may have, cut to their length, and a number behind it where it is taken.
pub(crate) fn unique(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let allowed = |c: char| match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
        _ => '-',
    };
    let mut name: String = wanted.chars().map(allowed).take(56).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name.insert_str(0, "volume");
    }
    if !taken(&name) {
        return name;
    }
    let numbered = (2..u32::MAX).map(|number| format!("{name}-{number}"));
    let mut free = numbered.filter(|name| !taken(name));
    free.next().expect("there are fewer volumes than numbers")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// Writes TOML, and gives each secret a file.
struct Writer<'a> {
    text: String,
    folder: &'a str,
    secrets: Vec<SecretFile>,
}

impl Configuration {
    /// Number of volumes, targets and subsystems.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        (
            self.volumes.len(),
            self.targets.len(),
            self.subsystems.len(),
        )
    }

    /// The file, and those of its secrets, which lie in `folder`: a path from the file's own.
    #[must_use]
    pub fn to_toml(&self, folder: &str) -> (String, Vec<SecretFile>) {
        let mut writer = Writer {
            text: format!("# From {}\n", self.source.escape_default()),
            folder,
            secrets: Vec::new(),
        };
        for volume in &self.volumes {
            writer.volume(volume);
        }
        for target in &self.targets {
            writer.target(target);
        }
        for subsystem in &self.subsystems {
            writer.subsystem(subsystem);
        }
        if self.discovery != Authentication::default() {
            writer.line("\n[discovery]");
            writer.authentication("discovery", &self.discovery);
        }
        self.listen(&mut writer);
        if !self.limits.is_empty() {
            writer.line("\n[limits]");
            for (key, value) in &self.limits {
                writer.line(&format!("{key} = {value}"));
            }
        }
        (writer.text, writer.secrets)
    }

    fn listen(&self, writer: &mut Writer<'_>) {
        if self.iscsi.is_empty() && self.nvme.is_empty() {
            return;
        }
        writer.line("\n[listen]");
        if !self.iscsi.is_empty() {
            let several = self.iscsi.iter().any(|portal| portal.tag != 1);
            let portal = |portal: &Portal| match several {
                true => format!("{},tag={}", portal.address, portal.tag),
                false => portal.address.clone(),
            };
            let portals: Vec<String> = self.iscsi.iter().map(portal).collect();
            writer.line(&format!("iscsi = {}", list(&portals)));
        }
        if !self.nvme.is_empty() {
            writer.line(&format!("nvme = {}", list(&self.nvme)));
        }
        if !self.nvme_discovery.is_empty() {
            writer.line(&format!("nvme-discovery = {}", list(&self.nvme_discovery)));
        }
        if self.open {
            writer.line("# Anybody who reaches these addresses is admitted, as by the server this came from.");
            writer.line("allow-open = true");
        }
    }
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn text_key(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.line(&format!("{key} = {}", quoted(value)));
        }
    }

    fn volume(&mut self, volume: &Volume) {
        self.line("\n[[volume]]");
        self.text_key("name", Some(&volume.name));
        let backend = match volume.backend {
            Backend::Null => "null",
            Backend::Mem => "mem",
            Backend::File => "file",
            Backend::Block => "block",
        };
        self.line(&format!("backend = \"{backend}\""));
        self.text_key("path", volume.path.as_ref());
        if let Some(size) = volume.size_bytes {
            self.line(&format!("size = {size}"));
        }
        if let Some(size) = volume.block_size.filter(|size| *size != 512) {
            self.line(&format!("block-size = {size}"));
        }
        let switches = [
            ("enabled = false", volume.disabled),
            ("read-only = true", volume.read_only),
            ("direct = true", volume.direct),
            ("write-through = true", volume.write_through),
        ];
        for (line, _) in switches.iter().filter(|(_, on)| *on) {
            self.line(line);
        }
        self.text_key("vendor", volume.vendor.as_ref());
        self.text_key("product", volume.product.as_ref());
        self.text_key("serial", volume.serial.as_ref());
        self.text_key("naa", volume.naa.as_ref());
        self.text_key("nguid", volume.nguid.as_ref());
        self.text_key("eui64", volume.eui64.as_ref());
        self.text_key("uuid", volume.uuid.as_ref());
    }

    fn rows(&mut self, map: &str, number: &str, rows: &[Row]) {
        if rows.is_empty() {
            return self.line(&format!("{map} = []"));
        }
        self.line(&format!("{map} = ["));
        for row in rows {
            let read_only = if row.read_only {
                ", read-only = true"
            } else {
                ""
            };
            let volume = quoted(&row.volume);
            self.line(&format!(
                "  {{ {number} = {}, volume = {volume}{read_only} }},",
                row.number
            ));
        }
        self.line("]");
    }

    fn target(&mut self, target: &Target) {
        self.line("\n[[target]]");
        self.text_key("name", Some(&target.name));
        if target.disabled {
            self.line("enabled = false");
        }
        self.text_key("alias", target.alias.as_ref());
        if !target.portal_groups.is_empty() {
            self.line(&format!("portal-groups = {:?}", target.portal_groups));
        }
        match (&*target.relative_ports, &*target.portal_groups) {
            ([], _) => {}
            ([(_, number)], [] | [_]) => self.line(&format!("relative-port = {number}")),
            (ports, groups) => {
                let port = |(tag, number): &(Option<u16>, u16)| {
                    let tag = tag.or(groups.first().copied()).unwrap_or(1);
                    format!("{tag} = {number}")
                };
                let ports: Vec<String> = ports.iter().map(port).collect();
                self.line(&format!("relative-port = {{ {} }}", ports.join(", ")));
            }
        }
        self.rows("luns", "lun", &target.rows);
        self.authentication(short(&target.name), &target.authentication);
        if !target.negotiated.is_empty() {
            self.line("\n[target.iscsi]");
            for value in &target.negotiated {
                let line = match value {
                    Negotiated::Number(key, value) => format!("{key} = {value}"),
                    Negotiated::Switch(key, value) => format!("{key} = {value}"),
                    Negotiated::Words(key, words) => format!("{key} = {}", list(words)),
                };
                self.line(&line);
            }
        }
        for rule in &target.rules {
            self.rule("target", "initiators", ("luns", "lun"), rule);
            self.authentication(short(&target.name), &rule.authentication);
        }
    }

    fn subsystem(&mut self, subsystem: &Subsystem) {
        self.line("\n[[subsystem]]");
        self.text_key("nqn", Some(&subsystem.nqn));
        self.text_key("serial", subsystem.serial.as_ref());
        self.rows("namespaces", "nsid", &subsystem.rows);
        for rule in &subsystem.rules {
            self.rule("subsystem", "hosts", ("namespaces", "nsid"), rule);
            self.keys(short(&subsystem.nqn), rule);
        }
    }

    fn rule(&mut self, owner: &str, names: &str, map: (&str, &str), rule: &Rule) {
        self.line(&format!("\n[[{owner}.access]]"));
        self.line(&format!("{names} = {}", list(&rule.names)));
        if let Some(rows) = &rule.rows {
            self.rows(map.0, map.1, rows);
        }
        if rule.read_only {
            self.line("read-only = true");
        }
    }

    fn keys(&mut self, owner: &str, rule: &Rule) {
        let keys = &rule.keys;
        let host = rule.names.first().map_or("host", |name| short(name));
        let secrets = [
            ("dhchap-secret-file", "", &keys.dhchap),
            ("dhchap-ctrl-secret-file", "-ctrl", &keys.dhchap_ctrl),
        ];
        for (line, suffix, key) in secrets {
            if let Some(key) = key {
                let path = self.key_file(&format!("{owner}-{host}{suffix}.dhchap"), key);
                self.line(&format!("{line} = {path}"));
            }
        }
        for (line, value) in [
            ("dhchap-hashes", &keys.hash),
            ("dhchap-groups", &keys.group),
        ] {
            if let Some(value) = value {
                self.line(&format!("{line} = {}", list(&[value])));
            }
        }
        if let Some(key) = &keys.tls {
            let path = self.key_file(&format!("{owner}-{host}.psk"), key);
            self.line(&format!("tls-key-files = [{path}]"));
        }
    }

    /// The quoted path of a file with a key.
    fn key_file(&mut self, wanted: &str, key: &Key) -> String {
        match key {
            Key::File(path) => quoted(path),
            Key::Text(secret) => self.secret_file(wanted, secret),
        }
    }

    fn authentication(&mut self, owner: &str, authentication: &Authentication) {
        if !authentication.accounts.is_empty() {
            self.line("accounts = [");
            for account in &authentication.accounts {
                let account = self.account(owner, account);
                self.line(&format!("  {account},"));
            }
            self.line("]");
        }
        if let Some(mutual) = &authentication.mutual {
            let account = self.account(&format!("{owner}-mutual"), mutual);
            self.line(&format!("mutual = {account}"));
        }
    }

    /// The quoted path of the file with a secret, one for all that have it.
    fn secret_file(&mut self, wanted: &str, secret: &str) -> String {
        let same = |file: &&SecretFile| file.secret == secret;
        let taken = |name: &str| self.secrets.iter().any(|file| file.name == name);
        let name = match self.secrets.iter().find(same) {
            Some(file) => file.name.clone(),
            None => {
                let name = unique(wanted, taken);
                self.secrets.push(SecretFile {
                    name: name.clone(),
                    secret: secret.to_owned(),
                });
                name
            }
        };
        quoted(&format!("{}/{name}", self.folder))
    }

    fn account(&mut self, owner: &str, account: &Account) -> String {
        let path = self.secret_file(&format!("{owner}-{}", account.user), &account.secret);
        let mut text = String::new();
        let user = quoted(&account.user);
        let _ = write!(text, "{{ user = {user}, secret-file = {path} }}");
        text
    }
}

/// What stands behind the date and the domain of a name.
fn short(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, short)| short)
}
