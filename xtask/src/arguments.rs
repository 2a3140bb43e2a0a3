//! The command line of `xtask`: words, `--flag` and `--option VALUE`.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail};

/// Arguments not yet taken.
#[derive(Debug)]
pub struct Arguments {
    words: VecDeque<String>,
}

impl Arguments {
    /// Those of this process, without its name.
    pub fn from_process() -> Self {
        Self {
            words: std::env::args().skip(1).collect(),
        }
    }

    pub fn of(words: &[&str]) -> Self {
        Self {
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    /// Takes the first word.
    pub fn next_word(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// Takes `name` wherever it stands; whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let position = self.words.iter().position(|word| word == name);
        position.is_some_and(|index| self.words.remove(index).is_some())
    }

    /// Takes `name` and the value behind it.
    pub fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(index) = self.words.iter().position(|word| word == name) else {
            return Ok(None);
        };
        self.words.remove(index);
        let value = self
            .words
            .remove(index)
            .with_context(|| format!("{name} needs a value"))?;
        Ok(Some(value))
    }

    /// Takes `name` and the number behind it.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        let number = value
            .parse()
            .with_context(|| format!("{name} {value}: not a number"))?;
        Ok(Some(number))
    }

    /// Refuses what is left over.
    pub fn finish(self) -> Result<()> {
        match self.words.front() {
            None => Ok(()),
            Some(word) => bail!("unexpected argument {word:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments {
            words: line.split_whitespace().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn options_are_taken_wherever_they_stand() {
        let mut given = arguments("--only X --verbose --seconds 3");
        assert!(given.flag("--verbose"));
        assert!(!given.flag("--verbose"));
        assert_eq!(given.number("--seconds").unwrap(), Some(3));
        assert_eq!(given.value("--only").unwrap().as_deref(), Some("X"));
        given.finish().unwrap();
    }

    #[test]
    fn what_nobody_took_is_refused() {
        assert!(arguments("--typo").finish().is_err());
        assert!(arguments("--only").value("--only").is_err());
        assert!(arguments("--seconds x").number("--seconds").is_err());
    }
}
