//! Parts of manual pages: sections, code, references.

use roff::{Inline, Roff, bold, roman};

use super::sections::Rows;

/// The page of the configuration file.
pub(super) const CONFIGURATION: &str = "longshore.toml";

/// When the hand-written sections were last changed.
pub(super) const DATE: &str = "2026-11-23";

pub(super) fn source() -> String {
    format!("longshore {}", env!("CARGO_PKG_VERSION"))
}

pub(super) fn section(roff: &mut Roff, title: &str, rows: Rows) {
    if rows.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (name, meaning) in rows {
        roff.control("TP", []).text([bold(*name)]);
        roff.text(inlines(meaning));
    }
}

/// Lines to be shown as they are.
pub(super) fn code(roff: &mut Roff, text: &str) {
    roff.control("PP", [])
        .control("RS", ["4"])
        .control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).control("RE", []);
}

pub(super) fn see_also(roff: &mut Roff, pages: &[(&str, &str)]) {
    roff.control("SH", ["SEE ALSO"]);
    let mut text = Vec::new();
    for (number, (name, section)) in pages.iter().enumerate() {
        if number > 0 {
            text.push(roman(", "));
        }
        text.push(bold(*name));
        text.push(roman(format!("({section})")));
    }
    roff.text(text);
}

/// A text whose words in backquotes are bold.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    parts
        .map(|(number, part)| {
            if number % 2 == 1 {
                bold(part)
            } else {
                roman(part)
            }
        })
        .collect()
}
