//! A client of the server: an iSCSI initiator, an NVMe host, or one of either kind that is lied to.

use crate::checker::Violation;
use crate::deceived::Deceived;
use crate::host::Host;
use crate::initiator::Initiator;
use crate::scene::Scene;

/// See the module documentation.
#[derive(Debug)]
pub enum Party {
    /// By iSCSI, on one connection.
    Initiator(Box<Initiator>),
    /// By NVMe/TCP, on several.
    Host(Box<Host>),
    /// By either, over a line that lies.
    Deceived(Box<Deceived>),
}

impl Party {
    /// Whether it comes by NVMe/TCP.
    #[must_use]
    pub fn is_host(&self) -> bool {
        match self {
            Self::Initiator(_) => false,
            Self::Host(_) => true,
            Self::Deceived(deceived) => deceived.is_host(),
        }
    }

    /// Whether it is at work and has nothing under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Initiator(initiator) => initiator.is_idle() && initiator.is_up(),
            Self::Host(host) => host.is_idle() && host.is_up(),
            // It is never waited for.
            Self::Deceived(_) => true,
        }
    }

    #[must_use]
    pub fn wires(&self) -> Vec<usize> {
        match self {
            Self::Initiator(initiator) => initiator.wire.into_iter().collect(),
            Self::Host(host) => host.wires(),
            Self::Deceived(deceived) => deceived.wire().into_iter().collect(),
        }
    }

    /// Whether it has any.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.wires().is_empty()
    }

    /// Whether it is to be connected now.
    #[must_use]
    pub fn wants_connection(&self, now: u64) -> bool {
        match self {
            Self::Initiator(initiator) => initiator.wants_connection(now),
            Self::Host(host) => host.wants_connection(),
            Self::Deceived(deceived) => deceived.wants_connection(now),
        }
    }

    /// It has a connection now.
    pub fn connected(&mut self, wire: usize, now: u64) {
        match self {
            Self::Initiator(initiator) => initiator.connected(wire, now),
            Self::Host(host) => host.connected(wire, now),
            Self::Deceived(deceived) => deceived.connected(wire, now),
        }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// What the server did wrong.
    pub fn step(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        match self {
            Self::Initiator(initiator) => initiator.step(scene),
            Self::Host(host) => host.step(scene),
            Self::Deceived(deceived) => {
                deceived.step(scene);
                Ok(())
            }
        }
    }

    /// Ends its work in order.
    pub fn log_out(&mut self, scene: &mut Scene<'_>) {
        match self {
            Self::Initiator(initiator) => initiator.log_out(scene.now()),
            Self::Host(host) => host.log_out(scene),
            Self::Deceived(deceived) => deceived.log_out(scene),
        }
    }

    pub fn hang_up(&mut self, scene: &mut Scene<'_>) {
        match self {
            Self::Initiator(initiator) => initiator.hang_up(scene),
            Self::Host(host) => host.lost(scene, "hung up", true),
            Self::Deceived(deceived) => deceived.hang_up(scene),
        }
    }

    /// Its connections are gone, and the target does not know.
    pub fn vanished(&mut self, scene: &mut Scene<'_>) {
        match self {
            Self::Initiator(initiator) => initiator.lost(scene, "vanished"),
            Self::Host(host) => host.lost(scene, "vanished", false),
            Self::Deceived(deceived) => deceived.lost(scene),
        }
    }
}
