//! What a layer may do with a request: fan out, wait for others, work in the background and on other
//! threads. Two layers that do pass the suite of all volumes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::lock::Mutex as WaitingMutex;
use longshore_reactor::EngineChoice;
use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::Delegated;

use crate::testing::harness::{Scratch, check_on_all_storage, engine, file_spec};
use crate::testing::suite::{Keeps, SIZE_MIN, pattern};
use crate::testing::{TestStorage, VolumeClient};
use crate::{
    Attempt, BackendName, ByteRange, Characteristics, Ended, Execution, Extent, ExtentState,
    Geometry, Identity, Io, Lba, Operation, Outline, Reply, Request, Volume, VolumeError,
    VolumeSpec, WriteCache, open,
};

const CLUSTER: u64 = 16 * 1024;

// ---- copy on write

/// Reads what was never written from `base`, and keeps everything that is written in `overlay`, in whole
/// clusters. In the background, it copies the clusters that are still missing.
struct CopyOnWrite {
    base: Arc<dyn Volume>,
    overlay: Arc<dyn Volume>,
    outline: Outline,
    clusters: Vec<Cluster>,
    is_quiesced: AtomicBool,
    background: WaitingMutex<()>,
}

#[derive(Default)]
struct Cluster {
    /// Held while the cluster is copied.
    copying: WaitingMutex<()>,
    is_copied: AtomicBool,
}

/// The part of a request that lies in one cluster.
struct Piece {
    cluster: usize,
    offset: u64,
    /// Bytes of the payload.
    range: Range<usize>,
}

impl CopyOnWrite {
    fn new(base: Arc<dyn Volume>, overlay: Arc<dyn Volume>) -> Arc<Self> {
        let geometry = overlay.geometry();
        let size = geometry.block_count * u64::from(geometry.block_size);
        Arc::new(Self {
            base,
            outline: Outline::new(overlay.identity().clone(), geometry.block_size, size),
            overlay,
            clusters: (0..size.div_ceil(CLUSTER))
                .map(|_| Cluster::default())
                .collect(),
            is_quiesced: AtomicBool::new(true),
            background: WaitingMutex::new(()),
        })
    }

    fn pieces(offset: u64, length: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < length {
            let at = offset + start as u64;
            let left = usize::try_from(CLUSTER - at % CLUSTER).expect("small");
            let end = length.min(start + left);
            pieces.push(Piece {
                cluster: usize::try_from(at / CLUSTER).expect("small"),
                offset: at,
                range: start..end,
            });
            start = end;
        }
        pieces
    }

    async fn carry_out(&self, request: &mut Request, io: &Io) -> Result<Reply, VolumeError> {
        let ByteRange { offset, length } = self.outline.bytes_of_request(request)?;
        match request.operation {
            Operation::Read { .. } => self.read(offset, request.payload_mut(), io).await?,
            Operation::Write { fua, .. } => {
                self.write(offset, request.payload_mut(), fua, io).await?;
            }
            Operation::WriteZeroes { fua, .. } => {
                let zeros = vec![0; usize::try_from(length).expect("small")];
                self.write(offset, &zeros, fua, io).await?;
            }
            Operation::Flush => {
                for result in join_all([&self.base, &self.overlay].map(|volume| {
                    let flush = Request::new(Operation::Flush);
                    Arc::clone(volume).execute(flush, io.clone())
                }))
                .await
                {
                    result.result?;
                }
            }
            Operation::ExtentStatus { extent } => {
                return Ok(Reply::Extent {
                    blocks: extent.blocks,
                    state: ExtentState::Mapped,
                });
            }
            Operation::Prefetch { .. } => {}
            Operation::Unmap { .. }
            | Operation::Anchor { .. }
            | Operation::CompareAndWrite { .. } => return Err(VolumeError::Unsupported),
        }
        Ok(Reply::Done)
    }

    /// Reads all clusters at once.
    async fn read(&self, offset: u64, into: &mut [u8], io: &Io) -> Result<(), VolumeError> {
        let pieces = Self::pieces(offset, into.len());
        let reads = pieces.iter().map(|piece| async {
            let copied = self.clusters[piece.cluster]
                .is_copied
                .load(Ordering::Acquire);
            let volume = if copied { &self.overlay } else { &self.base };
            transfer_in(volume, piece.offset, piece.range.len(), io).await
        });
        for (piece, read) in pieces.iter().zip(join_all(reads).await) {
            into[piece.range.clone()].copy_from_slice(&read?);
        }
        Ok(())
    }

    async fn write(&self, offset: u64, from: &[u8], fua: bool, io: &Io) -> Result<(), VolumeError> {
        let pieces = Self::pieces(offset, from.len());
        let writes = pieces.iter().map(|piece| {
            let bytes = &from[piece.range.clone()];
            self.write_piece(piece.cluster, piece.offset, bytes, fua, io)
        });
        join_all(writes).await.into_iter().collect()
    }

    async fn write_piece(
        &self,
        number: usize,
        offset: u64,
        bytes: &[u8],
        fua: bool,
        io: &Io,
    ) -> Result<(), VolumeError> {
        let cluster = &self.clusters[number];
        if cluster.is_copied.load(Ordering::Acquire) {
            return transfer_out(&self.overlay, offset, bytes, fua, io).await;
        }
        let _copying = cluster.copying.lock().await;
        if cluster.is_copied.load(Ordering::Acquire) {
            return transfer_out(&self.overlay, offset, bytes, fua, io).await;
        }
        let start = offset - offset % CLUSTER;
        let mut whole = self.cluster_of_base(start, io).await?;
        let at = usize::try_from(offset - start).expect("small");
        whole[at..at + bytes.len()].copy_from_slice(bytes);
        transfer_out(&self.overlay, start, &whole, fua, io).await?;
        cluster.is_copied.store(true, Ordering::Release);
        Ok(())
    }

    async fn cluster_of_base(&self, start: u64, io: &Io) -> Result<Vec<u8>, VolumeError> {
        let geometry = self.overlay.geometry();
        let size = geometry.block_count * u64::from(geometry.block_size);
        let length = usize::try_from(CLUSTER.min(size - start)).expect("small");
        transfer_in(&self.base, start, length, io).await
    }

    /// Copies what is missing, until it is told to stop.
    async fn copy_all(&self, io: &Io) -> Result<(), VolumeError> {
        let _background = self.background.lock().await;
        for number in 0..self.clusters.len() {
            if self.is_quiesced.load(Ordering::Acquire) {
                break;
            }
            let start = number as u64 * CLUSTER;
            self.write_piece(number, start, &[], false, io).await?;
        }
        Ok(())
    }

    fn copied(&self) -> usize {
        let copied = |cluster: &&Cluster| cluster.is_copied.load(Ordering::Acquire);
        self.clusters.iter().filter(copied).count()
    }
}

fn blocks(volume: &Arc<dyn Volume>, offset: u64, length: usize) -> Extent {
    volume.geometry().extent(&(offset..offset + length as u64))
}

async fn transfer_in(
    volume: &Arc<dyn Volume>,
    offset: u64,
    length: usize,
    io: &Io,
) -> Result<Vec<u8>, VolumeError> {
    let request = Request {
        operation: Operation::Read {
            extent: blocks(volume, offset, length),
        },
        buffer: Some(Buffer::allocate(length)),
        start: 0,
        end: length,
    };
    let ended = Arc::clone(volume).execute(request, io.clone()).await;
    ended.result?;
    Ok(ended.buffer.expect("it comes back")[..length].to_vec())
}

async fn transfer_out(
    volume: &Arc<dyn Volume>,
    offset: u64,
    bytes: &[u8],
    fua: bool,
    io: &Io,
) -> Result<(), VolumeError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    let request = Request {
        operation: Operation::Write {
            extent: blocks(volume, offset, bytes.len()),
            fua,
        },
        buffer: Some(buffer),
        start: 0,
        end: bytes.len(),
    };
    let ended = Arc::clone(volume).execute(request, io.clone()).await;
    ended.result.map(|_| ())
}

impl Volume for CopyOnWrite {
    fn identity(&self) -> &Identity {
        self.overlay.identity()
    }

    fn geometry(&self) -> Geometry {
        self.overlay.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            unmap_granularity: None,
            ..self.overlay.characteristics()
        }
    }

    fn try_read(&self, _lba: Lba, _into: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _lba: Lba, _from: &[u8], _fua: bool) -> Attempt {
        Attempt::WouldSleep
    }

    fn execute(self: Arc<Self>, mut request: Request, io: Io) -> Execution {
        Execution::running(async move {
            let result = self.carry_out(&mut request, &io).await;
            Ended {
                result,
                buffer: request.buffer,
            }
        })
    }

    fn attach(self: Arc<Self>, io: &Io) {
        self.resume(io);
    }

    fn quiesce(self: Arc<Self>, _io: Io) -> Execution {
        self.is_quiesced.store(true, Ordering::Release);
        Execution::running(async move {
            drop(self.background.lock().await);
            Ended {
                result: Ok(Reply::Done),
                buffer: None,
            }
        })
    }

    fn resume(self: Arc<Self>, io: &Io) {
        self.is_quiesced.store(false, Ordering::Release);
        let own = io.clone();
        io.spawn(async move { self.copy_all(&own).await.expect("it is copied") });
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        Ok(self.geometry())
    }
}

fn memory(name: &str, block_size: u32) -> Arc<dyn Volume> {
    let spec = VolumeSpec {
        size: Some(SIZE_MIN),
        block_size,
        ..VolumeSpec::new(name, BackendName::MEM)
    };
    open(&spec).expect("mem opens")
}

#[test]
fn a_layer_over_two_backends_passes_the_suite() {
    let scratch = Scratch::new();
    for block_size in [512, 4096] {
        check_on_all_storage(Keeps::Data, || {
            let _ = std::fs::remove_file(scratch.path("volume"));
            let overlay = open(&file_spec(&scratch, SIZE_MIN, block_size)).expect("open");
            CopyOnWrite::new(memory("base", block_size), overlay)
        });
    }
}

#[test]
fn a_layer_works_in_the_background_until_it_is_quiesced() {
    for choice in [EngineChoice::IoUring, EngineChoice::Epoll] {
        let Some(mut storage) = engine(choice) else {
            continue;
        };
        let scratch = Scratch::new();
        let base = memory("base", 512);
        let bytes = pattern(0, usize::try_from(SIZE_MIN).expect("small"), 3);
        let attempt = base.try_write(Lba(0), &bytes, false);
        assert!(matches!(attempt, Attempt::Done(Ok(()))));
        let overlay = open(&file_spec(&scratch, SIZE_MIN, 512)).expect("open");
        let layer = CopyOnWrite::new(base, overlay.clone());
        let mut client = VolumeClient::new(layer.clone(), &mut storage);
        assert_eq!(layer.copied(), 0);
        client.attach();
        client.read(0, 512).expect("read");
        client.quiesce().expect("it stops");
        let copied = layer.copied();
        assert!((1..layer.clusters.len()).contains(&copied), "{copied}");
        client.write(5 * CLUSTER - 1024, &[9; 2048]).expect("write");
        assert!(layer.copied() <= copied + 2, "nothing goes on");
        client.resume();
        while layer.copied() < layer.clusters.len() {
            client.read(0, 512).expect("read");
        }
        client.quiesce().expect("it stops");
        let mut expected = bytes;
        let at = usize::try_from(5 * CLUSTER - 1024).expect("small");
        expected[at..at + 2048].fill(9);
        let mut copy = VolumeClient::new(overlay, &mut storage);
        assert!(copy.read(0, expected.len()).expect("read") == expected);
    }
}

// ---- another thread

/// Has a thread of its own carry out requests, some time after they came.
struct Threaded {
    inner: Arc<dyn Volume>,
    work: Mutex<mpsc::Sender<Work>>,
}

struct Work {
    request: Request,
    answer: Arc<Mutex<Option<Ended>>>,
    delegated: Delegated,
}

impl Threaded {
    fn new(inner: Arc<dyn Volume>) -> Arc<Self> {
        let (work, orders) = mpsc::channel::<Work>();
        let volume = inner.clone();
        thread::spawn(move || {
            let mut storage = TestStorage::new();
            for (number, mut work) in orders.into_iter().enumerate() {
                thread::sleep(Duration::from_micros(number as u64 % 5 * 40));
                let result = VolumeClient::new(volume.clone(), &mut storage).run(&mut work.request);
                *work.answer.lock().expect("not poisoned") = Some(Ended {
                    result,
                    buffer: work.request.buffer,
                });
                work.delegated.complete(Ok(0), None);
            }
        });
        Arc::new(Self {
            inner,
            work: Mutex::new(work),
        })
    }
}

impl Volume for Threaded {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            write_cache: WriteCache::None,
            ..self.inner.characteristics()
        }
    }

    fn try_read(&self, _lba: Lba, _into: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _lba: Lba, _from: &[u8], _fua: bool) -> Attempt {
        Attempt::WouldSleep
    }

    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        Execution::running(async move {
            let (delegated, completion) = io.delegate().await;
            let answer = Arc::default();
            let work = Work {
                request,
                answer: Arc::clone(&answer),
                delegated,
            };
            let sender = self.work.lock().expect("not poisoned").clone();
            sender.send(work).expect("the thread works");
            completion.await.result.expect("it was not dropped");
            let ended = answer.lock().expect("not poisoned").take();
            ended.expect("the answer comes before the completion")
        })
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        self.inner.refresh_geometry()
    }
}

#[test]
fn a_layer_that_answers_from_another_thread_passes_the_suite() {
    for block_size in [512, 4096] {
        check_on_all_storage(Keeps::Data, || Threaded::new(memory("m", block_size)));
    }
}

#[test]
fn layers_stack() {
    check_on_all_storage(Keeps::Data, || {
        let overlay = Threaded::new(memory("overlay", 512));
        CopyOnWrite::new(Threaded::new(memory("base", 512)), overlay)
    });
}

/// Futures that wait for one another, on one event loop and on several.
#[test]
fn a_request_is_woken_by_another_thread() {
    let scratch = Scratch::new();
    let overlay = open(&file_spec(&scratch, SIZE_MIN, 512)).expect("open");
    let layer = CopyOnWrite::new(memory("base", 512), overlay);
    let woken = Arc::new(AtomicUsize::new(0));
    let guard = layer.clusters[0].copying.try_lock().expect("free");
    let (begun, wait) = mpsc::channel();
    let volume = layer.clone();
    let counter = woken.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            let waiting = thread::current();
            let mut storage = TestStorage::new();
            let mut executor = crate::Executor::new(move || {
                counter.fetch_add(1, Ordering::SeqCst);
                waiting.unpark();
            });
            let request =
                crate::testing::client::write_request(Extent::new(0, 1), &[7; 512], 0, false);
            let volume: Arc<dyn Volume> = volume;
            let started = executor.start(&volume, request, (), &mut storage);
            assert!(matches!(started, crate::Started::Waits(_)));
            begun.send(()).expect("the test waits");
            while executor.next_ended().is_none() {
                if storage.has_completions() {
                    let completion =
                        crate::testing::CompletionSource::next_completion(&mut storage);
                    executor.complete(completion, &mut storage);
                } else {
                    thread::park_timeout(Duration::from_secs(30));
                    executor.proceed(&mut storage);
                }
            }
        });
        wait.recv().expect("it has begun");
        drop(guard);
    });
    assert_eq!(layer.copied(), 1);
    assert!(
        woken.load(Ordering::SeqCst) > 0,
        "the executor was notified"
    );
}
