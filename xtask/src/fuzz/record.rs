//! How many inputs each target has taken since the count began, in a table of the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::workspace;

const DOCUMENT: &str = "docs/security/fuzzing.md";

const HEAD: &str = "| target | inputs | that broke it |\n|---|---|---|\n";

/// Inputs, and runs that ended with one that broke the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    inputs: u64,
    broken: u64,
}

/// Adds what targets have taken; none for one that was broken.
pub fn add(inputs: &BTreeMap<String, Option<u64>>) -> Result<()> {
    let path = workspace::root().join(DOCUMENT);
    let text = std::fs::read_to_string(&path).context(DOCUMENT)?;
    let text =
        updated(&text, inputs).with_context(|| format!("{DOCUMENT} has no table of inputs"))?;
    Ok(std::fs::write(&path, text)?)
}

/// The document with other numbers; none where there is no table.
fn updated(text: &str, inputs: &BTreeMap<String, Option<u64>>) -> Option<String> {
    let (before, rest) = text.split_once(HEAD)?;
    let rows: Vec<&str> = rest
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    let mut taken: BTreeMap<String, Taken> = rows.iter().filter_map(|row| parse(row)).collect();
    for (name, inputs) in inputs {
        let entry = taken.entry(name.clone()).or_default();
        entry.inputs += inputs.unwrap_or(0);
        entry.broken += u64::from(inputs.is_none());
    }
    let mut table = HEAD.to_owned();
    let mut all = Taken::default();
    for (name, taken) in &taken {
        all.inputs += taken.inputs;
        all.broken += taken.broken;
        let _ = writeln!(
            table,
            "| `{name}` | {} | {} |",
            grouped(taken.inputs),
            taken.broken
        );
    }
    let _ = writeln!(table, "| all | {} | {} |", grouped(all.inputs), all.broken);
    let after: String = rest.split_inclusive('\n').skip(rows.len()).collect();
    Some(format!("{before}{table}{after}"))
}

/// A row of a target; none for that of the sums.
fn parse(row: &str) -> Option<(String, Taken)> {
    let mut cells = row.trim_matches(['|', ' ']).split(" | ");
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let mut number = || cells.next()?.replace(',', "").parse().ok();
    let taken = Taken {
        inputs: number()?,
        broken: number()?,
    };
    Some((name.to_owned(), taken))
}

/// With commas, as in 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_add_up_by_target_and_in_all() {
        let text =
            format!("# Title\n\n{HEAD}| `b` | 1,999,999 | 0 |\n| all | 1,999,999 | 0 |\n\nText.\n");
        let inputs = [("a".to_owned(), None), ("b".to_owned(), Some(2))].into();
        let rows = "| `a` | 0 | 1 |\n| `b` | 2,000,001 | 0 |\n| all | 2,000,001 | 1 |\n";
        let expected = format!("# Title\n\n{HEAD}{rows}\nText.\n");
        assert_eq!(updated(&text, &inputs).unwrap(), expected);
        assert_eq!(updated("no table", &inputs), None);
    }

    #[test]
    fn the_document_has_its_table() {
        let text = std::fs::read_to_string(workspace::root().join(DOCUMENT)).unwrap();
        assert!(updated(&text, &BTreeMap::new()).is_some());
    }
}
