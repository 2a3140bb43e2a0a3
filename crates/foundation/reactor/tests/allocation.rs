//! The data path does not allocate once it is warm.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{
    BufferPool, Engine, EngineChoice, EngineConfig, EngineError, EngineEvent, Mailbox,
    MemoryBudget, Sender, SocketToken, TimerQueue, Waker, mailbox, socket,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator; counting does not allocate, since the
// counter is a constant-initialised thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A reactor in small.
struct Reactor {
    engine: Engine,
    events: Vec<EngineEvent>,
    pool: BufferPool,
    timers: TimerQueue<u32>,
    sender: Sender<u32>,
    mailbox: Mailbox<u32>,
    socket: OwnedFd,
    peer: TcpStream,
    file: FileHandle,
}

impl Reactor {
    fn new(choice: EngineChoice) -> Result<Self, EngineError> {
        // Starting one more helper thread allocates, and may be found useful at any time.
        let config = EngineConfig {
            helper_threads_max: 1,
            ..Default::default()
        };
        let mut engine = Engine::new(choice, config, Waker::new().unwrap())?;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = OwnedFd::from(socket);
        engine.register(socket.as_fd(), SocketToken(0)).unwrap();
        let (sender, mailbox) = mailbox(16, engine.waker());
        let file: File = tempfile::tempfile().unwrap();
        Ok(Self {
            engine,
            events: Vec::new(),
            pool: BufferPool::new(MemoryBudget::new(1 << 24), 1 << 24),
            timers: TimerQueue::new(),
            sender,
            mailbox,
            socket,
            peer,
            file: FileHandle(Arc::new(file)),
        })
    }

    /// A request comes in, is written to the file, read back, handed to somebody else and answered, with
    /// a timer that is set and moved and a message to the reactor itself.
    fn round(&mut self) {
        self.peer.write_all(&[7; 512]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let timer = self.timers.insert(deadline, 1);
        self.sender.send(5).unwrap();
        let mut answered = false;
        while !answered {
            self.engine
                .wait(
                    self.timers.next_deadline().map(|_| Duration::from_secs(60)),
                    &mut self.events,
                )
                .unwrap();
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                answered |= self.handle(event);
            }
            self.events = events;
        }
        assert!(self.timers.reset(timer, deadline + Duration::from_secs(1)));
        assert_eq!(self.timers.cancel(timer), Some(1));
        self.peer.read_exact(&mut [0; 512]).unwrap();
    }

    fn handle(&mut self, event: EngineEvent) -> bool {
        match event {
            EngineEvent::Socket { .. } => {
                let mut buffer = self.pool.take(512).unwrap();
                match socket::receive(&self.socket, &mut [IoSliceMut::new(&mut buffer)]) {
                    Ok(512) => {
                        let kind = FileOperationKind::Write {
                            offset: 0,
                            buffer,
                            start: 0,
                            end: 512,
                            dsync: false,
                        };
                        self.submit(1, kind);
                    }
                    _ => self.pool.put(buffer),
                }
                false
            }
            EngineEvent::File(completion) => {
                assert_eq!(completion.result.unwrap(), 512);
                let buffer = completion.buffer.unwrap();
                if completion.tag == StorageTag(1) {
                    let kind = FileOperationKind::Read {
                        offset: 0,
                        buffer,
                        start: 0,
                        end: 512,
                    };
                    self.submit(2, kind);
                    return false;
                }
                if completion.tag == StorageTag(2) {
                    let delegated = self.engine.delegate(StorageTag(3));
                    delegated.complete(Ok(512), Some(buffer));
                    return false;
                }
                let slices = [IoSlice::new(&buffer[..100]), IoSlice::new(&buffer[100..])];
                assert_eq!(socket::send(&self.socket, &slices, false).unwrap(), 512);
                self.pool.put(buffer);
                true
            }
            EngineEvent::Woken => {
                while self.mailbox.receive().is_some() {}
                false
            }
        }
    }

    fn submit(&mut self, tag: u64, kind: FileOperationKind) {
        let (file, tag) = (self.file.clone(), StorageTag(tag));
        self.engine.submit(FileOperation {
            file,
            kind,
            is_direct: false,
            tag,
        });
    }
}

fn warm_rounds_do_not_allocate(choice: EngineChoice) {
    let mut reactor = match Reactor::new(choice) {
        Ok(reactor) => reactor,
        Err(error) => {
            assert_eq!(choice, EngineChoice::IoUring, "{error}");
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    for _ in 0..200 {
        reactor.round();
    }
    let before = ALLOCATIONS.get();
    for _ in 0..200 {
        reactor.round();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn warm_rounds_on_io_uring_do_not_allocate() {
    warm_rounds_do_not_allocate(EngineChoice::IoUring);
}

#[test]
fn warm_rounds_on_epoll_do_not_allocate() {
    warm_rounds_do_not_allocate(EngineChoice::Epoll);
}
