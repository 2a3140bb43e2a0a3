//! Handlers and devices: attributes of virtual disks as keys of volumes.

use longshore_api::object::Keys;
use serde_json::Value;

use crate::change::{Change, Wanted};
use crate::command::{parameters, switch};
use crate::errno::{EBUSY, EEXIST, EROFS, Refusal};
use crate::node::Handler;
use crate::state::{Device, State, volume};

/// Size of a `vdisk_nullio` device that names none.
const NULL_BYTES: u64 = 2_621_440 << 20;

/// Size of `/dev/zero` as a device.
const ZERO_BYTES: u64 = 1 << 40;

/// Attributes that are accepted at creation and have no effect.
const IGNORED: [&str; 14] = [
    "rotational",
    "thin_provisioned",
    "zero_copy",
    "async",
    "numa_node_id",
    "tst",
    "expl_alua",
    "threads_num",
    "threads_pool_type",
    "opt_trans_len",
    "lb_per_pb_exp",
    "bind_alua_state",
    "pr_file_name",
    "max_tgt_dev_commands",
];

/// Attributes that can only be off.
const OFF: [&str; 5] = ["nv_cache", "dummy", "removable", "cluster_mode", "dif_mode"];

/// Attributes that a device shows, beside `type`.
const SHOWN: [&str; 15] = [
    "filename",
    "blocksize",
    "read_only",
    "write_through",
    "o_direct",
    "nv_cache",
    "size",
    "size_mb",
    "active",
    "t10_dev_id",
    "t10_vend_id",
    "prod_id",
    "usn",
    "naa_id",
    "resync_size",
];

/// An attribute as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub value: String,
    /// scstadmin writes it into its file.
    pub is_key: bool,
    pub mode: u16,
}

impl Attribute {
    pub fn fixed(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            is_key: false,
            mode: 0o444,
        }
    }

    pub fn settable(value: impl Into<String>, is_key: bool) -> Self {
        Self {
            value: value.into(),
            is_key,
            mode: 0o644,
        }
    }

    /// The text of its file.
    pub fn text(&self) -> String {
        match self.is_key {
            true => format!("{}\n[key]\n", self.value),
            false => format!("{}\n", self.value),
        }
    }
}

fn text_of<'a>(keys: &'a Keys, key: &str) -> &'a str {
    keys.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_on(keys: &Keys, key: &str) -> bool {
    keys.get(key) == Some(&Value::Bool(true))
}

/// Files without a size and without a medium.
fn is_zero(path: &str) -> bool {
    matches!(path, "/dev/zero" | "/dev/full")
}

impl Device {
    #[must_use]
    pub fn handler(&self) -> Handler {
        match text_of(&self.keys, "backend") {
            "null" => Handler::Null,
            "file"
                if is_zero(self.filename()) && text_of(&self.keys, "inline-writes") == "never" =>
            {
                Handler::Block
            }
            "file" => Handler::File,
            "block" if is_on(&self.keys, "direct") => Handler::Block,
            "block" => Handler::File,
            _ => Handler::Other,
        }
    }

    #[must_use]
    pub fn block_size(&self) -> u64 {
        match self.keys.get("block-size") {
            Some(Value::Number(size)) => size.as_u64().unwrap_or(512),
            Some(Value::String(size)) => size.parse().unwrap_or(4096),
            _ => 512,
        }
    }

    /// The file or device.
    #[must_use]
    pub fn filename(&self) -> &str {
        match text_of(&self.keys, "path") {
            "" => text_of(&self.keys, "url"),
            path => path,
        }
    }

    /// Options as the old table shows them.
    pub(crate) fn options(&self) -> String {
        let keys = &self.keys;
        let all = [
            ("WT", is_on(keys, "write-through")),
            ("RO", is_on(keys, "read-only")),
            ("NIO", self.handler() == Handler::Null),
            (
                "BIO",
                self.handler() == Handler::Block || is_on(keys, "direct"),
            ),
        ];
        let on = all.iter().filter(|(_, on)| *on);
        on.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }

    /// The T10 identifier is made of the serial number.
    pub(crate) fn t10_dev_id(&self) -> &str {
        match text_of(&self.keys, "serial") {
            "" => &self.serial,
            serial => serial,
        }
    }
}

pub(crate) fn names(device: &Device) -> Vec<&'static str> {
    let shown = SHOWN
        .iter()
        .copied()
        .filter(|name| attribute(device, name).is_some());
    shown.chain(["type"]).collect()
}

pub(crate) fn attribute(device: &Device, name: &str) -> Option<Attribute> {
    let (keys, handler) = (&device.keys, device.handler());
    let flag = |key| {
        let on = is_on(keys, key);
        Attribute {
            mode: 0o444,
            ..Attribute::settable(u8::from(on).to_string(), on)
        }
    };
    let word = |key| {
        let value = text_of(keys, key);
        Attribute::settable(value, !value.is_empty())
    };
    Some(match name {
        "type" => Attribute::fixed("0 - Direct-access device (e.g., magnetic disk)"),
        "filename" if handler == Handler::Null => return None,
        "filename" => Attribute {
            is_key: true,
            ..Attribute::fixed(device.filename())
        },
        "blocksize" => Attribute {
            is_key: device.block_size() != 512,
            ..Attribute::fixed(device.block_size().to_string())
        },
        "read_only" => flag("read-only"),
        "write_through" => flag("write-through"),
        "o_direct" if handler == Handler::File => flag("direct"),
        "nv_cache" if handler != Handler::Null => Attribute::fixed("0"),
        "size" => Attribute {
            is_key: handler == Handler::Null && device.size_bytes != NULL_BYTES,
            ..Attribute::fixed(device.size_bytes.to_string())
        },
        "size_mb" => Attribute::fixed((device.size_bytes >> 20).to_string()),
        "active" => {
            let is_active = keys.get("enabled") != Some(&Value::Bool(false));
            Attribute::settable(u8::from(is_active).to_string(), !is_active)
        }
        "t10_dev_id" => Attribute::settable(device.t10_dev_id(), false),
        "usn" => match text_of(keys, "serial") {
            "" => Attribute::settable(&*device.serial, false),
            serial => Attribute::settable(serial, true),
        },
        "t10_vend_id" => word("vendor"),
        "prod_id" => word("product"),
        "naa_id" => {
            let value = text_of(keys, "naa");
            let digits = value.trim_start_matches("naa.").trim_start_matches("0x");
            let shown = if value.is_empty() {
                String::new()
            } else {
                format!("0x{digits}")
            };
            Attribute::settable(shown, !value.is_empty())
        }
        "resync_size" => Attribute {
            mode: 0o200,
            ..Attribute::fixed("")
        },
        _ => return None,
    })
}

/// Parameters that a handler lists.
pub(crate) fn listed(handler: Handler) -> Vec<&'static str> {
    let own: &[&str] = match handler {
        Handler::Null => &["size", "size_mb"],
        Handler::File => &["filename", "o_direct"],
        Handler::Block => &["filename"],
        Handler::Cdrom | Handler::Other => return Vec::new(),
    };
    let all = ["blocksize", "read_only", "write_through", "active"];
    let names = ["usn", "t10_dev_id", "t10_vend_id", "prod_id", "naa_id"];
    own.iter()
        .chain(&all)
        .chain(&names)
        .chain(&OFF)
        .chain(&IGNORED)
        .copied()
        .collect()
}

/// Sets what one attribute says. `Ok(false)`: it has no effect here.
fn set(keys: &mut Keys, handler: Handler, name: &str, value: &str) -> Result<bool, Refusal> {
    let bad = || Refusal::invalid(format!("{name}: `{value}` is no value of it"));
    let flag = || switch(value).ok_or_else(bad);
    if !listed(handler).contains(&name) {
        return Err(Refusal::invalid(format!(
            "{} has no attribute `{name}`",
            handler.name()
        )));
    }
    let mut put = |key: &str, value: Value| {
        keys.insert(key.to_owned(), value);
    };
    match name {
        "filename" => put("path", value.into()),
        "blocksize" => match value {
            "512" | "4096" => put(
                "block-size",
                value.parse::<u64>().map_err(|_| bad())?.into(),
            ),
            _ => {
                let text = format!("blocksize {value}: blocks have 512 or 4096 bytes here");
                return Err(Refusal::invalid(text));
            }
        },
        "read_only" => put("read-only", flag()?.into()),
        "write_through" if handler == Handler::Null => drop(flag()?),
        "write_through" => put("write-through", flag()?.into()),
        "o_direct" => put("direct", flag()?.into()),
        "active" => put("enabled", flag()?.into()),
        "size" | "size_mb" => {
            let shift = if name == "size" { 0 } else { 20 };
            let bytes = value
                .parse::<u64>()
                .ok()
                .and_then(|it| it.checked_mul(1 << shift));
            put("size", bytes.ok_or_else(bad)?.into());
        }
        "t10_dev_id" => {
            if keys.contains_key("serial") {
                return Ok(false);
            }
            keys.insert("serial".to_owned(), value.into());
        }
        "usn" => put("serial", value.into()),
        "t10_vend_id" => put("vendor", value.into()),
        "prod_id" => put("product", value.into()),
        "naa_id" => put("naa", value.to_ascii_lowercase().into()),
        _ if OFF.contains(&name) => {
            if flag()? {
                let text = match name {
                    "nv_cache" => {
                        "nv_cache acknowledges flushes without carrying them out: data would be lost"
                    }
                    _ => "not supported",
                };
                return Err(Refusal::invalid(format!("{name}=1: {text}")));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Carries out `add_device NAME parameters`.
pub(crate) fn add(
    state: &State,
    handler: Handler,
    name: &str,
    rest: &str,
) -> Result<Wanted, Refusal> {
    match handler {
        Handler::Cdrom => return Err(Refusal::unsupported("there are no virtual CD-ROMs here")),
        Handler::Other => {
            let text = "such volumes are made by `longshore volume create`";
            return Err(Refusal::unsupported(text));
        }
        _ => {}
    }
    if state.devices.contains_key(name) {
        return Err(Refusal::new(
            EEXIST,
            format!("device {name} is there already"),
        ));
    }
    let mut parameters = parameters(rest)
        .map_err(|bad| Refusal::invalid(format!("`{}` is not key=value", bad.0)))?;
    // The order of the tools is random, and `usn` goes before `t10_dev_id`.
    parameters.sort_by_key(|(key, _)| *key == "t10_dev_id");
    let mut keys = Keys::new();
    let mut ignored = Vec::new();
    for (key, value) in parameters {
        if !set(&mut keys, handler, key, value)? {
            ignored.push(format!("device {name}: {key} has no effect here"));
        }
    }
    let path = text_of(&keys, "path").to_owned();
    let is_zero = is_zero(&path);
    if is_zero {
        keys.insert("size".to_owned(), ZERO_BYTES.into());
    }
    let backend = match handler {
        Handler::Null => {
            keys.entry("size").or_insert(NULL_BYTES.into());
            "null"
        }
        _ if path.is_empty() => {
            return Err(Refusal::invalid(format!("device {name} needs `filename`")));
        }
        _ if !path.starts_with('/') => {
            return Err(Refusal::invalid(format!(
                "filename {path}: it must be absolute"
            )));
        }
        Handler::Block if is_zero => {
            // It cannot be opened past the page cache. What remains of BLOCKIO is that the event loop does not write itself.
            keys.insert("inline-writes".to_owned(), "never".into());
            "file"
        }
        Handler::Block => {
            keys.insert("direct".to_owned(), true.into());
            if state.is_block_device(&path) {
                "block"
            } else {
                "file"
            }
        }
        _ if !is_zero && state.is_block_device(&path) => "block",
        _ => "file",
    };
    keys.insert("backend".to_owned(), backend.into());
    let change = Change::Objects {
        objects: vec![(volume(name), Some(keys))],
        create: true,
        replace: false,
    };
    Ok(Wanted { change, ignored })
}

/// `del_device NAME`: any handler of virtual disks closes those of the others, as in SCST.
pub(crate) fn remove(state: &State, name: &str) -> Result<Change, Refusal> {
    if !state.devices.contains_key(name) {
        return Err(Refusal::missing(format!("there is no device {name}")));
    }
    if let Some(export) = state.exports_of(name).first() {
        let text = format!("device {name} is LUN {} of {}", export.lun, export.target);
        return Err(Refusal::new(EBUSY, text));
    }
    if state.in_subsystems.contains_key(name) {
        let text = format!("device {name} is a namespace of an NVMe subsystem");
        return Err(Refusal::new(EBUSY, text));
    }
    Ok(Change::objects(vec![(volume(name), None)]))
}

/// A write to an attribute.
pub(crate) fn write(state: &State, name: &str, key: &str, value: &str) -> Result<Wanted, Refusal> {
    let missing = || Refusal::missing(format!("there is no device {name}"));
    let device = state.devices.get(name).ok_or_else(missing)?;
    let attribute = attribute(device, key).ok_or_else(missing)?;
    if key == "resync_size" {
        return Ok(Change::Refresh(name.to_owned()).into());
    }
    if attribute.value == value {
        return Ok(Change::Nothing.into());
    }
    if attribute.mode & 0o200 == 0 {
        return Err(Refusal::new(
            EROFS,
            format!("{key} is decided when a device is made"),
        ));
    }
    let mut keys = device.keys.clone();
    if value.is_empty() {
        let cleared = match key {
            "usn" => "serial",
            "t10_vend_id" => "vendor",
            "prod_id" => "product",
            "naa_id" => "naa",
            _ => return Err(Refusal::invalid(format!("{key}: no value is given"))),
        };
        keys.remove(cleared);
    } else {
        let handler = match device.handler() {
            Handler::Other => Handler::File,
            handler => handler,
        };
        if !set(&mut keys, handler, key, value)? {
            return Ok(Wanted {
                change: Change::Nothing,
                ignored: vec![format!("device {name}: {key} has no effect beside `usn`")],
            });
        }
    }
    if key == "active" {
        return Ok(Change::put(volume(name), keys).into());
    }
    if !state.exports_of(name).is_empty() || state.in_subsystems.contains_key(name) {
        let text = format!("{key}: device {name} is mapped, and hosts know it by this name");
        return Err(Refusal::new(EBUSY, text));
    }
    let id = volume(name);
    Ok(Change::Reopen { id, keys }.into())
}
