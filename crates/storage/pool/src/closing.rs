//! Closing pools that nobody uses any more: on threads of their own, because whoever drops the last volume may be an
//! event loop, and the checkpoint may have to wait for what runs there.

use std::sync::Arc;
use std::thread;

use longshore_reactor::allocator;

use crate::pool::Pool;

/// Makes a last checkpoint of a pool, in the background. A program that ends before it is made loses nothing; the pool
/// opens more slowly then.
pub fn close(pool: &Arc<Pool>) {
    if !pool.is_dirty() {
        return;
    }
    let pool = pool.clone();
    let thread = thread::Builder::new().name("pool-close".into());
    let started = allocator::spawn(thread, move || {
        if let Err(error) = pool.close() {
            tracing::warn!(pool = pool.name(), %error, "no last checkpoint: the pool opens more \
                slowly next time");
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "a pool was left without a last checkpoint");
    }
}
