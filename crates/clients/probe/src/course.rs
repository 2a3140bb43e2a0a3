//! The course of a probe: how far it is, whether it is to stop, what there is to remark.

use std::time::{Duration, Instant};

use longshore_bench::watch::Interrupt;
use longshore_model::probe::{Remark, RemarkKind};

use crate::error::Error;
use crate::options::Watch;

pub(crate) struct Course<'a> {
    pub(crate) interrupt: &'a Interrupt,
    watch: &'a mut dyn Watch,
    began: Instant,
    /// As far as can be said before.
    total: Duration,
    remarks: Vec<Remark>,
}

impl<'a> Course<'a> {
    pub(crate) fn new(interrupt: &'a Interrupt, watch: &'a mut dyn Watch, total: Duration) -> Self {
        Self {
            interrupt,
            watch,
            began: Instant::now(),
            total,
            remarks: Vec::new(),
        }
    }

    /// Tells what comes next; an error if somebody wants it all to end.
    pub(crate) fn next(&mut self, what: &str) -> Result<(), Error> {
        self.go_on()?;
        let total = self.total.as_secs_f64().max(1e-3);
        let done = self.began.elapsed().as_secs_f64() / total;
        self.watch.progress(done.min(1.0), what);
        Ok(())
    }

    /// An error if somebody wants it all to end.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        let signal = self.interrupt.signal();
        signal.map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
    }

    pub(crate) fn warn(&mut self, text: &str) {
        self.watch.warn(text);
    }

    pub(crate) fn remark(&mut self, kind: RemarkKind, text: String) {
        self.remarks.push(Remark { kind, text });
    }

    pub(crate) fn not_measured(&mut self, what: &str, why: impl std::fmt::Display) {
        let text = format!("{what} not measured: {why}");
        self.remark(RemarkKind::NotMeasured, text);
    }

    pub(crate) fn into_remarks(self) -> (Vec<Remark>, Duration) {
        (self.remarks, self.began.elapsed())
    }
}
