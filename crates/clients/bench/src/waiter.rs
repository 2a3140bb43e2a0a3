//! Waiting until a socket has something.

use std::os::fd::AsFd;
use std::time::Duration;

use longshore_initiator::error::Lost;
use longshore_initiator::operation::Completion;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::queue::LoadQueue;

/// Of so many waits one looks whether it is needed at all.
const EAGER_PERIOD: u32 = 64;

/// Waits for sockets.
///
/// A queue that is kept busy by its server mostly has something when it is looked at, one that is not
/// mostly has nothing; so the last look decides whether the next one comes before or after the wait.
#[derive(Default)]
pub struct Waiter {
    /// The last look without a wait has found something.
    eager: bool,
    waits: u32,
    /// Where there are several sockets.
    several: Option<Several>,
}

struct Several {
    epoll: rustix::fd::OwnedFd,
    events: Vec<epoll::Event>,
    /// Which sockets are watched for room, too.
    watched_for_room: Vec<bool>,
}

impl Waiter {
    /// Looks how many there are.
    pub fn prepare<Q: LoadQueue>(&mut self, queues: &[Q]) {
        if queues.len() < 2 || self.several.is_some() {
            return;
        }
        self.several = Several::new(queues).ok();
    }

    /// Takes in what has come, once something has or the time is over.
    pub fn receive<Q: LoadQueue>(
        &mut self,
        queues: &mut [Q],
        completions: &mut Vec<Completion>,
        timeout: impl Fn() -> Duration,
    ) -> Result<(), Lost> {
        if let Some(several) = &mut self.several {
            return several.receive(queues, completions, timeout());
        }
        let look_first = self.eager || self.waits.is_multiple_of(EAGER_PERIOD);
        self.waits = self.waits.wrapping_add(1);
        if look_first {
            let mut found = false;
            for queue in queues.iter_mut() {
                found |= queue.receive(completions)?;
            }
            self.eager = found;
            if found {
                return Ok(());
            }
        }
        poll_all(queues, timeout())?;
        for queue in queues {
            queue.receive(completions)?;
        }
        Ok(())
    }
}

fn poll_all<Q: LoadQueue>(queues: &[Q], timeout: Duration) -> Result<(), Lost> {
    let timeout = timespec(timeout);
    let watch = |queue: &Q| {
        if queue.has_unsent() {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        }
    };
    let fd = |fd, flags| PollFd::from_borrowed_fd(fd, flags);
    let result = match queues {
        [only] => {
            let Some(socket) = only.socket() else {
                return Ok(());
            };
            poll(&mut [fd(socket, watch(only))], Some(&timeout))
        }
        _ => {
            let sockets = queues
                .iter()
                .filter_map(|queue| Some(fd(queue.socket()?, watch(queue))));
            poll(&mut sockets.collect::<Vec<_>>(), Some(&timeout))
        }
    };
    match result {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Lost::from_io(&errno.into())),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

impl Several {
    fn new<Q: LoadQueue>(queues: &[Q]) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (queue, number) in queues.iter().zip(0_u64..) {
            if let Some(socket) = queue.socket() {
                let data = epoll::EventData::new_u64(number);
                epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
            }
        }
        Ok(Self {
            epoll,
            events: Vec::with_capacity(queues.len()),
            watched_for_room: vec![false; queues.len()],
        })
    }

    fn receive<Q: LoadQueue>(
        &mut self,
        queues: &mut [Q],
        completions: &mut Vec<Completion>,
        timeout: Duration,
    ) -> Result<(), Lost> {
        for (number, queue) in queues.iter().enumerate() {
            if self.watched_for_room[number] != queue.has_unsent() {
                self.watch(number, queue)
                    .map_err(|error| Lost::from_io(&error))?;
            }
        }
        self.events.clear();
        let timeout = timespec(timeout);
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(self.epoll.as_fd(), spare, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Lost::from_io(&errno.into())),
        }
        for event in &self.events {
            let number = usize::try_from(event.data.u64()).expect("our own number");
            queues[number].receive(completions)?;
        }
        Ok(())
    }

    fn watch<Q: LoadQueue>(&mut self, number: usize, queue: &Q) -> std::io::Result<()> {
        let unsent = queue.has_unsent();
        self.watched_for_room[number] = unsent;
        let Some(socket) = queue.socket() else {
            return Ok(());
        };
        let flags = if unsent {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        let data = epoll::EventData::new_u64(u64::try_from(number).unwrap_or(u64::MAX));
        epoll::modify(&self.epoll, socket, data, flags)?;
        Ok(())
    }
}
