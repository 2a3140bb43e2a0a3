//! Which loads are measured, and what is wanted of them.

use anyhow::Result;

use super::bound::{Bound, Quantity, Test};
use super::lab::{Lab, Load, Which};
use super::set::Set;
use crate::bench::point::Protocol;
use crate::servers::Backend;

const TGT: &str = "CPU per operation against tgt, null volume: 10 times less";
const FLOOR: &str = "CPU per operation against `bench/floor`: 1.3 times at 512 B and 4 KiB, 1.1 times from 64 KiB on";
const SPDK: &str = "IOPS with the server's core saturated: ahead of SPDK 26.05";
const FILE: &str = "4 KiB random reads of a file in the page cache: 1.8 times the null volume's CPU, ahead of SPDK on a file";
const BUSY: &str = "the same with a busy process on the server's core: half the throughput within 20 %, p99 at most 5 times";
const QUIET_TGT: &str = "queue depth 1 against tgt: 2 times the IOPS, lower p99";
const QUIET_SPDK: &str = "queue depth 1, spinning allowed, client polling: ahead of SPDK";
const SEQUENTIAL: &str = "1 MiB in order, page cache, bytes per second of the server's core: 1.5 times tgt, the floor within 1.2 times";
const DIGESTS: &str = "CRC32C digests on, 64 KiB reads: at most 10 % lower throughput";
const ENGINES: &str = "epoll against io_uring: at most 1.5 times the CPU per operation";

/// A set, before its servers run.
#[derive(Debug, Clone)]
pub struct Planned {
    load: Load,
    kind: Kind,
}

/// What a load is measured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Beside the floor, and where it is iSCSI and small, tgt; IOPS against SPDK.
    Null,
    /// IOPS of volumes in memory, beside SPDK.
    Memory,
    /// A file beside the null volume.
    File,
    /// With a busy process, beside without.
    Busy,
    /// One operation at a time, beside tgt.
    Quiet,
    /// The same with both sides spinning.
    Spinning,
    Sequential,
    Digests,
    Engines,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Null | Self::Memory => "",
            Self::File => "-beside-null",
            Self::Busy => "-busy",
            Self::Quiet => "-quiet",
            Self::Spinning => "-spinning",
            Self::Sequential => "-sequential",
            Self::Digests => "-digests",
            Self::Engines => "-engines",
        }
    }
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Iscsi, Protocol::Nvme];
const DEEP: [u32; 2] = [32, 128];

/// All of them; a few for a small run.
pub fn all(quick: bool) -> Vec<Planned> {
    let mut sets = Vec::new();
    let mut add = |kind, protocol, backend, order, size, depth, options| {
        let load = Load {
            protocol,
            backend,
            order,
            size,
            depth,
            options,
        };
        sets.push(Planned { load, kind });
    };
    if quick {
        for protocol in PROTOCOLS {
            add(
                Kind::Null,
                protocol,
                Backend::Null,
                "randread",
                4096,
                32,
                "",
            );
        }
        add(
            Kind::Sequential,
            Protocol::Iscsi,
            Backend::File,
            "write",
            1 << 20,
            8,
            "",
        );
        add(
            Kind::Busy,
            Protocol::Nvme,
            Backend::File,
            "randread",
            4096,
            32,
            "",
        );
        return sets;
    }
    for protocol in PROTOCOLS {
        for depth in DEEP {
            for order in ["randread", "randwrite"] {
                for size in [512, 4096, 65_536, 1 << 20] {
                    add(Kind::Null, protocol, Backend::Null, order, size, depth, "");
                }
            }
            for (order, size) in [("randread", 512), ("randread", 4096), ("randwrite", 4096)] {
                add(
                    Kind::Memory,
                    protocol,
                    Backend::Memory,
                    order,
                    size,
                    depth,
                    "",
                );
            }
            for kind in [Kind::File, Kind::Busy] {
                add(kind, protocol, Backend::File, "randread", 4096, depth, "");
            }
        }
        for order in ["read", "write"] {
            add(
                Kind::Sequential,
                protocol,
                Backend::File,
                order,
                1 << 20,
                8,
                "",
            );
        }
        add(
            Kind::Spinning,
            protocol,
            Backend::Null,
            "randread",
            4096,
            1,
            "--spin",
        );
        add(
            Kind::Digests,
            protocol,
            Backend::Null,
            "randread",
            65_536,
            32,
            "",
        );
        for (backend, order) in [
            (Backend::Null, "randread"),
            (Backend::File, "randread"),
            (Backend::File, "randwrite"),
        ] {
            add(Kind::Engines, protocol, backend, order, 4096, 32, "");
        }
    }
    for options in ["", "--spin"] {
        for (backend, order, size) in [
            (Backend::Null, "randread", 512),
            (Backend::Null, "randread", 4096),
            (Backend::File, "randread", 4096),
            (Backend::File, "randwrite", 4096),
        ] {
            add(
                Kind::Quiet,
                Protocol::Iscsi,
                backend,
                order,
                size,
                1,
                options,
            );
        }
    }
    sets
}

impl Planned {
    /// The name that `--only` selects by.
    pub fn name(&self) -> String {
        let load = &self.load;
        let protocol = match load.protocol {
            Protocol::Iscsi => "iscsi",
            Protocol::Nvme => "nvme",
        };
        let order = load.order.trim_start_matches("rand");
        let polling = if load.options.contains("--spin") && self.kind == Kind::Quiet {
            "-polling"
        } else {
            ""
        };
        format!(
            "{protocol}-{}-{order}-{}-{}{}{polling}",
            load.backend.name(),
            load.size,
            load.depth,
            self.kind.name()
        )
    }

    /// With its servers running.
    pub fn set(&self, lab: &Lab<'_>) -> Result<Set> {
        let load = &self.load;
        let mut set = Set {
            name: self.name(),
            ways: Vec::new(),
            tests: Vec::new(),
            size: load.size,
            longer: 1.0,
        };
        let mut way = |name, which, load: &Load| -> Result<()> {
            set.ways.push(lab.way(name, which, load)?);
            Ok(())
        };
        way("longshore", Which::Ours, load)?;
        let mut tests = Vec::new();
        let mut test = |group, quantity, first, second, bound| {
            tests.push(Test {
                group,
                quantity,
                first,
                second,
                bound,
            });
        };
        match self.kind {
            Kind::Null => {
                way("floor", Which::Floor, load)?;
                let most = if load.size < 65_536 { 1.3 } else { 1.1 };
                test(FLOOR, Quantity::Cpu, 0, 1, Bound::AtMost(most));
                let is_read = load.order == "randread";
                if load.protocol == Protocol::Iscsi && is_read && load.size < 65_536 {
                    way("tgt", Which::Tgt, load)?;
                    test(TGT, Quantity::Cpu, 2, 0, Bound::AtLeast(10.0));
                }
                if is_read && load.size < 65_536 || load.size == 4096 {
                    test(SPDK, Quantity::Measured, 0, 0, spdk(load));
                }
            }
            Kind::Memory => test(SPDK, Quantity::Measured, 0, 0, spdk(load)),
            Kind::File => {
                let null = Load {
                    backend: Backend::Null,
                    ..load.clone()
                };
                way("null", Which::Ours, &null)?;
                test(FILE, Quantity::Cpu, 0, 1, Bound::AtMost(1.8));
                test(FILE, Quantity::Measured, 0, 0, spdk(load));
            }
            Kind::Busy => {
                way("disturbed", Which::Ours, load)?;
                test(BUSY, Quantity::Iops, 1, 0, Bound::AtLeast(0.4));
                test(BUSY, Quantity::P99, 1, 0, Bound::AtMost(5.0));
            }
            Kind::Quiet => {
                way("tgt", Which::Tgt, load)?;
                test(QUIET_TGT, Quantity::Iops, 0, 1, Bound::AtLeast(2.0));
                test(QUIET_TGT, Quantity::P99, 0, 1, Bound::AtMost(1.0));
            }
            Kind::Spinning => {
                way("spinning", Which::Spinning, load)?;
                let least = match load.protocol {
                    Protocol::Iscsi => 63_000.0,
                    Protocol::Nvme => 42_000.0,
                };
                test(QUIET_SPDK, Quantity::Measured, 1, 1, Bound::AtLeast(least));
            }
            Kind::Sequential => {
                way("floor", Which::FloorFile, load)?;
                test(
                    SEQUENTIAL,
                    Quantity::BytesPerCpu,
                    0,
                    1,
                    Bound::AtLeast(1.0 / 1.2),
                );
                if load.protocol == Protocol::Iscsi {
                    way("tgt", Which::Tgt, load)?;
                    test(SEQUENTIAL, Quantity::BytesPerCpu, 0, 2, Bound::AtLeast(1.5));
                }
            }
            Kind::Digests => {
                let with = Load {
                    options: "--header-digest crc32c --data-digest crc32c",
                    ..load.clone()
                };
                way("with digests", Which::Ours, &with)?;
                test(DIGESTS, Quantity::Iops, 1, 0, Bound::AtLeast(0.9));
                test(DIGESTS, Quantity::Cpu, 1, 0, Bound::Reported);
            }
            Kind::Engines => {
                set.ways.clear();
                set.ways.push(lab.way("io_uring", Which::Uring, load)?);
                set.ways.push(lab.way("epoll", Which::Epoll, load)?);
                test(ENGINES, Quantity::Cpu, 1, 0, Bound::AtMost(1.5));
            }
        }
        if self.kind == Kind::Busy {
            set.ways[1].disturbed = true;
            // The scheduler gives each a few milliseconds at a time.
            set.longer = 2.0;
        }
        set.tests = tests;
        Ok(set)
    }
}

/// What SPDK 26.05 reached on one core of another machine of this kind, median of some runs.
fn spdk(load: &Load) -> Bound {
    use Backend::{File, Memory, Null};
    use Protocol::{Iscsi, Nvme};
    let key = (
        load.protocol,
        load.backend,
        load.order,
        load.size,
        load.depth,
    );
    let thousands = match key {
        (Iscsi, Null, "randread", 512, 32) => 921.0,
        (Iscsi, Null, "randread", 512, 128) => 997.0,
        (Iscsi, Null, "randread", 4096, 32) => 445.0,
        (Iscsi, Null, "randread", 4096, 128) => 439.0,
        (Iscsi, Memory, "randread", 4096, 32) => 422.0,
        (Iscsi, Memory, "randread", 4096, 128) => 458.0,
        (Nvme, Null, "randread", 512, 32) => 483.0,
        (Nvme, Null, "randread", 512, 128) => 1167.0,
        (Nvme, Null, "randread", 4096, 32) => 355.0,
        (Nvme, Null, "randread", 4096, 128) => 410.0,
        (Nvme, Memory, "randread", 4096, 32) => 298.0,
        (Nvme, Memory, "randread", 4096, 128) => 332.0,
        (Nvme, Null, "randwrite", 4096, 32) => 460.0,
        (Nvme, Null, "randwrite", 4096, 128) => 692.0,
        // Of a file there are figures for NVMe/TCP alone.
        (_, File, "randread", 4096, 32) => 155.0,
        (_, File, "randread", 4096, 128) => 203.0,
        _ => return Bound::Reported,
    };
    Bound::AtLeast(thousands * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_set_has_a_name_of_its_own() {
        let sets = all(false);
        let names: BTreeSet<String> = sets.iter().map(Planned::name).collect();
        assert_eq!(names.len(), sets.len());
        assert!(names.contains("iscsi-null-read-4096-32"));
        assert!(names.contains("nvme-file-read-4096-128-busy"));
    }

    #[test]
    fn a_small_run_is_part_of_the_whole() {
        let names: BTreeSet<String> = all(false).iter().map(Planned::name).collect();
        for planned in all(true) {
            assert!(names.contains(&planned.name()), "{}", planned.name());
        }
    }
}
