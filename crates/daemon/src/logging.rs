//! The log: one event a line on standard error.
//!
//! Event loops log too, and a reader of standard error that stops reading must not stop them. So
//! lines go through a bounded queue to a thread that writes them; when the queue is full a line is
//! dropped and counted, and the count is written when there is room again.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::log::{LogConfig, LogFormat};
use crate::serve::THREAD_STACK_BYTES;

/// Lines that may wait to be written.
const QUEUE_LINES: usize = 1024;

/// Version of the keys of JSON lines, told by the first one. Rises when a key goes away or changes its meaning.
const JSON_VERSION: u32 = 1;

/// A line longer than this is cut: names that peers choose are in it.
const LINE_BYTES_MAX: usize = 4096;

/// How long the end of the process waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Messages to the writing thread.
enum Message {
    Line(Vec<u8>),
    /// Answered when everything before has been written.
    Flush(SyncSender<()>),
}

/// The way into the queue.
#[derive(Clone)]
struct Queue {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// The queue of this process, once the log is up.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Sets the log up for the rest of the process. A second call does nothing.
pub fn start(config: &LogConfig) {
    if QUEUE.get().is_some() {
        return;
    }
    let queue = Queue::start(io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(queue.clone());
    let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(ansi).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    };
    let lines = lines.with_filter(config.filter.0.clone());
    if tracing_subscriber::registry()
        .with(lines)
        .try_init()
        .is_ok()
    {
        let _ = QUEUE.set(queue);
        if config.format == LogFormat::Json {
            tracing::info!(
                version = JSON_VERSION,
                "log of longshore {}",
                env!("CARGO_PKG_VERSION")
            );
        }
    }
}

/// Waits, not for long, until what was logged is written. For the end of the process.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush();
    }
}

impl Queue {
    /// Starts the thread that writes to `output`.
    fn start(output: impl Write + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(QUEUE_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        // Without the thread, nothing would be logged and nothing else would be wrong: the lines
        // are dropped as if nobody read them.
        let _ = thread::Builder::new()
            .name("log".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || write_lines(&receiver, &counter, output));
        Self { sender, dropped }
    }

    fn flush(&self) {
        let (done, written) = sync_channel(1);
        // A full queue means that nobody reads; then there is nothing to wait for.
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Writes lines until the queue has no senders. Errors are ignored: there is nowhere to report them.
fn write_lines(receiver: &Receiver<Message>, dropped: &AtomicU64, mut output: impl Write) {
    while let Ok(message) = receiver.recv() {
        match message {
            Message::Line(line) => {
                let _ = output.write_all(&line);
            }
            Message::Flush(done) => {
                let _ = output.flush();
                let _ = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                output,
                "longshore: {lost} log lines were dropped, nobody read them"
            );
        }
    }
}

/// Collects one line and queues it when it is complete.
struct Line {
    queue: Queue,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let mut line = std::mem::take(&mut self.bytes);
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if self.queue.sender.try_send(Message::Line(line)).is_err() {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            queue: self.clone(),
            bytes: Vec::with_capacity(256),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// Writes into memory, and only while it may.
    struct Slow {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Receiver<()>,
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
        let written = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = channel();
        let queue = Queue::start(Slow {
            written: Arc::clone(&written),
            gate,
        });
        for number in 0..QUEUE_LINES * 2 {
            writeln!(queue.make_writer(), "line {number}").unwrap();
        }
        let dropped = queue.dropped.load(Ordering::Relaxed);
        assert!((1..=2048).contains(&dropped), "{dropped}");
        drop(open);
        // The queue is full until the thread has caught up.
        while queue.dropped.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        queue.flush();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(text.contains("log lines were dropped"), "{text}");
    }

    #[test]
    fn a_line_is_one_piece_with_an_end() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = channel();
        drop(open);
        let queue = Queue::start(Slow {
            written: Arc::clone(&written),
            gate,
        });
        {
            let mut line = queue.make_writer();
            line.write_all(b"one ").unwrap();
            line.write_all(&[b'x'; LINE_BYTES_MAX]).unwrap();
        }
        queue.flush();
        let bytes = written.lock().unwrap().clone();
        assert_eq!(bytes.len(), LINE_BYTES_MAX + 1);
        assert!(bytes.starts_with(b"one x") && bytes.ends_with(b"x\n"));
    }
}
