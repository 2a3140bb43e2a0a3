//! What to type to use what is served.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Config;
use crate::config::size::Size;

/// Targets that are described; the others are counted.
const TARGETS_SHOWN: usize = 4;

/// Lines that tell a user how to connect to the portals at `addresses`. `sizes` are those of the
/// volumes, in bytes.
#[must_use]
pub fn lines(config: &Config, addresses: &[SocketAddr], sizes: &[u64]) -> String {
    let mut text = String::new();
    let Some(portal) = addresses.first().map(|address| reachable(*address)) else {
        return text;
    };
    for target in config.targets.iter().take(TARGETS_SHOWN) {
        let name = target.name.as_str();
        let Some(map) = target.maps().next() else {
            continue;
        };
        let _ = writeln!(text, "target {name} at {portal}");
        for entry in map {
            let volume = &config.volumes[entry.volume].spec;
            let size = sizes
                .get(entry.volume)
                .map_or(String::new(), |bytes| Size(*bytes).to_string());
            let _ = writeln!(
                text,
                "  LUN {} is volume {} ({size})",
                entry.lun, volume.name
            );
        }
        let lun = map.first().map_or(0, |entry| entry.lun);
        // Nothing here knows a password; the form of the URL shows where it goes.
        let account = if target.is_open() {
            ""
        } else {
            "USER%PASSWORD@"
        };
        let _ = writeln!(
            text,
            "  Linux, as root:\n    \
             iscsiadm -m discovery -t sendtargets -p {portal}\n    \
             iscsiadm -m node -T {name} -p {portal} --login\n  \
             libiscsi:\n    \
             iscsi-ls -s iscsi://{account}{portal}\n  \
             QEMU:\n    \
             qemu-img info iscsi://{account}{portal}/{name}/{lun}\n    \
             qemu-system-x86_64 -drive file=iscsi://{account}{portal}/{name}/{lun},format=raw,if=virtio"
        );
    }
    if config.targets.len() > TARGETS_SHOWN {
        let _ = writeln!(
            text,
            "and {} more targets",
            config.targets.len() - TARGETS_SHOWN
        );
    }
    text
}

/// An address to connect to from this machine: the unspecified one stands for all of them.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Arguments;

    #[test]
    fn the_lines_name_the_portal_the_target_and_every_volume() {
        let arguments = Arguments {
            volumes: vec![
                "disk0,backend=mem,size=1G".parse().unwrap(),
                "fast,backend=null,size=1T".parse().unwrap(),
            ],
            ..Arguments::default()
        };
        let config = Config::assemble(None, arguments).unwrap();
        let text = lines(
            &config,
            &["0.0.0.0:3260".parse().unwrap()],
            &[1 << 30, 1 << 40],
        );
        for line in [
            "target iqn.2026-11.local.longshore:default at 127.0.0.1:3260\n",
            "  LUN 0 is volume disk0 (1G)\n",
            "  LUN 1 is volume fast (1T)\n",
            "    iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3260\n",
            "    qemu-img info iscsi://127.0.0.1:3260/iqn.2026-11.local.longshore:default/0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.lines().any(|line| line.starts_with("ready")));
    }
}
