//! The server that changes are carried out on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longshore_api::state::Session;
use longshore_server::config::{ExportsConfig, ListenerChanges, ListenerId, TransmitConfig};
use longshore_server::observe::ProtocolKind;
use longshore_server::{
    ClosedVolume, Control, DrainOptions, DrainState, PreparedSwitch, Resized, SessionId,
    SessionReport, SwitchError,
};
use longshore_volume::VolumeError;

use super::switch::{
    Closed, Drain, Exports, Leaving, NotSwitched, Ready, Sessions, Switch, WaitsFor,
};

/// A server, by what controls it.
#[derive(Clone, Debug)]
pub struct ServerSwitch(Control);

impl ServerSwitch {
    #[must_use]
    pub const fn new(control: Control) -> Self {
        Self(control)
    }
}

/// A session, as the API shows it.
fn session(report: SessionReport) -> Session {
    let began = SystemTime::now().checked_sub(report.age);
    let began = began.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let began = began.unwrap_or_default().as_millis();
    Session {
        id: report.id.0.to_string(),
        protocol: match report.protocol {
            ProtocolKind::Iscsi => "iscsi".to_owned(),
            ProtocolKind::NvmeTcp => "nvme".to_owned(),
        },
        peer_name: report.name,
        connections: report.peers.len(),
        addresses: report.peers.iter().map(ToString::to_string).collect(),
        target: report.exporter.unwrap_or_default(),
        since_ms: u64::try_from(began).unwrap_or(u64::MAX),
        volumes: report.volumes.into_iter().map(|it| it.volume).collect(),
    }
}

/// A switch of the server.
struct Prepared<'a> {
    control: &'a Control,
    switch: PreparedSwitch,
}

impl Ready for Prepared<'_> {
    fn listeners(&self) -> Vec<ListenerId> {
        self.switch.listeners()
    }

    fn carry_out(self: Box<Self>, drain: Drain) -> Result<Vec<(SocketAddr, String)>, NotSwitched> {
        #[cfg(feature = "fail-points")]
        fail::fail_point!("change::refused", |reason| {
            Err(NotSwitched::Refused(reason.unwrap_or_default()))
        });
        let on_closed = drain.on_closed;
        let drain = DrainOptions {
            timeout: drain.timeout,
            on_closed: Some(Arc::new(move |closed: ClosedVolume| {
                on_closed(Closed {
                    volume: closed.name,
                    failure: closed.failure,
                });
            })),
        };
        match self.control.carry_out(self.switch, drain) {
            Ok(switched) => Ok(switched.not_listening),
            Err(error @ SwitchError::Unanswered(_)) => Err(NotSwitched::Late(error.to_string())),
            Err(error) => Err(NotSwitched::Refused(error.to_string())),
        }
    }
}

impl Switch for ServerSwitch {
    fn prepare(
        &self,
        exports: Exports,
        listeners: ListenerChanges,
    ) -> Result<Box<dyn Ready + '_>, NotSwitched> {
        let exports = ExportsConfig {
            volumes: exports.volumes,
            targets: exports.targets,
            discovery: exports.discovery,
            subsystems: exports.subsystems,
        };
        let control = &self.0;
        match control.prepare(exports, listeners) {
            Ok(switch) => Ok(Box::new(Prepared { control, switch })),
            Err(error) => Err(NotSwitched::Refused(error.to_string())),
        }
    }

    fn leaving(&self) -> Vec<Leaving> {
        let leaving = self.0.draining().into_iter().map(|volume| {
            let waits_for = match volume.state {
                DrainState::Draining => WaitsFor::Commands,
                DrainState::Flushing => WaitsFor::Flush,
                DrainState::Closing => WaitsFor::Close,
            };
            Leaving {
                volume: volume.name,
                waits_for,
                stuck: volume.is_stuck,
            }
        });
        leaving.collect()
    }

    fn sessions(&self) -> Sessions {
        let sessions = self.0.ask_for_sessions();
        Sessions {
            all: sessions.reports.into_iter().map(session).collect(),
            is_complete: sessions.is_complete,
        }
    }

    fn close_session(&self, id: &str) -> bool {
        let id = id.parse().map(SessionId);
        id.is_ok_and(|id| self.0.close_session(id).is_ok())
    }

    fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        self.0.refresh_volume(name)
    }

    fn set_transmit(&self, config: TransmitConfig) {
        self.0.set_transmit(config);
    }
}
