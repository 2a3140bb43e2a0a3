//! A way of known delay: a forwarding program between two namespaces, in this process.
//!
//! ```text
//!  namespace NAME-s                                                     namespace NAME-c
//!  server ── TUN device ── packets ── wait for delay and jitter ── packets ── TUN device ── client
//! ```
//!
//! Two threads carry packets, one for each direction, in their order. A packet that would have more than [`BYTES_MAX`]
//! wait with it is dropped, as by a full queue. The kernel builds the packets, so handshakes and `TCP_INFO` see the delay.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longshore_model::random::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::precedence;

/// Bytes under way in one direction at most: 16 ms at 4 Gbit/s, and more at any rate that is used.
const BYTES_MAX: usize = 8 << 20;

/// The largest packet, in bytes.
const PACKET_MAX: usize = 65_536;

/// Packets that are taken before those that are due are looked at.
const BATCH: usize = 32;

/// How often a thread sees that it is to end.
const IDLE: Duration = Duration::from_millis(100);

/// What happens to each packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delay {
    pub one_way: Duration,
    /// Up to so much more, evenly distributed.
    pub jitter: Duration,
}

/// Two devices and the threads between them, which end with this value.
pub struct Way {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Way {
    /// Makes devices of these names, in this process's namespace, and forwards between them.
    pub fn new(names: [&str; 2], delay: Delay) -> Result<Self> {
        let device = |name: &str| -> Result<Arc<SyncDevice>> {
            let made = DeviceBuilder::new().name(name).enable(false).build_sync();
            let device = made.with_context(|| format!("make the device {name}"))?;
            device.set_nonblocking(true)?;
            Ok(Arc::new(device))
        };
        let (one, other) = (device(names[0])?, device(names[1])?);
        let stop = Arc::new(AtomicBool::new(false));
        let ends = [(one.clone(), other.clone()), (other, one)];
        let threads = ends.into_iter().zip(0..).map(|((from, to), seed)| {
            let stop = stop.clone();
            std::thread::spawn(move || carry(&from, &to, Queue::new(delay, seed), &stop))
        });
        Ok(Self {
            threads: threads.collect(),
            stop,
        })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Packets that wait, with the times at which they are due.
struct Queue {
    delay: Delay,
    random: Random,
    waiting: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Queue {
    fn new(delay: Delay, seed: u64) -> Self {
        Self {
            delay,
            random: Random::new(seed),
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Takes a packet in, unless the queue is full.
    fn push(&mut self, now: Instant, packet: &[u8]) {
        if self.bytes + packet.len() > BYTES_MAX {
            return;
        }
        let jitter = self.delay.jitter.mul_f64(self.random.uniform());
        let due = now + self.delay.one_way + jitter;
        // None overtakes another.
        let due = self.waiting.back().map_or(due, |(last, _)| due.max(*last));
        self.bytes += packet.len();
        self.waiting.push_back((due, packet.to_vec()));
    }

    /// The next packet that is due.
    fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.waiting.front().filter(|(due, _)| *due <= now)?;
        let (_, packet) = self.waiting.pop_front()?;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// How long there is nothing to do unless a packet comes.
    fn pause(&self, now: Instant) -> Duration {
        let next = self.waiting.front();
        next.map_or(IDLE, |(due, _)| due.saturating_duration_since(now))
    }
}

/// Carries packets until it is to stop. A packet that cannot be written is lost, as on any network.
fn carry(from: &SyncDevice, to: &SyncDevice, mut queue: Queue, stop: &AtomicBool) {
    // Linux lets ordinary threads sleep 50 µs longer. Without that leave the delay is a little longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    precedence::take();
    let mut buffer = vec![0; PACKET_MAX];
    while !stop.load(Ordering::Relaxed) {
        let pause = queue.pause(Instant::now());
        if !pause.is_zero() {
            let timeout = Timespec::try_from(pause).unwrap_or_default();
            // An interrupted wait ends early, which does no harm.
            let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&timeout));
        }
        for _ in 0..BATCH {
            match from.recv(&mut buffer) {
                Ok(length) => queue.push(Instant::now(), &buffer[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A device that is down has none, either.
                Err(_) => break,
            }
        }
        while let Some(packet) = queue.pop(Instant::now()) {
            let _ = to.send(&packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(jitter_us: u64) -> Queue {
        let delay = Delay {
            one_way: Duration::from_millis(2),
            jitter: Duration::from_micros(jitter_us),
        };
        Queue::new(delay, 1)
    }

    #[test]
    fn packets_are_due_after_the_delay_and_in_their_order() {
        let mut queue = queue(1500);
        let begin = Instant::now();
        for number in 0..100 {
            queue.push(
                begin + Duration::from_micros(10 * u64::from(number)),
                &[number],
            );
        }
        let at = |us| begin + Duration::from_micros(us);
        assert_eq!(queue.pop(at(1999)), None);
        let pause = queue.pause(begin);
        assert!((2000..=3500).contains(&pause.as_micros()), "{pause:?}");
        let all: Vec<u8> = std::iter::from_fn(|| queue.pop(at(5000)))
            .flatten()
            .collect();
        assert!(all.is_sorted() && all.len() == 100);
        assert_eq!((queue.bytes, queue.pause(begin)), (0, IDLE));
    }

    #[test]
    fn a_full_queue_drops_what_comes() {
        let mut queue = queue(0);
        let now = Instant::now();
        for _ in 0..BYTES_MAX / 1000 + 10 {
            queue.push(now, &[0; 1000]);
        }
        assert_eq!(queue.waiting.len(), BYTES_MAX / 1000);
    }
}
