//! What a host does about reservations: register, acquire or preempt, hold for a while, release,
//! unregister. After a lost connection it clears what may be left.

use longshore_nvme::host::Command;
use longshore_nvme::host::commands::{
    reservation_acquire, reservation_register, reservation_release,
};
use longshore_nvme::status::Status;

use crate::random::Random;
use crate::scene::{Reservation, Scene};
use crate::time::MILLISECOND;
use crate::workload::nvme::namespace;

/// Write Exclusive, Exclusive Access, and the same for Registrants Only.
const TYPES: [u8; 4] = [1, 2, 3, 4];

/// IEKEY: no check of the current key.
const IGNORE_EXISTING_KEY: u32 = 1 << 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `clear`: to clear all that there is.
    Register {
        clear: bool,
    },
    Acquire,
    Preempt {
        victim: usize,
        abort: bool,
    },
    Hold {
        until: u64,
    },
    Release,
    Unregister,
    Clear,
}

impl Stage {
    /// Whether it may end a reservation.
    const fn disturbs(self) -> bool {
        matches!(
            self,
            Self::Preempt { .. } | Self::Release | Self::Unregister | Self::Clear
        )
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Plan {
    pub unit: usize,
    party: usize,
    stage: Stage,
    kind: u8,
    /// A command is under way.
    sent: bool,
    /// What [`Reservations::sent`](crate::scene::Reservations::sent) said of it.
    sent_as: u64,
    /// Virtual time before which nothing is done.
    at: u64,
}

impl Plan {
    pub(super) fn new(party: usize, unit: usize, clear: bool, random: &mut Random) -> Self {
        Self {
            unit,
            party,
            stage: Stage::Register { clear },
            kind: random.pick(&TYPES),
            sent: false,
            sent_as: 0,
            at: 0,
        }
    }

    /// The next command and its data, if it is time.
    pub(super) fn next(&mut self, scene: &mut Scene<'_>) -> Option<(Command, Vec<u8>)> {
        let now = scene.now();
        if self.sent || now < self.at {
            return None;
        }
        if let Stage::Hold { until } = self.stage {
            if now < until && !scene.quiet {
                return None;
            }
            self.stage = Stage::Release;
        }
        self.sent = true;
        self.sent_as = scene.reservations[self.unit].sent(self.stage.disturbs());
        let namespace = namespace(self.unit);
        let (command, keys) = match self.stage {
            Stage::Register { .. } => (
                reservation_register(namespace, IGNORE_EXISTING_KEY),
                [0, key(self.party)],
            ),
            Stage::Acquire => (
                reservation_acquire(namespace, 0, self.kind),
                [key(self.party), 0],
            ),
            Stage::Preempt { victim, abort } => (
                reservation_acquire(namespace, if abort { 2 } else { 1 }, self.kind),
                [key(self.party), key(victim)],
            ),
            Stage::Release => (
                reservation_release(namespace, 0, self.kind),
                [key(self.party), 0],
            ),
            Stage::Unregister => (reservation_register(namespace, 1), [key(self.party), 0]),
            Stage::Clear => (reservation_release(namespace, 1, 0), [key(self.party), 0]),
            Stage::Hold { .. } => unreachable!("it became a release"),
        };
        scene.trace(format_args!(
            "host {}: unit {} {:?} type {}",
            self.party, self.unit, self.stage, self.kind
        ));
        let mut data: Vec<u8> = keys.into_iter().flat_map(u64::to_le_bytes).collect();
        data.truncate(command.transfer.length() as usize);
        Some((command, data))
    }

    /// The command was answered. Returns whether the plan is over.
    ///
    /// # Errors
    /// When it cannot have been answered so.
    pub(super) fn answered(
        &mut self,
        status: Status,
        random: &mut Random,
        scene: &mut Scene<'_>,
    ) -> Result<bool, String> {
        let now = scene.now();
        self.sent = false;
        let is_known = scene.noticed.absences[self.unit].is_known();
        let was_ended = scene.noticed.endings[self.unit].is_known();
        let reservations = &mut scene.reservations[self.unit];
        let undisturbed = reservations.answered(self.stage.disturbs(), self.sent_as);
        let is_missing = status.code() == Status::INVALID_FIELD && is_known
            || status.code() == Status::INVALID_NAMESPACE_OR_FORMAT && was_ended;
        if is_missing || status.code() == Status::COMMAND_INTERRUPTED {
            self.at = now + MILLISECOND;
            return Ok(false);
        }
        let expected = [
            Status::RESERVATION_CONFLICT,
            Status::ABORTED_PREEMPT_AND_ABORT,
        ];
        if !status.is_success() && !expected.contains(&status.code()) {
            return Err(format!("{status} for {:?}", self.stage));
        }
        let success = status.is_success();
        self.stage = match self.stage {
            Stage::Register { clear: true } if success => Stage::Clear,
            Stage::Register { clear: false } if success => Stage::Acquire,
            Stage::Acquire | Stage::Preempt { .. } if success => {
                reservations.held = undisturbed.then_some(Reservation {
                    holder: self.party,
                    exclusive_access: matches!(self.kind, 2 | 4),
                    registrants: self.kind > 2,
                    since: now,
                });
                Stage::Hold {
                    until: now + random.below(10 * MILLISECOND),
                }
            }
            Stage::Acquire => match reservations.held {
                Some(held) if random.chance(5000) => Stage::Preempt {
                    victim: held.holder,
                    abort: random.chance(7000),
                },
                _ => Stage::Unregister,
            },
            Stage::Preempt { .. } | Stage::Release => Stage::Unregister,
            Stage::Register { .. } | Stage::Unregister | Stage::Clear => return Ok(true),
            Stage::Hold { .. } => unreachable!("nothing is sent for it"),
        };
        Ok(false)
    }

    /// The connection was lost: what may stand, stands for nobody.
    pub(super) fn lost(&self, scene: &mut Scene<'_>) {
        let held = &mut scene.reservations[self.unit].held;
        if held.is_some_and(|held| held.holder == self.party) {
            *held = None;
        }
    }
}

fn key(party: usize) -> u64 {
    0x5100 + party as u64
}
