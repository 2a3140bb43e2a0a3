//! iSCSI sessions over all shards: reinstatement, limits, and the pause between an old session's last write and its
//! successor's first command.
//!
//! A login that names the initiator, ISID, target and portal group of a living session reinstates it (RFC 7143
//! §6.3.5): the old connection is closed. The new session's commands wait until nothing of the old one
//! can act any more; each session owns an [`Activity`] for that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use longshore_iscsi::pdu::{ConnectionId, Isid, Tsih};
use longshore_iscsi::session_parameters::OperationalParameters;

use crate::address::{ConnectionAddress, TargetId};
use crate::mail::message::Post;
use crate::sessions::activity::Activity;

/// Numbers there are for sessions: 16 bits without zero, which means "none", and one to spare.
const TSIHS: usize = 0xffff - 1;

/// A table with fewer entries is not worth a search.
const FORGET_AT_LEAST: usize = 64;

/// What makes a session the same session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub initiator: String,
    pub isid: Isid,
    /// `None` for discovery sessions.
    pub target: Option<TargetId>,
    pub portal_group_tag: u16,
    /// The portal of a discovery session: those at different portals are independent (§7.4.2.1).
    pub discovery_portal: Option<usize>,
}

/// A session as a login wants it.
#[derive(Clone, Debug)]
pub(crate) struct SessionClaim {
    pub key: SessionKey,
    /// Zero for a new session or to reinstate one; otherwise the session whose connection is to be
    /// reinstated (§6.3.4).
    pub tsih: Tsih,
    pub connection_id: ConnectionId,
    pub parameters: OperationalParameters,
}

/// A session as its connection sees it.
#[derive(Debug)]
pub(crate) struct SessionTicket {
    pub tsih: Tsih,
    pub activity: Arc<Activity>,
    /// The connection that it takes the place of, which is to be closed.
    pub replaced: Option<ConnectionAddress>,
    /// Commands must wait for [`Note::PredecessorsEnded`](crate::mail::message::Note::PredecessorsEnded).
    pub must_wait: bool,
}

/// Why a session could not be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRefusal {
    /// The TSIH names no session of this initiator.
    DoesNotExist,
    /// There are as many sessions as the limits allow.
    OutOfResources,
    /// The session has the one connection it may have, and it is another one.
    TooManyConnections,
}

#[derive(Debug)]
struct Entry {
    tsih: Tsih,
    connection_id: ConnectionId,
    parameters: OperationalParameters,
    connection: ConnectionAddress,
    /// Its activity, and those of the sessions it followed that had not ended: one that was itself held
    /// back when it was taken over ends before the one it waited for.
    activities: Vec<Weak<Activity>>,
    open: bool,
}

#[derive(Debug)]
struct Table {
    sessions: HashMap<SessionKey, Entry>,
    by_tsih: HashMap<Tsih, SessionKey>,
    open: usize,
    next_tsih: u16,
    /// With so many entries, those that ended are looked for.
    forget_at: usize,
}

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    limit: usize,
    table: Mutex<Table>,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.min(TSIHS),
            table: Mutex::new(Table {
                sessions: HashMap::new(),
                by_tsih: HashMap::new(),
                open: 0,
                next_tsih: 0,
                forget_at: FORGET_AT_LEAST,
            }),
        }
    }

    /// The parameters of the open session `tsih` of that name, which a login wants to continue.
    pub(crate) fn continued(
        &self,
        key: &SessionKey,
        tsih: Tsih,
        connection_id: ConnectionId,
    ) -> Result<OperationalParameters, SessionRefusal> {
        let table = self.lock();
        let entry = table
            .sessions
            .get(key)
            .filter(|entry| entry.open && entry.tsih == tsih);
        let entry = entry.ok_or(SessionRefusal::DoesNotExist)?;
        if entry.connection_id != connection_id {
            return Err(SessionRefusal::TooManyConnections);
        }
        Ok(entry.parameters.clone())
    }

    /// Opens a session. The connection it takes the place of is to be closed.
    pub(crate) fn enter(
        &self,
        claim: SessionClaim,
        connection: ConnectionAddress,
        post: &Post,
    ) -> Result<SessionTicket, SessionRefusal> {
        let SessionClaim {
            key,
            tsih: named_tsih,
            connection_id,
            parameters,
        } = claim;
        if named_tsih != Tsih(0) {
            self.continued(&key, named_tsih, connection_id)?;
        }
        let mut table = self.lock();
        let replaced_open = table.sessions.get(&key).is_some_and(|entry| entry.open);
        if !replaced_open && table.open >= self.limit {
            return Err(SessionRefusal::OutOfResources);
        }
        let tsih = if named_tsih == Tsih(0) {
            table.free_tsih().ok_or(SessionRefusal::OutOfResources)?
        } else {
            named_tsih
        };
        let activity = Arc::<Activity>::default();
        let replaced = table.sessions.remove(&key);
        let earlier: Vec<Arc<Activity>> = replaced
            .iter()
            .flat_map(|entry| entry.activities.iter().filter_map(Weak::upgrade))
            .collect();
        let must_wait = !earlier.is_empty();
        if must_wait {
            Activity::hold(&earlier, post, connection);
        }
        let activities = earlier
            .iter()
            .chain([&activity])
            .map(Arc::downgrade)
            .collect();
        let entry = Entry {
            tsih,
            connection_id,
            parameters,
            connection,
            activities,
            open: true,
        };
        if let Some(replaced) = &replaced {
            table.by_tsih.remove(&replaced.tsih);
        }
        table.open += usize::from(!replaced_open);
        table.by_tsih.insert(tsih, key.clone());
        table.sessions.insert(key, entry);
        drop(table);
        // Last, for these may be the last references: their end sends mail.
        drop(earlier);
        Ok(SessionTicket {
            tsih,
            activity,
            replaced: replaced.filter(|it| it.open).map(|it| it.connection),
            must_wait,
        })
    }

    /// The session's connection is closed. Its name stays taken while its operations are in flight.
    pub(crate) fn leave(&self, tsih: Tsih, connection: ConnectionAddress) {
        let mut table = self.lock();
        let Some(key) = table.by_tsih.get(&tsih).cloned() else {
            return;
        };
        let Some(entry) = table.sessions.get_mut(&key) else {
            return;
        };
        if entry.connection != connection || !entry.open {
            return;
        }
        entry.open = false;
        table.open -= 1;
        table.forget_ended_when_many();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics under this lock")
    }
}

impl Table {
    /// A number that no session has; `None` when all are taken.
    fn free_tsih(&mut self) -> Option<Tsih> {
        if self.by_tsih.len() >= TSIHS {
            self.forget_ended();
        }
        if self.by_tsih.len() >= TSIHS {
            return None;
        }
        loop {
            self.next_tsih = self.next_tsih.checked_add(1).unwrap_or(1);
            let tsih = Tsih(self.next_tsih);
            if !self.by_tsih.contains_key(&tsih) {
                return Some(tsih);
            }
        }
    }

    /// Entries whose activity has ended serve nobody any more. They are looked for when the table has
    /// doubled since the last time, so that it follows the number of sessions that act and a login
    /// pays for few entries on average.
    fn forget_ended_when_many(&mut self) {
        if self.sessions.len() >= self.forget_at {
            self.forget_ended();
            self.forget_at = 2 * self.sessions.len() + FORGET_AT_LEAST;
        }
    }

    fn forget_ended(&mut self) {
        let by_tsih = &mut self.by_tsih;
        self.sessions.retain(|_, entry| {
            let keep = entry.open
                || entry
                    .activities
                    .iter()
                    .any(|activity| activity.strong_count() > 0);
            if !keep {
                by_tsih.remove(&entry.tsih);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use longshore_reactor::wake::Waker;

    use super::*;
    use crate::mail::mailbox::{Inbox, post_box};
    use crate::mail::message::{Message, Note};

    fn key(initiator: &str) -> SessionKey {
        SessionKey {
            initiator: initiator.to_owned(),
            isid: Isid([0, 1, 2, 3, 4, 5]),
            target: Some(TargetId(0)),
            portal_group_tag: 1,
            discovery_portal: None,
        }
    }

    fn connection(slot: u32) -> ConnectionAddress {
        ConnectionAddress {
            shard: 0,
            slot,
            generation: 0,
        }
    }

    fn mail() -> (Post, Inbox<Message>) {
        let (mailer, inbox) = post_box(Waker::new().expect("an eventfd"));
        (Post::new(mailer), inbox)
    }

    fn enter(
        sessions: &Sessions,
        initiator: &str,
        tsih: Tsih,
        slot: u32,
        post: &Post,
    ) -> Result<SessionTicket, SessionRefusal> {
        let claim = SessionClaim {
            key: key(initiator),
            tsih,
            connection_id: ConnectionId(0),
            parameters: OperationalParameters::default(),
        };
        sessions.enter(claim, connection(slot), post)
    }

    #[test]
    fn reinstatement_closes_the_old_connection_and_waits_for_its_operations() {
        let (post, mut inbox) = mail();
        let sessions = Sessions::new(8);
        let old = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        let in_flight = old.activity.clone();
        let new = enter(&sessions, "iqn.a", Tsih(0), 2, &post).unwrap();
        assert!(new.must_wait);
        assert_eq!(new.replaced, Some(connection(1)));
        drop(old);
        assert!(inbox.receive().is_none());
        drop(in_flight);
        assert!(
            matches!(inbox.receive(), Some(Message::Note(c, Note::PredecessorsEnded)) if c == connection(2))
        );
    }

    #[test]
    fn session_that_takes_over_one_held_back_waits_for_what_that_one_waited_for() {
        let (post, mut inbox) = mail();
        let sessions = Sessions::new(8);
        let first = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        let in_flight = first.activity.clone();
        drop(first);
        let second = enter(&sessions, "iqn.a", Tsih(0), 2, &post).unwrap();
        let third = enter(&sessions, "iqn.a", Tsih(0), 3, &post).unwrap();
        drop(second);
        let told: Vec<_> = std::iter::from_fn(|| inbox.receive()).collect();
        assert!(third.must_wait);
        assert!(
            !told.iter().any(
                |m| matches!(m, Message::Note(c, Note::PredecessorsEnded) if *c == connection(3))
            ),
            "{told:?}"
        );
        drop(in_flight);
        let told: Vec<_> = std::iter::from_fn(|| inbox.receive()).collect();
        assert!(told.iter().any(
            |m| matches!(m, Message::Note(c, Note::PredecessorsEnded) if *c == connection(3))
        ));
    }

    #[test]
    fn session_after_a_closed_one_waits_for_operations_still_in_flight() {
        let (post, mut inbox) = mail();
        let sessions = Sessions::new(8);
        let old = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        let in_flight = old.activity.clone();
        sessions.leave(old.tsih, connection(1));
        drop(old);
        let new = enter(&sessions, "iqn.a", Tsih(0), 2, &post).unwrap();
        assert!(new.must_wait);
        drop(in_flight);
        assert!(
            matches!(inbox.receive(), Some(Message::Note(c, Note::PredecessorsEnded)) if c == connection(2))
        );
    }

    #[test]
    fn session_after_a_quiet_one_need_not_wait() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(8);
        let old = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        sessions.leave(old.tsih, connection(1));
        drop(old);
        assert!(
            !enter(&sessions, "iqn.a", Tsih(0), 2, &post)
                .unwrap()
                .must_wait
        );
    }

    #[test]
    fn session_limit_refuses_new_sessions_but_not_reinstatement() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(1);
        let first = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        assert_eq!(
            enter(&sessions, "iqn.b", Tsih(0), 2, &post).unwrap_err(),
            SessionRefusal::OutOfResources
        );
        let again = enter(&sessions, "iqn.a", Tsih(0), 3, &post).unwrap();
        sessions.leave(first.tsih, connection(1));
        sessions.leave(again.tsih, connection(3));
        enter(&sessions, "iqn.b", Tsih(0), 4, &post).unwrap();
    }

    #[test]
    fn sessions_that_ended_do_not_use_up_the_numbers() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(usize::MAX);
        let open = 33_000;
        for number in 0..2 * open {
            let initiator = format!("iqn.{number}");
            let ticket = enter(&sessions, &initiator, Tsih(0), number, &post).unwrap();
            if number >= open {
                sessions.leave(ticket.tsih, connection(number));
            }
        }
    }

    #[test]
    fn numbers_that_are_all_taken_are_a_refusal() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(usize::MAX);
        let all = u32::try_from(TSIHS).unwrap();
        let mut activities = Vec::new();
        for number in 0..all {
            let initiator = format!("iqn.{number}");
            let ticket = enter(&sessions, &initiator, Tsih(0), number, &post).unwrap();
            sessions.leave(ticket.tsih, connection(number));
            activities.push(ticket.activity);
        }
        let refused = enter(&sessions, "iqn.more", Tsih(0), all, &post).unwrap_err();
        assert_eq!(refused, SessionRefusal::OutOfResources);
    }

    #[test]
    fn unknown_tsih_is_refused() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(8);
        assert_eq!(
            enter(&sessions, "iqn.a", Tsih(7), 1, &post).unwrap_err(),
            SessionRefusal::DoesNotExist
        );
    }

    #[test]
    fn connection_reinstatement_keeps_the_session_and_closes_the_old_connection() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(8);
        let old = enter(&sessions, "iqn.a", Tsih(0), 1, &post).unwrap();
        let new = enter(&sessions, "iqn.a", old.tsih, 2, &post).unwrap();
        assert_eq!(new.tsih, old.tsih);
        assert_eq!(new.replaced, Some(connection(1)));
        assert_eq!(
            sessions
                .continued(&key("iqn.a"), old.tsih, ConnectionId(1))
                .unwrap_err(),
            SessionRefusal::TooManyConnections
        );
    }

    #[test]
    fn table_forgets_sessions_that_ended() {
        let (post, _inbox) = mail();
        let sessions = Sessions::new(8);
        for number in 0..1000 {
            let initiator = format!("iqn.{number}");
            let ticket = enter(&sessions, &initiator, Tsih(0), number, &post).unwrap();
            sessions.leave(ticket.tsih, connection(number));
        }
        let table = sessions.lock();
        assert!(table.sessions.len() <= 64);
        assert_eq!(table.sessions.len(), table.by_tsih.len());
    }
}
