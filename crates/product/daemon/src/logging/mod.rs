//! The log: one event a line on standard error.
//!
//! ```text
//! event ─► filter (level, module) ─► limiter ─► line ─► queue ─► thread ─► standard error
//!                                       └─ what it held back, at the end of each period ┘
//! ```
//!
//! Event loops log too, and a reader of standard error that stops reading must not stop them. So
//! lines go through a bounded queue to a thread that writes them; when the queue is full a line is
//! dropped and counted, and the count is written when there is room again. What a peer or a disk can
//! cause again and again is counted before it gets there (`limiter`).
//!
//! What is `info` or more important is an event of the API, too (`published`), whatever the log shows.

mod limiter;
mod line;
mod published;
mod record;

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longshore_control::events::Events;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::limiter::Limiter;
use self::line::Style;
use self::published::Published;
use self::record::Record;
use crate::config::log::{LogConfig, LogFormat};
use crate::threads::THREAD_STACK_BYTES;

/// Lines that may wait to be written.
const QUEUE_LINES: usize = 1024;

/// Version of the keys of JSON lines, told by the first one. Rises when a key goes away or changes its meaning.
const JSON_VERSION: u32 = 1;

/// How long the end of the process waits for the next of the last lines to be written.
const FLUSH_STALL: Duration = Duration::from_secs(3);
/// And for all of them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it looks whether there are fewer.
const FLUSH_STEP: Duration = Duration::from_millis(5);

/// Messages to the writing thread.
enum Message {
    Line(Vec<u8>),
    /// There is a period to end, where there was none.
    Wake,
    /// Answered when everything before has been written, and what was held back has been told.
    Flush(SyncSender<()>),
}

/// The way into the log.
#[derive(Clone)]
struct Queue {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    /// Lines that were dropped since the start.
    all_dropped: Arc<AtomicU64>,
    /// What the thread has done so far.
    written: Arc<AtomicU64>,
    limiter: Arc<Mutex<Limiter>>,
    style: Style,
    now: fn() -> Instant,
}

/// The log of this process, once it is up.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The work of the thread that writes, until it starts.
static WRITING: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Sets the log up for the rest of the process. Lines are kept until [`write()`] or [`flush`] is called. A second call does
/// nothing.
pub fn start(config: &LogConfig) {
    if QUEUE.get().is_some() {
        return;
    }
    let style = Style {
        format: config.format,
        ansi: io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    let (queue, writing) = Queue::new(io::stderr(), style, Instant::now);
    if subscriber(queue.clone(), config.filter.0.clone())
        .try_init()
        .is_ok()
    {
        let _ = QUEUE.set(queue);
        *WRITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(writing));
        if config.format == LogFormat::Json {
            tracing::info!(
                version = JSON_VERSION,
                "log of longshore {}",
                env!("CARGO_PKG_VERSION")
            );
        }
    }
}

/// Starts the thread that writes the log, unless it runs.
pub fn write() {
    let writing = WRITING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(writing) = writing {
        spawn(writing);
    }
}

/// Without the thread, nothing would be logged and nothing else would be wrong: the lines are dropped as if nobody read
/// them.
fn spawn(writing: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new()
        .name("log".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(writing);
}

/// Lines for the log by its filter, and events of the API by theirs.
fn subscriber(queue: Queue, filter: Targets) -> impl Subscriber + Send + Sync {
    tracing_subscriber::registry()
        .with(queue.with_filter(filter))
        .with(Published::default().with_filter(LevelFilter::INFO))
}

/// Has what is `info` or more important shown as events of the API, too. A second call does nothing.
pub fn publish(events: &Events) {
    published::set(events);
}

/// Lines that were lost because nothing read standard error in time.
#[must_use]
pub fn dropped() -> u64 {
    QUEUE
        .get()
        .map_or(0, |queue| queue.all_dropped.load(Ordering::Relaxed))
}

/// Waits until the log is written, for a short time where standard error is not read. For the end of the process.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        write();
        queue.flush(FLUSH_STALL);
    }
}

impl Queue {
    /// Starts the thread that writes to `output`.
    #[cfg(test)]
    fn start(output: impl Write + Send + 'static, style: Style, now: fn() -> Instant) -> Self {
        let (queue, writing) = Self::new(output, style, now);
        spawn(writing);
        queue
    }

    /// A queue, and the work of the thread that writes to `output`.
    fn new(
        output: impl Write + Send + 'static,
        style: Style,
        now: fn() -> Instant,
    ) -> (Self, impl FnOnce() + Send + 'static) {
        let (sender, receiver) = sync_channel(QUEUE_LINES);
        let queue = Self {
            sender,
            dropped: Arc::default(),
            all_dropped: Arc::default(),
            written: Arc::default(),
            limiter: Arc::default(),
            style,
            now,
        };
        let writer = Writer {
            dropped: Arc::clone(&queue.dropped),
            written: Arc::clone(&queue.written),
            limiter: Arc::clone(&queue.limiter),
            style,
            now,
            output,
        };
        (queue, move || writer.run(&receiver))
    }

    fn send(&self, line: Vec<u8>) {
        if self.sender.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.all_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, or none of them was for as long as `stall`.
    fn flush(&self, stall: Duration) {
        let (done, all_written) = sync_channel(1);
        let mut message = Some(Message::Flush(done));
        let began = Instant::now();
        let mut progress = (self.written.load(Ordering::Relaxed), began);
        loop {
            // A full queue has no place yet.
            if let Some(waiting) = message.take() {
                match self.sender.try_send(waiting) {
                    Ok(()) => {}
                    Err(TrySendError::Full(waiting)) => message = Some(waiting),
                    Err(TrySendError::Disconnected(_)) => return,
                }
            }
            match all_written.recv_timeout(FLUSH_STEP) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            let written = self.written.load(Ordering::Relaxed);
            if written != progress.0 {
                progress = (written, now);
            }
            if now - progress.1 >= stall || now - began >= FLUSH_TIMEOUT {
                return;
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let record = Record::of(event);
        let place = event.metadata().callsite();
        let (admitted, wake) = {
            let mut limiter = lock(&self.limiter);
            let was_asleep = limiter.due().is_none();
            let admitted = limiter.admit(place, &record, (self.now)());
            (admitted, was_asleep && limiter.due().is_some())
        };
        if admitted {
            self.send(self.style.line(&record));
        } else if wake {
            // A full queue wakes the thread as well.
            let _ = self.sender.try_send(Message::Wake);
        }
    }
}

/// A panic elsewhere leaves counts behind, which are always whole.
fn lock(limiter: &Mutex<Limiter>) -> std::sync::MutexGuard<'_, Limiter> {
    limiter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that writes. Errors are ignored: there is nowhere to report them.
struct Writer<W> {
    dropped: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    limiter: Arc<Mutex<Limiter>>,
    style: Style,
    now: fn() -> Instant,
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes lines until the queue has no senders.
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let due = lock(&self.limiter).due();
            let message = match due {
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => receiver.recv_timeout(at.saturating_duration_since((self.now)())),
            };
            match message {
                Ok(Message::Line(line)) => {
                    self.put(&line);
                }
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Flush(done)) => {
                    let held_back = lock(&self.limiter).drain((self.now)());
                    self.write(&held_back);
                    let _ = self.output.flush();
                    let _ = done.try_send(());
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let held_back = lock(&self.limiter).expire((self.now)());
            self.write(&held_back);
            let lost = self.dropped.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let _ = writeln!(
                    self.output,
                    "longshore: dropped {lost} log lines: standard error was not read in time"
                );
            }
        }
    }

    fn write(&mut self, records: &[Record]) {
        for record in records {
            self.put(&self.style.line(record));
        }
    }

    fn put(&mut self, line: &[u8]) {
        let _ = self.output.write_all(line);
        self.written.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    use longshore_control::events::Next;

    use crate::config::log::LogFormat;

    const TEXT: Style = Style {
        format: LogFormat::Text,
        ansi: false,
    };

    /// Writes into memory, and only while it may.
    struct Slow {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Receiver<()>,
    }

    /// A queue before such a writer, what that has written, and the gate.
    fn slow_queue(now: fn() -> Instant) -> (Queue, Arc<Mutex<Vec<u8>>>, Sender<()>) {
        let written = Arc::default();
        let (open, gate) = channel();
        let slow = Slow {
            written: Arc::clone(&written),
            gate,
        };
        (Queue::start(slow, TEXT, now), written, open)
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.gate.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_reading_costs_lines_and_stops_nobody() {
        let (queue, written, open) = slow_queue(Instant::now);
        for number in 0..QUEUE_LINES * 2 {
            queue.send(format!("line {number}\n").into_bytes());
        }
        let dropped = queue.dropped.load(Ordering::Relaxed);
        assert!((1..=2048).contains(&dropped), "{dropped}");
        drop(open);
        // The queue is full until the thread has caught up.
        while queue.dropped.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        queue.flush(FLUSH_STALL);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(
            text.contains("log lines: standard error was not read"),
            "{text}"
        );
    }

    /// So that no period ends while a test runs, however slow the machine is.
    fn still() -> Instant {
        static NOW: OnceLock<Instant> = OnceLock::new();
        *NOW.get_or_init(Instant::now)
    }

    #[test]
    fn the_end_waits_for_a_slow_reader_and_a_place_in_a_full_queue() {
        let (queue, written, open) = slow_queue(still);
        let mut last = 0;
        while queue.dropped.load(Ordering::Relaxed) == 0 {
            last += 1;
            queue.send(format!("line {last}.\n").into_bytes());
        }
        let reader = thread::spawn(move || {
            while open.send(()).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        queue.flush(FLUSH_STALL);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.contains(&format!("line {}.\n", last - 1)), "{text}");
        drop(queue);
        reader.join().unwrap();
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_reads_nothing() {
        let (queue, _written, _open) = slow_queue(still);
        queue.send(b"line\n".to_vec());
        queue.flush(Duration::from_millis(20));
        for _ in 0..QUEUE_LINES * 2 {
            queue.send(b"line\n".to_vec());
        }
        queue.flush(Duration::from_millis(20));
    }

    /// What is written of what happens in `act`, which logs.
    fn logged(act: impl FnOnce(&Queue)) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = channel();
        drop(open);
        let output = Slow {
            written: Arc::clone(&written),
            gate,
        };
        let queue = Queue::start(output, TEXT, still);
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(queue.clone()),
            || act(&queue),
        );
        queue.flush(FLUSH_STALL);
        let bytes = written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_of_bounded_length() {
        let log = logged(|_| {
            tracing::warn!(target: "longshore_server", user = "x".repeat(9_000), "refused");
        });
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.contains("WARN longshore_server: refused user=\"xxx"),
            "{log}"
        );
        assert!(log.ends_with("x…\"\n") && log.len() < 5_000, "{log}");
    }

    #[test]
    fn events_of_the_api_come_whatever_the_log_shows() {
        let events = Events::default();
        publish(&events);
        let written = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = channel();
        drop(open);
        let output = Slow {
            written: Arc::clone(&written),
            gate,
        };
        let queue = Queue::start(output, TEXT, still);
        let quiet = Targets::new().with_default(tracing::Level::WARN);
        tracing::subscriber::with_default(subscriber(queue.clone(), quiet), || {
            tracing::info!(target: "longshore_server::iscsi", "logged in");
            tracing::debug!(target: "longshore_server::iscsi", "negotiated");
        });
        queue.flush(FLUSH_STALL);
        assert_eq!(*written.lock().unwrap(), b"");
        let Next::Event(event) = events.after(0) else {
            panic!("no event");
        };
        assert_eq!(
            (event.topic.as_str(), event.message.as_str()),
            ("session", "logged in")
        );
        assert_eq!(events.newest(), 1);
    }

    #[test]
    fn what_is_held_back_is_counted_in_the_log_at_the_end() {
        let log = logged(|_| {
            for _ in 0..10_000 {
                tracing::warn!(target: "longshore_server", volume = "disk0", "operation failed");
            }
        });
        assert_eq!(log.lines().count(), 11, "{log}");
        let last = log.lines().last().unwrap();
        for part in [
            "operation failed (and 9990 more",
            "volume=disk0",
            "repeated=9990",
        ] {
            assert!(last.contains(part), "{part}: {log}");
        }
    }
}
