//! What changes need of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::state::Session;
use longshore_iscsi::server::directory::Authentication;
use longshore_server::config::{ListenerChanges, SubsystemConfig, TargetConfig, TransmitConfig};
use longshore_server::{ListenerId, Resized};
use longshore_volume::{Volume, VolumeError};

/// What is exported. Maps name volumes by their place in `volumes`.
#[derive(Clone)]
pub struct Exports {
    pub volumes: Vec<Arc<dyn Volume>>,
    pub targets: Vec<TargetConfig>,
    pub discovery: Authentication,
    pub subsystems: Vec<SubsystemConfig>,
}

/// How volumes leave that are exported no longer.
pub struct Drain {
    /// How long operations in progress may take.
    pub timeout: Duration,
    /// Called with each volume as it is closed, on any thread.
    pub on_closed: Arc<dyn Fn(Closed) + Send + Sync>,
}

/// A volume that is exported no longer, and has nothing in progress.
#[derive(Clone, Debug)]
pub struct Closed {
    pub volume: String,
    /// Why the last flush failed, if it did.
    pub failure: Option<String>,
}

/// A volume on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    pub volume: String,
    /// What is waited for.
    pub waits_for: WaitsFor,
    /// Its time is over, and its storage does not answer.
    pub stuck: bool,
}

/// What a volume on its way out waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    Commands,
    Flush,
    Close,
}

impl WaitsFor {
    /// As users read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Commands => "accepted commands",
            Self::Flush => "the last flush",
            Self::Close => "the close of its storage",
        }
    }
}

/// Sessions of initiators, and controllers of hosts.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    pub all: Vec<Session>,
    /// Every event loop has told its own.
    pub is_complete: bool,
}

/// A change that the server can carry out. It has not changed yet, and does not when this is dropped.
pub trait Ready {
    /// Listeners that come: first those of iSCSI, then those of NVMe.
    fn listeners(&self) -> Vec<ListenerId>;

    /// Exports it, and nothing else, from now on. Volumes stay that are the same object, others come, and those that are
    /// not listed leave. When it returns, no operation can begin under what was exported before. Tells the addresses
    /// that the system does not let the server listen at, and why.
    ///
    /// # Errors
    /// See [`NotSwitched`].
    fn carry_out(self: Box<Self>, drain: Drain) -> Result<Vec<(SocketAddr, String)>, NotSwitched>;
}

/// Why not all of it is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSwitched {
    /// Nothing has changed, for this reason.
    Refused(String),
    /// It is going to be, when what keeps the server busy is over.
    Late(String),
}

/// The server, as far as changes need it.
pub trait Switch: Send + Sync {
    /// Does all of a switch to these exports that can fail, and that nobody sees.
    ///
    /// # Errors
    /// Why they cannot be exported.
    fn prepare(
        &self,
        exports: Exports,
        listeners: ListenerChanges,
    ) -> Result<Box<dyn Ready + '_>, NotSwitched>;

    /// Volumes on their way out.
    fn leaving(&self) -> Vec<Leaving>;

    /// Who uses the server.
    fn sessions(&self) -> Sessions;

    /// Ends a session. `false`: there is none of that name.
    fn close_session(&self, id: &str) -> bool;

    /// Takes up what a volume says of its size, and tells hosts. `None`: it is not exported. Blocks for as long as the
    /// volume's storage does.
    fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>>;

    /// Has responses leave like this.
    fn set_transmit(&self, config: TransmitConfig);
}
