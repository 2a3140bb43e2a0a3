//! Set Features and Get Features (NVMe base 2.0 §5.27, §5.15).
//!
//! | feature | | |
//! |---|---|---|
//! | 01h Arbitration | read | 0: all queues are served alike |
//! | 02h Power Management | read, write | power state 0 is the only one |
//! | 04h Temperature Threshold | read, write | no temperature is measured, so no event follows |
//! | 05h Error Recovery | read, write | TLER is remembered, without effect; DULBE is not supported |
//! | 06h Volatile Write Cache | read | on, if a namespace has one |
//! | 07h Number of Queues | read, write | before there are I/O queues |
//! | 0Ah Write Atomicity Normal | read, write | without effect: AWUN and AWUPF are the same |
//! | 0Bh Asynchronous Event Configuration | read, write | |
//! | 0Eh Timestamp | read, write | data |
//! | 0Fh Keep Alive Timer | read, write | |
//! | 16h Host Behavior Support | read, write | data; ACRE |
//! | 19h I/O Command Set Profile | read, write | 0 is the only one |
//! | 81h Host Identifier | read | data; Connect has set it |
//! | 82h Reservation Notification Mask | read, write | of a namespace |
//! | 83h Reservation Persistence | read | of a namespace; Reservation Register sets it |
//!
//! A controller of discovery has 0Bh and 0Fh. Nothing is saved: SV is refused.

use std::sync::atomic::Ordering;

use super::admin_command::{AdminOutcome, DONE, Request, done};
use super::failure::Failure;
use super::state::{Controller, Features, State, Timestamp, configurable, supported_notices};
use crate::command::{NamespaceId, SubmissionEntry};
use crate::reservation::NotificationMask;
use crate::status::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeatureId(pub(super) u8);

impl FeatureId {
    pub(super) const ARBITRATION: Self = Self(0x01);
    pub(super) const POWER_MANAGEMENT: Self = Self(0x02);
    pub(super) const TEMPERATURE_THRESHOLD: Self = Self(0x04);
    pub(super) const ERROR_RECOVERY: Self = Self(0x05);
    pub(super) const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    pub(super) const NUMBER_OF_QUEUES: Self = Self(0x07);
    pub(super) const WRITE_ATOMICITY_NORMAL: Self = Self(0x0a);
    pub(super) const ASYNC_EVENT_CONFIGURATION: Self = Self(0x0b);
    pub(super) const TIMESTAMP: Self = Self(0x0e);
    pub(super) const KEEP_ALIVE_TIMER: Self = Self(0x0f);
    pub(super) const HOST_BEHAVIOR_SUPPORT: Self = Self(0x16);
    pub(super) const IO_COMMAND_SET_PROFILE: Self = Self(0x19);
    pub(super) const HOST_IDENTIFIER: Self = Self(0x81);
    pub(super) const RESERVATION_NOTIFICATION_MASK: Self = Self(0x82);
    pub(super) const RESERVATION_PERSISTENCE: Self = Self(0x83);

    /// Of a Set Features or Get Features command.
    pub(super) fn of(entry: &SubmissionEntry) -> Self {
        Self(entry.dword(10).to_le_bytes()[0])
    }

    /// Bytes that come with Set Features.
    pub(super) const fn data_length(self) -> u32 {
        match self {
            Self::TIMESTAMP => 8,
            Self::HOST_BEHAVIOR_SUPPORT => 512,
            _ => 0,
        }
    }

    /// Bytes that Get Features returns.
    pub(super) fn data_to_host(self, entry: &SubmissionEntry) -> u32 {
        if Select::of(entry) == Some(Select::Supported) {
            return 0;
        }
        match self {
            Self::HOST_IDENTIFIER => 16,
            other => other.data_length(),
        }
    }

    /// Whether it can be set, and is one of a namespace.
    const fn traits(self) -> Traits {
        let (changeable, of_namespace) = match self {
            Self::ARBITRATION | Self::VOLATILE_WRITE_CACHE | Self::HOST_IDENTIFIER => {
                (false, false)
            }
            Self::RESERVATION_NOTIFICATION_MASK => (true, true),
            Self::RESERVATION_PERSISTENCE => (false, true),
            _ => (true, false),
        };
        Traits {
            changeable,
            of_namespace,
        }
    }

    /// As the Feature Identifiers Supported and Effects log page says it.
    pub(super) const fn effects(self) -> u32 {
        const SUPPORTED: u32 = 1;
        const NAMESPACE_SCOPE: u32 = 1 << 20;
        const CONTROLLER_SCOPE: u32 = 1 << 21;
        if self.traits().of_namespace {
            SUPPORTED | NAMESPACE_SCOPE
        } else {
            SUPPORTED | CONTROLLER_SCOPE
        }
    }
}

struct Traits {
    changeable: bool,
    of_namespace: bool,
}

/// Select (SEL) of Get Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Select {
    Current,
    /// Defaults, and what is saved: nothing is, so that is the default.
    Default,
    /// What can be done with the feature.
    Supported,
}

impl Select {
    fn of(entry: &SubmissionEntry) -> Option<Self> {
        match entry.dword(10) >> 8 & 7 {
            0 => Some(Self::Current),
            1 | 2 => Some(Self::Default),
            3 => Some(Self::Supported),
            _ => None,
        }
    }
}

/// Bytes of the entry at which FID, SEL, SV and dword 11 are.
const FID_AT: u16 = 40;
const SELECT_AT: u16 = 41;
const DWORD_11_AT: u16 = 44;

/// Result of Number of Queues: as many of both kinds, less one.
fn queues_result(queues: u16) -> u64 {
    let queues = u64::from(queues.saturating_sub(1));
    queues | queues << 16
}

/// TMPSEL and THSEL of the temperature threshold: which of the two, if there is such a sensor.
fn temperature_selected(dword: u32, is_set: bool) -> Option<usize> {
    let sensor = dword >> 16 & 0xf;
    let threshold = dword >> 20 & 3;
    let known = sensor == 0 || is_set && sensor == 0xf;
    (known && threshold < 2).then_some(usize::from(threshold == 1))
}

impl Controller {
    pub(super) fn has_feature(&self, feature: FeatureId) -> bool {
        match feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => true,
            FeatureId::VOLATILE_WRITE_CACHE => self.has_volatile_cache(),
            FeatureId::ARBITRATION
            | FeatureId::POWER_MANAGEMENT
            | FeatureId::TEMPERATURE_THRESHOLD
            | FeatureId::ERROR_RECOVERY
            | FeatureId::NUMBER_OF_QUEUES
            | FeatureId::WRITE_ATOMICITY_NORMAL
            | FeatureId::TIMESTAMP
            | FeatureId::HOST_BEHAVIOR_SUPPORT
            | FeatureId::IO_COMMAND_SET_PROFILE
            | FeatureId::HOST_IDENTIFIER
            | FeatureId::RESERVATION_NOTIFICATION_MASK
            | FeatureId::RESERVATION_PERSISTENCE => !self.is_discovery(),
            _ => false,
        }
    }

    pub(super) fn get_features(
        &self,
        state: &State,
        request: &mut Request,
    ) -> Result<AdminOutcome, Failure> {
        let entry = request.entry;
        let feature = FeatureId::of(entry);
        if !self.has_feature(feature) {
            return Err(Failure::field(FID_AT));
        }
        let select = Select::of(entry).ok_or(Failure::field(SELECT_AT))?;
        if select == Select::Supported {
            let traits = feature.traits();
            let result = u64::from(traits.of_namespace) << 1 | u64::from(traits.changeable) << 2;
            return Ok(done(result));
        }
        let default = Features::new(state.features.io_queues_max, request.now_ms);
        let features = match select {
            Select::Default => &default,
            Select::Current | Select::Supported => &state.features,
        };
        let dword_11 = entry.dword(11);
        let result = match feature {
            FeatureId::VOLATILE_WRITE_CACHE => 1,
            FeatureId::ERROR_RECOVERY => u64::from(features.recovery_limit),
            FeatureId::TEMPERATURE_THRESHOLD => {
                let which = temperature_selected(dword_11, false);
                let which = which.ok_or(Failure::field(DWORD_11_AT))?;
                u64::from(features.temperature[which])
            }
            FeatureId::NUMBER_OF_QUEUES => queues_result(features.io_queues),
            FeatureId::WRITE_ATOMICITY_NORMAL => u64::from(features.atomicity_disabled),
            FeatureId::ASYNC_EVENT_CONFIGURATION => u64::from(match select {
                Select::Default => supported_notices(self.is_discovery()),
                Select::Current | Select::Supported => state.events.configuration(),
            }),
            FeatureId::KEEP_ALIVE_TIMER => match select {
                Select::Default => 0,
                Select::Current | Select::Supported => u64::from(state.keep_alive.timeout_ms()),
            },
            FeatureId::TIMESTAMP => {
                let timestamp = features.timestamp.encode(request.now_ms);
                request.out.extend_from_slice(&timestamp);
                0
            }
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                let mut behavior = [0; 512];
                behavior[0] = u8::from(features.advanced_retry);
                request.out.extend_from_slice(&behavior);
                0
            }
            FeatureId::HOST_IDENTIFIER => {
                const EXTENDED: u32 = 1;
                if dword_11 & EXTENDED == 0 {
                    let status = Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT;
                    return Err(Failure::at(status, DWORD_11_AT));
                }
                request.out.extend_from_slice(&self.host_identifier);
                0
            }
            FeatureId::RESERVATION_NOTIFICATION_MASK | FeatureId::RESERVATION_PERSISTENCE => {
                self.reservation_feature(feature, select == Select::Default, entry.namespace())?
            }
            _ => 0,
        };
        Ok(done(result))
    }

    pub(super) fn set_features(
        &self,
        state: &mut State,
        request: &mut Request,
    ) -> Result<AdminOutcome, Failure> {
        const SAVE: u32 = 1 << 31;
        let entry = request.entry;
        let feature = FeatureId::of(entry);
        if !self.has_feature(feature) {
            return Err(Failure::field(FID_AT));
        }
        if entry.dword(10) & SAVE != 0 {
            return Err(Failure::at(Status::FEATURE_NOT_SAVEABLE, 43));
        }
        let traits = feature.traits();
        if !traits.of_namespace && entry.namespace().is_single() {
            let status = Status::FEATURE_NOT_NAMESPACE_SPECIFIC;
            return Err(Failure::at(status, Failure::NAMESPACE_AT));
        }
        let value = entry.dword(11);
        match feature {
            FeatureId::HOST_IDENTIFIER => {
                // Connect has set it, and that is that (§5.27.1.25).
                return Err(Failure::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
            }
            FeatureId::VOLATILE_WRITE_CACHE if value & 1 != 0 => {}
            _ if !traits.changeable => {
                return Err(Failure::at(Status::FEATURE_NOT_CHANGEABLE, FID_AT));
            }
            FeatureId::POWER_MANAGEMENT | FeatureId::IO_COMMAND_SET_PROFILE => {
                return set_only_choice(feature, value);
            }
            FeatureId::TEMPERATURE_THRESHOLD => {
                let which = temperature_selected(value, true);
                let which = which.ok_or(Failure::field(DWORD_11_AT))?;
                let [low, high, ..] = value.to_le_bytes();
                state.features.temperature[which] = u16::from_le_bytes([low, high]);
            }
            FeatureId::ERROR_RECOVERY => {
                let limit = u16::try_from(value).map_err(|_| Failure::field(DWORD_11_AT))?;
                state.features.recovery_limit = limit;
            }
            FeatureId::NUMBER_OF_QUEUES => return set_number_of_queues(state, value),
            FeatureId::WRITE_ATOMICITY_NORMAL => {
                state.features.atomicity_disabled = value & 1 != 0;
            }
            FeatureId::ASYNC_EVENT_CONFIGURATION => {
                // What we never send may be asked for: hosts ask for all they know.
                let supported = configurable(self.is_discovery());
                state.events.configure(value & supported);
            }
            FeatureId::KEEP_ALIVE_TIMER => {
                // TCP wants the timer; only Connect may go without.
                if value == 0 || value > self.subsystem.limits.keep_alive_ms_max {
                    return Err(Failure::at(Status::KEEP_ALIVE_TIMEOUT_INVALID, DWORD_11_AT));
                }
                state.keep_alive.set_timeout(value, request.now_ms);
            }
            FeatureId::TIMESTAMP => {
                state.features.timestamp = Timestamp {
                    value_ms: u64::from_le_bytes(*request.data()?) & Timestamp::MASK,
                    at_ms: request.now_ms,
                    by_host: true,
                };
            }
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(state, request.data()?)?,
            FeatureId::RESERVATION_NOTIFICATION_MASK => {
                self.set_reservation_notification_mask(entry.namespace(), value)?;
            }
            // The rest cannot be changed.
            _ => return Err(Failure::at(Status::FEATURE_NOT_CHANGEABLE, FID_AT)),
        }
        Ok(DONE)
    }

    /// ACRE; ETDAS and LBAFEE are for what we do not have.
    fn set_host_behavior(&self, state: &mut State, data: &[u8; 512]) -> Result<(), Failure> {
        let advanced_retry = match data[..4] {
            [acre @ (0 | 1), 0, 0, 0] => acre == 1,
            _ => return Err(Failure::of(Status::INVALID_FIELD.do_not_retry())),
        };
        state.features.advanced_retry = advanced_retry;
        self.advanced_retry.store(advanced_retry, Ordering::Relaxed);
        Ok(())
    }
}

/// Features of which there is one value: power state 0, with any hint of the workload (bits 7:5), and
/// the first combination of command sets.
fn set_only_choice(feature: FeatureId, value: u32) -> Result<AdminOutcome, Failure> {
    match feature {
        FeatureId::POWER_MANAGEMENT if value & 0x1f != 0 => Err(Failure::field(DWORD_11_AT)),
        FeatureId::IO_COMMAND_SET_PROFILE if value & 0x1ff != 0 => Err(Failure::at(
            Status::COMMAND_SET_COMBINATION_REJECTED,
            DWORD_11_AT,
        )),
        _ => Ok(DONE),
    }
}

/// NSQR in bits 15:0 and NCQR in 31:16, less one each. Over fabrics a queue is a pair.
fn set_number_of_queues(state: &mut State, value: u32) -> Result<AdminOutcome, Failure> {
    let [a, b, c, d] = value.to_le_bytes();
    let wanted = u16::from_le_bytes([a, b]).min(u16::from_le_bytes([c, d]));
    let too_many = [[a, b], [c, d]].contains(&[0xff, 0xff]);
    let wanted = wanted.checked_add(1).filter(|_| !too_many);
    let wanted = wanted.ok_or(Failure::field(DWORD_11_AT))?;
    if state.io_queues.iter().any(Option::is_some) {
        return Err(Failure::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
    }
    state.features.io_queues = wanted.min(state.features.io_queues_max);
    Ok(done(queues_result(state.features.io_queues)))
}

impl Controller {
    fn reservation_feature(
        &self,
        feature: FeatureId,
        default: bool,
        id: NamespaceId,
    ) -> Result<u64, Failure> {
        let attached = self.named(id)?;
        if default {
            return Ok(0);
        }
        if feature == FeatureId::RESERVATION_NOTIFICATION_MASK {
            return Ok(u64::from(attached.host.notification_mask().dword()));
        }
        let reservations = &attached.namespace.parameters().reservations;
        let persists = reservations.lock().table().persists();
        Ok(u64::from(persists))
    }

    /// Of one namespace, or of all that the host sees.
    fn set_reservation_notification_mask(&self, id: NamespaceId, mask: u32) -> Result<(), Failure> {
        let mask = NotificationMask::from_dword(mask).ok_or(Failure::field(DWORD_11_AT))?;
        let of = if id == NamespaceId::BROADCAST {
            self.namespaces()
        } else {
            [self.named(id)?].into()
        };
        for attached in &*of {
            attached.host.set_notification_mask(mask);
        }
        Ok(())
    }
}
