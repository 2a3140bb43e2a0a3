//! What a connection does when nothing comes in.
//!
//! | timer | runs | ends | when it is due |
//! |---|---|---|---|
//! | login | from the start to the end of the login | login finished | the connection closes |
//! | idle | in full feature phase, from the last byte received or sent | any byte | a NOP-In ping is sent; a discovery session, which must not be pinged (§7.4.3), closes after the answer time too |
//! | ping | from the NOP-In, and again from every byte received or sent | its NOP-Out | the connection closes |
//! | window | from the abortion of a task while the window was closed | at once | a NOP-In announces the window (§11.4.11) |
//! | logout | from the Async Message that asks for a logout | the Logout Request | the connection closes |

use super::event::CloseReason;
use super::state::{Connection, Phase, Ping};
use crate::pdu::{AsyncEvent, AsyncMessage, InitiatorTaskTag, Lun, NopIn, TargetTransferTag};
use crate::session_parameters::SessionType;
use longshore_wire::transmit::Transmit;

/// What is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    LoginTimeout,
    LogoutTimeout,
    AnnounceWindow,
    SendPing,
    PingTimeout,
}

impl Connection {
    fn due(&self) -> Option<(u64, Due)> {
        let timers = &self.timers;
        match &self.phase {
            Phase::Closed(_) => None,
            Phase::Login(_) => Some((
                timers.started_ms + self.config.login_timeout_ms,
                Due::LoginTimeout,
            )),
            Phase::FullFeature if timers.announce_window => {
                Some((timers.last_heard_ms, Due::AnnounceWindow))
            }
            Phase::FullFeature => {
                let logout = timers.logout_deadline_ms.map(|at| (at, Due::LogoutTimeout));
                [logout, self.silence_due()]
                    .into_iter()
                    .flatten()
                    .min_by_key(|(at, _)| *at)
            }
        }
    }

    /// What an initiator that says nothing has coming.
    fn silence_due(&self) -> Option<(u64, Due)> {
        let ConnectionTimes { interval, timeout } = self.nop_times()?;
        let heard = self.timers.last_heard_ms;
        Some(match self.timers.ping {
            Some(ping) => (heard.max(ping.sent_ms) + timeout, Due::PingTimeout),
            None if self.limits.session_type == SessionType::Discovery => {
                (heard + interval + timeout, Due::PingTimeout)
            }
            None => (heard + interval, Due::SendPing),
        })
    }

    fn nop_times(&self) -> Option<ConnectionTimes> {
        (self.config.nop_interval_ms > 0).then_some(ConnectionTimes {
            interval: self.config.nop_interval_ms,
            timeout: self.config.nop_timeout_ms,
        })
    }

    /// Bytes have left. An initiator that takes what it is sent is there, even if it takes long over
    /// much data and its answer to a ping can only come after that.
    #[inline]
    pub const fn sent(&mut self, now_ms: u64) {
        self.timers.heard(now_ms);
    }

    /// When [`Self::handle_deadline`] should be called next. Receiving and sending move it.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due().map(|(at, _)| at)
    }

    /// Does what is due by now. A reason to close means: send what is queued, then close.
    pub fn handle_deadline(&mut self, transmit: &mut Transmit, now_ms: u64) -> Option<CloseReason> {
        let (at, due) = self.due()?;
        if now_ms < at {
            return None;
        }
        let reason = match due {
            Due::AnnounceWindow => {
                self.timers.announce_window = false;
                self.send_nop_in(TargetTransferTag::RESERVED, transmit);
                return None;
            }
            Due::SendPing => {
                // Who has been silent for so long needs no memory of busier times.
                transmit.release_memory();
                self.send_ping(transmit, now_ms);
                return None;
            }
            Due::LoginTimeout => CloseReason::LoginTimeout,
            Due::PingTimeout => CloseReason::NopTimeout,
            Due::LogoutTimeout => {
                self.announce_drop(transmit);
                CloseReason::LogoutTimeout
            }
        };
        self.enter_closed(reason.clone());
        Some(reason)
    }

    fn send_ping(&mut self, transmit: &mut Transmit, now_ms: u64) {
        let target_transfer_tag = self.transfer_tags.next();
        self.send_nop_in(target_transfer_tag, transmit);
        self.timers.ping = Some(Ping {
            target_transfer_tag,
            sent_ms: now_ms,
        });
    }

    /// A NOP-In that answers none: its StatSN is not used up (§11.19.2).
    fn send_nop_in(&self, target_transfer_tag: TargetTransferTag, transmit: &mut Transmit) {
        let nop_in = NopIn {
            lun: Lun::ZERO,
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            target_transfer_tag,
            stat_sn: self.stat_sn,
            window: self.window.announced(),
        };
        self.encoder.push(nop_in.encode(), &[], transmit);
    }

    /// Asks the initiator to log out (Asynchronous Message 1). When it does not, the deadline closes
    /// the connection; a discovery session, which takes no such message (§7.4.3), is closed by the
    /// deadline at once. Before the login is over this does nothing.
    pub fn request_logout(&mut self, transmit: &mut Transmit, now_ms: u64) {
        if !matches!(self.phase, Phase::FullFeature) || self.timers.logout_deadline_ms.is_some() {
            return;
        }
        if self.limits.session_type == SessionType::Discovery {
            self.timers.logout_deadline_ms = Some(now_ms);
            return;
        }
        let seconds = self.config.logout_timeout_ms.div_ceil(1000);
        self.timers.logout_deadline_ms = Some(now_ms + self.config.logout_timeout_ms);
        let seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
        self.send_async(AsyncEvent::LOGOUT_REQUEST, [0, 0, seconds], transmit);
    }

    /// Tells the initiator that this connection is about to be dropped (Asynchronous Message 2), and
    /// that its tasks are not kept.
    pub fn announce_drop(&mut self, transmit: &mut Transmit) {
        let Some(session) = &self.session else {
            return;
        };
        if !matches!(self.phase, Phase::FullFeature)
            || session.session_type == SessionType::Discovery
        {
            return;
        }
        let parameters = [
            session.connection_id.0,
            session.operational.default_time2wait,
            0,
        ];
        self.send_async(AsyncEvent::CONNECTION_DROP, parameters, transmit);
    }

    /// Reports a SCSI event by its sense data (Asynchronous Message 0), for the target as a whole. Discovery sessions,
    /// and logins that are not over, have nothing to learn.
    pub fn report_scsi_event(&mut self, sense: &[u8], transmit: &mut Transmit) {
        let is_normal = self.limits.session_type == SessionType::Normal;
        if !matches!(self.phase, Phase::FullFeature) || !is_normal {
            return;
        }
        let length = u16::try_from(sense.len()).expect("sense data are short");
        let data = [&length.to_be_bytes(), sense].concat();
        self.send_async_data(AsyncEvent::SCSI_EVENT, [0; 3], &data, transmit);
    }

    fn send_async(&mut self, event: AsyncEvent, parameters: [u16; 3], transmit: &mut Transmit) {
        self.send_async_data(event, parameters, &[], transmit);
    }

    fn send_async_data(
        &mut self,
        event: AsyncEvent,
        parameters: [u16; 3],
        data: &[u8],
        transmit: &mut Transmit,
    ) {
        let [parameter1, parameter2, parameter3] = parameters;
        let message = AsyncMessage {
            lun: Lun::ZERO,
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
            event,
            vendor_code: 0,
            parameter1,
            parameter2,
            parameter3,
        };
        self.encoder.push(message.encode(), data, transmit);
    }
}

struct ConnectionTimes {
    interval: u64,
    timeout: u64,
}
