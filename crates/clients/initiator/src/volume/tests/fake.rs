//! A server in this process, behind the traits of links: its portals go up and down, and each operation meets
//! the behaviour that a test has in mind for it.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longshore_block::extent::Extent;
use longshore_block::operation::ExtentState;
use rustix::event::{EventfdFlags, eventfd};

use super::super::link::{Dialer, Link, LinkControl, LinkQueue, Received, Rejected, Unfinished};
use crate::error::{Error, Failure, Lost};
use crate::info::{AccessState, Identifier, Notice, Protocol, VolumeInfo};
use crate::operation::{Completion, Data, Operation, Reply};
use crate::options::QueueMaps;

pub(super) const BLOCK: u32 = 512;

/// What becomes of one operation that reaches the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Behaviour {
    /// The command is executed and answered.
    Answer,
    /// Executed and answered some time later, by [`Fake::release`].
    Hold,
    /// Not executed; answered with this.
    Fail(Failure),
    /// The connection of the whole link is cut before it is executed.
    CutBefore,
    /// The connection is cut after it was executed, before the answer.
    CutAfter,
    /// As `CutBefore`; but the server still has it, and executes it at [`Fake::execute_late`] unless something
    /// has ended the link for good.
    CutAndLate,
}

/// Decides on the behaviour of an operation: of which portal, and what.
pub(super) type Oracle = Box<dyn FnMut(usize, &Operation) -> Behaviour + Send>;

/// The server. Clones are the same.
#[derive(Clone)]
pub(super) struct Fake(Arc<(Mutex<World>, Condvar)>);

pub(super) struct World {
    /// By block: the first eight bytes.
    pub(super) disk: HashMap<u64, u64>,
    pub(super) info: VolumeInfo,
    pub(super) portals: Vec<Portal>,
    pub(super) oracle: Oracle,
    /// A login ends the former link of its portal.
    pub(super) reinstates: bool,
    /// The control can prove the end.
    pub(super) confirms_end: bool,
    /// Links whose end was asked for.
    pub(super) ends: usize,
    pub(super) room: usize,
    /// All that was executed, in order.
    pub(super) executed: Vec<(usize, Operation)>,
    /// Calls of send with something to send.
    pub(super) sends: usize,
    /// What a queue sends at most in one call.
    pub(super) send_limit: usize,
    pub(super) dials: usize,
    pub(super) answers_pings: bool,
    pub(super) logouts: usize,
    links: Vec<FakeLink>,
    /// What cut connections have left, and since when.
    late: Vec<(usize, Command, Instant)>,
}

#[derive(Clone)]
pub(super) struct Portal {
    pub(super) up: bool,
    pub(super) access: AccessState,
    pub(super) maps: QueueMaps,
    /// Where it leads: a port.
    pub(super) address: u16,
    /// Another volume than the others', when set.
    pub(super) serial: Option<&'static str>,
}

struct FakeLink {
    portal: usize,
    open: bool,
    queues: Vec<ServerQueue>,
    control: OwnedFd,
    news: Vec<Notice>,
}

struct ServerQueue {
    eventfd: OwnedFd,
    answers: VecDeque<(u64, Result<Answered, Failure>)>,
    notices: Vec<Notice>,
    held: Vec<Command>,
    pongs: usize,
    logged_out: bool,
}

/// What a command has with it.
#[derive(Clone)]
struct Command {
    tag: u64,
    operation: Operation,
    /// One word for each block, in place of its data.
    words: Vec<u64>,
}

enum Answered {
    Done(Reply),
    Words(Vec<u64>),
}

impl Fake {
    pub(super) fn new(portals: usize) -> Self {
        let world = World {
            disk: HashMap::new(),
            info: info(),
            portals: vec![
                Portal {
                    up: true,
                    access: AccessState::Optimized,
                    maps: QueueMaps::plain(1),
                    address: 1,
                    serial: None,
                };
                portals
            ],
            oracle: Box::new(|_, _| Behaviour::Answer),
            reinstates: true,
            confirms_end: false,
            ends: 0,
            room: 32,
            executed: Vec::new(),
            sends: 0,
            send_limit: usize::MAX,
            dials: 0,
            answers_pings: true,
            logouts: 0,
            links: Vec::new(),
            late: Vec::new(),
        };
        Self(Arc::new((Mutex::new(world), Condvar::new())))
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.0.lock().unwrap()
    }

    pub(super) fn foretell(
        &self,
        oracle: impl FnMut(usize, &Operation) -> Behaviour + Send + 'static,
    ) {
        self.world().oracle = Box::new(oracle);
    }

    /// The next operations meet these behaviours, those after them are answered.
    pub(super) fn behaviours(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        let mut behaviours: VecDeque<_> = behaviours.into_iter().collect();
        self.foretell(move |_, _| behaviours.pop_front().unwrap_or(Behaviour::Answer));
    }

    pub(super) fn dialer(&self) -> Box<dyn Dialer> {
        Box::new(FakeDialer(self.clone()))
    }

    /// Takes a portal away: its links are cut.
    pub(super) fn take_away(&self, portal: usize) {
        let mut world = self.world();
        world.portals[portal].up = false;
        world.cut(portal);
    }

    pub(super) fn bring_back(&self, portal: usize) {
        self.world().portals[portal].up = true;
    }

    /// Answers everything that was held.
    pub(super) fn release(&self) {
        let mut world = self.world();
        for link in 0..world.links.len() {
            for queue in 0..world.links[link].queues.len() {
                let held = std::mem::take(&mut world.links[link].queues[queue].held);
                for command in held {
                    world.execute_and_answer(link, queue, command);
                }
            }
        }
    }

    pub(super) fn held(&self) -> usize {
        let world = self.world();
        let queues = world.links.iter().flat_map(|link| &link.queues);
        queues.map(|queue| queue.held.len()).sum()
    }

    /// Executes what links that were cut no longer than this ago have left behind. How many operations.
    pub(super) fn execute_late(&self, within: Duration) -> usize {
        let mut world = self.world();
        let late = std::mem::take(&mut world.late);
        let mut count = 0;
        for (portal, command, since) in late {
            if since.elapsed() < within {
                drop(world.execute(portal, &command));
                count += 1;
            }
        }
        count
    }

    /// News over a portal's control.
    pub(super) fn tell(&self, portal: usize, notice: Notice) {
        let mut world = self.world();
        if let Some(link) = world.open_link(portal) {
            link.news.push(notice);
            ring(&link.control);
        }
    }

    /// News over a portal's first queue.
    pub(super) fn tell_by_queue(&self, portal: usize, notice: Notice) {
        let mut world = self.world();
        if let Some(link) = world.open_link(portal) {
            link.queues[0].notices.push(notice);
            ring(&link.queues[0].eventfd);
        }
    }

    pub(super) fn executed(&self) -> Vec<Operation> {
        let world = self.world();
        world
            .executed
            .iter()
            .map(|(_, operation)| *operation)
            .collect()
    }

    pub(super) fn word(&self, block: u64) -> u64 {
        self.world().disk.get(&block).copied().unwrap_or_default()
    }
}

impl World {
    fn open_link(&mut self, portal: usize) -> Option<&mut FakeLink> {
        self.links
            .iter_mut()
            .find(|link| link.portal == portal && link.open)
    }

    pub(super) fn cut(&mut self, portal: usize) {
        for link in &mut self.links {
            if link.portal == portal && link.open {
                link.open = false;
                for queue in &link.queues {
                    ring(&queue.eventfd);
                }
                ring(&link.control);
            }
        }
    }

    fn arrive(&mut self, link: usize, queue: usize, command: Command) {
        let portal = self.links[link].portal;
        match (self.oracle)(portal, &command.operation) {
            Behaviour::Answer => self.execute_and_answer(link, queue, command),
            Behaviour::Hold => self.links[link].queues[queue].held.push(command),
            Behaviour::Fail(failure) => self.answer(link, queue, command.tag, Err(failure)),
            Behaviour::CutBefore => self.cut(portal),
            Behaviour::CutAfter => {
                drop(self.execute(portal, &command));
                self.cut(portal);
            }
            Behaviour::CutAndLate => {
                self.cut(portal);
                self.late.push((portal, command, Instant::now()));
            }
        }
    }

    fn execute_and_answer(&mut self, link: usize, queue: usize, command: Command) {
        if !self.links[link].open {
            return;
        }
        let answer = self.execute(self.links[link].portal, &command);
        self.answer(link, queue, command.tag, answer);
    }

    fn answer(&mut self, link: usize, queue: usize, tag: u64, answer: Result<Answered, Failure>) {
        let queue = &mut self.links[link].queues[queue];
        queue.answers.push_back((tag, answer));
        ring(&queue.eventfd);
    }

    fn execute(&mut self, portal: usize, command: &Command) -> Result<Answered, Failure> {
        self.executed.push((portal, command.operation));
        let blocks = |extent: Extent| extent.lba.0..extent.lba.0 + extent.blocks.0;
        match command.operation {
            Operation::Read { extent } => Ok(Answered::Words(
                blocks(extent)
                    .map(|block| self.disk.get(&block).copied().unwrap_or_default())
                    .collect(),
            )),
            Operation::Write { extent, .. } => {
                self.disk
                    .extend(blocks(extent).zip(command.words.iter().copied()));
                Ok(Answered::Done(Reply::Done))
            }
            Operation::CompareAndWrite { extent, .. } => {
                let (expected, new) = command.words.split_at(command.words.len() / 2);
                let matches = blocks(extent).zip(expected).all(|(block, expected)| {
                    self.disk.get(&block).copied().unwrap_or_default() == *expected
                });
                if !matches {
                    return Err(Failure::Miscompare { offset: None });
                }
                self.disk.extend(blocks(extent).zip(new.iter().copied()));
                Ok(Answered::Done(Reply::Done))
            }
            Operation::WriteZeroes { extent, .. } | Operation::Unmap { extent } => {
                for block in blocks(extent) {
                    self.disk.remove(&block);
                }
                Ok(Answered::Done(Reply::Done))
            }
            Operation::Flush => Ok(Answered::Done(Reply::Done)),
            Operation::Anchor { .. } | Operation::Prefetch { .. } => Err(Failure::Unsupported),
            Operation::ExtentStatus { extent } => Ok(Answered::Done(Reply::Extent {
                blocks: extent.blocks,
                state: ExtentState::Mapped,
            })),
        }
    }
}

/// What the fake volume is like.
pub(in super::super) fn info() -> VolumeInfo {
    VolumeInfo {
        protocol: Protocol::Iscsi,
        block_size: BLOCK,
        block_count: 1 << 20,
        physical_block_size: BLOCK,
        read_only: false,
        write_cache: true,
        fua: true,
        unmap: true,
        unmapped_reads_zeros: true,
        write_zeroes: true,
        compare_and_write_max: Some(8),
        extent_status: true,
        max_transfer_blocks: Some(16),
        optimal_transfer_blocks: None,
        unmap_granularity_blocks: Some(8),
        max_unmap_blocks: Some(20),
        max_write_zeroes_blocks: None,
        vendor: "FAKE".to_owned(),
        product: "DISK".to_owned(),
        revision: "1".to_owned(),
        serial: "ours".to_owned(),
        identifiers: vec![Identifier {
            kind: "naa".to_owned(),
            value: "ours".to_owned(),
        }],
    }
}

/// The first eight bytes of each block.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(BLOCK as usize)
        .map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()))
        .collect()
}

fn fill(bytes: &mut [u8], words: &[u64]) {
    for (block, word) in bytes.chunks_exact_mut(BLOCK as usize).zip(words) {
        block[..8].copy_from_slice(&word.to_le_bytes());
    }
}

fn ring(eventfd: &OwnedFd) {
    rustix::io::write(eventfd, &1u64.to_ne_bytes()).unwrap();
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

// ---- the client's side ----

struct FakeDialer(Fake);

impl Dialer for FakeDialer {
    fn portals(&self) -> Vec<String> {
        let portals = self.0.world().portals.len();
        (0..portals)
            .map(|portal| format!("fake-{portal}"))
            .collect()
    }

    fn dial(&self, portal: usize) -> Result<Link, Error> {
        let mut world = self.0.world();
        world.dials += 1;
        let place = world.portals[portal].clone();
        if !place.up {
            return Err(Error::Connect {
                portal: crate::url::HostPort::parse("fake", 1).unwrap(),
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                source: Arc::new(std::io::ErrorKind::ConnectionRefused.into()),
            });
        }
        if world.reinstates {
            world.cut(portal);
            world.late.retain(|(late, ..)| *late != portal);
        }
        let id = world.links.len();
        let queues: Vec<_> = (0..place.maps.total())
            .map(|_| ServerQueue {
                eventfd: bell(),
                answers: VecDeque::new(),
                notices: Vec::new(),
                held: Vec::new(),
                pongs: 0,
                logged_out: false,
            })
            .collect();
        let clients = queues
            .iter()
            .enumerate()
            .map(|(queue, server)| {
                Box::new(FakeQueue {
                    fake: self.0.clone(),
                    link: id,
                    queue,
                    eventfd: server.eventfd.try_clone().unwrap(),
                    room: world.room,
                    unsent: VecDeque::new(),
                    under_way: HashMap::new(),
                    closes: false,
                }) as Box<dyn LinkQueue>
            })
            .collect();
        let control = bell();
        let fake_control = FakeControl {
            fake: self.0.clone(),
            link: id,
            eventfd: control.try_clone().unwrap(),
        };
        world.links.push(FakeLink {
            portal,
            open: true,
            queues,
            control,
            news: Vec::new(),
        });
        let mut info = world.info.clone();
        if let Some(serial) = place.serial {
            serial.clone_into(&mut info.serial);
            info.identifiers[0].value = serial.to_owned();
        }
        Ok(Link {
            info,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, place.address)),
            queues: clients,
            maps: place.maps,
            control: Box::new(fake_control),
            access: place.access,
        })
    }

    fn redial_ends_former(&self) -> bool {
        self.0.world().reinstates
    }
}

struct FakeQueue {
    fake: Fake,
    link: usize,
    queue: usize,
    eventfd: OwnedFd,
    room: usize,
    unsent: VecDeque<Command>,
    under_way: HashMap<u64, (Data, bool)>,
    closes: bool,
}

impl LinkQueue for FakeQueue {
    fn room(&self) -> usize {
        self.room - self.under_way.len()
    }

    fn in_flight(&self) -> usize {
        self.under_way.len()
    }

    fn submit(&mut self, operation: &Operation, data: Data, tag: u64) -> Result<(), Rejected> {
        if self.room() == 0 {
            return Err(Rejected {
                data,
                failure: None,
            });
        }
        let length = usize::try_from(operation.data_length(BLOCK)).unwrap();
        let written = match operation {
            Operation::Read { .. } => Vec::new(),
            _ => words(&data.bytes()[..length]),
        };
        self.unsent.push_back(Command {
            tag,
            operation: *operation,
            words: written,
        });
        let before = self.under_way.insert(tag, (data, false));
        assert!(before.is_none(), "tags are unique");
        Ok(())
    }

    fn send(&mut self) -> Result<(), Lost> {
        let mut world = self.fake.world();
        if self.closes {
            self.closes = false;
            world.logouts += 1;
            world.links[self.link].queues[self.queue].logged_out = true;
            ring(&self.eventfd);
        }
        if self.unsent.is_empty() {
            return Ok(());
        }
        world.sends += 1;
        for _ in 0..world.send_limit {
            if !world.links[self.link].open {
                return Err(Lost::HungUp);
            }
            let Some(command) = self.unsent.pop_front() else {
                return Ok(());
            };
            self.under_way.get_mut(&command.tag).unwrap().1 = true;
            world.arrive(self.link, self.queue, command);
        }
        // The "socket" is writable again at once.
        ring(&self.eventfd);
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn receive(
        &mut self,
        completions: &mut Vec<Completion>,
        notices: &mut Vec<Notice>,
    ) -> Result<Received, Lost> {
        let mut world = self.fake.world();
        let link = &mut world.links[self.link];
        let queue = &mut link.queues[self.queue];
        notices.append(&mut queue.notices);
        let pongs = std::mem::take(&mut queue.pongs);
        let Some((tag, answer)) = queue.answers.pop_front() else {
            let is_open = link.open && !queue.logged_out;
            return if is_open {
                Ok(Received {
                    heard: pongs > 0,
                    more: false,
                })
            } else {
                Err(Lost::HungUp)
            };
        };
        // One at a time: the caller has to come back for more.
        let (mut data, _) = self.under_way.remove(&tag).expect("answered once");
        let result = answer.map(|answered| match answered {
            Answered::Done(done) => done,
            Answered::Words(words) => {
                fill(data.bytes_mut(), &words);
                Reply::Done
            }
        });
        completions.push(Completion { tag, result, data });
        Ok(Received {
            heard: true,
            more: true,
        })
    }

    fn ping(&mut self) -> bool {
        let mut world = self.fake.world();
        if world.answers_pings {
            world.links[self.link].queues[self.queue].pongs += 1;
            ring(&self.eventfd);
        }
        true
    }

    fn close(&mut self) -> bool {
        self.closes = true;
        true
    }

    fn abandon(self: Box<Self>) -> Vec<Unfinished> {
        let mut world = self.fake.world();
        world.links[self.link].open = false;
        drop(world);
        let unsent: Vec<u64> = self.unsent.iter().map(|command| command.tag).collect();
        self.under_way
            .into_iter()
            .map(|(tag, (data, was_sent))| {
                assert_eq!(was_sent, !unsent.contains(&tag));
                Unfinished {
                    tag,
                    data,
                    was_sent,
                    answer: None,
                }
            })
            .collect()
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

struct FakeControl {
    fake: Fake,
    link: usize,
    eventfd: OwnedFd,
}

impl LinkControl for FakeControl {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.eventfd.as_fd())
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn drive(&mut self, _: Instant) -> Result<Vec<Notice>, Lost> {
        let mut world = self.fake.world();
        let link = &mut world.links[self.link];
        if !link.open {
            return Err(Lost::HungUp);
        }
        Ok(std::mem::take(&mut link.news))
    }

    fn identify(&mut self) -> Result<VolumeInfo, Error> {
        // Long enough for others to come in between.
        std::thread::sleep(Duration::from_millis(2));
        Ok(self.fake.world().info.clone())
    }

    fn end(self: Box<Self>) -> bool {
        let mut world = self.fake.world();
        let portal = world.links[self.link].portal;
        world.ends += 1;
        let confirms = world.confirms_end;
        if confirms {
            world.late.retain(|(late, ..)| *late != portal);
        }
        confirms
    }
}
