//! A connection as its shard sees it.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use longshore_volume::Ended;

use super::export_user::ExportUser;
use crate::address::{ConnectionAddress, TaskAddress};
use crate::core::Core;
use crate::core::request::InFlight;
use crate::mail::abort::AbortOrder;
use crate::mail::message::Note;
use crate::observe::ConnectionStatistics;
use crate::transport::channel::Channel;

/// What its shard asks of a connection, whatever it speaks.
pub(crate) trait Driven: Movable {
    fn channel(&self) -> &Channel;
    fn channel_mut(&mut self) -> &mut Channel;
    /// How far it is.
    fn state(&self) -> State;
    /// What it has done.
    fn statistics(&mut self) -> ConnectionStatistics;
    /// Whether there is something to receive and room for what may come of it.
    fn wants_turn(&self) -> bool;
    /// Receives and acts, for one turn.
    fn receive_turn(&mut self, core: &mut Core) -> ControlFlow<()>;
    /// Sends as much as the socket takes, and lets deferred tasks use the room.
    fn flush(&mut self, core: &mut Core) -> ControlFlow<()>;
    /// Acts on something that has happened on its shard.
    fn handle(&mut self, core: &mut Core, event: ShardEvent<'_>) -> Handled;
    /// A storage request of a task ended.
    fn storage_done(
        &mut self,
        core: &mut Core,
        task: TaskAddress,
        in_flight: &InFlight,
        ended: Ended,
    );
    /// When there is to be an [`ShardEvent::Deadline`].
    fn next_deadline_ms(&self) -> Option<u64>;
    /// Whether its peer may keep memory and not have moved for a while.
    fn may_make_room(&self, core: &Core) -> bool;
    /// Whether that task waits here.
    fn has_task(&self, task: TaskAddress) -> bool;
    /// Its use of the exports.
    fn exports(&self) -> &dyn ExportUser;
    /// Its use of the exports.
    fn exports_mut(&mut self) -> &mut dyn ExportUser;
    /// Ends everything the connection has in progress.
    fn tear_down(&mut self, core: &mut Core);
}

/// What a move to another shard asks of a connection.
pub(crate) trait Movable: Debug + Send {
    /// Whether it can leave now: nobody else works for its tasks.
    fn is_at_rest(&self, core: &Core) -> bool;
    /// Gives up what belongs to its shard, before it moves.
    fn depart(&mut self, core: &mut Core);
    /// Comes to another shard.
    fn arrive(&mut self, core: &mut Core, address: ConnectionAddress);
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The login, or what comes in its place, is over.
    pub established: bool,
    /// It counts when connections are spread over shards.
    pub is_load: bool,
    /// It may go to another shard: nobody there knows it by its address here, and it waits for nothing but its own
    /// tasks.
    pub may_move: bool,
    /// Nothing of it is in progress.
    pub is_quiet: bool,
}

/// Something that happens to a connection, beside bytes that come.
#[derive(Debug)]
pub(crate) enum ShardEvent<'a> {
    /// A task that waited for the gate or for memory is to try again.
    Retry(TaskAddress),
    /// A deadline is over.
    Deadline,
    /// The peer may have stalled for too long, and what its socket held has been received. `for_room`: somebody finds
    /// no memory.
    Stalled {
        for_room: bool,
    },
    /// Tasks that the order names are to end.
    Abort(&'a Arc<AbortOrder>),
    Note(Note),
    /// Something else is exported.
    Exports,
    /// A unit is to be removed, by its place, and its tasks have had their time.
    Removed(usize),
    /// The session or controller is to end: its peer is asked to leave, where that is possible.
    Close,
    /// The server is about to end: the peer is asked to leave.
    Drain,
    /// The peer did not leave, and has nothing in progress: it is told that the connection ends.
    Drop,
}

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    Nothing,
    /// There may be something to send, or tasks that can run.
    Changed,
    /// The connection is to be closed at once.
    Over,
}
