//! Attributes of SCST's virtual disks.

use crate::configuration::{Backend, Draft, Volume};
use crate::report::At;
use crate::values;

/// Size of a `vdisk_nullio` device that names none, in MiB.
const NULL_MIB: u64 = 2_621_440;

/// What a device becomes.
pub(super) enum Made {
    Volume(Box<Volume>),
    /// A LUN that is not there: `dummy`.
    Nothing,
    Refused,
}

/// A device while its attributes are read.
pub(super) struct Device {
    pub volume: Volume,
    pub handler: String,
    dummy: bool,
    refused: bool,
    named: bool,
    has_t10_id: bool,
}

impl Device {
    pub fn new(handler: &str) -> Self {
        let mut volume = Volume {
            backend: match handler {
                "vdisk_blockio" => Backend::Block,
                "vdisk_nullio" => Backend::Null,
                _ => Backend::File,
            },
            ..Volume::default()
        };
        volume.direct = handler == "vdisk_blockio";
        Self {
            volume,
            handler: handler.to_owned(),
            dummy: false,
            refused: false,
            named: false,
            has_t10_id: false,
        }
    }

    pub fn attribute(
        &mut self,
        at: &At,
        (key, value): (&str, &str),
        unsafe_cache: bool,
        draft: &mut Draft,
    ) {
        let ledger = &mut draft.ledger;
        let volume = &mut self.volume;
        let on = values::switch(value) == Some(true);
        let mut switch = |place: &mut bool, to: &str| {
            *place = on;
            match on {
                true => ledger.mapped(at, to),
                false => ledger.same_as_default(at),
            }
        };
        match key {
            "filename" => {
                volume.path = Some(value.to_owned());
                ledger.mapped(at, "path");
            }
            "blocksize" => match value.parse() {
                Ok(size @ (512 | 4096)) => {
                    volume.block_size = Some(size);
                    ledger.mapped(at, "block-size");
                }
                _ => {
                    self.refused = true;
                    ledger.refused(at, "logical blocks have 512 or 4096 bytes here");
                }
            },
            "read_only" => switch(&mut volume.read_only, "read-only = true"),
            "write_through" => switch(&mut volume.write_through, "write-through = true"),
            "o_direct" => switch(&mut volume.direct, "direct = true"),
            "dummy" => switch(&mut self.dummy, "no LUN: a dummy has no medium"),
            "nv_cache" if on && unsafe_cache => {
                ledger.mapped(at, "an ordinary write cache: flushes reach the medium");
            }
            "nv_cache" if on => {
                self.refused = true;
                ledger.refused(
                    at,
                    "unsafe: flushes are acknowledged and not carried out. `--accept unsafe-cache` serves it safely",
                );
            }
            "active" => {
                volume.disabled = !on;
                match on {
                    true => ledger.same_as_default(at),
                    false => ledger.mapped(at, "enabled = false"),
                }
            }
            "size" | "size_mb" => {
                let shift = if key == "size" { 0 } else { 20 };
                let bytes = value
                    .parse::<u64>()
                    .ok()
                    .and_then(|it| it.checked_mul(1 << shift));
                match (bytes, volume.backend) {
                    (Some(bytes), Backend::Null) => {
                        volume.size_bytes = Some(bytes);
                        ledger.mapped(at, "size");
                    }
                    (Some(_), _) => ledger.ignored(at, "the file or device has its own size"),
                    (None, _) => ledger.refused(at, "this is no size"),
                }
            }
            "usn" | "t10_vend_id" | "prod_id" => {
                let (max, to) = match key {
                    "usn" => (64, "serial"),
                    "t10_vend_id" => (8, "vendor"),
                    _ => (16, "product"),
                };
                if !values::printable(value, max) {
                    return ledger.refused(at, format!("{to}: 1 to {max} ASCII characters"));
                }
                let place = match key {
                    "usn" => &mut volume.serial,
                    "t10_vend_id" => &mut volume.vendor,
                    _ => &mut volume.product,
                };
                *place = Some(value.to_owned());
                self.named |= key == "usn";
                ledger.mapped(at, to);
            }
            "naa_id" => match values::naa(value) {
                Some(naa) => {
                    volume.naa = Some(naa);
                    ledger.mapped(at, "naa");
                }
                None => ledger.refused(at, "worldwide names have type 3, 5 or 6"),
            },
            "t10_dev_id" => {
                self.has_t10_id = true;
                ledger.ignored(
                    at,
                    "the T10 designator follows from vendor, product and serial; hosts use the NAA name first",
                );
            }
            "cluster_mode" | "removable" | "dif_mode" | "dif_type" | "dif_filename"
            | "dif_static_app_tag" | "tst"
                if on =>
            {
                self.refused = true;
                ledger.refused(at, "this is not supported");
            }
            "zero_copy"
            | "async"
            | "rotational"
            | "thin_provisioned"
            | "tst"
            | "removable"
            | "cluster_mode"
            | "dif_mode"
            | "dif_type"
            | "expl_alua"
            | "threads_num"
            | "threads_pool_type"
            | "numa_node_id"
            | "opt_trans_len"
            | "prod_rev_lvl"
            | "scsi_device_name"
            | "pr_file_name"
            | "max_tgt_dev_commands"
            | "inq_vend_specific"
            | "lb_per_pb_exp"
            | "bind_alua_state"
            | "gen_tp_soft_threshold_reached_UA" => {
                ledger.ignored(at, "the server finds its own value");
            }
            _ => {
                self.refused = true;
                ledger.refused(at, "this attribute is not known here");
            }
        }
    }

    /// What is served, and what to look at before the move.
    pub fn finish(mut self, at: &At, label: &str, draft: &mut Draft) -> Made {
        if self.dummy {
            return Made::Nothing;
        }
        if self.refused {
            draft.ledger.refused(at, "one of its attributes is refused");
            return Made::Refused;
        }
        let on_device = self
            .volume
            .path
            .as_ref()
            .is_some_and(|path| path.starts_with("/dev/"));
        match self.volume.backend {
            Backend::File if on_device => self.volume.backend = Backend::Block,
            Backend::Null => {
                self.volume.path = None;
                self.volume.size_bytes.get_or_insert(NULL_MIB << 20);
            }
            _ => {}
        }
        if self.volume.backend != Backend::Null && self.volume.path.is_none() {
            draft.ledger.refused(at, "a device without `filename`");
            return Made::Refused;
        }
        self.volume
            .vendor
            .get_or_insert_with(|| match self.handler.as_str() {
                "vdisk_blockio" => "SCST_BIO".to_owned(),
                _ => "SCST_FIO".to_owned(),
            });
        let product: String = label.chars().take(16).collect();
        if values::printable(&product, 16) {
            self.volume.product.get_or_insert(product);
        }
        if !self.named {
            draft.ledger.note(format!(
                "device `{label}`: its serial number (`usn`) is not in the file; take it from a host (`sg_inq`), \
                 and set `serial`, so that hosts know the disk again"
            ));
        }
        if self.has_t10_id && self.volume.naa.is_none() {
            draft.ledger.note(format!(
                "device `{label}`: without `naa_id`, SCST names it by `t10_dev_id`, which cannot be kept: hosts see another \
                 name of the disk (`/dev/disk/by-id`, `wwid` of multipath); name it by file system or by LVM in their \
                 settings before the move, or set `naa_id` in SCST first"
            ));
        }
        self.volume.name = draft.free_volume_name(label);
        Made::Volume(Box::new(self.volume))
    }
}
