//! What the TOML parser refuses, in the words of an administrator: the key that was meant, the quotes that
//! are missing, the brackets that are too many.
//!
//! What to write instead is found by trial: a correction is proposed when the file parses with it, or fails
//! elsewhere.

use std::ops::Range;

use super::document::Document;
use super::problem::holds_secret;
use super::schema;
use super::suggest;

/// Where the mistake is, and what to say about it.
pub(super) fn explain(error: &toml::de::Error, text: &str) -> (Range<usize>, String) {
    let span = error.span().unwrap_or(0..0);
    let start = floor(text, span.start);
    let span = start..floor(text, span.end).max(start);
    let message = error.message();
    if let Some((key, known)) = unknown_key(message) {
        let said = say_unknown_key(key, &known, in_header(text, start));
        return (span, said);
    }
    if let Some(key) = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'))
    {
        return (span, format!("the key `{key}` is missing here"));
    }
    if let Some((found, expected)) = wrong_value(message) {
        let said = say_wrong_value(text, &span, found, expected);
        return (span, said);
    }
    if toml::from_str::<toml::Table>(text).is_ok() {
        // A value that its key refuses, with words of its own.
        return (span, message.to_owned());
    }
    explain_syntax(text, span, message)
}

/// The word and what can stand there, from `unknown field …` of serde.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    Some((key, rest.split('`').skip(1).step_by(2).collect()))
}

/// What was found and what was expected, from `invalid type …` and `invalid value …` of serde.
fn wrong_value(message: &str) -> Option<(&str, &str)> {
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    // A text that was found may contain anything; what is expected comes last.
    rest.rsplit_once(", expected ")
}

fn say_unknown_key(key: &str, known: &[&str], is_header: bool) -> String {
    let top = schema::tables()[0].keys;
    if is_header && known == top {
        let likely = suggest::nearest(key, known).and_then(schema::header);
        return match likely {
            Some(header) => format!("unknown table `{key}`; did you mean {header}?"),
            None => {
                let headers = top.iter().filter_map(|name| schema::header(name));
                let headers: Vec<&str> = headers.collect();
                format!("unknown table `{key}`; known are {}", headers.join(", "))
            }
        };
    }
    // A key of one other table is more likely misplaced than misspelt.
    let tables = schema::tables();
    let mut owners = tables.iter().filter(|table| table.keys.contains(&key));
    if let (Some(owner), None) = (owners.next(), owners.next())
        && owner.header.starts_with('[')
    {
        return format!("unknown key `{key}`; it belongs in {}", owner.header);
    }
    format!("unknown key `{key}`{}", suggest::sentence(key, known))
}

fn say_wrong_value(text: &str, span: &Range<usize>, found: &str, expected: &str) -> String {
    let written = &text[span.clone()];
    if written.starts_with('[') && found == "map" {
        let name = written.trim_matches(['[', ']']).trim();
        return if written.starts_with("[[") {
            format!("there is one table `{name}`; write [{name}] in single brackets")
        } else {
            format!("there can be several tables `{name}`; write [[{name}]] in double brackets")
        };
    }
    let mut said = format!(
        "expected {}, found {}",
        plain(expected),
        kind(found, written)
    );
    let corrections = corrections(written);
    let correction = corrections
        .iter()
        .find(|correction| mends(text, span, correction));
    if let Some(correction) = correction
        && !is_secret(text, span.start)
    {
        said += &format!("; write {correction}");
    }
    said
}

/// What a type is called outside of programs.
fn plain(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" | "usize" => "a number from 0",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// What was found, without the contents of texts.
fn kind<'a>(found: &'a str, written: &'a str) -> &'a str {
    match found.split([' ', '`']).next() {
        Some("string") => "a text",
        Some("map") => "a table",
        Some("sequence") => "a list",
        Some("integer" | "floating" | "boolean") => written,
        _ => found,
    }
}

/// What may have been meant by a value, the likeliest first.
fn corrections(written: &str) -> Vec<String> {
    let inner = written.trim_matches(['"', '\'', '“', '”', '‘', '’']);
    let mut all = Vec::new();
    if inner.parse::<i64>().is_ok() || matches!(inner, "true" | "false") {
        all.push(inner.to_owned());
    }
    all.push(toml::Value::String(inner.to_owned()).to_string());
    match inner.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" | "1" => all.push("true".to_owned()),
        "no" | "off" | "false" | "0" => all.push("false".to_owned()),
        _ => {}
    }
    all.push(format!("[{written}]"));
    all.retain(|correction| correction != written);
    all
}

/// Whether the file is in order with another value there, or goes wrong elsewhere.
fn mends(text: &str, span: &Range<usize>, correction: &str) -> bool {
    let corrected = [&text[..span.start], correction, &text[span.end..]].concat();
    let place = span.start..=span.start + correction.len();
    match toml::from_str::<Document>(&corrected) {
        Ok(_) => true,
        Err(error) => error
            .span()
            .is_some_and(|other| !place.contains(&other.start)),
    }
}

/// Says what is wrong with text that is not TOML.
fn explain_syntax(text: &str, span: Range<usize>, message: &str) -> (Range<usize>, String) {
    if let Some(value) = bare_value(text, span.start) {
        let written = &text[value.clone()];
        if written.is_empty() {
            return (value, "there is no value behind the `=`".to_owned());
        }
        if is_secret(text, value.start) {
            return (value, "the value is not in quotes".to_owned());
        }
        let quoted = toml::Value::String(written.to_owned()).to_string();
        let corrections = corrections(written);
        let correction = corrections
            .iter()
            .find(|correction| mends(text, &value, correction))
            .unwrap_or(&quoted);
        let said = if correction.starts_with('"') {
            format!("the value has no quotes; write {correction} in quotes")
        } else {
            format!("`{written}` is not a value; write {correction}")
        };
        return (value, said);
    }
    if message == "duplicate key" {
        let said = format!("`{}` is given twice", &text[span.clone()]);
        return (span, said);
    }
    if message.starts_with("key with no value") {
        let said = "an `=` is missing; write key = value".to_owned();
        return (span, said);
    }
    (span, message.to_owned())
}

/// The value around `at` that has neither quotes nor brackets: what TOML takes for a number or a word.
fn bare_value(text: &str, at: usize) -> Option<Range<usize>> {
    let at = floor(text, at);
    let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let before = &text[line_start..at];
    let opening = before.rfind(['=', ',', '[', '{', '"', '\'', '#']);
    let mut start = line_start + opening.map_or(0, |found| found + 1);
    if opening.is_some_and(|found| before[..=found].trim_matches(['[', ' ', '\t']).is_empty()) {
        // The header of a table.
        return None;
    }
    let is_inside = before.contains(['{', '[']) || !before.contains('=');
    if opening.is_some_and(|found| before.as_bytes()[found] == b',') && !is_inside {
        // Outside of brackets a comma is part of the value: `cores = 0,2`.
        start = line_start + before.rfind('=')? + 1;
    }
    if !matches!(text[..start].chars().next_back(), Some('=' | ',' | '[')) {
        return None;
    }
    let rest = &text[start..line_end];
    start += rest.len() - rest.trim_start().len();
    let rest = &text[start..line_end];
    let stops: &[char] = if is_inside {
        &[',', ']', '}', '#']
    } else {
        &['#']
    };
    let end = start + rest.find(stops).unwrap_or(rest.len());
    let value = &text[start..end];
    let end = start + value.trim_end().len();
    let is_bare = !value.starts_with(['"', '\'', '[', '{']) && !value.contains('=');
    is_bare.then_some(start..end)
}

/// Whether a place is in the header of a table.
fn in_header(text: &str, at: usize) -> bool {
    let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[line_start..].trim_start().starts_with('[')
}

/// Whether the line may hold a secret.
fn is_secret(text: &str, at: usize) -> bool {
    let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    holds_secret(text[line_start..].lines().next().unwrap_or_default())
}

/// The nearest character boundary at or before `at`, within the text.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests;
