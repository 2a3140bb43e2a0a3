//! Progress of a copy: a bar on a terminal, else a line now and then. Both go to standard error.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longshore_client::copy::{End, Observer, Phase, Progress, Trouble};

use crate::output::Bytes;

/// How often a line is printed where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

const BAR: &str = "{msg} {wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  \
                   {binary_bytes_per_sec}  {eta} left";

/// While nothing moves, rate and remaining time mean nothing.
const STALLED: &str = "{msg} {wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}";

/// The terminal, shared by the bar, if there is one now, and by messages. Clones share one terminal.
#[derive(Clone, Default)]
pub struct Screen(Arc<Mutex<Option<ProgressBar>>>);

impl Screen {
    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line to standard error; a bar makes room for it.
    pub fn print(&self, line: &str) {
        match &*self.bar() {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}

/// Shows how a copy fares.
pub struct Display {
    screen: Screen,
    kind: Kind,
}

enum Kind {
    Quiet,
    Bar(Bar),
    Lines(Lines),
}

#[derive(Default)]
struct Bar {
    phase: Option<Phase>,
    is_stalled: bool,
}

struct Lines {
    phase: Option<Phase>,
    began: Instant,
    printed: Instant,
    trouble: Option<Trouble>,
}

impl Display {
    pub fn new(quiet: bool) -> Self {
        let now = Instant::now();
        let kind = match () {
            () if quiet => Kind::Quiet,
            () if std::io::stderr().is_terminal() => Kind::Bar(Bar::default()),
            () => Kind::Lines(Lines {
                phase: None,
                began: now,
                printed: now,
                trouble: None,
            }),
        };
        Self {
            screen: Screen::default(),
            kind,
        }
    }

    pub fn screen(&self) -> Screen {
        self.screen.clone()
    }

    /// Takes the bar away: the summary says it all.
    pub fn end(&self) {
        self.screen.clear();
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Verifying => "verifying",
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    style.progress_chars("=> ")
}

/// The trouble in words, for the bar's line or a line of its own.
fn told(trouble: &Trouble) -> String {
    match trouble {
        Trouble::ConnectionLost { end, gives_up_in } => {
            let end = match end {
                End::Source => "source",
                End::Destination => "destination",
            };
            let left = gives_up_in.map_or(String::new(), |left| {
                format!(", {} s left", left.as_millis().div_ceil(1000))
            });
            format!("{end}: connection lost, reconnecting{left}")
        }
        Trouble::NoAnswer { lasted } => format!("no answer for {} s", lasted.as_secs()),
    }
}

impl Bar {
    fn progress(&mut self, progress: &Progress, screen: &Screen) {
        let mut current = screen.bar();
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            self.is_stalled = false;
            if let Some(old) = current.take() {
                old.finish_and_clear();
            }
        }
        let bar = current.get_or_insert_with(|| Self::begin(progress));
        let is_stalled = progress.trouble.is_some();
        if self.is_stalled != is_stalled {
            self.is_stalled = is_stalled;
            bar.set_style(style(if is_stalled { STALLED } else { BAR }));
            if !is_stalled {
                bar.set_message(name(progress.phase));
            }
        }
        if let Some(trouble) = &progress.trouble {
            bar.set_message(told(trouble));
        }
        bar.set_position(progress.done);
    }

    fn begin(progress: &Progress) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(
            Some(progress.total),
            ProgressDrawTarget::stderr_with_hz(10),
        );
        bar.set_style(style(BAR));
        bar.set_message(name(progress.phase));
        // What an earlier run did tells nothing of the rate of this one.
        bar.set_position(progress.start);
        bar.reset_eta();
        bar
    }
}

impl Lines {
    fn progress(&mut self, progress: &Progress) {
        let now = Instant::now();
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            (self.began, self.printed) = (now, now);
        }
        if let Some(news) = news(self.trouble.as_ref(), progress.trouble.as_ref()) {
            eprintln!("{news}");
        }
        self.trouble = progress.trouble;
        if now.duration_since(self.printed) >= LINE_INTERVAL {
            self.printed = now;
            eprintln!("{}", line(progress, now.duration_since(self.began)));
        }
    }
}

/// The line to print when trouble begins, changes or ends.
fn news(before: Option<&Trouble>, now: Option<&Trouble>) -> Option<String> {
    let same = |one: &Trouble, other: &Trouble| match (one, other) {
        (Trouble::ConnectionLost { end, .. }, Trouble::ConnectionLost { end: other, .. }) => {
            end == other
        }
        (Trouble::NoAnswer { .. }, Trouble::NoAnswer { .. }) => true,
        _ => false,
    };
    match (before, now) {
        (Some(before), Some(now)) if same(before, now) => None,
        (_, Some(now)) => Some(told(now)),
        (Some(_), None) => Some("the copy continues".to_owned()),
        (None, None) => None,
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
            Kind::Bar(bar) => bar.progress(progress, &self.screen),
        }
    }

    fn warn(&mut self, text: &str) {
        self.screen.print(&format!("warning: {text}"));
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
            unchanged: 0,
            trouble: None,
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
    fn the_bars_are_well_formed() {
        ProgressStyle::with_template(BAR).unwrap();
        ProgressStyle::with_template(STALLED).unwrap();
    }

    #[test]
    fn a_lost_connection_is_told_of_once_and_so_is_its_end() {
        let lost = |end, millis| Trouble::ConnectionLost {
            end,
            gives_up_in: Some(Duration::from_millis(millis)),
        };
        let first = lost(End::Destination, 13_001);
        assert_eq!(
            told(&first),
            "destination: connection lost, reconnecting, 14 s left"
        );
        assert_eq!(news(None, Some(&first)), Some(told(&first)));
        assert_eq!(news(Some(&first), Some(&lost(End::Destination, 500))), None);
        let other = lost(End::Source, 500);
        assert_eq!(news(Some(&first), Some(&other)), Some(told(&other)));
        assert_eq!(
            news(Some(&first), None).as_deref(),
            Some("the copy continues")
        );
        assert_eq!(news(None, None), None);
        let patient = Trouble::ConnectionLost {
            end: End::Source,
            gives_up_in: None,
        };
        assert_eq!(told(&patient), "source: connection lost, reconnecting");
        let lasted = Duration::from_millis(5900);
        assert_eq!(told(&Trouble::NoAnswer { lasted }), "no answer for 5 s");
    }
}
