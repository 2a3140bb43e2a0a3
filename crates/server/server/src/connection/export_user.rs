//! The use that a connection makes of the exports, with its session or controller.

use crate::core::Core;
use crate::observe::sessions::{SessionId, SessionPart};
use crate::transport::channel::Channel;

/// A session or queue of a protocol, towards changes of the exports and reports of sessions.
pub(crate) trait ExportUser {
    /// Whether it knows that version of the exports, or a newer one.
    fn knows_exports(&self, revision: u64) -> bool;
    /// Units in its map.
    fn mapped(&self) -> usize;
    /// Forgets units of earlier exports that no task needs any more. Whether none of them is left.
    fn settle(&mut self, core: &mut Core) -> bool;
    /// Tasks that need the unit at that place.
    fn uses(&self, unit: usize) -> usize;
    /// The session or controller that ends with the connection.
    fn session_id(&self) -> Option<SessionId>;
    /// Its part of the report of a session or controller, once there is one.
    fn session(&self, core: &Core, channel: &Channel) -> Option<SessionPart>;
}
