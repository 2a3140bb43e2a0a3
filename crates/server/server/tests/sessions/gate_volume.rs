//! A volume whose operations end when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_reactor::storage::{FileHandle, FileOperationKind};
use longshore_volume::{
    Attempt, Characteristics, Ended, Execution, Geometry, Identity, Io, Lba, Operation, Reply,
    Request, Volume, VolumeError,
};

/// Wraps a volume that answers at once. Its reads, writes and flushes all go through storage, and while
/// the gate is closed those that change something, or all of them, do not end.
pub struct GateVolume {
    inner: Arc<dyn Volume>,
    /// Synchronised over and over by operations that wait.
    file: FileHandle,
    writes_closed: AtomicBool,
    reads_closed: AtomicBool,
    is_broken: AtomicBool,
    is_restless: AtomicBool,
    waiting: AtomicUsize,
    flushed: AtomicUsize,
    /// Event loops on which it works of its own accord.
    at_work: AtomicUsize,
    /// The same when a flush ended last.
    at_work_then: AtomicUsize,
}

impl GateVolume {
    pub fn new(inner: Arc<dyn Volume>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            file: FileHandle(Arc::new(tempfile::tempfile().unwrap())),
            writes_closed: AtomicBool::new(false),
            reads_closed: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            is_restless: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            flushed: AtomicUsize::new(0),
            at_work: AtomicUsize::new(0),
            at_work_then: AtomicUsize::new(usize::MAX),
        })
    }

    pub fn close_writes(&self) {
        self.writes_closed.store(true, Ordering::SeqCst);
    }

    pub fn close_reads(&self) {
        self.reads_closed.store(true, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.writes_closed.store(false, Ordering::SeqCst);
        self.reads_closed.store(false, Ordering::SeqCst);
    }

    /// From now on operations panic, on the thread of whoever asks for them.
    pub fn break_down(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
    }

    /// From now on it does not end what it does of its own accord.
    pub fn never_rest(&self) {
        self.is_restless.store(true, Ordering::SeqCst);
    }

    /// Event loops on which it works of its own accord.
    pub fn at_work(&self) -> usize {
        self.at_work.load(Ordering::SeqCst)
    }

    /// The same when a flush ended last.
    pub fn at_work_then(&self) -> usize {
        self.at_work_then.load(Ordering::SeqCst)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Flushes that have ended.
    pub fn flushed(&self) -> usize {
        self.flushed.load(Ordering::SeqCst)
    }

    fn is_closed(&self, operation: Operation) -> bool {
        let gate = match operation {
            Operation::Read { .. } => &self.reads_closed,
            _ => &self.writes_closed,
        };
        gate.load(Ordering::SeqCst)
    }

    fn perform(&self, request: &mut Request) -> Result<Reply, VolumeError> {
        let attempt = match request.operation {
            Operation::Read { extent } => self.inner.try_read(extent.lba, request.payload_mut()),
            Operation::Write { extent, fua } => {
                self.inner.try_write(extent.lba, request.payload_mut(), fua)
            }
            _ => Attempt::Done(Ok(())),
        };
        if let Operation::Flush = request.operation {
            self.flushed.fetch_add(1, Ordering::SeqCst);
            self.at_work_then.store(self.at_work(), Ordering::SeqCst);
        }
        match attempt {
            Attempt::Done(result) => result.map(|()| Reply::Done),
            Attempt::WouldSleep => panic!("the volume inside answers at once"),
        }
    }
}

impl Volume for GateVolume {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            write_cache: longshore_volume::WriteCache::Volatile,
            ..self.inner.characteristics()
        }
    }

    fn try_read(&self, _: Lba, _: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _: Lba, _: &[u8], _: bool) -> Attempt {
        Attempt::WouldSleep
    }

    fn execute(self: Arc<Self>, mut request: Request, io: Io) -> Execution {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the test asked");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Execution::running(async move {
            loop {
                let call = io.call(self.file.clone(), FileOperationKind::DataSync);
                call.await.unwrap();
                if !self.is_closed(request.operation) {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            let result = self.perform(&mut request);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            Ended {
                result,
                buffer: request.buffer,
            }
        })
    }

    fn attach(self: Arc<Self>, _io: &Io) {
        self.at_work.fetch_add(1, Ordering::SeqCst);
    }

    fn quiesce(self: Arc<Self>, io: Io) -> Execution {
        Execution::running(async move {
            if self.is_restless.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let call = io.call(self.file.clone(), FileOperationKind::DataSync);
            call.await.unwrap();
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            Ended {
                result: Ok(Reply::Done),
                buffer: None,
            }
        })
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        self.inner.refresh_geometry()
    }
}
