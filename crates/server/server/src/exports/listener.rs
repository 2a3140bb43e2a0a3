//! Listeners, as connections know them.

use std::net::SocketAddr;
use std::sync::Arc;

use super::nvme::NvmePort;
use super::portal::Portal;

/// A listener. Connections know it by its place, which no other one ever gets: they may be there for longer.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub kind: ListenerKind,
    /// New connections come by it.
    pub is_open: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ListenerKind {
    Portal(Arc<Portal>),
    Nvme(Arc<NvmePort>),
}

impl Listener {
    pub(crate) fn new(kind: ListenerKind) -> Self {
        Self {
            kind,
            is_open: true,
        }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        match &self.kind {
            ListenerKind::Portal(portal) => portal.local,
            ListenerKind::Nvme(port) => port.local,
        }
    }

    pub(crate) fn portal(&self) -> Option<&Portal> {
        match &self.kind {
            ListenerKind::Portal(portal) => Some(portal),
            ListenerKind::Nvme(_) => None,
        }
    }

    pub(crate) fn nvme_port(&self) -> Option<&NvmePort> {
        match &self.kind {
            ListenerKind::Portal(_) => None,
            ListenerKind::Nvme(port) => Some(port),
        }
    }
}
