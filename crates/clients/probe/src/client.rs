//! This machine: what of its settings has a say in what was measured.

use std::collections::BTreeMap;
use std::fs;

use longshore_model::probe::ClientFacts;

/// Settings of the kernel that bear upon connections, by the names of sysctl(8).
const SETTINGS: [&str; 12] = [
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_wmem",
];

pub(crate) fn facts() -> ClientFacts {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let settings: BTreeMap<String, String> = SETTINGS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), setting(name)?)))
        .collect();
    ClientFacts {
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        kernel: setting("kernel.osrelease").unwrap_or_default(),
        settings,
    }
}

/// A setting, with its parts separated by single spaces.
fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_settings() {
        let facts = facts();
        assert!(facts.cpus >= 1);
        assert!(
            facts
                .kernel
                .starts_with(|first: char| first.is_ascii_digit())
        );
        let window = facts.settings.get("net.ipv4.tcp_rmem").unwrap();
        assert_eq!(window.split(' ').count(), 3, "{window}");
        assert_eq!(setting("net.ipv4.there_is_no_such_thing"), None);
    }
}
