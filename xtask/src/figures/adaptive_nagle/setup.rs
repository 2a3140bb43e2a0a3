//! The network, the servers and the load of a figure.

use std::net::SocketAddr;

use anyhow::Result;
use longshore_tests::server::{Server, ServerBuilder};

use super::super::Plan;
use super::super::load::words;
use super::super::network::{Network, RATE, Wire};
use crate::bench::load::{Report, bench_below};
use crate::bench::point::Protocol;
use crate::bench::server::{CLIENT_CORE, SERVER_CORE, SPAN, VOLUME_SIZE, pinned, url};
use crate::workspace;

/// Before a run counts: connections find their windows.
const WARMUP: &str = "50ms";

/// The first of the ports.
pub(super) const PORT: u16 = 3260;

/// The network that a figure is measured on.
pub(super) fn network(wire: Wire) -> Result<Network> {
    // The script that runs this takes down what a killed run has left, by this name.
    let name = std::env::var("LONGSHORE_NETWORK")
        .unwrap_or_else(|_| format!("longshore{}", std::process::id()));
    Network::new(&name, wire)
}

/// A server with that policy, and more options.
pub(super) fn server(plan: &Plan, network: &Network, policy: &[&str], port: u16) -> Result<Server> {
    let mut below = network.on_server();
    below.extend(pinned(SERVER_CORE));
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let folder = workspace::work_folder("bench/adaptive-nagle")?;
    let server = ServerBuilder::with_program(plan.program.clone())
        .below(&below)
        // Nobody else can reach the namespace.
        .config("[listen]\nallow-open = true\n")
        .volume(&format!("disk0,backend=null,size={VOLUME_SIZE}"))
        .argument("--state-dir")
        .argument(&folder.join(port.to_string()).display().to_string())
        .iscsi_at(SocketAddr::new(network.server(), port), "");
    let server = policy
        .iter()
        .fold(server.argument("--transmit"), |server, word| {
            server.argument(word)
        });
    Ok(server.start()?)
}

pub(super) fn run_load(
    plan: &Plan,
    network: &Network,
    server: &Server,
    load: &str,
) -> Result<Report> {
    let mut below = network.on_client();
    below.extend(pinned(CLIENT_CORE));
    let options = format!(
        "{load} --span {SPAN} --time {}s --warmup {WARMUP} --server-pid {}",
        plan.seconds,
        server.pid()
    );
    let url = url(server, Protocol::Iscsi);
    bench_below(&below, &plan.program, &url, &words(&options))
}

pub(super) fn conditions(wire: Wire) -> String {
    let wire = match wire {
        Wire::Loopback => "loopback of a network namespace".to_owned(),
        Wire::Veth(mtu) => {
            format!(
                "veth between two network namespaces, MTU {mtu}, `tc tbf rate {RATE}` both ways"
            )
        }
    };
    format!("Network: {wire}; `net.ipv4.tcp_autocorking` = 0 on both sides.\n")
}
