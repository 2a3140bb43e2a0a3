//! Which parts of the matrices have passed in this checkout. The next run takes the one that has waited longest.
//!
//! The number of commits alone cannot choose so that four landings run everything: a landing of four commits gets the
//! part of the landing before it. A checkout that is kept remembers; in a new one the commit chooses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::rotation::{Part, TURNS};
use crate::workspace;

/// Turns from 0, the one that passed last behind the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    path: PathBuf,
    turns: Vec<usize>,
}

impl Passed {
    /// Those of this checkout.
    pub fn here() -> Result<Self> {
        Ok(Self::of(
            &workspace::work_folder("ci")?.join("passed-parts"),
        ))
    }

    /// A file that is missing or damaged tells of none.
    fn of(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut turns = Vec::new();
        for word in text.split_whitespace() {
            if let Ok(number @ 1..=TURNS) = word.parse::<usize>() {
                turns.retain(|turn| *turn != number - 1);
                turns.push(number - 1);
            }
        }
        Self {
            path: path.to_owned(),
            turns,
        }
    }

    /// The part to run next: one that has not passed yet, from that of the commit on; else the one that passed first.
    pub fn due(&self, of_commit: Part) -> Part {
        let Part::Turn(first) = of_commit else {
            return of_commit;
        };
        let mut turns = (first..first + TURNS).map(|turn| turn % TURNS);
        let new = turns.find(|turn| !self.turns.contains(turn));
        new.or_else(|| self.turns.first().copied())
            .map_or(of_commit, Part::Turn)
    }

    /// A part has passed.
    pub fn note(mut self, part: Part) -> Result<()> {
        match part {
            Part::All => self.turns = (0..TURNS).collect(),
            Part::Turn(turn) => {
                self.turns.retain(|other| *other != turn);
                self.turns.push(turn);
            }
        }
        let words: Vec<String> = self.turns.iter().map(|t| (t + 1).to_string()).collect();
        fs::write(&self.path, words.join(" "))
            .with_context(|| format!("write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use longshore_tests::scratch::Scratch;

    use super::*;

    #[test]
    fn four_landings_that_pass_run_everything_whatever_the_commits_say() {
        for commits in [0, 1, 2, 3] {
            let scratch = Scratch::new("passed-parts");
            let path = scratch.join("parts");
            let mut seen = Vec::new();
            for landing in 0..2 * TURNS {
                let of_commit = Part::Turn((2 + landing * commits) % TURNS);
                let due = Passed::of(&path).due(of_commit);
                Passed::of(&path).note(due).unwrap();
                seen.push(due);
            }
            assert_eq!(seen[0], Part::Turn(2), "the first is the commit's");
            for landings in seen.windows(TURNS) {
                let has = |turn| landings.contains(&Part::Turn(turn));
                assert!((0..TURNS).all(has), "{commits}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_part_that_has_not_passed_stays_due() {
        let scratch = Scratch::new("passed-parts");
        let path = scratch.join("parts");
        Passed::of(&path).note(Part::Turn(1)).unwrap();
        for _ in 0..2 {
            assert_eq!(Passed::of(&path).due(Part::Turn(1)), Part::Turn(2));
        }
        Passed::of(&path).note(Part::All).unwrap();
        assert_eq!(Passed::of(&path).due(Part::Turn(3)), Part::Turn(0));
        assert_eq!(Passed::of(&path).due(Part::All), Part::All);
    }

    #[test]
    fn a_damaged_file_is_no_record() {
        let scratch = Scratch::new("passed-parts");
        let path = scratch.join("parts");
        fs::write(&path, "7 x 0 3 3").unwrap();
        assert_eq!(Passed::of(&path).turns, [2]);
        assert_eq!(
            Passed::of(&path).due(Part::Turn(2)),
            Part::Turn(3),
            "the third has passed"
        );
    }
}
