//! Puts a pool together that does not open.
//!
//! Whatever is left is taken: a drive without superblocks is known by its segments, an older checkpoint takes the place of a
//! damaged one, and records the place of what it lacks. Records are numbered without gaps. So it is known whether all of
//! them were found since a checkpoint that is whole; then the outcome is what the pool held, and nothing is lost.
//!
//! | whole is | records that count | what may be wrong |
//! |---|---|---|
//! | a checkpoint | those behind it | nothing, if none is missing or damaged; else what those wrote or zeroed |
//! | the catalogue of one | all, but for maps that could be read | zeros whose records are gone |
//! | nothing | all, with the changes of the catalogue | the same, names and sizes of volumes, which snapshots there are |

mod base;
mod replay;
mod settle;

use std::path::PathBuf;

use longshore_volume::Io;
use uuid::Uuid;

use self::base::Base;
use self::replay::PutTogether;
use crate::check::check_contents;
use crate::error::PoolError;
use crate::format::superblock::READ_ONLY_COMPATIBLE_KNOWN;
use crate::inspect::Inspection;
use crate::labels::{self, Damaged};
use crate::members::{Label, Present};
use crate::open::{Opening, assemble, open_side};
use crate::pool::Pool;
use crate::report::Report;
use crate::run::block_on;
use crate::side::Side;

/// What a rebuild may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Nothing: it only looks.
    Look,
    /// The pool, if nothing is lost.
    Whole,
    /// What is left of the pool.
    Rest,
}

/// What a rebuild found.
#[derive(Debug)]
pub struct Rebuilt {
    /// What is wrong, and what is lost.
    pub report: Report,
    /// The pool holds what it held.
    pub is_whole: bool,
    /// Nothing is wrong with what it holds, as far as that was looked at.
    pub is_sound: bool,
    /// It was written, and opens from now on.
    pub is_written: bool,
}

impl Pool {
    /// Puts a pool together that does not open. `with_data`: all data is read and compared with its checksums. `progress`
    /// is told the bytes read and their sum, of segments and then of data. Blocks.
    ///
    /// # Errors
    /// The drives hold no pool, or not all of it, or they cannot be written.
    pub fn rebuild(
        drives: &[PathBuf],
        wanted: Rebuild,
        with_data: bool,
        progress: impl FnMut(u64, u64) + 'static,
    ) -> Result<Rebuilt, PoolError> {
        let mut sides = Vec::new();
        for path in drives {
            sides.push(open_side(path, false, wanted == Rebuild::Look)?);
        }
        if sides.is_empty() {
            return Err(PoolError::DriveCount);
        }
        block_on(move |io| async move { rebuild_on(&io, sides, wanted, with_data, progress).await })
    }
}

/// The same on drives that are open.
pub(crate) async fn rebuild_on(
    io: &Io,
    sides: Vec<Side>,
    wanted: Rebuild,
    with_data: bool,
    mut progress: impl FnMut(u64, u64),
) -> Result<Rebuilt, PoolError> {
    let mut report = Report::default();
    let is_read_only = wanted == Rebuild::Look;
    let how = Opening {
        is_read_only,
        is_degraded: true,
        unopened: 0,
    };
    let Damaged {
        sorted,
        has_superblock,
    } = labels::sort_damaged(io, sides, how, &mut report).await?;
    let (label, drives) = (sorted.label, sorted.drives);
    if !is_read_only {
        if label.read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN != 0 {
            return Err(PoolError::LaterVersion { pool: label.name });
        }
        for drive in drives.iter().flatten() {
            let synced = drive.sync(io).await;
            synced.map_err(|error| drive.error("fdatasync", error))?;
        }
    }
    let present = Present {
        entries: label.drives.clone(),
        drives: drives.clone(),
    };
    let base = Base::find(io, &label, &drives, has_superblock, &mut report).await;
    let found = base.search(io, &label, &drives, &mut progress).await;
    let inspection = Inspection {
        io,
        label: &label,
        drives: &drives,
    };
    let mut together = PutTogether::new(inspection, base, found, report);
    if sorted.has_left_out {
        together.doubt(
            "mirror",
            "a side is missing that may have gone on without the others",
        );
    }
    if !has_superblock {
        together.doubt(
            "superblocks",
            "without any, nothing tells whether the newest checkpoint is the last one that counted",
        );
    }
    let (mut recovered, mut report, mut is_whole) = together.run().await?;
    // Whoever goes on without this pool's drives has other ones.
    let apart = Uuid::new_v4().as_u64_pair().1 >> 24;
    recovered.next_generation = recovered.next_generation.saturating_add(apart);
    let used = recovered.used.clone();
    let pool = assemble(Label::of(&label), present, recovered, is_read_only);
    let mut contents = Report::default();
    check_contents(&pool, io, false, |_, _| {}, &mut contents).await;
    // What was lost before is not lost by this.
    is_whole &= contents.more == 0
        && contents
            .findings
            .iter()
            .all(|it| it.text.ends_with(" is lost"));
    if with_data {
        contents = Report::default();
        check_contents(&pool, io, true, progress, &mut contents).await;
    }
    let is_sound = contents.is_sound();
    report.add(contents);
    let mut is_written = match wanted {
        Rebuild::Look => false,
        Rebuild::Whole => is_whole,
        Rebuild::Rest => true,
    };
    if is_written {
        pool.mend_segments(io, &used).await;
        // A side that failed only now may be the one that has everything.
        if let Some(path) = pool.members.present().newly_stale() {
            let pool = pool.name().to_owned();
            return Err(PoolError::SideFailed { pool, path });
        }
        match crate::clean::checkpoint_now(&pool, io).await {
            Err(error @ PoolError::NoSpace { .. }) => {
                report.note("checkpoint", format!("cannot be written: {error}"));
                is_written = false;
            }
            result => result?,
        }
    }
    Ok(Rebuilt {
        report,
        is_whole,
        is_sound,
        is_written,
    })
}
