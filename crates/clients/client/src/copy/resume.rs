//! The beginning of a copy: the start, or the last checkpoint in the journal of an earlier run.

use std::sync::Arc;

use super::ends::Ends;
use super::error::CopyError;
use super::job::Job;
use super::journal::{Found, Journal, JournalDamage, Record, Reserved};
use super::monitor::Monitor;
use super::space;

/// A copy that can begin.
pub(super) struct Prepared {
    pub(super) start: u64,
    /// An earlier run was found to go on with.
    pub(super) is_resumed: bool,
    pub(super) journal: Option<Kept>,
}

/// The journal of a copy.
pub(super) enum Kept {
    /// It is updated; this is its record now.
    Reserved(Arc<Reserved>, Record),
    /// It is that of an earlier run and cannot be written. Its statement that everything before `done`
    /// is copied stays true until the copy is over.
    Unwritten { journal: Journal, done: u64 },
}

impl Kept {
    pub(super) fn journal(&self) -> &Journal {
        match self {
            Self::Reserved(reserved, _) => reserved.journal(),
            Self::Unwritten { journal, .. } => journal,
        }
    }

    /// Bytes copied according to it when the copy begins.
    pub(super) fn done(&self) -> u64 {
        match self {
            Self::Reserved(_, record) => record.done,
            Self::Unwritten { done, .. } => *done,
        }
    }

    pub(super) fn reserved(&self) -> Option<(Arc<Reserved>, Record)> {
        match self {
            Self::Reserved(reserved, record) => Some((reserved.clone(), record.clone())),
            Self::Unwritten { .. } => None,
        }
    }
}

impl Ends {
    /// Finds the beginning, checks the free space, and reserves the journal's. Writes nothing to the
    /// destination.
    pub(super) fn prepare(
        &self,
        job: &Job,
        monitor: &mut Monitor<'_>,
    ) -> Result<Prepared, CopyError> {
        let record = self.record(job);
        let journal = self.journal(job);
        if let Some(journal) = &journal
            && job.changes.is_some()
            && !job.settings.resume
            && !job.settings.force
        {
            refuse_half_copied(journal, &record)?;
        }
        let is_void = match &journal {
            Some(journal) if self.destination.is_blank() => discard_if_void(journal, &record)?,
            _ => false,
        };
        let (start, is_resumed) = match &journal {
            Some(journal) if job.settings.resume => go_on(journal, &record, monitor)?,
            _ => (0, false),
        };
        if job.settings.resume && is_void {
            monitor.warn(
                "the destination is empty and holds nothing of the earlier copy; \
                 starting from the beginning",
            );
        } else if job.settings.resume && !is_resumed {
            monitor.warn("there is no earlier copy to continue; starting from the beginning");
        }
        space::check(self, job, start, monitor)?;
        let record = Record {
            done: start,
            ..record
        };
        Ok(Prepared {
            start,
            is_resumed,
            journal: reserve(journal, record, job, is_resumed, monitor)?,
        })
    }

    /// The record of a copy that has not begun.
    pub(super) fn record(&self, job: &Job) -> Record {
        let mut source = self.source.identity(true);
        if let Some(changes) = &job.changes {
            source += &format!(" since {}", changes.since);
        }
        Record {
            source,
            destination: self.destination.identity(false),
            size: self.size,
            block_size: self.source.block_size().max(self.destination.block_size()),
            done: 0,
        }
    }

    pub(super) fn journal(&self, job: &Job) -> Option<Journal> {
        let path = job.journal.clone().or_else(|| {
            self.destination
                .journal_path(job.state_directory.as_deref())
        })?;
        Some(Journal::new(path))
    }
}

/// Changes are made to a whole copy. A journal of another one says that this destination holds part of that.
fn refuse_half_copied(journal: &Journal, record: &Record) -> Result<(), CopyError> {
    match journal.load()? {
        Found::Record(found)
            if found.destination == record.destination && found.source != record.source =>
        {
            Err(CopyError::HalfCopied {
                destination: record.destination.clone(),
                path: journal.path().to_owned(),
            })
        }
        Found::Record(_) | Found::Nothing | Found::Damaged(_) => Ok(()),
    }
}

/// Removes the journal of an earlier copy if the destination was found empty. That cannot wait: the
/// destination has its full size from now on, and looks as if it held the copy.
pub(super) fn discard_if_void(journal: &Journal, record: &Record) -> Result<bool, CopyError> {
    let is_void = matches!(
        journal.load(),
        Ok(Found::Record(found)) if found.destination == record.destination
    );
    if is_void {
        journal.remove()?;
    }
    Ok(is_void)
}

/// Where an earlier run got to, and whether there was one.
fn go_on(
    journal: &Journal,
    record: &Record,
    monitor: &mut Monitor<'_>,
) -> Result<(u64, bool), CopyError> {
    let found = match journal.load()? {
        Found::Nothing => return Ok((0, false)),
        Found::Damaged(damage) => {
            let path = journal.path().display();
            monitor.warn(&format!("ignoring {path}: {damage}"));
            return Ok((0, false));
        }
        Found::Record(found) => found,
    };
    let other = |what: &str, was: &str, is: &str| {
        Err(CopyError::OtherCopy {
            path: journal.path().to_owned(),
            difference: format!("the {what} was {was} and is now {is}"),
        })
    };
    if found.source != record.source {
        return other("source", &found.source, &record.source);
    }
    if found.destination != record.destination {
        return other("destination", &found.destination, &record.destination);
    }
    if (found.size, found.block_size) != (record.size, record.block_size) {
        let text =
            |record: &Record| format!("{} bytes in blocks of {}", record.size, record.block_size);
        return other("size", &text(&found), &text(record));
    }
    Ok((found.done, true))
}

/// The journal with all of its space, if it can be written. One left by another copy is removed: it is
/// wrong once this copy writes.
fn reserve(
    journal: Option<Journal>,
    record: Record,
    job: &Job,
    is_resumed: bool,
    monitor: &mut Monitor<'_>,
) -> Result<Option<Kept>, CopyError> {
    let Some(journal) = journal else {
        monitor.warn(
            "there is no place for a journal: an interrupted copy must start again. Name \
             a file with --journal",
        );
        return Ok(None);
    };
    let is_named = job.journal.is_some();
    if !is_resumed {
        if is_named && journal.load()? == Found::Damaged(JournalDamage::Unknown) {
            return Err(CopyError::NoJournal {
                path: journal.path().to_owned(),
            });
        }
        journal.remove()?;
    }
    let reserved = journal.reserve(&record).or_else(|error| {
        let reopened = is_resumed.then(|| journal.reopen(&record).ok());
        reopened.flatten().ok_or(error)
    });
    match reserved {
        Ok(reserved) => Ok(Some(Kept::Reserved(Arc::new(reserved), record))),
        Err(error) if is_resumed => {
            let done = record.done;
            monitor.warn(&format!(
                "{error}; the copy continues, but after another interruption it resumes from byte \
                 {done}"
            ));
            Ok(Some(Kept::Unwritten { journal, done }))
        }
        Err(error) if is_named => Err(error.into()),
        Err(error) => {
            monitor.warn(&format!(
                "{error}: an interrupted copy must start again. Name another file with --journal"
            ));
            Ok(None)
        }
    }
}
