//! What is measured.

use crate::servers::Backend;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Iscsi,
    Nvme,
}

/// One point: what is done, in which size, at which depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub protocol: Protocol,
    pub backend: Backend,
    pub operation: &'static str,
    pub size: u32,
    pub depth: u32,
    /// CRC32C over the data of each PDU.
    pub data_digest: bool,
}

/// Volume, operation and size, to be measured at some depths.
type Kind = (Backend, &'static str, u32);

/// What is compared with `tgt`, and over iSCSI with an earlier server.
const ISCSI: &[Kind] = &[
    (Backend::File, "read", 512),
    (Backend::File, "read", 4_096),
    (Backend::File, "read", 65_536),
    (Backend::File, "write", 4_096),
    (Backend::File, "write", 65_536),
    (Backend::File, "write", 1 << 20),
    (Backend::Null, "read", 512),
    (Backend::Null, "read", 4_096),
    (Backend::Null, "read", 65_536),
    (Backend::Null, "write", 4_096),
    (Backend::Null, "write", 65_536),
    (Backend::Null, "write", 1 << 20),
];

/// What is compared between the protocols.
const NVME: &[Kind] = &[
    (Backend::Null, "read", 512),
    (Backend::Null, "read", 4_096),
    (Backend::Null, "read", 65_536),
    (Backend::Null, "write", 4_096),
    (Backend::Null, "write", 131_072),
    (Backend::Memory, "read", 4_096),
    (Backend::Memory, "write", 4_096),
    (Backend::File, "read", 4_096),
];

/// Where instructions are counted. A volume without storage leaves what the protocols cost.
const COUNTED: &[Kind] = &[
    (Backend::Null, "read", 512),
    (Backend::Null, "read", 4_096),
    (Backend::Null, "read", 65_536),
    (Backend::Null, "write", 4_096),
    (Backend::Null, "write", 65_536),
];

/// Where instructions must not become more.
const GUARDED: &[Kind] = &[
    (Backend::Null, "read", 512),
    (Backend::Null, "read", 4_096),
    (Backend::Null, "write", 4_096),
];

/// The same of volumes with storage, where many operations are under way. A volume in memory copies by a string instruction,
/// of which each byte counts. Large writes have no point: how many receives they take depends on when data come, and
/// with it a third of what is counted.
const GUARDED_DEEP: &[Kind] = &[
    (Backend::File, "read", 4_096),
    (Backend::Memory, "read", 512),
];

/// The same, with data digests.
const GUARDED_DIGESTS: &[Kind] = &[(Backend::Null, "read", 4_096)];

const QUICK: &[Kind] = &[(Backend::Null, "read", 4_096)];

/// Points of the comparison with `tgt`.
pub fn beside_tgt(quick: bool) -> Vec<Point> {
    let depths: &[u32] = if quick { &[1, 32] } else { &[1, 8, 32, 128] };
    points(Protocol::Iscsi, ISCSI, depths)
}

/// Points over NVMe; each has its counterpart over iSCSI.
pub fn protocols(quick: bool) -> Vec<Point> {
    if quick {
        return points(Protocol::Nvme, QUICK, &[32]);
    }
    points(Protocol::Nvme, NVME, &[1, 32, 128])
}

/// Points of the comparison with an earlier server.
pub fn before(quick: bool) -> Vec<Point> {
    if quick {
        return points(Protocol::Iscsi, QUICK, &[32]);
    }
    points(Protocol::Iscsi, ISCSI, &[1, 32, 128])
}

/// Points whose instructions are counted.
pub fn counted(protocol: Protocol, quick: bool) -> Vec<Point> {
    let kinds = if quick { QUICK } else { COUNTED };
    points(protocol, kinds, &[1, 32])
}

/// Points whose instructions have a limit.
pub fn guarded() -> Vec<Point> {
    let of = |protocol| {
        let digests = points(protocol, GUARDED_DIGESTS, &[32]);
        let digests = digests.into_iter().map(|point| Point {
            data_digest: true,
            ..point
        });
        let mut all = points(protocol, GUARDED, &[1, 32]);
        all.extend(points(protocol, GUARDED_DEEP, &[32]));
        all.extend(digests);
        all
    };
    [of(Protocol::Iscsi), of(Protocol::Nvme)].concat()
}

fn points(protocol: Protocol, kinds: &[Kind], depths: &[u32]) -> Vec<Point> {
    let of_kind = |&(backend, operation, size): &Kind| {
        depths.iter().map(move |&depth| Point {
            protocol,
            backend,
            operation,
            size,
            depth,
            data_digest: false,
        })
    };
    kinds.iter().flat_map(of_kind).collect()
}

impl Point {
    /// The name that `--only` selects by.
    pub fn name(self) -> String {
        let protocol = match self.protocol {
            Protocol::Iscsi => "iscsi",
            Protocol::Nvme => "nvme",
        };
        let digest = if self.data_digest { "-digest" } else { "" };
        format!(
            "{protocol}-{}-{}-{}-{}{digest}",
            self.backend.name(),
            self.operation,
            self.size,
            self.depth
        )
    }

    /// The same over the other protocol.
    pub fn over(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// The first cells of its row: volume, operation and depth.
    pub fn cells(self) -> String {
        format!(
            "| {} | {} {} | {} |",
            self.backend.name(),
            self.operation,
            bytes(self.size),
            self.depth
        )
    }
}

/// A size as people say it.
pub fn bytes(count: u32) -> String {
    match count {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % 1024 == 0 => format!("{} KiB", b >> 10),
        b if b >= 1 << 10 => format!("{:.1} KiB", f64::from(b) / 1024.0),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_small_run_has_a_point_of_each_protocol() {
        assert!(!beside_tgt(true).is_empty());
        let nvme = protocols(true);
        assert_eq!(nvme.len(), 1);
        assert_eq!(nvme[0].name(), "nvme-null-read-4096-32");
        assert_eq!(nvme[0].cells(), "| null | read 4 KiB | 32 |");
        assert_eq!(
            nvme[0].over(Protocol::Iscsi).name(),
            "iscsi-null-read-4096-32"
        );
    }

    #[test]
    fn points_that_are_guarded_have_names_of_their_own() {
        let names: BTreeSet<String> = guarded().into_iter().map(Point::name).collect();
        assert_eq!(names.len(), guarded().len());
        assert!(names.contains("nvme-null-read-4096-32-digest"));
        assert!(names.contains("iscsi-file-read-4096-32"));
    }
}
