//! Progress of a copy: a bar on a terminal, else a line now and then. Both go to standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longshore_client::copy::{Observer, Phase, Progress};

use crate::output::Bytes;

/// How often a line is printed where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

const BAR: &str = "{msg} {wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  \
                   {binary_bytes_per_sec}  {eta} left";

/// Shows how a copy fares.
pub struct Display {
    kind: Kind,
}

enum Kind {
    Quiet,
    Bar(Option<Bar>),
    Lines(Lines),
}

struct Bar {
    phase: Phase,
    bar: ProgressBar,
}

struct Lines {
    phase: Option<Phase>,
    began: Instant,
    printed: Instant,
}

impl Display {
    pub fn new(quiet: bool) -> Self {
        let now = Instant::now();
        let kind = match () {
            () if quiet => Kind::Quiet,
            () if std::io::stderr().is_terminal() => Kind::Bar(None),
            () => Kind::Lines(Lines {
                phase: None,
                began: now,
                printed: now,
            }),
        };
        Self { kind }
    }

    /// Takes the bar away: the summary says it all.
    pub fn end(&mut self) {
        if let Kind::Bar(bar) = &mut self.kind
            && let Some(Bar { bar, .. }) = bar.take()
        {
            bar.finish_and_clear();
        }
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Verifying => "verifying",
    }
}

impl Bar {
    fn new(progress: &Progress) -> Self {
        let bar = ProgressBar::with_draw_target(
            Some(progress.total),
            ProgressDrawTarget::stderr_with_hz(10),
        );
        let style = ProgressStyle::with_template(BAR).expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(name(progress.phase));
        // What an earlier run did tells nothing of the rate of this one.
        bar.set_position(progress.start);
        bar.reset_eta();
        Self {
            phase: progress.phase,
            bar,
        }
    }
}

impl Lines {
    fn progress(&mut self, progress: &Progress) {
        let now = Instant::now();
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            (self.began, self.printed) = (now, now);
        }
        if now.duration_since(self.printed) >= LINE_INTERVAL {
            self.printed = now;
            eprintln!("{}", line(progress, now.duration_since(self.began)));
        }
    }
}

/// `copying: 1.50 GiB of 10 GiB (15 %), 150 MiB/s, 58 s left`
fn line(progress: &Progress, took: Duration) -> String {
    let percent = u128::from(progress.done) * 100 / u128::from(progress.total.max(1));
    let moved = u128::from(progress.done.saturating_sub(progress.start));
    let millis = took.as_millis().max(1);
    let rate = moved * 1000 / millis;
    let left = u128::from(progress.total.saturating_sub(progress.done));
    let remaining = match (left * millis / 1000).checked_div(moved) {
        Some(seconds) => format!(", {seconds} s left"),
        None => String::new(),
    };
    format!(
        "{}: {} of {} ({percent} %), {}/s{remaining}",
        name(progress.phase),
        Bytes(progress.done),
        Bytes(progress.total),
        Bytes(u64::try_from(rate).unwrap_or(u64::MAX)),
    )
}

impl Observer for Display {
    fn progress(&mut self, progress: &Progress) {
        match &mut self.kind {
            Kind::Quiet => {}
            Kind::Lines(lines) => lines.progress(progress),
            Kind::Bar(bar) => {
                if let Some(old) = bar.take_if(|bar| bar.phase != progress.phase) {
                    old.bar.finish_and_clear();
                }
                let bar = bar.get_or_insert_with(|| Bar::new(progress));
                bar.bar.set_position(progress.done);
            }
        }
    }

    fn warn(&mut self, text: &str) {
        let text = format!("warning: {text}");
        match &self.kind {
            Kind::Bar(Some(bar)) => bar.bar.suspend(|| eprintln!("{text}")),
            _ => eprintln!("{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_rate_and_remaining_time_of_this_run() {
        let progress = Progress {
            phase: Phase::Copying,
            start: 1 << 30,
            done: 2 << 30,
            total: 4 << 30,
            data: 0,
            zeros: 0,
        };
        assert_eq!(
            line(&progress, Duration::from_secs(10)),
            "copying: 2 GiB of 4 GiB (50 %), 102 MiB/s, 20 s left"
        );
        let nothing = Progress {
            done: 1 << 30,
            ..progress
        };
        assert_eq!(
            line(&nothing, Duration::from_secs(10)),
            "copying: 1 GiB of 4 GiB (25 %), 0 bytes/s"
        );
    }

    #[test]
    fn the_bar_is_well_formed() {
        ProgressStyle::with_template(BAR).unwrap();
    }
}
