//! Signals, and what they do to a running server.
//!
//! | signal | first | again |
//! |---|---|---|
//! | SIGTERM, SIGINT | stop: finish what was accepted, flush, end | end at once |
//! | SIGHUP | read the file again and take over what can change, look for volumes whose size has changed | the same |
//! | SIGUSR1 | report what the server has done | the same |
//!
//! A signal becomes a message to the thread that waits for the server; nothing runs in a handler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::threads::THREAD_STACK_BYTES;

/// What the waiting thread hears about.
#[derive(Debug)]
pub enum ControlEvent {
    /// Stop, or stop at once when it is not the first; the signal's number.
    Stop(i32),
    /// Read the file again, and look for volumes whose size has changed.
    Refresh,
    /// Report what the server has done.
    Report,
    /// The server has ended, asked to or not.
    Ended(io::Result<()>),
    /// After that, somebody has looked what has become of all volumes.
    Inspected,
}

/// From here on, a write beyond the limit of file sizes (RLIMIT_FSIZE) fails, as one to a full file
/// system does. Without this, SIGXFSZ would end the process, and any peer could cause that.
pub fn survive_file_size_limit() -> io::Result<()> {
    let nobody_looks = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::XFSZ.as_raw(), nobody_looks).map(drop)
}

/// From here on, signals arrive as events instead of ending the process.
pub fn watch_signals(events: Sender<ControlEvent>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGHUP => ControlEvent::Refresh,
                    SIGUSR1 => ControlEvent::Report,
                    _ => ControlEvent::Stop(signal),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// The name of a signal of [`watch_signals`].
#[must_use]
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}
