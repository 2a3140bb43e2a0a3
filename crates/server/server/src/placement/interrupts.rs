//! The core that takes the network's interrupts.
//!
//! Where one core receives most of what comes from the network, a reactor on it competes with the kernel's
//! receive path (NET_RX) for time that all other reactors depend on. With three cores or more that core is
//! left to the kernel. Cards with a queue for each core spread their interrupts, and then every core gets a
//! reactor beside its queue.

use std::fs;

/// With fewer cores none can be spared.
const CORES_LEAST: usize = 3;
/// Fewer receive interrupts since the system started say nothing.
const INTERRUPTS_LEAST: u64 = 10_000;

/// The core among `cores` that is better left to the kernel, if there is one.
pub(crate) fn busiest(cores: &[usize]) -> Option<usize> {
    if cores.len() < CORES_LEAST {
        return None;
    }
    let text = fs::read_to_string("/proc/softirqs").ok()?;
    chosen(&received(&text)?, cores)
}

/// The one that takes more than all others together.
fn chosen(received: &[(usize, u64)], cores: &[usize]) -> Option<usize> {
    let all: u64 = received.iter().map(|(_, count)| count).sum();
    let (core, count) = received.iter().max_by_key(|(_, count)| *count)?;
    let is_chosen = cores.len() >= CORES_LEAST
        && all >= INTERRUPTS_LEAST
        && *count > all / 2
        && cores.contains(core);
    is_chosen.then_some(*core)
}

/// How often each core has received from the network: the row NET_RX of `/proc/softirqs`. The first line names
/// the cores.
fn received(text: &str) -> Option<Vec<(usize, u64)>> {
    let mut lines = text.lines();
    let header = lines.next()?.split_ascii_whitespace();
    let cores = header.map(|name| name.strip_prefix("CPU")?.parse().ok());
    let row = lines.find_map(|line| line.trim_start().strip_prefix("NET_RX:"))?;
    let counts = row.split_ascii_whitespace().map(|count| count.parse().ok());
    cores
        .zip(counts)
        .map(|(core, count)| Some((core?, count?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "                    CPU0       CPU1       CPU3
          HI:          0          1          2
      NET_TX:         11         12         13
      NET_RX:     165988       1665        559
       SCHED:    1732858    1703361    1703361
";

    #[test]
    fn the_core_that_receives_most_is_found() {
        let received = received(TEXT).expect("a row");
        assert_eq!(received, [(0, 165_988), (1, 1665), (3, 559)]);
        assert_eq!(chosen(&received, &[0, 1, 3]), Some(0));
    }

    #[test]
    fn two_cores_are_both_used() {
        let received = received(TEXT).expect("a row");
        assert_eq!(chosen(&received, &[0, 1]), None);
    }

    #[test]
    fn a_core_that_is_not_ours_changes_nothing() {
        let received = received(TEXT).expect("a row");
        assert_eq!(chosen(&received, &[1, 3, 4]), None);
    }

    #[test]
    fn cores_that_share_the_interrupts_are_all_used() {
        let received = [(0, 50_000), (1, 40_000), (2, 45_000)];
        assert_eq!(chosen(&received, &[0, 1, 2]), None);
    }

    #[test]
    fn a_system_that_has_received_little_says_nothing() {
        assert_eq!(chosen(&[(0, 900), (1, 0), (2, 0)], &[0, 1, 2]), None);
    }

    #[test]
    fn what_is_not_understood_is_not_used() {
        for text in ["", "CPU0 CPU1", "CPU0 X\nNET_RX: 1 2", "CPU0\nNET_RX: many"] {
            assert_eq!(received(text), None, "{text:?}");
        }
    }
}
