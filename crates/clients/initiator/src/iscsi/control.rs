//! The part of an attachment beside its queues.
//!
//! Keep-alive is each queue's own (NOP-Out), and news come on the queues as well. What is left are
//! questions, which are asked over a session made for them, so that no idle session is kept.
//!
//! A path whose target port group is not in the best state gets few commands or none, and so would never
//! hear of a better one: it is to be looked at again from time to time ([`Notice::VolumesChanged`]), and
//! [`Control::describe`] finds out.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use longshore_iscsi::session_parameters::{Digest, SessionParameters, SessionType, TaskReporting};

use super::identify::{Asking, identify, wire_lun};
use super::reservation;
use super::target_login::log_in_to_target;
use crate::error::{Error, Lost};
use crate::info::{AccessState, Description, Notice};
use crate::options::Options;
use crate::url::IscsiUrl;

/// See the module documentation.
#[derive(Debug)]
pub struct Control {
    url: IscsiUrl,
    portal: usize,
    options: Options,
    negotiated: Vec<(String, String)>,
    /// The access state of the path, as it was found last.
    access: AccessState,
    /// As it was told last.
    told: AccessState,
    /// Since when there has been something to tell.
    tell_at: Option<Instant>,
    look_again_at: Option<Instant>,
}

/// When to look again after paths that work, but not best, and after others.
const NON_OPTIMIZED_PAUSE: Duration = Duration::from_secs(60);
const UNUSABLE_PAUSE: Duration = Duration::from_secs(5);

impl Control {
    pub(super) fn new(
        url: &IscsiUrl,
        portal: usize,
        options: &Options,
        negotiated: Vec<(String, String)>,
        access: AccessState,
    ) -> Self {
        Self {
            url: url.clone(),
            portal,
            options: options.clone(),
            negotiated,
            access,
            told: access,
            tell_at: None,
            look_again_at: pause(access).map(|pause| Instant::now() + pause),
        }
    }

    /// The access state of the path, as it was found last.
    #[must_use]
    pub const fn access(&self) -> AccessState {
        self.access
    }

    /// There is none: news come on the queues.
    #[must_use]
    pub const fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// At once when the access state has changed; now and then while it is not the best.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.tell_at.or(self.look_again_at)
    }

    /// Tells of another access state, or that it is time to look at it again.
    ///
    /// # Errors
    /// None so far.
    pub fn drive(&mut self, now: Instant) -> Result<Vec<Notice>, Lost> {
        let notice = if self.tell_at.take().is_some() {
            self.told = self.access;
            Notice::AccessChanged(self.access)
        } else if self.look_again_at.is_some_and(|at| at <= now) {
            Notice::VolumesChanged
        } else {
            return Ok(Vec::new());
        };
        self.look_again_at = pause(self.access).map(|pause| now + pause);
        Ok(vec![notice])
    }

    /// Asks the target all there is to know of the unit, over a session of its own. Blocks.
    ///
    /// # Errors
    /// The target does not answer, or not as it should.
    pub fn describe(&mut self) -> Result<Description, Error> {
        let isid = super::fresh_isid();
        let mut session = log_in_to_target(&self.url, self.portal, isid, 1, &self.options)?;
        let unit = identify(&mut session, self.url.lun)?;
        self.found(unit.access);
        let mut asking = Asking::new(&mut session, wire_lun(self.url.lun));
        let reservation = reservation::report(&mut asking)?;
        session.close();
        Ok(Description {
            info: unit.info,
            negotiated: self.negotiated.clone(),
            reservation,
        })
    }

    fn found(&mut self, access: AccessState) {
        self.access = access;
        // A time that has passed when anybody asks what is due: this moment would never have come.
        self.tell_at = (access != self.told).then(Instant::now);
    }

    /// Nothing is left to end: queues log out by themselves.
    pub fn close(self) {}
}

/// How long to wait before a look at a path in this state; `None`: there is no need.
const fn pause(access: AccessState) -> Option<Duration> {
    match access {
        AccessState::Optimized => None,
        AccessState::NonOptimized => Some(NON_OPTIMIZED_PAUSE),
        AccessState::Inaccessible | AccessState::PersistentLoss | AccessState::Change => {
            Some(UNUSABLE_PAUSE)
        }
    }
}

/// The keys of a session, by their names in the standard.
pub(super) fn negotiated(session: &SessionParameters) -> Vec<(String, String)> {
    let keys = &session.operational;
    let yes_no = |value: bool| if value { "Yes" } else { "No" }.to_owned();
    let digest = |digest: Digest| match digest {
        Digest::None => "None".to_owned(),
        Digest::Crc32c => "CRC32C".to_owned(),
    };
    let mut list: Vec<(&str, String)> = vec![
        ("InitiatorName", session.initiator_name.to_string()),
        ("ISID", session.isid.to_string()),
        ("TSIH", session.tsih.0.to_string()),
    ];
    let mut optional = |name, value: Option<String>| list.extend(value.map(|it| (name, it)));
    optional("InitiatorAlias", session.initiator_alias.clone());
    optional(
        "TargetName",
        session.target_name.as_ref().map(ToString::to_string),
    );
    optional(
        "TargetAlias",
        session.target_alias.as_deref().map(printable),
    );
    let tag = session.portal_group_tag;
    optional("TargetPortalGroupTag", tag.map(|tag| tag.0.to_string()));
    let method = match &session.authenticated_as {
        Some(name) => format!("CHAP as {name}"),
        None => "None".to_owned(),
    };
    let kind = match session.session_type {
        SessionType::Normal => "Normal",
        SessionType::Discovery => "Discovery",
    };
    let reporting = match keys.task_reporting {
        TaskReporting::Rfc3720 => "RFC3720",
        TaskReporting::ResponseFence => "ResponseFence",
        TaskReporting::FastAbort => "FastAbort",
    };
    list.extend([
        ("SessionType", kind.to_owned()),
        ("AuthMethod", method),
        ("HeaderDigest", digest(keys.header_digest)),
        ("DataDigest", digest(keys.data_digest)),
        ("MaxConnections", keys.max_connections.to_string()),
        ("InitialR2T", yes_no(keys.initial_r2t)),
        ("ImmediateData", yes_no(keys.immediate_data)),
        (
            "MaxRecvDataSegmentLength (initiator)",
            keys.initiator_max_recv_data_segment_length.to_string(),
        ),
        (
            "MaxRecvDataSegmentLength (target)",
            keys.target_max_recv_data_segment_length.to_string(),
        ),
        ("MaxBurstLength", keys.max_burst_length.to_string()),
        ("FirstBurstLength", keys.first_burst_length.to_string()),
        ("MaxOutstandingR2T", keys.max_outstanding_r2t.to_string()),
        ("DataPDUInOrder", yes_no(keys.data_pdu_in_order)),
        ("DataSequenceInOrder", yes_no(keys.data_sequence_in_order)),
        ("ErrorRecoveryLevel", keys.error_recovery_level.to_string()),
        ("DefaultTime2Wait", keys.default_time2wait.to_string()),
        ("DefaultTime2Retain", keys.default_time2retain.to_string()),
        ("TaskReporting", reporting.to_owned()),
        ("iSCSIProtocolLevel", keys.protocol_level.to_string()),
    ]);
    list.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Text of a peer, for a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Url;

    fn control(access: AccessState) -> Control {
        let url = "iscsi://192.0.2.1/iqn.2026-11.com.example:a/0".parse();
        let Ok(Url::Iscsi(url)) = url else {
            panic!("an iSCSI URL")
        };
        Control::new(&url, 0, &Options::default(), Vec::new(), access)
    }

    #[test]
    fn the_best_path_has_nothing_to_tell() {
        let mut control = control(AccessState::Optimized);
        assert_eq!(control.deadline(), None);
        assert_eq!(control.drive(Instant::now()), Ok(Vec::new()));
    }

    #[test]
    fn the_access_state_is_known_from_the_start_and_not_told_again() {
        let mut control = control(AccessState::NonOptimized);
        assert_eq!(control.access(), AccessState::NonOptimized);
        assert_eq!(control.drive(Instant::now()), Ok(Vec::new()));
        assert!(control.deadline().is_some(), "it is looked at again");
        let control = crate::attach::Control::Iscsi(control);
        assert_eq!(control.access(), AccessState::NonOptimized);
    }

    #[test]
    fn another_access_state_is_due_when_it_is_found_told_once_and_looked_at_again() {
        let mut control = control(AccessState::Optimized);
        control.found(AccessState::Inaccessible);
        let now = Instant::now();
        assert!(control.deadline().is_some_and(|at| at <= now));
        let told = Notice::AccessChanged(AccessState::Inaccessible);
        assert_eq!(control.drive(now), Ok(vec![told]));
        assert_eq!(control.drive(now), Ok(Vec::new()));
        let later = now + UNUSABLE_PAUSE;
        assert_eq!(control.deadline(), Some(later));
        assert_eq!(control.drive(later), Ok(vec![Notice::VolumesChanged]));
        // What a look at it has found.
        control.found(AccessState::Optimized);
        let told = Notice::AccessChanged(AccessState::Optimized);
        assert_eq!(control.drive(later), Ok(vec![told]));
        assert_eq!(control.deadline(), None);
    }
}
