//! Which part of a matrix runs. `make test` runs some items of each matrix every time and the others in
//! turns. `make test-all`, and each suite by itself, run all.
//!
//! A checkout that is kept runs what has waited longest ([`crate::ci`]). In a new one the number of commits chooses the
//! turn, so four runs on consecutive commits, or consecutive merges, run everything. Landings of several commits each may
//! leave turns out there: a history does not tell which of its commits were landings. Machines that count landings set
//! [`VARIABLE`].

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::run_captured;
use crate::workspace;

/// Turns until everything has run.
pub const TURNS: usize = 4;

/// Sets the turn, 1 to 4, in place of the commit; or `all`.
pub const VARIABLE: &str = "LONGSHORE_PART";

/// One turn, or everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    All,
    /// The turn with this number, from 0.
    Turn(usize),
}

impl Part {
    /// Takes `--part N` (1 to 4) or `--part all`.
    pub fn given(arguments: &mut Arguments) -> Result<Option<Self>> {
        let value = arguments.value("--part")?;
        let part = value.map(|text| Self::parse(&text).with_context(|| format!("--part {text}")));
        part.transpose()
    }

    /// The same; everything where it is missing.
    pub fn take(arguments: &mut Arguments) -> Result<Self> {
        Ok(Self::given(arguments)?.unwrap_or(Self::All))
    }

    /// The turn that the environment names.
    pub fn of_environment() -> Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else {
            return Ok(None);
        };
        let part = Self::parse(&text).with_context(|| format!("{VARIABLE}={text}"))?;
        Ok(Some(part))
    }

    /// The turn of the commit that is checked out.
    pub fn of_commit() -> Self {
        let git = |arguments: &[&str]| -> Option<String> {
            let mut command = Command::new("git");
            command.current_dir(workspace::root()).args(arguments);
            let ended = run_captured(&mut command, Duration::from_secs(20)).ok()?;
            ended.is_success().then(|| ended.output.trim().to_owned())
        };
        let shallow = git(&["rev-parse", "--is-shallow-repository"]);
        let number = if shallow.as_deref() == Some("false") {
            git(&["rev-list", "--count", "--first-parent", "HEAD"])
                .and_then(|text| text.parse().ok())
        } else {
            // In a shallow clone commits cannot be counted: the name chooses, as if at random.
            let name = git(&["rev-parse", "HEAD"]);
            name.and_then(|name| usize::from_str_radix(name.get(..6)?, 16).ok())
        };
        // A copy without a history has nothing to take turns by.
        number.map_or(Self::All, |number| Self::Turn(number % TURNS))
    }

    fn parse(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(number @ 1..=TURNS) => Ok(Self::Turn(number - 1)),
            _ => bail!("a part is 1 to {TURNS}, or all"),
        }
    }

    /// As `--part` takes it.
    pub fn word(self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Turn(turn) => (turn + 1).to_string(),
        }
    }

    /// Whether this is the turn of what runs in one turn only, with a number from 0.
    pub fn includes(self, turn: usize) -> bool {
        matches!(self, Self::All) || self == Self::Turn(turn)
    }

    /// The items whose turn it is, in their order, and those that run `always`. Says what it has chosen, and that
    /// `cargo xtask COMMAND` runs everything.
    pub fn choose<T>(
        self,
        command: &str,
        items: Vec<T>,
        name: impl Fn(&T) -> String,
        always: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        self.choose_in(&[0, 1, 2, 3], command, items, name, always)
    }

    /// The same where items other than those that run always have these turns only.
    pub fn choose_in<T>(
        self,
        turns: &[usize],
        command: &str,
        items: Vec<T>,
        name: impl Fn(&T) -> String,
        always: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        let Self::Turn(turn) = self else {
            return items;
        };
        let all = items.len();
        let mut others = 0;
        let chosen: Vec<T> = items
            .into_iter()
            .filter(|item| {
                if always(item) {
                    return true;
                }
                others += 1;
                turns[(others - 1) % turns.len()] == turn
            })
            .collect();
        let names: Vec<String> = chosen.iter().map(name).collect();
        println!(
            "part {} of {TURNS}: {} of {all} ({}); `cargo xtask {command}` runs all",
            turn + 1,
            chosen.len(),
            names.join(", ")
        );
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(turn: usize, always: &[u32]) -> Vec<u32> {
        let items = (0..11).collect();
        Part::Turn(turn).choose("x", items, u32::to_string, |item| always.contains(item))
    }

    #[test]
    fn four_turns_run_everything_and_what_always_runs_each_time() {
        let mut seen: Vec<u32> = (0..TURNS).flat_map(|turn| chosen(turn, &[3, 10])).collect();
        seen.sort_unstable();
        assert_eq!(seen.iter().filter(|item| **item == 3).count(), TURNS);
        seen.dedup();
        assert_eq!(seen, (0..11).collect::<Vec<_>>());
    }

    #[test]
    fn turns_that_are_kept_for_others_have_only_what_runs_always() {
        let chosen = |turn| {
            let items = (0..11).collect();
            Part::Turn(turn).choose_in(&[1, 2, 3], "x", items, u32::to_string, |item| *item == 5)
        };
        assert_eq!(chosen(0), [5]);
        let mut seen: Vec<u32> = (1..TURNS).flat_map(chosen).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..11).collect::<Vec<_>>());
        assert!(Part::All.includes(0) && Part::Turn(0).includes(0) && !Part::Turn(1).includes(0));
    }

    #[test]
    fn turns_are_about_as_long() {
        for turn in 0..TURNS {
            assert!((2..=3).contains(&chosen(turn, &[]).len()));
        }
    }

    #[test]
    fn a_part_is_a_number_from_1_or_all() {
        let part = |text: &str| Part::take(&mut Arguments::of(&["--part", text]));
        assert_eq!(part("1").unwrap(), Part::Turn(0));
        assert_eq!(part("4").unwrap().word(), "4");
        assert_eq!(part("all").unwrap(), Part::All);
        assert!(part("0").is_err() && part("5").is_err());
        let none = || Arguments::of(&[]);
        assert_eq!(Part::take(&mut none()).unwrap(), Part::All);
        // Not the same to `ci`, which then chooses by the commit.
        assert_eq!(Part::given(&mut none()).unwrap(), None);
        let all = Part::given(&mut Arguments::of(&["--part", "all"]));
        assert_eq!(all.unwrap(), Some(Part::All));
    }
}
