//! What to type to use what is served.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Config;
use crate::config::reach::Addresses;
use crate::config::size::Size;

/// Targets, or subsystems, that are described; the others are counted.
const SHOWN: usize = 4;

/// Lines that tell a user how to connect to `addresses`. `sizes` are those of the volumes, in bytes.
#[must_use]
pub fn lines(config: &Config, addresses: &Addresses, sizes: &[u64]) -> String {
    let mut text = String::new();
    if let Some((portal, _)) = addresses.iscsi.first() {
        targets(&mut text, config, reachable(*portal), sizes);
    }
    if let Some(address) = addresses.nvme.first() {
        let discovery = addresses.nvme_discovery.first().unwrap_or(address);
        let (address, discovery) = (reachable(*address), reachable(*discovery));
        subsystems(&mut text, config, address, discovery, sizes);
    }
    text
}

/// How to use the targets at a portal.
fn targets(text: &mut String, config: &Config, portal: SocketAddr, sizes: &[u64]) {
    for target in config.targets.iter().take(SHOWN) {
        let name = target.name.as_str();
        let Some(map) = target.maps().next() else {
            continue;
        };
        let _ = writeln!(text, "target {name} at {portal}");
        for entry in map {
            let what = volume(config, entry.volume, sizes);
            let _ = writeln!(text, "  LUN {} is {what}", entry.lun);
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
    and_more(text, config.targets.len(), "targets");
}

/// How to use the subsystems at an address, and find them at another.
fn subsystems(
    text: &mut String,
    config: &Config,
    address: SocketAddr,
    discovery: SocketAddr,
    sizes: &[u64],
) {
    for subsystem in config.subsystems.iter().take(SHOWN) {
        let nqn = subsystem.nqn.as_str();
        let Some(map) = subsystem.maps().next() else {
            continue;
        };
        let _ = writeln!(text, "subsystem {nqn} at {address}");
        for entry in map {
            let what = volume(config, entry.volume, sizes);
            let _ = writeln!(text, "  NSID {} is {what}", entry.nsid);
        }
        let place = |at: SocketAddr| format!("--traddr={} --trsvcid={}", at.ip(), at.port());
        let hostnqn = if subsystem.is_open() {
            ""
        } else {
            " --hostnqn=HOSTNQN"
        };
        let _ = writeln!(
            text,
            "  Linux, as root:\n    \
             modprobe nvme-tcp\n    \
             nvme discover --transport=tcp {}{hostnqn}\n    \
             nvme connect --transport=tcp {} --nqn={nqn}{hostnqn}\n    \
             nvme disconnect --nqn={nqn}",
            place(discovery),
            place(address)
        );
    }
    and_more(text, config.subsystems.len(), "subsystems");
}

/// A volume and its size.
fn volume(config: &Config, index: usize, sizes: &[u64]) -> String {
    let size = sizes
        .get(index)
        .map_or(String::new(), |bytes| Size(*bytes).to_string());
    format!("volume {} ({size})", config.volumes[index].spec.name)
}

/// How many were left out.
fn and_more(text: &mut String, count: usize, what: &str) {
    if count > SHOWN {
        let _ = writeln!(text, "and {} more {what}", count - SHOWN);
    }
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
        let addresses = Addresses {
            iscsi: vec![("0.0.0.0:3260".parse().unwrap(), 1)],
            nvme: vec!["[::]:4420".parse().unwrap()],
            nvme_discovery: vec!["127.0.0.1:8009".parse().unwrap()],
        };
        let text = lines(&config, &addresses, &[1 << 30, 1 << 40]);
        for line in [
            "target iqn.2026-11.local.longshore:default at 127.0.0.1:3260\n",
            "  LUN 0 is volume disk0 (1G)\n",
            "  LUN 1 is volume fast (1T)\n",
            "    iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3260\n",
            "    qemu-img info iscsi://127.0.0.1:3260/iqn.2026-11.local.longshore:default/0\n",
            "subsystem nqn.2026-11.local.longshore:default at [::1]:4420\n",
            "  NSID 1 is volume disk0 (1G)\n",
            "  NSID 2 is volume fast (1T)\n",
            "    nvme discover --transport=tcp --traddr=127.0.0.1 --trsvcid=8009\n",
            "    nvme connect --transport=tcp --traddr=::1 --trsvcid=4420 \
             --nqn=nqn.2026-11.local.longshore:default\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.lines().any(|line| line.starts_with("ready")));
    }
}
