//! Writers: they take batches of a lane, write them as records, and have them applied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::drive::Drive;
use crate::error::is_full;
use crate::format::segment::SegmentHeader;
use crate::leaves::Purpose;
use crate::log::{Failure, LaneName, Next, Opening, Outcome, Piece, Record, Refusal, Target};
use crate::pool::Pool;
use crate::read::ReadError;

impl Pool {
    /// Puts pieces into the log, all or none. Returns what to wait for until they are in the maps. `holds`: they belong to
    /// who [holds](crate::log::Inner::hold) their page.
    pub(crate) async fn put(
        self: &Arc<Self>,
        io: &Io,
        lane: LaneName,
        target: Target,
        mut pieces: Vec<Piece<'_>>,
        durable: bool,
        holds: bool,
    ) -> Result<Vec<Outcome>, Failure> {
        loop {
            let staged = self.lock().stage(lane, target, &mut pieces, durable, holds);
            match staged {
                Ok((outcomes, start)) => {
                    if start {
                        self.start_writer(io, lane);
                    }
                    return Ok(outcomes);
                }
                Err(Refusal::Later(later)) => drop(later.await),
                Err(Refusal::Clogged(later)) => {
                    self.keep_house(io);
                    if let Ok(Err(failure)) = later.await {
                        return Err(failure);
                    }
                }
                Err(Refusal::Away(missing)) => {
                    self.load_leaves(io, &missing, Purpose::Change).await?
                }
                Err(Refusal::Failed(failure)) => return Err(failure),
            }
        }
    }

    /// Has another writer of a lane work on this event loop. It was counted when something was staged.
    fn start_writer(self: &Arc<Self>, io: &Io, lane: LaneName) {
        let writer = Writer {
            pool: self.clone(),
            lane,
            has_ended: false,
        };
        let task_io = io.clone();
        crate::run::spawn(io, async move { writer.run(&task_io).await });
    }

    async fn begin_segment(&self, io: &Io, opening: Opening) -> Result<(), BeginError> {
        let drive = self.drive(opening.place).ok_or(BeginError::NoDrive)?;
        let offset = opening.place.offset();
        let reserved = drive
            .reserve(io, offset, u64::from(self.label.segment_bytes))
            .await;
        reserved.map_err(BeginError::Io)?;
        // It is brought to the medium before the first record that has to be there, or together with others.
        self.write_segment_header(io, &drive, opening, false).await
    }

    async fn write_segment_header(
        &self,
        io: &Io,
        drive: &Drive,
        opening: Opening,
        is_durable: bool,
    ) -> Result<(), BeginError> {
        let header = SegmentHeader {
            pool: self.label.pool,
            segment: opening.segment,
            generation: opening.generation,
        };
        let bytes = header.encode(self.unit());
        let mut buffer = Buffer::try_allocate(bytes.len()).ok_or(BeginError::OutOfMemory)?;
        buffer.copy_from_slice(&bytes);
        let offset = opening.place.offset();
        let (result, _) = drive
            .write(io, offset, buffer, 0..bytes.len(), is_durable)
            .await;
        result.map_err(BeginError::Io)
    }

    async fn write_record(&self, io: &Io, mut record: Record) -> std::io::Result<Record> {
        let drive = self
            .drive(record.place)
            .ok_or(std::io::ErrorKind::NotFound)?;
        let buffer = record
            .buffer
            .take()
            .ok_or(std::io::ErrorKind::InvalidInput)?;
        if let Some(opening) = record.unmarked {
            loop {
                let written = self.write_segment_header(io, &drive, opening, true);
                match written.await {
                    Ok(()) => break,
                    Err(BeginError::OutOfMemory) => {
                        io.sleep_until(Instant::now() + MEMORY_WAIT).await;
                    }
                    Err(BeginError::Io(error)) => return Err(error),
                    Err(BeginError::NoDrive) => return Err(std::io::ErrorKind::NotFound.into()),
                }
            }
        }
        let (offset, range) = (record.place.offset(), record.range.clone());
        let (result, buffer) = drive.write(io, offset, buffer, range, record.durable).await;
        record.buffer = Some(buffer);
        result.map(|()| record)
    }
}

/// Until it is tried again to get memory for a part of a map.
const MEMORY_WAIT: Duration = Duration::from_millis(20);

enum BeginError {
    NoDrive,
    OutOfMemory,
    Io(std::io::Error),
}

struct Writer {
    pool: Arc<Pool>,
    lane: LaneName,
    has_ended: bool,
}

impl Writer {
    async fn run(mut self, io: &Io) {
        let pool = self.pool.clone();
        loop {
            let turn = pool.turns[self.lane.index()].lock().await;
            let next = self.pool.lock().next(self.lane);
            match next {
                Next::Nothing => {
                    self.has_ended = true;
                    return;
                }
                Next::Write(record) => {
                    drop(turn);
                    self.write(io, *record).await;
                }
                Next::Begin(opening) => self.begin(io, opening).await,
                Next::Space(space) => {
                    self.pool.keep_house(io);
                    // Cancelled: whoever kept house is gone, and the next look begins anew.
                    if space.await == Ok(false) {
                        self.pool.lock().fail_lane(self.lane, Failure::NoSpace);
                    }
                }
            }
        }
    }

    async fn write(&self, io: &Io, record: Record) {
        match self.pool.write_record(io, record).await {
            Ok(record) => self.finish(io, record).await,
            Err(error) => self.pool.poison("write", &error),
        }
        if self.pool.wants_house() {
            self.pool.keep_house(io);
        }
    }

    async fn finish(&self, io: &Io, record: Record) {
        let mut record = Some(record);
        let (crossed, used, capacity) = loop {
            let missing = {
                let mut inner = self.pool.lock();
                let missing = match record.take() {
                    Some(record) => inner.finish(record),
                    None => inner.advance(),
                };
                if missing.is_empty() {
                    let used = inner.state.used();
                    break (inner.room.crossed(used), used, inner.room.capacity);
                }
                missing
            };
            // They were there when it was staged.
            let loaded = self.pool.load_leaves(io, &missing, Purpose::Change);
            match loaded.await {
                Ok(()) => {}
                // What was written is there; it can wait.
                Err(Failure::OutOfMemory) => io.sleep_until(Instant::now() + MEMORY_WAIT).await,
                Err(_) => {
                    let error = ReadError::Map.into();
                    self.pool.poison("read", &error);
                    return;
                }
            }
        };
        if let Some(percent) = crossed {
            tracing::warn!(
                pool = self.pool.name(),
                used,
                capacity,
                "{percent} % of a pool is in use: free some, or add a drive"
            );
        }
    }

    async fn begin(&self, io: &Io, opening: Opening) {
        let begun = self.pool.begin_segment(io, opening).await;
        let mut inner = self.pool.lock();
        match begun {
            Ok(()) => inner.begun(self.lane, opening),
            Err(BeginError::Io(error)) if is_full(&error) => {
                tracing::warn!(
                    pool = self.pool.name(),
                    %error,
                    "the file system below has no space for the next segment"
                );
                inner.not_begun(self.lane, opening, Failure::NoSpace);
            }
            Err(BeginError::OutOfMemory) => {
                inner.not_begun(self.lane, opening, Failure::OutOfMemory);
            }
            Err(BeginError::Io(error)) => {
                drop(inner);
                self.pool.poison("write", &error);
            }
            Err(BeginError::NoDrive) => {
                drop(inner);
                let error = std::io::ErrorKind::NotFound.into();
                self.pool.poison("write", &error);
            }
        }
    }
}

impl Drop for Writer {
    /// The event loop ended under it: what it was writing has an end that nobody will see.
    fn drop(&mut self) {
        if !self.has_ended {
            self.pool.abandon();
            self.pool.lock().writer_gone(self.lane);
        }
    }
}
