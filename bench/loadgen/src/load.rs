//! All queues of a run, in one thread.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use longshore_tests::nvme::Host;
use rustix::event::{PollFd, PollFlags, poll};

use crate::address::Address;
use crate::figures::Figures;
use crate::options::{Length, Options};
use crate::{iscsi, nvme};

/// What one receive call may bring.
pub const RECEIVE_BUFFER: usize = 1 << 20;

/// A connection that is kept full of commands.
pub trait Queue {
    /// Its socket.
    fn stream(&self) -> &TcpStream;

    /// Sends all that is due: new commands for those that have ended, data that was asked for.
    fn send(&mut self, figures: &mut Figures) -> io::Result<()>;

    /// Receives what has come, with one call, and goes through it.
    fn receive(&mut self, figures: &mut Figures) -> io::Result<()>;
}

/// The queues and what they have done.
pub struct Load {
    queues: Vec<Box<dyn Queue>>,
    /// The admin queue: an NVMe controller ends with it.
    _host: Option<Host>,
    /// Counted over all of them.
    pub figures: Figures,
}

impl Load {
    /// Connects and gets ready; no operation begins yet.
    pub fn start(options: &Options) -> io::Result<Self> {
        let (queues, host) = match &options.address {
            Address::Iscsi { .. } => (iscsi::connect(options)?, None),
            Address::Nvme { .. } => {
                let (queues, host) = nvme::connect(options)?;
                (queues, Some(host))
            }
        };
        let operations_max = match options.length {
            Length::Time(_) => u64::MAX,
            Length::Operations(count) => count,
        };
        Ok(Self {
            queues,
            _host: host,
            figures: Figures::new(operations_max),
        })
    }

    /// Keeps the queues full until then.
    pub fn run_until(&mut self, end: Instant) -> io::Result<()> {
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Keeps the queues full until so many operations have ended.
    pub fn run_operations(&mut self, count: u64) -> io::Result<()> {
        while self.figures.operations < count {
            self.turn()?;
        }
        Ok(())
    }

    /// Sends all that is due, then takes in all that has come.
    fn turn(&mut self) -> io::Result<()> {
        for queue in &mut self.queues {
            queue.send(&mut self.figures)?;
        }
        if let [only] = &mut self.queues[..] {
            return only.receive(&mut self.figures);
        }
        let readable = self.wait()?;
        for (queue, _) in self.queues.iter_mut().zip(readable).filter(|(_, r)| *r) {
            queue.receive(&mut self.figures)?;
        }
        Ok(())
    }

    /// Waits until something has come for any queue, and says for which.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut sockets: Vec<PollFd<'_>> = self
            .queues
            .iter()
            .map(|queue| PollFd::new(queue.stream(), PollFlags::IN))
            .collect();
        poll(&mut sockets, None)?;
        Ok(sockets.iter().map(|s| !s.revents().is_empty()).collect())
    }
}

/// The end of a stream where more was expected.
pub fn hung_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server has hung up")
}

/// Checks that operations of the run's size cover whole blocks of a volume that holds the span.
pub fn check_volume(options: &Options, block_size: u32, blocks: u64) -> io::Result<()> {
    if block_size == 0 || !options.size.is_multiple_of(block_size) {
        let text = format!("{} bytes are no multiple of {block_size}", options.size);
        return Err(io::Error::other(text));
    }
    let bytes = blocks.saturating_mul(u64::from(block_size));
    if bytes < options.span {
        let text = format!("the volume has {bytes} bytes, the span {}", options.span);
        return Err(io::Error::other(text));
    }
    Ok(())
}
