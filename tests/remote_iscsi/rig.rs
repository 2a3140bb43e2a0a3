//! What the tests share: attaching, and driving a queue until an operation has ended.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::{self, Attachment};
use longshore_initiator::error::{Error, Failure};
use longshore_initiator::info::Notice;
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_initiator::options::Options;
use longshore_initiator::queue::{AnyQueue, Sent};
use longshore_initiator::url::{HostPort, IscsiUrl, Url};
use longshore_reactor::Buffer;
use longshore_tests::server::{Server, ServerBuilder, TARGET};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// A server of ours with one volume in memory.
pub fn server() -> Server {
    with_config("")
}

/// The same, with settings.
pub fn with_config(config: &str) -> Server {
    ServerBuilder::new()
        .volume("disk0,backend=mem,size=64M")
        .iscsi()
        .config(config)
        .start()
        .unwrap()
}

/// The URL of a LUN of the default target.
pub fn url(portal: SocketAddr, lun: u16) -> Url {
    format!("iscsi://{portal}/{TARGET}/{lun}").parse().unwrap()
}

/// The same as the protocol's own.
pub fn iscsi_url(portal: SocketAddr, lun: u16) -> IscsiUrl {
    let Url::Iscsi(url) = url(portal, lun) else {
        unreachable!("it begins with iscsi://")
    };
    url
}

pub fn host_port(portal: SocketAddr) -> HostPort {
    HostPort::parse(&portal.to_string(), 3260).unwrap()
}

pub fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at * 31 + at / 251 + seed * 17) % 256).unwrap())
        .collect()
}

/// A volume that is attached, and its queues.
pub struct Rig {
    pub attachment: Attachment,
    pub notices: Vec<Notice>,
}

impl Rig {
    pub fn attach(url: &Url, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            attachment: attach::attach(url, options)?,
            notices: Vec::new(),
        })
    }

    /// The first LUN of a server's default target.
    pub fn of(server: &Server) -> Self {
        Self::attach(&url(server.portal(0), 0), &Options::default()).unwrap()
    }

    /// What was negotiated for a key.
    pub fn negotiated(&self, key: &str) -> &str {
        let mut keys = self.attachment.negotiated.iter();
        let found = keys.find(|(name, _)| name == key);
        found.map_or("", |(_, value)| value)
    }

    /// Submits all, and waits for all, in the order they end.
    pub fn run_all(
        &mut self,
        queue: usize,
        operations: Vec<(Operation, Data)>,
    ) -> io::Result<Vec<Completion>> {
        let queue = &mut self.attachment.queues[queue];
        let deadline = Instant::now() + LIMIT;
        let count = operations.len();
        let mut waiting = (0..)
            .zip(operations)
            .collect::<std::collections::VecDeque<_>>();
        let mut completions = Vec::new();
        while completions.len() < count {
            while queue.room() > 0
                && let Some((tag, (operation, data))) = waiting.pop_front()
            {
                queue
                    .submit(operation, data, tag)
                    .map_err(|rejected| io::Error::other(format!("{:?}", rejected.refusal)))?;
            }
            turn(queue, &mut completions, deadline)?;
            queue.take_notices(&mut self.notices);
        }
        Ok(completions)
    }

    /// Runs one operation on the first queue.
    pub fn run(&mut self, operation: Operation, data: Data) -> (Result<Reply, Failure>, Data) {
        let mut all = self.run_all(0, vec![(operation, data)]).unwrap();
        let completion = all.remove(0);
        (completion.result, completion.data)
    }

    /// The same without data.
    pub fn order(&mut self, operation: Operation) -> Result<Reply, Failure> {
        self.run(operation, Data::None).0
    }

    pub fn write(&mut self, lba: u64, bytes: &[u8]) -> Result<Reply, Failure> {
        let operation = Operation::Write {
            extent: self.extent_of(lba, bytes.len()),
            fua: false,
        };
        self.run(operation, data(bytes)).0
    }

    pub fn read(&mut self, lba: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let operation = Operation::Read {
            extent: self.extent_of(lba, length),
        };
        let (result, data) = self.run(operation, Data::buffer(Buffer::allocate(length)));
        result.map(|_| data.bytes()[..length].to_vec())
    }

    fn extent_of(&self, lba: u64, length: usize) -> Extent {
        let block_size = self.attachment.info.block_size as usize;
        extent(lba, u64::try_from(length / block_size).unwrap())
    }

    /// Writes, reads back and compares ranges of many lengths, all at the same time.
    pub fn verify(&mut self, lengths: &[usize]) {
        let stride = lengths.iter().max().unwrap().next_multiple_of(512) + 512;
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            let extent = self.extent_of((number * stride / 512) as u64, *length);
            let write = Operation::Write { extent, fua: false };
            writes.push((write, data(&pattern(*length, number))));
            let read = Operation::Read { extent };
            reads.push((read, Data::buffer(Buffer::allocate(*length))));
        }
        for completion in self.run_all(0, writes).unwrap() {
            completion.result.unwrap();
        }
        for completion in self.run_all(0, reads).unwrap() {
            completion.result.unwrap();
            let number = usize::try_from(completion.tag).unwrap();
            let expected = pattern(lengths[number], number);
            assert!(
                completion.data.bytes() == expected,
                "{} bytes came back wrong",
                expected.len()
            );
        }
    }

    /// Logs out of all sessions.
    pub fn close(self) {
        for mut queue in self.attachment.queues {
            queue.close();
            let deadline = Instant::now() + LIMIT;
            while turn(&mut queue, &mut Vec::new(), deadline).is_ok() {}
        }
    }
}

/// A buffer with these bytes.
pub fn data(bytes: &[u8]) -> Data {
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    Data::buffer(buffer)
}

/// Sends, waits and receives once.
pub fn turn(
    queue: &mut AnyQueue,
    completions: &mut Vec<Completion>,
    deadline: Instant,
) -> io::Result<()> {
    let sent = queue.send().map_err(io::Error::other)?;
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut interest = PollFlags::IN;
    interest.set(PollFlags::OUT, sent == Sent::WouldBlock);
    let limit = Timespec::try_from(left).unwrap();
    poll(&mut [PollFd::new(&queue.socket(), interest)], Some(&limit))?;
    while queue.receive(completions).map_err(io::Error::other)?.more {}
    Ok(())
}
