//! What the service manager is told (`sd_notify(3)`). Without one, all of this does nothing.

use std::io;
use std::thread;

use sd_notify::NotifyState;

use crate::threads::THREAD_STACK_BYTES;

/// Reports that all listeners accept (READY=1).
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Volumes are looked at again; [`ready`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!("no monotonic clock for the service manager: {error}"),
    }
}

/// The server finishes what it accepted.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Tells the service manager that the server lives, while every event loop answers. Does nothing if it does not want to
/// know (`WatchdogSec=`).
///
/// # Errors
/// There can be no thread.
pub fn watch(is_alive: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let Some(interval) = sd_notify::watchdog_enabled().filter(|it| !it.is_zero()) else {
        return Ok(());
    };
    thread::Builder::new()
        .name("watchdog".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(move || {
            loop {
                if is_alive() {
                    notify(&[NotifyState::Watchdog]);
                } else {
                    tracing::error!("an event loop does not answer; no watchdog notification to the service manager");
                }
                // The time that looking takes is part of what is left.
                thread::sleep(interval / 3);
            }
        })
        .map(drop)
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
