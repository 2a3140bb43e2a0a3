//! What the server is given: the configuration, with volumes open, portals bound and memory counted.

use std::path::PathBuf;

use longshore_server::config as server;
use longshore_server::observe::SAMPLE;

use crate::change::switch::Exports;
use crate::config::Config;
use crate::config::copies::RegisteredBuffers;
use crate::config::reactor::{BusyPoll, Priority, ReactorSettings};
use crate::memory::Memory;
use crate::portals::{Portal, PortalError, Service};

/// Puts it together. From here on the portals let peers in.
pub fn server_config(
    config: &Config,
    exports: Exports,
    portals: Vec<Portal>,
    state_directory: Option<PathBuf>,
    memory: Memory,
) -> Result<server::ServerConfig, PortalError> {
    let (listeners, nvme_listeners) = listeners(portals)?;
    Ok(server::ServerConfig {
        volumes: exports.volumes,
        targets: exports.targets,
        discovery: exports.discovery,
        listeners,
        subsystems: exports.subsystems,
        nvme_listeners,
        engine: config.engine.kind,
        cores: config
            .engine
            .cores
            .as_ref()
            .map(|cores| cores.0.clone())
            .unwrap_or_default(),
        transmit: config.engine.transmit,
        copies: server::Copies {
            splice: config.engine.splice,
            registered: config.engine.registered == RegisteredBuffers::Auto,
        },
        reactor: reactor(&config.engine.reactor),
        limits: server::PeerLimits {
            memory: memory.payload_bytes,
            connections: memory.connections,
            ..config.limits.clone()
        },
        state_directory,
        sample: config.engine.sample.unwrap_or(SAMPLE),
    })
}

/// How event loops wait and share.
fn reactor(settings: &ReactorSettings) -> server::ReactorConfig {
    server::ReactorConfig {
        spin: settings.spin.unwrap_or_default(),
        cpu_budget_percent: settings.cpu_budget.unwrap_or_default().0,
        rebalance: settings.rebalance.unwrap_or(true),
        spread: settings.spread.unwrap_or_default(),
        sockets: server::SocketOptions {
            busy_poll_us: settings.busy_poll.map(|BusyPoll(us)| us),
            prefer_busy_poll: settings.prefer_busy_poll.unwrap_or_default(),
            priority: settings.priority.map(|Priority(priority)| priority),
        },
    }
}

/// The portals of each protocol, in their order. They listen from here on.
///
/// # Errors
/// One of them cannot listen.
pub fn listeners(
    portals: Vec<Portal>,
) -> Result<(Vec<server::ListenerConfig>, Vec<server::NvmeListenerConfig>), PortalError> {
    let (mut iscsi, mut nvme) = (Vec::new(), Vec::new());
    for portal in portals {
        let service = portal.service.clone();
        let listener = portal.listen()?;
        match service {
            Service::Iscsi { advertise, tag } => iscsi.push(server::ListenerConfig {
                listener,
                advertise,
                portal_group_tag: tag,
            }),
            Service::Nvme {
                advertise,
                discovery_only,
                tls,
            } => nvme.push(server::NvmeListenerConfig {
                listener,
                advertise: advertise.map(|address| address.to_string()),
                discovery_only,
                tls,
            }),
        }
    }
    Ok((iscsi, nvme))
}
