//! Waiting for all shards without a shard ever waiting: each party that has to acknowledge holds a token, and the end
//! of the last one is the answer. A shard that has ended drops its tokens, too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Wakes the thread that waits for answers.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    /// How often it has rung. To be asked before looking for answers.
    pub(crate) fn count(&self) -> u64 {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until it has rung more often, or for that time. `None`: for ever.
    pub(crate) fn wait(&self, count: u64, until: Option<Instant>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while *rung == count {
            rung = match until {
                None => self
                    .changed
                    .wait(rung)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let waited = self.changed.wait_timeout(rung, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Whether all tokens are gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered(Arc<AtomicBool>);

impl Answered {
    pub(crate) fn is(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Held by those who are to answer.
#[derive(Debug)]
pub(crate) struct Token {
    answered: Answered,
    bell: Arc<Bell>,
}

impl Token {
    /// A token, and what tells that the last reference to it is gone.
    pub(crate) fn new(bell: &Arc<Bell>) -> (Arc<Self>, Answered) {
        let answered = Answered::default();
        let token = Self {
            answered: answered.clone(),
            bell: Arc::clone(bell),
        };
        (Arc::new(token), answered)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.answered.0.store(true, Ordering::Release);
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reference_to_a_token_is_the_answer() {
        let bell = Arc::<Bell>::default();
        let (token, answered) = Token::new(&bell);
        let others: Vec<_> = (0..3).map(|_| Arc::clone(&token)).collect();
        drop(token);
        assert!(!answered.is());
        let count = bell.count();
        std::thread::scope(|scope| {
            for other in others {
                scope.spawn(move || drop(other));
            }
            bell.wait(count, None);
        });
        assert!(answered.is());
    }
}
