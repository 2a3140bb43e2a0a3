//! Work on a pool that takes its time, on a thread of its own: one piece of it at a time.

use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use longshore_reactor::allocator;

use crate::desk::{Desk, Step, Work, WorkKind, WorkState};
use crate::drives::NewDrive;
use crate::error::PoolError;
use crate::mirror::Slot;
use crate::pool::Pool;
use crate::report::Report;
use crate::scrub::Scrub;

/// How long work waits for what is under way elsewhere: the first time, each time at most, and in all.
const WAIT: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

impl Pool {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being done, or was last.
    #[must_use]
    pub fn work(&self) -> Option<Work> {
        self.desk().work.clone()
    }

    /// Has work end soon.
    ///
    /// # Errors
    /// There is none.
    pub fn stop_work(&self) -> Result<(), PoolError> {
        let mut desk = self.desk();
        if !desk.work.as_ref().is_some_and(Work::is_running) {
            return Err(PoolError::NoWork {
                pool: self.name().to_owned(),
            });
        }
        desk.is_to_stop = true;
        Ok(())
    }

    pub(crate) fn refuse_work(&self) -> Result<(), PoolError> {
        match &self.desk().work {
            Some(work) if work.is_running() => Err(PoolError::Working {
                pool: self.name().to_owned(),
                kind: work.kind.name(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn begin_work(&self, kind: WorkKind) -> Result<(), PoolError> {
        let mut desk = self.desk();
        if let Some(work) = desk.work.as_ref().filter(|work| work.is_running()) {
            return Err(PoolError::Working {
                pool: self.name().to_owned(),
                kind: work.kind.name(),
            });
        }
        desk.is_to_stop = false;
        desk.work = Some(Work {
            kind,
            state: WorkState::Running,
            began: SystemTime::now(),
            ended: None,
            done: 0,
            sum: 0,
            findings: Vec::new(),
            more: 0,
        });
        Ok(())
    }

    fn end_work(&self, state: WorkState, report: Report) {
        match &state {
            WorkState::Failed(error) => {
                tracing::error!(pool = self.name(), %error, "work on the pool failed");
            }
            state => {
                let findings = report.findings.len();
                tracing::info!(
                    pool = self.name(),
                    ?state,
                    findings,
                    "work on the pool ended"
                );
            }
        }
        for finding in &report.findings {
            match self.work().map(|work| work.kind) {
                Some(WorkKind::Rebuild(_)) => {
                    tracing::warn!(pool = self.name(), %finding, "data was not copied");
                }
                _ => tracing::warn!(pool = self.name(), %finding, "a scrub found damage"),
            }
        }
        if let Some(work) = &mut self.desk().work {
            work.state = state;
            work.ended = Some(SystemTime::now());
            work.findings = report.findings;
            work.more = report.more;
        }
    }

    /// Begins to read all data, and to compare it with its checksums, at so many bytes a second at most.
    ///
    /// # Errors
    /// Other work is under way.
    pub fn begin_scrub(self: &Arc<Self>, rate: Option<u64>) -> Result<(), PoolError> {
        self.begin_work(WorkKind::Scrub)?;
        let sum = self.lock().state.segments.live;
        self.start(rate, sum, |pool, pace| {
            let mut scrub = Scrub::new(pool);
            let ended = drive_steps(pool, pace, || {
                let (next, step) = {
                    let scrub = std::mem::take(&mut scrub);
                    pool.run(|pool, io| async move { scrub.step(&pool, &io).await })
                };
                scrub = next;
                if let Some(work) = &mut pool.desk().work {
                    work.findings.clone_from(&scrub.report.findings);
                    work.more = scrub.report.more;
                }
                Ok(step)
            });
            pool.end_work(ended, scrub.report);
        })
    }

    /// Begins to take a drive out of the pool, at so many bytes moved a second at most.
    ///
    /// # Errors
    /// It is none of the pool's, the others have no room for its data, or other work is under way.
    pub fn begin_removal(
        self: &Arc<Self>,
        path: &Path,
        rate: Option<u64>,
    ) -> Result<(), PoolError> {
        let before = self.work();
        self.begin_work(WorkKind::Remove(path.to_owned()))?;
        let admitted = self
            .drive_number(path)
            .and_then(|number| Ok((number, self.begin_leaving(number, path)?)));
        let (number, sum) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                // Nothing was done; what was done before is told still.
                self.desk().work = before;
                return Err(error);
            }
        };
        let started = self.start(rate, sum, move |pool, pace| {
            let ended = drive_steps(pool, pace, || {
                pool.run(move |pool, io| async move { pool.leave_step(&io, number).await })
            });
            if ended != WorkState::Done {
                pool.stop_leaving();
            }
            pool.end_work(ended, Report::default());
        });
        if started.is_err() {
            self.stop_leaving();
        }
        started
    }

    /// Puts a file or device in the place of a side of a mirror, and begins to fill it, with so many bytes a second at
    /// most.
    ///
    /// # Errors
    /// There is no such side, the other one has not all data, the drive cannot be used, or other work is under way.
    pub fn begin_rebuild(
        self: &Arc<Self>,
        slot: &Slot,
        new: &NewDrive,
        rate: Option<u64>,
    ) -> Result<(), PoolError> {
        let before = self.work();
        self.begin_work(WorkKind::Rebuild(new.path.clone()))?;
        let (rebuild, sum) = match self.begin_filling(slot, new) {
            Ok(begun) => begun,
            Err(error) => {
                // Nothing was done; what was done before is told still.
                self.desk().work = before;
                return Err(error);
            }
        };
        let place = rebuild.place();
        let started = self.start(rate, sum, move |pool, pace| {
            let mut rebuild = Some(rebuild);
            let ended = drive_steps(pool, pace, || {
                let Some(now) = rebuild.take() else {
                    return Ok(Step::Done);
                };
                let (next, step) = pool.run(|pool, io| async move { now.step(&pool, &io).await });
                rebuild = Some(next);
                step
            });
            let report = rebuild.map_or_else(Report::default, |rebuild| {
                if ended != WorkState::Done {
                    rebuild.give_up(pool);
                }
                rebuild.report
            });
            pool.end_work(ended, report);
        });
        if started.is_err() {
            self.stop_filling(place);
        }
        started
    }

    fn start(
        self: &Arc<Self>,
        rate: Option<u64>,
        sum: u64,
        work: impl FnOnce(&Arc<Self>, Pace) + Send + 'static,
    ) -> Result<(), PoolError> {
        if let Some(desk) = &mut self.desk().work {
            desk.sum = sum;
        }
        let pool = self.clone();
        let thread = thread::Builder::new().name("pool-work".into());
        let started = allocator::spawn(thread, move || work(&pool, Pace::new(rate)));
        if let Err(source) = started {
            self.desk().work = None;
            return Err(PoolError::Thread { source });
        }
        Ok(())
    }
}

/// Takes one step after the other.
fn drive_steps(
    pool: &Pool,
    mut pace: Pace,
    mut step: impl FnMut() -> Result<Step, PoolError>,
) -> WorkState {
    let (mut waits, mut began) = (0, Instant::now());
    loop {
        if pool.desk().is_to_stop {
            return WorkState::Stopped;
        }
        match step() {
            Ok(Step::Did(bytes)) => {
                (waits, began) = (0, Instant::now());
                if let Some(work) = &mut pool.desk().work {
                    work.done += bytes;
                    work.sum = work.sum.max(work.done);
                }
                pace.hold(bytes, || pool.desk().is_to_stop);
            }
            Ok(Step::Wait) if began.elapsed() < PATIENCE => {
                waits += 1;
                // Longer and longer: most waits make a checkpoint.
                thread::sleep((WAIT * waits).min(WAIT_MAX));
            }
            Ok(Step::Wait) => {
                return WorkState::Failed(
                    "nothing could be moved for a minute: there is no room for it, or what is there is being read; free \
                     some, and begin again"
                        .into(),
                );
            }
            Ok(Step::Done) => return WorkState::Done,
            Err(error) => return WorkState::Failed(error.to_string()),
        }
    }
}

/// Keeps work to a rate.
#[derive(Debug)]
struct Pace {
    rate: Option<u64>,
    /// When the next step may begin.
    next: Instant,
}

impl Pace {
    fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            next: Instant::now(),
        }
    }

    /// Waits as long as so many bytes take, unless it is to stop.
    fn hold(&mut self, bytes: u64, is_to_stop: impl Fn() -> bool) {
        let Some(rate) = self.rate else {
            return;
        };
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        // A step that was slow by itself is not made up for.
        let now = Instant::now();
        self.next = (self.next + takes).max(now);
        while let left = self.next.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !is_to_stop()
        {
            thread::sleep(left.min(WAIT));
        }
    }
}
