//! The server that changes are carried out on.

use std::sync::Arc;

use longshore_api::state::Session;
use longshore_server::config::{ExportsConfig, TransmitConfig};
use longshore_server::{ClosedVolume, Control, DrainOptions, DrainState, Resized, SwitchError};
use longshore_volume::VolumeError;

use super::switch::{Closed, Drain, Exports, Leaving, NotSwitched, Switch};

/// A server, by what controls it.
#[derive(Clone, Debug)]
pub struct ServerSwitch(Control);

impl ServerSwitch {
    #[must_use]
    pub const fn new(control: Control) -> Self {
        Self(control)
    }
}

impl Switch for ServerSwitch {
    fn switch(&self, exports: Exports, drain: Drain) -> Result<(), NotSwitched> {
        let exports = ExportsConfig {
            volumes: exports.volumes,
            targets: exports.targets,
            discovery: exports.discovery,
            subsystems: exports.subsystems,
        };
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
        match self.0.switch(exports, drain) {
            Ok(_) => Ok(()),
            Err(error @ SwitchError::Unanswered(_)) => Err(NotSwitched::Late(error.to_string())),
            Err(error) => Err(NotSwitched::Refused(error.to_string())),
        }
    }

    fn leaving(&self) -> Vec<Leaving> {
        let leaving = self.0.draining().into_iter().map(|volume| Leaving {
            volume: volume.name,
            stuck: volume.state == DrainState::Stuck,
        });
        leaving.collect()
    }

    fn sessions(&self) -> Vec<Session> {
        Vec::new()
    }

    fn close_session(&self, _: &str) -> bool {
        false
    }

    fn refresh_volumes(&self) -> Vec<(String, Result<Option<Resized>, VolumeError>)> {
        self.0.refresh_volumes()
    }

    fn set_transmit(&self, config: TransmitConfig) {
        self.0.set_transmit(config);
    }

    fn is_alive(&self) -> bool {
        true
    }
}
