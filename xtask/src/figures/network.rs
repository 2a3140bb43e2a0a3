//! Network namespaces for server and client: loopback of their own, or a wire between them.
//!
//! ```text
//!  namespace NAME-s            namespace NAME-c
//!  server ── 198.18.0.1 ═══ veth, tc tbf both ways ═══ 198.18.0.2 ── client
//! ```
//!
//! Nothing of the machine's own network is touched. The addresses are those for benchmarks (RFC 2544).

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run_checked;
use crate::counts::Skipped;

/// The speed of the wire.
pub const RATE: &str = "1gbit";
/// The same as a number.
pub const BITS_PER_SECOND: f64 = 1e9;
/// What the wire takes at once, and for how long it keeps what waits: a card with a large ring.
const BURST: &str = "burst 64kb latency 50ms";

/// Why there may be no network.
pub const NO_NAMESPACES: &str =
    "network namespaces need root; run this as root, or in a virtual machine";

/// How server and client are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Both in one namespace.
    Loopback,
    /// By a pair of interfaces with this MTU.
    Veth(u32),
}

/// Namespaces that go away with this value.
#[derive(Default)]
pub struct Namespaces {
    names: Vec<String>,
}

/// Server and client with a wire between them.
pub struct Network {
    namespaces: Namespaces,
    wire: Wire,
}

impl Wire {
    /// As options and headings name it.
    pub fn name(self) -> String {
        match self {
            Self::Loopback => "loopback".to_owned(),
            Self::Veth(mtu) => format!("mtu-{mtu}"),
        }
    }
}

impl Namespaces {
    /// Makes one more network namespace.
    pub fn add(&mut self, name: String) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skipped(NO_NAMESPACES.to_owned()).into());
        }
        if let Err(error) = ip(&format!("netns add {name}")) {
            // A container's root may be no more than a name.
            let forbidden = format!("{error:#}").contains("not permitted");
            return match forbidden {
                true => Err(Skipped(NO_NAMESPACES.to_owned()).into()),
                false => Err(error),
            };
        }
        self.names.push(name);
        Ok(())
    }

    /// In the order in which they were made.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Network {
    /// Sets the network up. `name` is that of the run; other runs have others.
    pub fn new(name: &str, wire: Wire) -> Result<Self> {
        let (server, client) = (format!("{name}-s"), format!("{name}-c"));
        let mut network = Self {
            namespaces: Namespaces::default(),
            wire,
        };
        network.namespaces.add(server.clone())?;
        ip(&format!("-n {server} link set lo up"))?;
        if let Wire::Veth(mtu) = wire {
            network.namespaces.add(client.clone())?;
            // Both ends come up in their namespaces: their names never appear beside the machine's own.
            ip(&format!(
                "-n {server} link add veth0 mtu {mtu} type veth peer name veth0 mtu {mtu} netns {client}"
            ))?;
            for (namespace, address) in [(&server, SERVER), (&client, CLIENT)] {
                ip(&format!(
                    "-n {namespace} address add {address}/30 dev veth0"
                ))?;
                ip(&format!("-n {namespace} link set veth0 up"))?;
                run(&format!(
                    "tc -n {namespace} qdisc add dev veth0 root tbf rate {RATE} {BURST}"
                ))?;
            }
        }
        // Autocorking is what the paper turned off: it is a policy of the kernel's own.
        network.set_autocorking([false; 2])?;
        Ok(network)
    }

    /// Where the server listens.
    pub fn server(&self) -> IpAddr {
        match self.wire {
            Wire::Loopback => Ipv4Addr::LOCALHOST.into(),
            Wire::Veth(_) => SERVER.into(),
        }
    }

    /// What runs a program on the server's side.
    pub fn on_server(&self) -> Vec<String> {
        inside(&self.namespaces.names[0])
    }

    /// What runs a program on the client's side.
    pub fn on_client(&self) -> Vec<String> {
        let last = self.namespaces.names.last();
        inside(last.expect("there is at least one"))
    }

    /// Sets net.ipv4.tcp_autocorking of server and client.
    pub fn set_autocorking(&self, on: [bool; 2]) -> Result<()> {
        for (name, on) in self.namespaces.names.iter().zip(on) {
            let value = u8::from(on);
            run(&format!(
                "ip netns exec {name} sysctl -q -w net.ipv4.tcp_autocorking={value}"
            ))?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&format!("netns delete {name}")) {
                eprintln!("{error:#}");
            }
        }
    }
}

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// What runs a program in a namespace.
pub fn inside(namespace: &str) -> Vec<String> {
    ["ip", "netns", "exec", namespace]
        .map(str::to_owned)
        .to_vec()
}

fn ip(arguments: &str) -> Result<()> {
    run(&format!("ip {arguments}"))
}

/// Runs a line without quotes.
pub fn run(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("a program")?);
    run_checked(command.args(words), Duration::from_secs(10))
        .map(drop)
        .with_context(|| line.to_owned())
}
