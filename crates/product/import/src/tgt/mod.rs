//! tgt: `targets.conf`, which tgt-admin reads by Perl's Config::General.
//!
//! tgt's LUN 0 is its controller, so disks begin at 1: backing stores first, direct stores after them, each kind in the
//! order of their paths, and `lun N` where it stands. Targets are numbered in the order of their names, each one higher
//! than that before, or as `controller_tid` says. Disks have a name and a serial number that follow from both numbers.

mod grammar;

use std::collections::BTreeMap;

use crate::configuration::{Account, Backend, Draft, Row, Rule, Target, Volume};
use crate::report::At;
use crate::source::{ImportError, Options, Source};
use crate::values;
use grammar::{Block, Directive, Item};

/// Bytes of tgt's serial numbers.
const SERIAL_BYTES: usize = 36;

/// A serial number with tgt's blanks before it, so that the page is the same here.
fn right_aligned(serial: &str) -> String {
    format!("{serial:>SERIAL_BYTES$}")
}

pub(crate) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let items = grammar::parse(source, options, &mut draft.ledger)?;
    if draft.iscsi.is_empty() {
        draft.portal("0.0.0.0:3260");
        draft.ledger.note("tgt listens on all addresses unless its command line says otherwise (`--iscsi portal=`)");
    }
    let mut default_driver = "iscsi".to_owned();
    // Blocks of one name are one target there.
    let mut targets: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for item in items {
        match item {
            Item::Directive(directive) => global(&directive, &mut default_driver, draft),
            Item::Block(block) if block.kind == "target" => {
                targets.entry(block.name.clone()).or_default().push(block);
            }
            Item::Block(block) => {
                let why = "this block is not known here";
                block.each(&mut |at| draft.ledger.refused(at, why));
            }
        }
    }
    let mut number = 0;
    for blocks in targets.values() {
        number = own_number(blocks).unwrap_or(number + 1);
        read_target(blocks, number, &default_driver, draft);
    }
    Ok(())
}

/// The number that a target was given.
fn own_number(blocks: &[Block]) -> Option<u32> {
    let items = blocks.iter().flat_map(|block| &block.items);
    let mut numbers = items.filter_map(|item| match item {
        Item::Directive(it) if it.key == "controller_tid" => it.value.parse().ok(),
        _ => None,
    });
    numbers.next_back().filter(|number| *number < u32::MAX)
}

fn global(directive: &Directive, default_driver: &mut String, draft: &mut Draft) {
    let at = &directive.at;
    match directive.key.as_str() {
        "default-driver" => {
            directive.value.clone_into(default_driver);
            match directive.value.as_str() {
                "iscsi" => draft.ledger.same_as_default(at),
                driver => draft
                    .ledger
                    .refused(at, format!("driver `{driver}`: only iSCSI is served")),
            }
        }
        "incomingdiscoveryuser" | "incominguser" => match account(&directive.value) {
            Some(account) => {
                draft.discovery.accounts.push(account);
                draft.ledger.mapped(at, "[discovery]");
            }
            None => draft.ledger.refused(at, NO_ACCOUNT),
        },
        "outgoingdiscoveryuser" => match account(&directive.value) {
            Some(account) => {
                draft.discovery.mutual = Some(account);
                draft.ledger.mapped(at, "[discovery]");
            }
            None => draft.ledger.refused(at, NO_ACCOUNT),
        },
        "ignore-errors" => draft.ledger.ignored(at, "of tgt-admin"),
        "control-port" => draft
            .ledger
            .ignored(at, "the control API has a socket of its own"),
        key if key.starts_with("isns") => match values::switch(&directive.value) {
            Some(false) => draft.ledger.same_as_default(at),
            _ => draft
                .ledger
                .refused(at, "the server does not register with an iSNS server"),
        },
        _ => draft.ledger.refused(at, "this directive is not known here"),
    }
}

/// `None`: it is not a user and a secret. What `tgt-admin --dump` writes in place of a secret is none.
fn account(text: &str) -> Option<Account> {
    let mut parts = text.split_whitespace();
    let (user, secret) = (parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && secret != "PLEASE_CORRECT_THE_PASSWORD";
    is_whole.then(|| Account {
        user: user.to_owned(),
        secret: secret.to_owned(),
    })
}

const NO_ACCOUNT: &str =
    "an account is a user and a secret, which `tgt-admin --dump` leaves out: take it from /etc/tgt";

/// A store of a target.
struct Store {
    at: At,
    path: String,
    /// LUN that the directive `lun` gives.
    number: Option<u32>,
    direct: bool,
    /// It has directives of its own.
    is_block: bool,
    disk: Disk,
    refused: bool,
}

/// Properties that stand at a target for all its stores, or in a store for it alone.
#[derive(Clone, Default)]
struct Disk {
    write_through: bool,
    read_only: bool,
    direct: bool,
    block_size: Option<u64>,
    vendor: Option<String>,
    product: Option<String>,
    serial: Option<String>,
}

fn read_target(blocks: &[Block], number: u32, default_driver: &str, draft: &mut Draft) {
    let refuse = |draft: &mut Draft, why: &str| {
        for block in blocks {
            block.each(&mut |at| draft.ledger.refused(at, why));
        }
    };
    let items = || blocks.iter().flat_map(|block| &block.items);
    let name = blocks.first().map_or("", |block| block.name.as_str());
    if !values::iscsi_name(name) {
        let why =
            "this is no iSCSI name (iqn.YYYY-MM.domain:name); hosts have to log in to a new one";
        return refuse(draft, why);
    }
    if default_driver != "iscsi" && !items().any(is_iscsi) {
        let why = format!("driver `{default_driver}`: only iSCSI is served");
        return refuse(draft, &why);
    }
    let mut target = Target {
        name: name.to_owned(),
        ..Target::default()
    };
    let (mut stores, mut names, mut common) = (Vec::new(), Vec::new(), Disk::default());
    for item in items() {
        match item {
            Item::Directive(directive) => match directive.key.as_str() {
                "backing-store" | "direct-store" => stores.push(store(directive)),
                "initiator-name" => initiator(directive, &mut names, draft),
                _ => {
                    let taken = disk(directive, &mut common, draft);
                    if !taken {
                        of_target(directive, &mut target, draft);
                    }
                }
            },
            Item::Block(inner) => stores.push(store_block(inner, draft)),
        }
    }
    if !names.is_empty() {
        target.rules.push(Rule {
            names,
            ..Rule::default()
        });
    }
    for block in blocks {
        draft.ledger.mapped(&block.at, format!("target {name}"));
    }
    for (store, lun) in numbered(stores, draft) {
        serve(store, (number, lun), &common, &mut target, draft);
    }
    draft.targets.push(target);
}

fn is_iscsi(item: &Item) -> bool {
    matches!(item, Item::Directive(it) if it.key == "driver" && it.value == "iscsi")
}

fn initiator(directive: &Directive, names: &mut Vec<String>, draft: &mut Draft) {
    for name in directive
        .value
        .split([',', ' '])
        .filter(|name| !name.is_empty())
    {
        match name {
            "ALL" => names.push("*".to_owned()),
            name if values::iscsi_name(name) => names.push(name.to_owned()),
            _ => {
                return draft
                    .ledger
                    .refused(&directive.at, format!("`{name}` is no iSCSI name"));
            }
        }
    }
    draft.ledger.mapped(&directive.at, "initiators of a rule");
}

fn store(directive: &Directive) -> Store {
    Store {
        at: directive.at.clone(),
        path: directive.value.clone(),
        number: None,
        direct: directive.key == "direct-store",
        is_block: false,
        disk: Disk::default(),
        refused: false,
    }
}

fn store_block(block: &Block, draft: &mut Draft) -> Store {
    let mut store = Store {
        at: block.at.clone(),
        path: block.name.clone(),
        number: None,
        direct: block.kind == "direct-store",
        is_block: true,
        disk: Disk::default(),
        refused: false,
    };
    if block.kind != "backing-store" && block.kind != "direct-store" {
        let why = "this block is not known here";
        block.each(&mut |at| draft.ledger.refused(at, why));
        store.refused = true;
        return store;
    }
    for item in &block.items {
        let Item::Directive(directive) = item else {
            if let Item::Block(inner) = item {
                inner.each(&mut |at| draft.ledger.refused(at, "a block within a store"));
            }
            continue;
        };
        let at = &directive.at;
        if disk(directive, &mut store.disk, draft) {
            continue;
        }
        match directive.key.as_str() {
            "lun" => match directive.value.parse::<u32>() {
                Ok(number @ 1..=16_383) => {
                    store.number = Some(number);
                    draft.ledger.mapped(at, format!("LUN {number}"));
                }
                _ => draft.ledger.refused(at, "LUNs are numbers from 1 to 16383"),
            },
            "mode_page" | "params" => {
                draft
                    .ledger
                    .refused(at, "mode pages and parameters of a device cannot be set");
            }
            _ => draft.ledger.refused(at, "this directive is not known here"),
        }
    }
    store
}

/// Stores with their LUNs: those that are given, and the free numbers from 1 for the others, in the order of their paths.
fn numbered(mut stores: Vec<Store>, draft: &mut Draft) -> Vec<(Store, u32)> {
    for direct in [false, true] {
        let is_mixed = |is_block: bool| {
            let mut of_kind = stores.iter().filter(|store| store.direct == direct);
            of_kind.any(|store| store.is_block == is_block && !store.refused)
        };
        if is_mixed(true) && is_mixed(false) {
            let why = "tgt-admin does not take stores with and without directives of their own in one target";
            for store in stores.iter_mut().filter(|it| it.direct == direct) {
                draft.ledger.refused(&store.at, why);
                store.refused = true;
            }
        }
    }
    stores.retain(|store| !store.refused);
    stores.sort_by(|one, other| (one.direct, &one.path).cmp(&(other.direct, &other.path)));
    let mut taken: Vec<u32> = stores.iter().filter_map(|store| store.number).collect();
    let number = |store: Store| {
        let lun = store.number.unwrap_or_else(|| {
            let free = (1..u32::MAX).find(|lun| !taken.contains(lun));
            free.expect("there are fewer stores than numbers")
        });
        taken.push(lun);
        (store, lun)
    };
    stores.into_iter().map(number).collect()
}

fn serve(store: Store, place: (u32, u32), common: &Disk, target: &mut Target, draft: &mut Draft) {
    let (tid, lun) = place;
    if store.direct {
        draft.ledger.note(format!(
            "{}: tgt copies the names of the disk behind a direct store; take them from a host (`sg_inq`)",
            store.path
        ));
    }
    let device = store.path.starts_with("/dev/");
    let own = store.disk;
    let short = target
        .name
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .to_owned();
    let name = draft.free_volume_name(&format!("{short}-{lun}"));
    draft
        .ledger
        .mapped(&store.at, format!("LUN {lun}, volume `{name}`"));
    draft.volumes.push(Volume {
        name: name.clone(),
        backend: if device {
            Backend::Block
        } else {
            Backend::File
        },
        path: Some(store.path),
        block_size: own.block_size.or(common.block_size),
        read_only: own.read_only || common.read_only,
        direct: own.direct || common.direct,
        write_through: own.write_through || common.write_through,
        vendor: own
            .vendor
            .or(common.vendor.clone())
            .or(Some("IET".to_owned())),
        product: own
            .product
            .or(common.product.clone())
            .or(Some("VIRTUAL-DISK".to_owned())),
        serial: own
            .serial
            .or(common.serial.clone())
            .or(Some(right_aligned(&format!("beaf{tid}{lun}")))),
        naa: Some(format!("naa.60000000000000000e{tid:010x}{lun:04x}")),
        ..Volume::default()
    });
    target.rows.push(Row {
        number: lun,
        volume: name,
        read_only: false,
    });
}

/// Whether the directive is a property of disks.
fn disk(directive: &Directive, disk: &mut Disk, draft: &mut Draft) -> bool {
    let (at, value) = (&directive.at, directive.value.as_str());
    let on = values::switch(value);
    let text = |max: usize| Some(value.to_owned()).filter(|it| values::printable(it, max));
    match directive.key.as_str() {
        "write-cache" => {
            disk.write_through = on == Some(false);
            match disk.write_through {
                true => draft.ledger.mapped(at, "write-through = true"),
                false => draft.ledger.same_as_default(at),
            }
        }
        "readonly" => {
            disk.read_only = on == Some(true);
            match disk.read_only {
                true => draft.ledger.mapped(at, "read-only = true"),
                false => draft.ledger.same_as_default(at),
            }
        }
        "block-size" => match value.parse() {
            Ok(size @ (512 | 4096)) => {
                disk.block_size = Some(size);
                draft.ledger.mapped(at, "block-size");
            }
            _ => draft
                .ledger
                .refused(at, "logical blocks have 512 or 4096 bytes here"),
        },
        "vendor_id" | "product_id" | "scsi_sn" => {
            let (max, key) = match directive.key.as_str() {
                "vendor_id" => (8, "vendor"),
                "product_id" => (16, "product"),
                _ => (SERIAL_BYTES, "serial"),
            };
            // tgt cuts what is longer.
            let cut: String = value.chars().take(max).collect();
            let taken = match text(max) {
                Some(text) => Some(text),
                None => Some(cut.trim_end().to_owned()).filter(|it| values::printable(it, max)),
            };
            match (taken, key) {
                (None, _) => draft
                    .ledger
                    .refused(at, format!("{key}: 1 to {max} ASCII characters")),
                (taken, key) => {
                    match key {
                        "vendor" => disk.vendor = taken,
                        "product" => disk.product = taken,
                        _ => disk.serial = taken.as_deref().map(right_aligned),
                    }
                    draft.ledger.mapped(at, key);
                }
            }
        }
        "bs-type" => match value {
            "rdwr" | "aio" => draft
                .ledger
                .ignored(at, "the server chooses how it reads and writes"),
            "null" => draft
                .ledger
                .refused(at, "set `backend = \"null\"` and a size by hand"),
            _ => draft
                .ledger
                .refused(at, format!("there is no backend for `{value}`")),
        },
        "bsoflags" => {
            disk.direct = value.contains("direct");
            disk.write_through |= value.contains("sync");
            draft.ledger.mapped(at, "direct, write-through");
        }
        "device-type" => match value {
            "disk" => draft.ledger.same_as_default(at),
            _ => draft
                .ledger
                .refused(at, format!("`{value}`: only disks are served")),
        },
        "removable" | "online" => match on == Some(directive.key == "online") {
            true => draft.ledger.same_as_default(at),
            false => draft.ledger.refused(at, "media do not come and go here"),
        },
        "scsi_id" | "sense_format" | "allow-in-use" | "thin-provisioning" | "thin_provisioning" => {
            draft.ledger.ignored(at, "the server finds its own value");
        }
        _ => return false,
    }
    true
}

fn of_target(directive: &Directive, target: &mut Target, draft: &mut Draft) {
    let (at, value) = (&directive.at, directive.value.as_str());
    match directive.key.as_str() {
        "incominguser" => match account(value) {
            Some(account) => {
                target.authentication.accounts.push(account);
                draft.ledger.mapped(at, "accounts");
            }
            None => draft.ledger.refused(at, NO_ACCOUNT),
        },
        "outgoinguser" => match account(value) {
            Some(account) => {
                target.authentication.mutual = Some(account);
                draft.ledger.mapped(at, "mutual");
            }
            None => draft.ledger.refused(at, NO_ACCOUNT),
        },
        "initiator-address" => match value {
            "ALL" => draft.ledger.same_as_default(at),
            _ => draft.ledger.refused(
                at,
                "initiators are admitted by name, not by address; use `[[target.access]]`, or a firewall",
            ),
        },
        "driver" => match value {
            "iscsi" => draft.ledger.same_as_default(at),
            driver => draft.ledger.refused(at, format!("driver `{driver}`: only iSCSI is served")),
        },
        "controller_tid" => match value.parse::<u32>() {
            Ok(_) => draft.ledger.mapped(at, "names and serial numbers of the disks"),
            Err(_) => draft.ledger.refused(at, "this is no number of a target"),
        },
        "allow-in-use" | "nop_count" => draft.ledger.ignored(at, "the server has limits of its own"),
        "nop_interval" => match value.parse::<u64>() {
            Ok(seconds) => draft.limit(at, "nop-interval", seconds.to_string()),
            Err(_) => draft.ledger.refused(at, "this is no number of seconds"),
        },
        key => match values::negotiated(key, value) {
            Some(Ok(negotiated)) => {
                target.negotiated.push(negotiated);
                draft.ledger.mapped(at, "[target.iscsi]");
            }
            Some(Err(why)) => draft.ledger.refused(at, why),
            None => draft.ledger.refused(at, "this directive is not known here"),
        },
    }
}
