//! Doc comments of at most three words. Most repeat a name or say nothing, so their number may only fall.
//!
//! The check reads lines, not syntax: a doc comment is a run of lines that begin with `///`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;

/// Short doc comments in the tree. Lower it with each one that goes.
const TOLERATED: usize = 0;
/// Branches that meet each remove some, so the number may be a little too high.
const SLACK: usize = 25;
/// Words of a short comment.
const WORDS_MOST: usize = 3;
/// Folders with sources, from the top folder.
const FOLDERS: [&str; 5] = ["crates", "xtask", "tests", "bench", "fuzz"];

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let list = arguments.flag("--list");
    arguments.finish()?;
    let top = workspace::root();
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&top.join(folder), &mut files)?;
    }
    files.sort();
    let mut found = 0;
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        for (line, comment) in short_comments(&text) {
            found += 1;
            if list {
                let file = file.strip_prefix(&top).unwrap_or(&file);
                println!("{}:{line}: {comment}", file.display());
            }
        }
    }
    match judge(found, TOLERATED) {
        Ok(()) => Ok(Counts::PASSED),
        Err(problem) => {
            println!("FAIL {problem}");
            Ok(Counts::FAILED)
        }
    }
}

/// The Rust files below a folder, without build output and hidden folders.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            sources(&path, into)?;
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// Line and text of each doc comment of at most [`WORDS_MOST`] words.
fn short_comments(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut comment: Option<(usize, Vec<&str>)> = None;
    // An empty line ends a comment at the end of the file.
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        match line.trim_start().strip_prefix("///") {
            Some(words) => comment
                .get_or_insert((number, Vec::new()))
                .1
                .extend(words.split_whitespace()),
            None => {
                if let Some((first, words)) = comment.take()
                    && words.len() <= WORDS_MOST
                {
                    found.push((first, words.join(" ")));
                }
            }
        }
    }
    found
}

fn judge(found: usize, tolerated: usize) -> Result<(), String> {
    if found > tolerated {
        Err(format!(
            "{found} doc comments have at most {WORDS_MOST} words, {tolerated} are tolerated: say more, or leave the \
             new ones out (cargo xtask comments --list)"
        ))
    } else if found + SLACK < tolerated {
        Err(format!(
            "only {found} doc comments have at most {WORDS_MOST} words: lower the {tolerated} in xtask/src/comments.rs"
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_at_most_three_words_are_found() {
        let text = "/// One.\n/// Two.\nfn a() {}\n    /// A comment of four.\n    fn b() {}\n// No doc.\n\
                    /// Begins and\n///\n/// goes on.\nfn c() {}\n/// Last.";
        let found = short_comments(text);
        let expected = [(1, "One. Two.".to_owned()), (11, "Last.".to_owned())];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_number_may_only_fall() {
        assert!(judge(101, 100).unwrap_err().contains("101"));
        assert_eq!(judge(100, 100), Ok(()));
        assert_eq!(judge(100 - SLACK, 100), Ok(()));
        assert!(
            judge(99 - SLACK, 100)
                .unwrap_err()
                .contains("lower the 100")
        );
    }
}
