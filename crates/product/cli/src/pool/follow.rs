//! Work on a pool that takes its time, followed to its end.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use longshore_api::pool::{Pool as Shown, PoolWork, PoolWorkState};

use super::place::PoolVerbError;
use crate::output::Bytes;

/// How often it is looked how far the work is: at first, and later.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// Waits for the end of the work, and tells a person how far it is.
pub fn follow(
    mut look: impl FnMut() -> Result<Shown, PoolVerbError>,
) -> Result<Shown, PoolVerbError> {
    let mut bar = Bar::new();
    let mut looks = 0;
    loop {
        let shown = look()?;
        match &shown.work {
            Some(work) if work.state == PoolWorkState::Running => bar.show(work),
            work => {
                bar.end(work.as_ref());
                return Ok(shown);
            }
        }
        looks += 1;
        thread::sleep(LOOKS[usize::from(looks > 25)]);
    }
}

struct Bar {
    is_watched: bool,
    told: Option<u64>,
}

impl Bar {
    fn new() -> Self {
        Self {
            is_watched: io::stderr().is_terminal(),
            told: None,
        }
    }

    fn show(&mut self, work: &PoolWork) {
        // What hosts write meanwhile may come on top.
        let percent = (work.done_bytes * 100 / work.sum_bytes.max(1)).min(99);
        self.tell(percent, work.sum_bytes);
    }

    fn end(&mut self, work: Option<&PoolWork>) {
        if let Some(work) = work.filter(|work| work.state == PoolWorkState::Done) {
            self.tell(100, work.sum_bytes);
        }
        if self.told.is_some() {
            let _ = writeln!(io::stderr());
        }
    }

    fn tell(&mut self, percent: u64, sum: u64) {
        if self.is_watched && self.told != Some(percent) {
            self.told = Some(percent);
            let _ = write!(io::stderr(), "\r{percent:3} % of {}", Bytes(sum));
        }
    }
}
