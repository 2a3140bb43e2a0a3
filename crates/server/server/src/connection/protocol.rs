//! The queue of a protocol, as its connection sees it.

use std::fmt::Debug;

use longshore_block::command::CommandEvent;
use longshore_volume::Ended;

use super::driven::{Handled, ShardEvent, State};
use super::export_user::ExportUser;
use crate::address::TaskAddress;
use crate::core::Core;
use crate::core::request::InFlight;
use crate::counters::ProtocolKind;
use crate::execute::task::Task;
use crate::execute::tasks::Tasks;
use crate::transport::channel::Channel;

/// Where the next bytes of write data belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadWanted {
    /// Number of the task.
    pub slot: u32,
    pub buffer_offset: u32,
    pub length: u32,
    /// The peer was asked for them.
    pub solicited: bool,
}

/// A session or queue of a protocol: its machine, its commands and their tasks.
pub(crate) trait Protocol: ExportUser + Debug + Send + Sized + 'static {
    /// What a task is to the protocol.
    type Work: Debug + Send;
    /// Its name for statistics.
    const KIND: ProtocolKind;

    fn tasks(&self) -> &Tasks<Self::Work>;
    fn tasks_mut(&mut self) -> &mut Tasks<Self::Work>;
    /// How far it is. Of what is in progress, tasks and what is to be sent do not count.
    fn state(&self) -> State;
    /// Name of the initiator or host, once it is known.
    fn peer_name(&self) -> Option<&str>;
    /// Whether it takes input now.
    fn receives(&self) -> bool;
    /// Where the next bytes from the socket belong, if that is known.
    fn payload_wanted(&self) -> Option<PayloadWanted>;
    /// The first `length` bytes of that were received to where they belong.
    fn payload_received(&mut self, wanted: PayloadWanted, length: usize, now_ms: u64);
    /// Takes bytes and does what they say. There may be none, when payload that was placed is all that came: there is
    /// something to say then, too.
    fn process(&mut self, core: &mut Core, channel: &mut Channel, input: &[u8]);
    /// Notes that bytes have left, for the timers of the protocol.
    fn sent(&mut self, now_ms: u64);
    /// Lets tasks run that waited for room, or for others. Returns whether any ran.
    fn proceed(&mut self, core: &mut Core, channel: &mut Channel) -> bool;
    /// Acts on an event.
    fn handle(&mut self, core: &mut Core, channel: &mut Channel, event: ShardEvent<'_>) -> Handled;
    /// Runs a task with the event that it has waited for.
    fn resume(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task<Self::Work>,
        event: CommandEvent,
    );
    /// When there is to be an [`ShardEvent::Deadline`].
    fn next_deadline_ms(&self) -> Option<u64>;
    /// The connection is over. Requests in flight live on as orphans.
    fn tear_down(&mut self, core: &mut Core, channel: &mut Channel);

    /// A storage request of a task ended.
    fn storage_done(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: TaskAddress,
        in_flight: &InFlight,
        ended: Ended,
    ) {
        let (task, event) = self.tasks_mut().storage_done(core, task, in_flight, ended);
        self.resume(core, channel, task, event);
        self.respond(core, channel);
    }

    /// A response may be ready: sends it before the turn ends, if that is the policy.
    #[inline]
    fn respond(&mut self, core: &mut Core, channel: &mut Channel) {
        if channel.respond(core) {
            self.sent(core.now_ms);
        }
    }
}
