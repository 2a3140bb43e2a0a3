//! The server that changes are carried out on.

use longshore_api::state::Session;
use longshore_server::config::TransmitConfig;
use longshore_server::{Resized, Stopper};
use longshore_volume::VolumeError;

use super::switch::{Drain, Exports, Leaving, Switch};

/// A server, by what controls it.
#[derive(Clone, Debug)]
pub struct ServerSwitch(Stopper);

impl ServerSwitch {
    #[must_use]
    pub const fn new(stopper: Stopper) -> Self {
        Self(stopper)
    }
}

impl Switch for ServerSwitch {
    fn switch(&self, _: Exports, _: Drain) -> Result<(), String> {
        Err("what is exported cannot change while it runs; start it again".to_owned())
    }

    fn leaving(&self) -> Vec<Leaving> {
        Vec::new()
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
