//! Distances between cores.
//!
//! What the kernel has received on one core is in that core's caches. A reactor on another core gets it from the
//! nearest cache both share: L2, L3, or the memory of their NUMA node. Linux describes that in files, which are read once
//! when the server starts:
//!
//! ```text
//! /sys/devices/system/cpu/cpuN/topology/thread_siblings_list 0,8
//! /sys/devices/system/cpu/cpuN/cache/indexM/level            2
//!                                          /type             Unified
//!                                          /shared_cpu_list  0-1,8-9
//! /sys/devices/system/node/online                            0-1
//! /sys/devices/system/node/nodeN/cpulist                     0-3,8-11
//! ```
//!
//! Containers and virtual machines may have none of these, or some that say little. What is missing or not understood
//! makes cores far from each other, as if nothing were known.
//!
//! Threads of one core (SMT) share its caches, but also its execution units, and so the time of a core that receives for others.
//! That loses more than the caches gain: any other core of the node is better, and only one of another node is worse. Threads
//! that the system does not call so count by their caches.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

/// More caches than a core has.
const CACHES_MAX: usize = 16;
/// More NUMA nodes than a system has (Linux: MAX_NUMNODES).
const NODES_MAX: usize = 1024;
/// More text than these files hold.
const TEXT_MAX: u64 = 64 << 10;

/// What two cores share, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// They are one core.
    Same,
    L2,
    L3,
    /// Memory of one NUMA node.
    Node,
    /// They are threads of one core (SMT), whatever else they share.
    Sibling,
    /// Nothing that is known.
    Far,
}

/// A core and those that share something with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    core: usize,
    siblings: CoreList,
    l2: CoreList,
    l3: CoreList,
    node: CoreList,
}

impl Surroundings {
    /// What this system says of a core.
    pub(crate) fn of(core: usize) -> Self {
        Self::described(core, text_of)
    }

    /// What `text_of` files says of a core.
    pub(crate) fn described(core: usize, text_of: impl Fn(&Path) -> Option<String>) -> Self {
        let [mut l2, mut l3] = [CoreList::default(), CoreList::default()];
        for cache in 0..CACHES_MAX {
            let of_cache = |name: &str| {
                let path = format!("/sys/devices/system/cpu/cpu{core}/cache/index{cache}/{name}");
                text_of(Path::new(&path))
            };
            let Some(level) = of_cache("level") else {
                break;
            };
            let shared_by = match level.trim() {
                "2" => &mut l2,
                "3" => &mut l3,
                _ => continue,
            };
            // A cache of instructions holds nothing that was received.
            if of_cache("type").is_none_or(|kind| kind.trim() != "Instruction") {
                *shared_by = of_cache("shared_cpu_list")
                    .and_then(|text| CoreList::parsed(&text))
                    .unwrap_or_default();
            }
        }
        let siblings = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        let siblings = text_of(Path::new(&siblings))
            .and_then(|text| CoreList::parsed(&text))
            .unwrap_or_default();
        let node = nodes(&text_of)
            .find(|cores| cores.contains(core))
            .unwrap_or_default();
        Self {
            core,
            siblings,
            l2,
            l3,
            node,
        }
    }

    /// How near `other` is to this core.
    pub(crate) fn nearness(&self, other: usize) -> Nearness {
        if other == self.core {
            Nearness::Same
        } else if self.siblings.contains(other) {
            Nearness::Sibling
        } else if self.l2.contains(other) {
            Nearness::L2
        } else if self.l3.contains(other) {
            Nearness::L3
        } else if self.node.contains(other) {
            Nearness::Node
        } else {
            Nearness::Far
        }
    }
}

/// The cores of each NUMA node.
fn nodes(text_of: &impl Fn(&Path) -> Option<String>) -> impl Iterator<Item = CoreList> {
    let online = text_of(Path::new("/sys/devices/system/node/online"))
        .and_then(|text| CoreList::parsed(&text))
        .unwrap_or_default();
    online
        .ranges
        .into_iter()
        .flatten()
        .take(NODES_MAX)
        .filter_map(move |node| {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            CoreList::parsed(&text_of(Path::new(&path))?)
        })
}

/// Numbers of cores as the kernel prints them: `0-3,8-11`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CoreList {
    ranges: Vec<RangeInclusive<usize>>,
}

impl CoreList {
    /// `None` for what is no such list. The empty text is the empty list.
    fn parsed(text: &str) -> Option<Self> {
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        let ranges = parts.map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        Some(Self {
            ranges: ranges.collect::<Option<_>>()?,
        })
    }

    fn contains(&self, core: usize) -> bool {
        self.ranges.iter().any(|range| range.contains(&core))
    }
}

/// The text of a file of the kernel, as far as it is one.
fn text_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(TEXT_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up system: for each core what it shares, as text. `-` stands for a file that is not there.
    pub(crate) struct System {
        pub(crate) siblings: &'static [&'static str],
        pub(crate) l2: &'static [&'static str],
        pub(crate) l3: &'static [&'static str],
        pub(crate) nodes: &'static [&'static str],
    }

    /// Four cores in two pairs with an L2 each, and no L3 (Core 2 Quad).
    pub(crate) const PAIRS: System = System {
        siblings: &["0", "1", "2", "3"],
        l2: &["0-1", "0-1", "2-3", "2-3"],
        l3: &["-"; 4],
        nodes: &["0-3"],
    };
    /// Two sockets of two cores with two threads each: siblings are N and N+4.
    pub(crate) const SOCKETS: System = System {
        siblings: &["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"],
        l2: &["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"],
        l3: &[
            "0-1,4-5", "0-1,4-5", "2-3,6-7", "2-3,6-7", "0-1,4-5", "0-1,4-5", "2-3,6-7", "2-3,6-7",
        ],
        nodes: &["0-1,4-5", "2-3,6-7"],
    };
    /// One socket, one node, L3 for each two cores (chiplets).
    pub(crate) const CHIPLETS: System = System {
        siblings: &["0", "1", "2", "3"],
        l2: &["0", "1", "2", "3"],
        l3: &["0-1", "0-1", "2-3", "2-3"],
        nodes: &["0-3"],
    };
    /// Two cores of two threads each, and no L3 (virtual machines).
    pub(crate) const THREADS: System = System {
        siblings: &["0-1", "0-1", "2-3", "2-3"],
        l2: &["0-1", "0-1", "2-3", "2-3"],
        l3: &["-"; 4],
        nodes: &["0-3"],
    };
    /// Nothing is said (a container without /sys).
    pub(crate) const SILENT: System = System {
        siblings: &[],
        l2: &[],
        l3: &[],
        nodes: &[],
    };

    impl System {
        pub(crate) fn around(&self, core: usize) -> Surroundings {
            Surroundings::described(core, |path| self.text(path.to_str()?))
        }

        fn text(&self, path: &str) -> Option<String> {
            let cpu = path.strip_prefix("/sys/devices/system/cpu/cpu");
            let text = if let Some(rest) = cpu
                && let Some(core) = rest.strip_suffix("/topology/thread_siblings_list")
            {
                *self.siblings.get(core.parse::<usize>().ok()?)?
            } else if let Some(rest) = cpu {
                let (core, rest) = rest.split_once("/cache/index")?;
                let core: usize = core.parse().ok()?;
                let (index, file) = rest.split_once('/')?;
                // As on x86: data, instructions, L2, L3.
                let (level, kind, shared) = match index {
                    "0" => ("1", "Data", "-"),
                    "1" => ("1", "Instruction", "-"),
                    "2" => ("2", "Unified", *self.l2.get(core)?),
                    "3" => ("3", "Unified", *self.l3.get(core)?),
                    _ => return None,
                };
                match file {
                    "level" => level,
                    "type" => kind,
                    "shared_cpu_list" => shared,
                    _ => return None,
                }
            } else if path == "/sys/devices/system/node/online" {
                return Some(format!("0-{}\n", self.nodes.len().checked_sub(1)?));
            } else {
                let rest = path.strip_prefix("/sys/devices/system/node/node")?;
                let node: usize = rest.strip_suffix("/cpulist")?.parse().ok()?;
                *self.nodes.get(node)?
            };
            (text != "-").then(|| format!("{text}\n"))
        }

        fn nearness(&self, core: usize) -> Vec<Nearness> {
            let around = self.around(core);
            let cores = 0..self.l2.len().max(2);
            cores.map(|other| around.nearness(other)).collect()
        }
    }

    #[test]
    fn cores_with_one_second_level_cache_are_nearest() {
        use Nearness::{L2, L3, Node, Same};
        assert_eq!(PAIRS.nearness(1), [L2, Same, Node, Node]);
        assert_eq!(PAIRS.nearness(2), [Node, Node, Same, L2]);
        assert_eq!(CHIPLETS.nearness(0), [Same, L3, Node, Node]);
    }

    #[test]
    fn threads_of_one_core_come_after_other_cores_of_their_node() {
        use Nearness::{Far, L3, Node, Same, Sibling};
        assert_eq!(
            SOCKETS.nearness(0),
            [Same, L3, Far, Far, Sibling, L3, Far, Far]
        );
        assert_eq!(
            SOCKETS.nearness(7),
            [Far, Far, L3, Sibling, Far, Far, L3, Same]
        );
        assert_eq!(THREADS.nearness(0), [Same, Sibling, Node, Node]);
        assert!(L3 < Node && Node < Sibling && Sibling < Far);
    }

    #[test]
    fn threads_that_are_not_said_to_be_some_count_by_their_caches() {
        for siblings in [&[][..], &["-"; 4], &["0-x"; 4], &[""; 4]] {
            let system = System {
                siblings,
                ..THREADS
            };
            use Nearness::{L2, Node, Same};
            assert_eq!(system.nearness(0), [Same, L2, Node, Node], "{siblings:?}");
        }
    }

    #[test]
    fn without_description_all_other_cores_are_far() {
        assert_eq!(SILENT.nearness(1), [Nearness::Far, Nearness::Same]);
    }

    #[test]
    fn lists_are_read_as_the_kernel_prints_them() {
        let list = CoreList::parsed("0-3,8,10-11\n").expect("a list");
        let contained: Vec<usize> = (0..13).filter(|core| list.contains(*core)).collect();
        assert_eq!(contained, [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(CoreList::parsed("\n"), Some(CoreList::default()));
        for text in ["x", "1-", "-1", "1-2-3", "0,y", "99999999999999999999"] {
            assert_eq!(CoreList::parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_text_takes_long_or_panics() {
        let most = format!("0-{}", usize::MAX);
        for text in ["", "2", "3", "7-2", "\u{0}", "garbage", &most] {
            let around = Surroundings::described(1, |_| Some(text.to_owned()));
            assert_eq!(around.nearness(1), Nearness::Same, "{text:?}");
            let _ = around.nearness(usize::MAX);
        }
    }

    #[test]
    fn a_cache_of_instructions_is_nothing_to_share() {
        let around = Surroundings::described(0, |path| {
            let text = match path.file_name()?.to_str()? {
                "level" => "2",
                "type" => "Instruction",
                "shared_cpu_list" => "0-1",
                _ => return None,
            };
            Some(text.to_owned())
        });
        assert_eq!(around.nearness(1), Nearness::Far);
    }

    #[test]
    fn this_system_is_read() {
        for core in longshore_reactor::affinity::allowed_cores().expect("cores") {
            assert_eq!(Surroundings::of(core).nearness(core), Nearness::Same);
        }
    }
}
