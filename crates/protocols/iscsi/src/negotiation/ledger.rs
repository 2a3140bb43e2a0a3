//! Who has sent which key.

use super::error::NegotiationError;
use crate::keys::{Key, KeySet, Phase, Senders};
use crate::text::NOT_UNDERSTOOD;

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It opened the connection.
    Initiator,
    Target,
}

/// Which keys have gone which way, so that none goes twice or at the wrong time.
#[derive(Clone, Debug)]
pub struct Ledger {
    peer: Role,
    received_in_security: KeySet,
    received: KeySet,
    sent: KeySet,
}

/// What is to be done with a key that may be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is here for the first time.
    New,
    /// It was here in an earlier stage. Only names and the like are let through again; the value must
    /// be the same.
    Redeclared,
    /// The peer says that it does not know a key that we declared. Nothing follows from that.
    NotUnderstood,
}

impl Ledger {
    /// Nothing has been sent or received; `peer` is the role of the other side.
    #[must_use]
    pub const fn new(peer: Role) -> Self {
        Self {
            peer,
            received_in_security: KeySet::EMPTY,
            received: KeySet::EMPTY,
            sent: KeySet::EMPTY,
        }
    }

    /// Records that we send `key`, so that a second negotiation of it is noticed.
    pub fn note_sent(&mut self, key: Key) {
        self.sent.insert(key);
    }

    /// Whether we have sent `key`.
    #[must_use]
    pub const fn has_sent(&self, key: Key) -> bool {
        self.sent.contains(key)
    }

    /// Whether the peer has sent `key`.
    #[must_use]
    pub const fn has_received(&self, key: Key) -> bool {
        self.received.contains(key)
    }

    /// The peer sends `key`: checks who, when, how often and how long.
    ///
    /// libiscsi declares the names and the session type in both stages of the login, in spite of
    /// §13.4 and §13.5; declaring them again in a later stage, unchanged, is therefore let through. So is
    /// what a target declares of itself.
    ///
    /// # Errors
    /// Says which rule is broken.
    pub fn admit(
        &mut self,
        key: Key,
        value: &str,
        phase: Phase,
    ) -> Result<Admission, NegotiationError> {
        let definition = key.definition();
        if value == NOT_UNDERSTOOD && self.has_sent(key) && !self.is_for_peer_to_send(key) {
            return Ok(Admission::NotUnderstood);
        }
        if !self.is_for_peer_to_send(key) {
            return Err(NegotiationError::WrongSender(key));
        }
        if !definition.is_allowed_in(phase) {
            return Err(NegotiationError::WrongStage(key));
        }
        if value.len() > key.value_length_max() {
            return Err(NegotiationError::ValueTooLong(key));
        }
        if !self.received.insert(key) {
            let in_later_stage =
                phase == Phase::Operational && self.received_in_security.remove(key);
            let is_declared_again = matches!(
                key,
                Key::InitiatorName
                    | Key::InitiatorAlias
                    | Key::TargetName
                    | Key::SessionType
                    | Key::TargetPortalGroupTag
            );
            if in_later_stage && is_declared_again {
                return Ok(Admission::Redeclared);
            }
            // A target may have several addresses (§13.8), and an alias that changes.
            return if matches!(key, Key::TargetAddress | Key::TargetAlias) {
                Ok(Admission::New)
            } else {
                Err(NegotiationError::Repeated(key))
            };
        }
        if phase == Phase::Security {
            self.received_in_security.insert(key);
        }
        Ok(Admission::New)
    }

    fn is_for_peer_to_send(&self, key: Key) -> bool {
        match key.definition().senders {
            Senders::Both => true,
            Senders::Initiator => self.peer == Role::Initiator,
            Senders::Target => self.peer == Role::Target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::TABLE;

    #[test]
    fn each_key_comes_from_its_sender_in_its_phase() {
        for definition in TABLE {
            let key = definition.key;
            for (peer, sender) in [
                (Role::Initiator, Senders::Initiator),
                (Role::Target, Senders::Target),
            ] {
                let may_send = definition.senders == Senders::Both || definition.senders == sender;
                for phase in [Phase::Security, Phase::Operational, Phase::FullFeature] {
                    let expected = if !may_send {
                        Err(NegotiationError::WrongSender(key))
                    } else if !definition.is_allowed_in(phase) {
                        Err(NegotiationError::WrongStage(key))
                    } else {
                        Ok(Admission::New)
                    };
                    assert_eq!(Ledger::new(peer).admit(key, "1", phase), expected);
                }
            }
        }
    }

    #[test]
    fn in_full_feature_phase_only_these_keys_may_be_sent() {
        let allowed: Vec<Key> = TABLE
            .iter()
            .filter(|definition| definition.is_allowed_in(Phase::FullFeature))
            .map(|definition| definition.key)
            .collect();
        assert_eq!(
            allowed,
            [
                Key::SendTargets,
                Key::TargetAlias,
                Key::InitiatorAlias,
                Key::TargetAddress,
                Key::MaxRecvDataSegmentLength,
            ]
        );
    }

    #[test]
    fn a_key_comes_once() {
        let mut ledger = Ledger::new(Role::Initiator);
        let key = Key::InitialR2T;
        assert_eq!(
            ledger.admit(key, "No", Phase::Operational),
            Ok(Admission::New)
        );
        assert!(ledger.has_received(key));
        assert_eq!(
            ledger.admit(key, "No", Phase::Operational),
            Err(NegotiationError::Repeated(key))
        );
    }

    #[test]
    fn a_name_may_come_again_once_in_the_later_stage() {
        let key = Key::InitiatorName;
        let mut ledger = Ledger::new(Role::Initiator);
        ledger.admit(key, "x", Phase::Security).unwrap();
        assert!(ledger.admit(key, "x", Phase::Security).is_err());
        assert_eq!(
            ledger.admit(key, "x", Phase::Operational),
            Ok(Admission::Redeclared)
        );
        assert!(ledger.admit(key, "x", Phase::Operational).is_err());
    }

    #[test]
    fn a_target_may_have_several_addresses() {
        let mut ledger = Ledger::new(Role::Target);
        for address in ["10.0.0.1", "10.0.0.2"] {
            let admission = ledger.admit(Key::TargetAddress, address, Phase::Operational);
            assert_eq!(admission, Ok(Admission::New));
        }
    }

    #[test]
    fn values_are_bounded_key_by_key() {
        let long = "x".repeat(256);
        for (key, phase) in [
            (Key::InitiatorAlias, Phase::Operational),
            (Key::MaxBurstLength, Phase::Operational),
        ] {
            let mut ledger = Ledger::new(Role::Initiator);
            let result = ledger.admit(key, &long, phase);
            assert_eq!(result, Err(NegotiationError::ValueTooLong(key)));
            assert!(ledger.admit(key, &long[..255], phase).is_ok());
        }
        let mut ledger = Ledger::new(Role::Initiator);
        assert!(
            ledger
                .admit(Key::ChapR, &"0".repeat(2050), Phase::Security)
                .is_ok()
        );
    }
}
