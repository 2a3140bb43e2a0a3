//! Closing pools that nobody uses any more: on threads of their own, because whoever drops the last volume may be an
//! event loop, and the checkpoint may have to wait for what runs there.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::pool::Pool;

static CLOSING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Makes a last checkpoint of a pool, in the background.
pub fn close(pool: &Arc<Pool>) {
    if !pool.is_dirty() {
        return;
    }
    let pool = pool.clone();
    let thread = thread::Builder::new().name("pool-close".into());
    let started = thread.spawn(move || {
        if let Err(error) = pool.close() {
            tracing::warn!(pool = pool.name(), %error, "no last checkpoint: the pool opens more \
                slowly next time");
        }
    });
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.retain(|thread| !thread.is_finished());
    match started {
        Ok(thread) => closing.push(thread),
        Err(error) => tracing::warn!(%error, "a pool was left without a last checkpoint"),
    }
}

/// Waits until all pools that nobody uses any more are closed. For programs that are about to end; without it nothing is
/// lost, but the pools open more slowly next time.
pub fn wait_for_closing() {
    let closing = std::mem::take(&mut *CLOSING.lock().unwrap_or_else(PoisonError::into_inner));
    for thread in closing {
        // One that panicked has said so.
        let _ = thread.join();
    }
}
