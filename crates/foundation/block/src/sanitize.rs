//! Sanitizing a volume: all that it holds is made unreadable for good.
//!
//! There is one state for each volume, for both protocols: SANITIZE of SCSI (SBC-3 §4.11) and Sanitize of NVMe (base
//! 2.0 §8.21) start it, and both tell how far it is.
//!
//! ```text
//!            begin               end: done
//!  idle ─────────────► running ────────────► idle, completed
//!   ▲                  ▲     │ end: failed
//!   │ exit             │     ▼
//!   └──────────────── failed ◄┘        begin from there, too
//! ```
//!
//! While it runs, and after it failed, commands that touch the medium are refused. The state stands with the
//! [`Reservations`](crate::reservation::Reservations) of the volume, which both protocols share already, and whose gates
//! keep the commands out: commands that never become tasks pay nothing. What is running when the server ends goes on when it starts
//! again: the state is stored before the first block changes, and when it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the medium is sanitized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// All blocks are written.
    Overwrite {
        /// Repeated over each block; 1 byte to a block.
        pattern: Vec<u8>,
        /// OVERWRITE COUNT: passes over the medium, from 1 to 31.
        passes: u8,
        /// Each pass writes the complement of the one before.
        invert: bool,
        /// The blocks are freed afterwards, as far as the volume can.
        deallocate: bool,
    },
    /// All blocks are freed, and read as zeros.
    BlockErase,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitizeOrder {
    pub method: Method,
    /// AUSE: a failure may be left behind without another sanitize operation.
    pub unrestricted_exit: bool,
    /// Dword 10 of the Sanitize command of NVMe that says the same.
    pub nvme_dword_10: u32,
}

/// Why commands are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// It is being sanitized.
    InProgress,
    /// Reads and writes fail until another sanitize succeeds or failure mode ends.
    Failed,
}

/// How the most recent operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanitizeState {
    Never,
    InProgress,
    Completed,
    Failed,
}

/// Why nothing was begun or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another operation is running.
    InProgress,
    /// The failed operation allows no such exit: only sanitizing again ends it.
    Restricted,
}

/// Stored state that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {0} is not one of a sanitize operation; remove the file if the volume holds nothing of worth"
)]
pub struct SanitizeFormatError(usize);

/// The state of one volume. See the module documentation.
#[derive(Debug)]
pub struct Sanitize {
    state: Mutex<State>,
    /// Blocks written or freed so far, of all passes.
    done: AtomicU64,
    total: AtomicU64,
    blocked: AtomicBool,
}

#[derive(Debug)]
struct State {
    outcome: SanitizeState,
    /// The one that runs, or ran last.
    order: Option<SanitizeOrder>,
}

/// What tells of an operation at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitizeStatus {
    pub outcome: SanitizeState,
    /// In 65536ths; FFFFh unless it is running.
    pub progress: u16,
    pub nvme_dword_10: u32,
    /// The last operation that completed was an overwrite, and so many passes of it are complete.
    pub passes_done: u8,
}

impl Default for Sanitize {
    /// Nothing was ever sanitized.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                outcome: SanitizeState::Never,
                order: None,
            }),
            done: AtomicU64::new(0),
            total: AtomicU64::new(1),
            blocked: AtomicBool::new(false),
        }
    }
}

impl Sanitize {
    /// Whether commands that touch the medium are refused.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Whether commands that touch the medium are refused, and why.
    #[must_use]
    pub fn blocked(&self) -> Option<Blocked> {
        match self.state().outcome {
            SanitizeState::Never | SanitizeState::Completed => None,
            SanitizeState::InProgress => Some(Blocked::InProgress),
            SanitizeState::Failed => Some(Blocked::Failed),
        }
    }

    #[must_use]
    pub fn status(&self) -> SanitizeStatus {
        let state = self.state();
        let (progress, part) = match state.outcome {
            SanitizeState::InProgress => (self.progress(), self.progress()),
            SanitizeState::Completed => (u16::MAX, u16::MAX),
            SanitizeState::Never | SanitizeState::Failed => (u16::MAX, 0),
        };
        let passes = match state.order.as_ref().map(|order| &order.method) {
            Some(Method::Overwrite { passes, .. }) if part == u16::MAX => *passes,
            Some(Method::Overwrite { passes, .. }) => {
                let done = u64::from(part) * u64::from(*passes) / 65_536;
                u8::try_from(done).unwrap_or(*passes)
            }
            Some(Method::BlockErase) | None => 0,
        };
        SanitizeStatus {
            outcome: state.outcome,
            progress,
            nvme_dword_10: state.order.as_ref().map_or(0, |order| order.nvme_dword_10),
            passes_done: passes,
        }
    }

    /// PROGRESS INDICATION, in 65536ths.
    #[must_use]
    pub fn progress(&self) -> u16 {
        let done = u128::from(self.done.load(Ordering::Relaxed));
        let total = u128::from(self.total.load(Ordering::Relaxed).max(1));
        u16::try_from(done * 65_536 / total).unwrap_or(u16::MAX)
    }

    /// An operation begins.
    ///
    /// # Errors
    /// Another one is running.
    pub(crate) fn begin(&self, order: SanitizeOrder) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.outcome == SanitizeState::InProgress {
            return Err(Refusal::InProgress);
        }
        self.done.store(0, Ordering::Relaxed);
        state.order = Some(order);
        self.settle(&mut state, SanitizeState::InProgress);
        Ok(())
    }

    /// The operation that runs.
    #[must_use]
    pub fn running(&self) -> Option<SanitizeOrder> {
        let state = self.state();
        match state.outcome {
            SanitizeState::InProgress => state.order.clone(),
            SanitizeState::Never | SanitizeState::Completed | SanitizeState::Failed => None,
        }
    }

    /// So many of so many blocks are done.
    pub fn advance(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// The operation is over.
    pub(crate) fn end(&self, succeeded: bool) {
        let outcome = if succeeded {
            SanitizeState::Completed
        } else {
            SanitizeState::Failed
        };
        self.settle(&mut self.state(), outcome);
    }

    /// Leaves the failure of an operation behind. Does nothing where none has failed.
    ///
    /// # Errors
    /// One is running, or the one that failed did not allow that.
    pub(crate) fn exit_failure(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        match (state.outcome, &state.order) {
            (SanitizeState::InProgress, _) => Err(Refusal::InProgress),
            (SanitizeState::Failed, Some(order)) if !order.unrestricted_exit => {
                Err(Refusal::Restricted)
            }
            (SanitizeState::Failed, _) => {
                state.order = None;
                self.settle(&mut state, SanitizeState::Never);
                Ok(())
            }
            (SanitizeState::Never | SanitizeState::Completed, _) => Ok(()),
        }
    }

    fn settle(&self, state: &mut State, outcome: SanitizeState) {
        state.outcome = outcome;
        let is_blocked = matches!(outcome, SanitizeState::InProgress | SanitizeState::Failed);
        self.blocked.store(is_blocked, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is made by assigning finished values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- stored

const FIRST_LINE: &str = "longshore sanitize 1";

impl Sanitize {
    /// The state as text that `restore` takes; empty where nothing was ever sanitized.
    #[must_use]
    pub fn to_text(&self) -> String {
        let state = self.state();
        text_of(state.order.as_ref(), state.outcome)
    }

    /// The same as it will be when the operation has ended so.
    #[must_use]
    pub fn to_text_of(&self, outcome: SanitizeState) -> String {
        text_of(self.state().order.as_ref(), outcome)
    }

    /// Takes up the state stored before a restart. [`Self::running`] says what has to go on.
    ///
    /// # Errors
    /// The text is not what [`Self::to_text`] gave.
    pub(crate) fn restore(&self, text: &str) -> Result<(), SanitizeFormatError> {
        if text.is_empty() {
            return Ok(());
        }
        let lines: Vec<&str> = text.lines().collect();
        let line = |number: usize| lines.get(number).copied().unwrap_or_default();
        let wrong = |number: usize| SanitizeFormatError(number + 1);
        if line(0) != FIRST_LINE {
            return Err(wrong(0));
        }
        let outcome = match line(1) {
            "running" => SanitizeState::InProgress,
            "completed" => SanitizeState::Completed,
            "failed" => SanitizeState::Failed,
            _ => return Err(wrong(1)),
        };
        let order = SanitizeOrder {
            method: parse_method(line(2)).ok_or(wrong(2))?,
            unrestricted_exit: line(3).parse().map_err(|_| wrong(3))?,
            nvme_dword_10: u32::from_str_radix(line(4), 16).map_err(|_| wrong(4))?,
        };
        let mut state = self.state();
        state.order = Some(order);
        self.settle(&mut state, outcome);
        Ok(())
    }
}

fn text_of(order: Option<&SanitizeOrder>, outcome: SanitizeState) -> String {
    let Some(order) = order else {
        return String::new();
    };
    let outcome = match outcome {
        SanitizeState::Never => return String::new(),
        SanitizeState::InProgress => "running",
        SanitizeState::Completed => "completed",
        SanitizeState::Failed => "failed",
    };
    let method = match &order.method {
        Method::BlockErase => "block-erase".to_owned(),
        Method::Overwrite {
            pattern,
            passes,
            invert,
            deallocate,
        } => {
            let pattern: String = pattern.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("overwrite {passes} {invert} {deallocate} {pattern}")
        }
    };
    format!(
        "{FIRST_LINE}\n{outcome}\n{method}\n{}\n{:08x}\n",
        order.unrestricted_exit, order.nvme_dword_10
    )
}

fn parse_method(line: &str) -> Option<Method> {
    /// A pattern is at most a block.
    const PATTERN_BYTES_MAX: usize = 64 * 1024;
    if line == "block-erase" {
        return Some(Method::BlockErase);
    }
    let mut words = line.strip_prefix("overwrite ")?.split(' ');
    let passes = words
        .next()?
        .parse()
        .ok()
        .filter(|n| (1..=31).contains(n))?;
    let invert = words.next()?.parse().ok()?;
    let deallocate = words.next()?.parse().ok()?;
    let digits = words.next()?.as_bytes();
    if digits.is_empty() || digits.len() % 2 != 0 || digits.len() > 2 * PATTERN_BYTES_MAX {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |pair: &[u8]| {
        let value = digit(&pair[0])? << 4 | digit(&pair[1])?;
        u8::try_from(value).ok()
    };
    let pattern = digits.chunks_exact(2).map(byte).collect::<Option<_>>()?;
    words.next().is_none().then_some(Method::Overwrite {
        pattern,
        passes,
        invert,
        deallocate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overwrite(unrestricted_exit: bool) -> SanitizeOrder {
        SanitizeOrder {
            method: Method::Overwrite {
                pattern: vec![0xaa, 0x55],
                passes: 3,
                invert: true,
                deallocate: false,
            },
            unrestricted_exit,
            nvme_dword_10: 0x133,
        }
    }

    fn new() -> Sanitize {
        Sanitize::default()
    }

    #[test]
    fn what_runs_blocks_and_tells_how_far_it_is() {
        let sanitize = new();
        assert_eq!(sanitize.blocked(), None);
        sanitize.begin(overwrite(false)).unwrap();
        assert_eq!(sanitize.blocked(), Some(Blocked::InProgress));
        assert_eq!(sanitize.begin(overwrite(false)), Err(Refusal::InProgress));
        sanitize.advance(40, 60);
        let status = sanitize.status();
        assert_eq!((status.progress, status.passes_done), (43_690, 1));
        sanitize.end(true);
        assert_eq!(sanitize.blocked(), None);
        let status = sanitize.status();
        assert_eq!(status.outcome, SanitizeState::Completed);
        assert_eq!((status.progress, status.passes_done), (u16::MAX, 3));
    }

    #[test]
    fn a_failure_blocks_until_it_is_left_or_sanitized_again() {
        let sanitize = new();
        sanitize.begin(overwrite(false)).unwrap();
        sanitize.end(false);
        assert_eq!(sanitize.blocked(), Some(Blocked::Failed));
        assert_eq!(sanitize.exit_failure(), Err(Refusal::Restricted));
        sanitize.begin(overwrite(true)).unwrap();
        assert_eq!(sanitize.exit_failure(), Err(Refusal::InProgress));
        sanitize.end(false);
        sanitize.exit_failure().unwrap();
        assert_eq!(sanitize.blocked(), None);
        sanitize.exit_failure().unwrap();
    }

    #[test]
    fn the_state_is_the_same_after_a_restart() {
        let erase = SanitizeOrder {
            method: Method::BlockErase,
            ..overwrite(true)
        };
        for order in [overwrite(false), overwrite(true), erase] {
            for end in [None, Some(true), Some(false)] {
                let before = new();
                before.begin(order.clone()).unwrap();
                if let Some(succeeded) = end {
                    before.end(succeeded);
                }
                let after = new();
                after.restore(&before.to_text()).unwrap();
                assert_eq!(after.to_text(), before.to_text());
                assert_eq!(after.running(), before.running());
                assert_eq!(after.blocked(), before.blocked());
            }
        }
        assert_eq!(new().to_text(), "");
        new().restore("").unwrap();
    }

    #[test]
    fn stored_state_that_was_damaged_is_refused() {
        let sanitize = new();
        sanitize.begin(overwrite(false)).unwrap();
        let text = sanitize.to_text();
        for (from, to) in [
            ("sanitize 1", "sanitize 2"),
            ("running", "resting"),
            ("overwrite 3", "overwrite 0"),
            ("aa55", "aa5"),
            ("aa55", "zz55"),
            ("false\n0", "fals\n0"),
            ("00000133", "133g"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            assert!(new().restore(&damaged).is_err(), "{damaged}");
        }
    }
}
