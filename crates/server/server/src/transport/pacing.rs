//! The times at which responses leave: decisions of the transmit policy, applied to the socket.

use std::time::Instant;

use longshore_transmit::{PolicyState, Switch};

use super::socket::Socket;
use crate::config::TransmitConfig;
use crate::core::Core;
use crate::counters::Counters;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Pacing {
    pub policy: PolicyState,
    /// Until when what was sent may wait for the peer.
    pub waits_until: Option<Instant>,
}

impl Pacing {
    pub(super) fn new(
        config: &TransmitConfig,
        socket: &mut Socket,
        counters: &mut Counters,
    ) -> Self {
        let policy = PolicyState::new(config);
        if policy.nodelay() {
            socket.switch_nodelay(Switch::NoDelay, counters);
        }
        Self {
            policy,
            waits_until: None,
        }
    }

    /// A turn ended, at which `sent` bytes had been sent in all.
    #[inline]
    pub(super) fn end_turn(&mut self, core: &mut Core, socket: &mut Socket, sent: u64) {
        let policy = &mut self.policy;
        let switch = policy.turn_ended(core.now, sent, core.alone, core.waiting);
        socket.switch_nodelay(switch, &mut core.counters);
        self.waits_until = self.policy.waits_until(core.now);
    }

    /// Whether what was sent may wait still; if not, it leaves.
    pub(super) fn goes_on_waiting(
        &mut self,
        socket: &mut Socket,
        now: Instant,
        counters: &mut Counters,
    ) -> bool {
        match self.waits_until {
            None => false,
            Some(until) if now < until => true,
            Some(_) => {
                self.stop_waiting(socket, counters);
                false
            }
        }
    }

    /// What waits for the peer leaves.
    pub(super) fn stop_waiting(&mut self, socket: &mut Socket, counters: &mut Counters) {
        if self.waits_until.take().is_some() {
            let switch = self.policy.waited();
            socket.switch_nodelay(switch, counters);
        }
    }

    /// Sends a partial segment that waited for a turn which brought nothing. `another`: the connection has one at once.
    #[inline]
    pub(super) fn release_held(
        &mut self,
        socket: &mut Socket,
        another: bool,
        counters: &mut Counters,
    ) {
        // With Nagle's algorithm, which may have been chosen meanwhile, acknowledgements release it.
        if self.policy.holds() && self.policy.stops_holding(another) && self.policy.nodelay() {
            socket.switch_nodelay(Switch::NoDelay, counters);
        }
    }
}
