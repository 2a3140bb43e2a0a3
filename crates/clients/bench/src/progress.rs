//! Progress on a terminal: one line on standard error that goes away again.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::watch::{Phase, Progress, Watch};

/// Shows what goes on, if standard error is a terminal. Warnings go to standard error in any case.
#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    /// What is being measured.
    label: String,
    /// Operations, bytes and time of the last look.
    last: Option<Progress>,
    warned: Vec<String>,
}

impl Terminal {
    /// Nothing is shown yet.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg}").expect("a template of one field");
        bar.set_style(style);
        Self {
            bar,
            label: String::new(),
            last: None,
            warned: Vec::new(),
        }
    }

    pub fn label(&mut self, label: String) {
        self.label = label;
        self.last = None;
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, now: &Progress) -> String {
        let what = match now.phase {
            Phase::WarmUp => "warming up",
            Phase::Measure => "measuring",
            Phase::ReadBack => "reading back",
        };
        let of = now
            .total
            .map_or(String::new(), |total| format!(" of {}", seconds(total)));
        let last = self.last.filter(|last| {
            last.phase == now.phase
                && last.operations <= now.operations
                && last.elapsed < now.elapsed
        });
        let rates = last.map_or(String::new(), |last| {
            let time = (now.elapsed - last.elapsed).as_secs_f64();
            let per_second = |now: u64, last: u64| crate::result::float(now - last) / time;
            format!(
                ", {:.0} IOPS, {:.1} MB/s",
                per_second(now.operations, last.operations),
                per_second(now.bytes, last.bytes) / 1e6
            )
        });
        format!("{}: {what} {}{of}{rates}", self.label, seconds(now.elapsed))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.0} s", duration.as_secs_f64())
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch for Terminal {
    fn progress(&mut self, progress: Progress) {
        let long_ago = self
            .last
            .is_none_or(|last| progress.elapsed.saturating_sub(last.elapsed) >= SHOWN_EVERY);
        let other = self
            .last
            .is_some_and(|last| last.phase != progress.phase || last.elapsed > progress.elapsed);
        if long_ago || other {
            self.bar.set_message(self.line(&progress));
            self.last = Some(progress);
        }
    }

    fn warn(&mut self, text: &str) {
        // A sweep meets the same thing at each point.
        if self.warned.iter().any(|warned| warned == text) {
            return;
        }
        self.warned.push(text.to_owned());
        self.bar.suspend(|| eprintln!("warning: {text}"));
    }
}

/// Often enough to look alive, and rates over it are steady.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, operations: u64) -> Progress {
        Progress {
            phase: Phase::Measure,
            elapsed: Duration::from_millis(ms),
            total: Some(Duration::from_secs(10)),
            operations,
            bytes: operations * 4096,
        }
    }

    #[test]
    fn the_rate_is_that_since_the_last_look() {
        let mut terminal = Terminal::new();
        terminal.label("randread 4k".to_owned());
        assert_eq!(
            terminal.line(&at(1_000, 5)),
            "randread 4k: measuring 1 s of 10 s"
        );
        terminal.progress(at(1_000, 1_000));
        assert_eq!(
            terminal.line(&at(1_500, 2_000)),
            "randread 4k: measuring 2 s of 10 s, 2000 IOPS, 8.2 MB/s"
        );
    }
}
