//! Lines of words with quotes: what `targets.conf` and `istgt.conf` have in common.

use crate::source::ImportError;

/// A line that is neither empty nor a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Line of the file, from 1.
    pub number: u32,
    pub text: &'a str,
}

/// The lines of a text with their numbers, trimmed; without those that are empty or begin with `#`.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let numbered = text.lines().map(str::trim).zip(1_u32..);
    numbered
        .filter(|(text, _)| !text.is_empty() && !text.starts_with('#'))
        .map(|(text, number)| Line { number, text })
}

/// Words that blanks part and double quotes hold together.
///
/// # Errors
/// A quote without its end.
pub(crate) fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote has no end")?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    Ok(words)
}

/// A place in a text that its grammar does not allow.
pub(crate) fn syntax(name: &str, line: u32, what: impl Into<String>) -> ImportError {
    ImportError::Syntax {
        name: name.to_owned(),
        line,
        what: what.into(),
    }
}
