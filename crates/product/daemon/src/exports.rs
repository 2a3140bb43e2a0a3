//! The configuration in the terms of the `target` crate. The only file that knows both.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_iscsi::negotiation::DigestPolicy;
use longshore_iscsi::server::directory::LoginConfig;
use longshore_server::config as server;
use longshore_server::observe::SAMPLE;
use longshore_volume::Volume;

use crate::config::Config;
use crate::config::copies::{ByReference, RegisteredBuffers};
use crate::config::limits::{Digests, LimitsConfig, Negotiation};
use crate::config::reactor::{BusyPoll, Priority, ReactorSettings, Spin, Spread};
use crate::config::subsystem::{NamespaceConfig, SubsystemConfig};
use crate::config::target::{LunConfig, TargetConfig};
use crate::memory::Memory;
use crate::portals::{Portal, PortalError, Service};

/// What the server is given. From here on the portals let peers in.
pub fn server_config(
    config: &Config,
    volumes: Vec<Arc<dyn Volume>>,
    portals: Vec<Portal>,
    state_directory: Option<PathBuf>,
    memory: Memory,
) -> Result<server::ServerConfig, PortalError> {
    let (listeners, nvme_listeners) = listeners(portals)?;
    Ok(server::ServerConfig {
        volumes,
        targets: config.targets.iter().map(target_config).collect(),
        discovery: config.discovery.clone(),
        listeners,
        subsystems: config.subsystems.iter().map(subsystem_config).collect(),
        nvme_listeners,
        engine: config.engine.kind.into(),
        cores: config
            .engine
            .cores
            .as_ref()
            .map(|cores| cores.0.clone())
            .unwrap_or_default(),
        transmit: config.engine.transmit,
        copies: server::Copies {
            splice: by_reference(config.engine.splice),
            registered: config.engine.registered == RegisteredBuffers::Auto,
        },
        reactor: reactor(&config.engine.reactor),
        limits: limits(&config.limits, memory),
        state_directory,
        sample: config.engine.sample.unwrap_or(SAMPLE),
    })
}

const fn by_reference(setting: ByReference) -> server::ByReference {
    match setting {
        ByReference::Auto => server::ByReference::Auto,
        ByReference::Off => server::ByReference::Off,
        ByReference::Always => server::ByReference::Always,
    }
}

/// How event loops wait and share.
fn reactor(settings: &ReactorSettings) -> server::ReactorConfig {
    server::ReactorConfig {
        spin: match settings.spin.unwrap_or_default() {
            Spin::Auto => server::Spin::Auto,
            Spin::Off => server::Spin::Off,
            Spin::For(microseconds) => server::Spin::For { microseconds },
        },
        cpu_budget_percent: settings.cpu_budget.unwrap_or_default().0,
        rebalance: settings.rebalance.unwrap_or(true),
        spread: match settings.spread.unwrap_or_default() {
            Spread::Auto => server::Spread::Auto,
            Spread::Off => server::Spread::Off,
            Spread::Always => server::Spread::Always,
        },
        sockets: server::SocketOptions {
            busy_poll_us: settings.busy_poll.map(|BusyPoll(us)| us),
            prefer_busy_poll: settings.prefer_busy_poll.unwrap_or_default(),
            priority: settings.priority.map(|Priority(priority)| priority),
        },
    }
}

/// The portals of each protocol. They listen from here on.
fn listeners(
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
            } => nvme.push(server::NvmeListenerConfig {
                listener,
                advertise: advertise.map(|address| address.to_string()),
                discovery_only,
            }),
        }
    }
    Ok((iscsi, nvme))
}

fn target_config(config: &TargetConfig) -> server::TargetConfig {
    let mut access = Vec::with_capacity(config.rules.len());
    for rule in &config.rules {
        access.push(server::AccessRule {
            initiators: rule.initiators.clone(),
            authentication: Some(rule.access.authentication.clone()),
            luns: luns(&rule.access.luns),
        });
    }
    let others = config.others.as_ref();
    server::TargetConfig {
        name: config.name.clone(),
        alias: config.alias.clone(),
        portal_groups: config.portal_groups.clone(),
        login: login_config(&config.negotiation, config.alias.clone()),
        // Rules carry their own; without a map for others nobody else gets as far as proving
        // anything.
        authentication: others
            .map(|access| access.authentication.clone())
            .unwrap_or_default(),
        default_luns: others.map(|access| luns(&access.luns)),
        access,
        moved_to: config.moved_to.as_ref().map(|moved| server::Moved {
            address: moved.address.clone(),
            permanent: moved.permanent,
        }),
    }
}

fn luns(map: &[LunConfig]) -> Vec<server::LunConfig> {
    map.iter()
        .map(|entry| server::LunConfig {
            lun: entry.lun,
            volume: entry.volume,
            read_only: entry.read_only,
        })
        .collect()
}

fn subsystem_config(config: &SubsystemConfig) -> server::SubsystemConfig {
    let rules = config.rules.iter().map(|rule| server::HostRule {
        hosts: rule.hosts.clone(),
        namespaces: namespaces(&rule.namespaces),
    });
    server::SubsystemConfig {
        nqn: config.nqn.clone(),
        serial: config.serial.clone(),
        hosts: rules.collect(),
        default_namespaces: config.others.as_deref().map(namespaces),
    }
}

fn namespaces(map: &[NamespaceConfig]) -> Vec<server::NamespaceMapEntry> {
    map.iter()
        .map(|entry| server::NamespaceMapEntry {
            nsid: entry.nsid,
            volume: entry.volume,
            read_only: entry.read_only,
        })
        .collect()
}

fn login_config(values: &Negotiation, target_alias: Option<String>) -> LoginConfig {
    LoginConfig {
        max_recv_data_segment_length: values.max_recv_data_segment_length,
        max_burst_length: values.max_burst_length,
        first_burst_length: values.first_burst_length,
        max_outstanding_r2t: values.max_outstanding_r2t,
        initial_r2t: values.initial_r2t,
        immediate_data: values.immediate_data,
        header_digest: digest_policy(values.header_digest),
        data_digest: digest_policy(values.data_digest),
        default_time2wait: values.default_time2wait,
        default_time2retain: values.default_time2retain,
        target_alias,
    }
}

fn digest_policy(accepted: Digests) -> DigestPolicy {
    match (accepted.none, accepted.crc32c) {
        (true, true) => DigestPolicy::PreferNone,
        (false, true) => DigestPolicy::Crc32c,
        (_, false) => DigestPolicy::None,
    }
}

fn limits(limits: &LimitsConfig, memory: Memory) -> server::PeerLimits {
    server::PeerLimits {
        sessions: limits.sessions,
        pending_logins: limits.pending_logins,
        queue_depth: limits.queue_depth,
        login_timeout: limits.login_timeout,
        nop_interval: limits.nop_interval,
        nop_timeout: limits.nop_timeout,
        stall_timeout: limits.stall_timeout,
        memory: memory.payload_bytes,
        connections: memory.connections,
        drain_timeout: limits.drain_timeout,
        controllers: limits.controllers,
        nvme_io_queues: limits.io_queues,
        nvme_queue_depth: limits.nvme_queue_depth,
        in_capsule_data: limits.in_capsule_data,
        keep_alive_max: limits.keep_alive_max,
        ..server::PeerLimits::default()
    }
}
