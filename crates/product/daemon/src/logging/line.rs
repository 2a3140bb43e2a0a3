//! How an event looks as a line.
//!
//! ```text
//! 2026-11-23T04:41:00.123456Z  WARN longshore_server::iscsi: login rejected peer=192.0.2.7:51234 user="al ice"
//! {"timestamp":"2026-11-23T04:41:00.123456Z","level":"WARN","message":"login rejected","peer":…,"target":…}
//! ```
//!
//! In text, one rule holds for values from all sources: a value stands as it is if it is made of printable ASCII
//! characters other than space, `"`, `\` and `=`; otherwise it stands in quotes, with `"`, `\`, control characters
//! and everything else that does not show escaped. What a peer calls itself can therefore neither look like another
//! field nor like another line.

use std::fmt::Write;

use serde_json::{Map, Value};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::record::Record;
use crate::config::log::LogFormat;

/// The events of this crate tell of the configuration, which the operator wrote; they may have several
/// lines. All others have what peers and disks said in them.
pub(super) const OWN: &str = "longshore_daemon";

#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub format: LogFormat,
    /// Colours, for a terminal.
    pub ansi: bool,
}

impl Style {
    /// The event as a line, with its end.
    pub(super) fn line(self, record: &Record) -> Vec<u8> {
        let mut time = String::new();
        // A clock that cannot be read leaves the place empty.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut line = match self.format {
            LogFormat::Text => self.text(&time, record),
            LogFormat::Json => json(time, record),
        };
        line.push('\n');
        line.into_bytes()
    }

    fn text(self, time: &str, record: &Record) -> String {
        let mut line = String::with_capacity(256);
        let (dim, end) = if self.ansi {
            ("\x1b[2m", "\x1b[0m")
        } else {
            ("", "")
        };
        let level = match (self.ansi, record.level) {
            (false, _) => "",
            (true, Level::ERROR) => "\x1b[31m",
            (true, Level::WARN) => "\x1b[33m",
            (true, Level::INFO) => "\x1b[32m",
            (true, Level::DEBUG) => "\x1b[34m",
            (true, _) => "\x1b[35m",
        };
        let _ = write!(
            line,
            "{dim}{time}{end} {level}{:>5}{end} {dim}{}:{end} ",
            record.level, record.target
        );
        push_message(&mut line, record);
        for (name, value) in &record.fields {
            let _ = write!(line, " {dim}{name}={end}");
            match value {
                Value::String(text) => push_value(&mut line, text),
                value => push_value(&mut line, &value.to_string()),
            }
        }
        line
    }
}

fn push_message(line: &mut String, record: &Record) {
    let may_have_lines = record.target.starts_with(OWN);
    for character in record.message.chars() {
        match character {
            // Indented, so that no line but the first looks like the beginning of an event.
            '\n' if may_have_lines => line.push_str("\n    "),
            character if shows(character) => line.push(character),
            character => line.extend(character.escape_debug()),
        }
    }
}

/// Whether a character looks like itself, and like nothing else.
fn shows(character: char) -> bool {
    matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1
}

fn push_value(line: &mut String, text: &str) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
    if !text.is_empty() && text.bytes().all(is_plain) {
        line.push_str(text);
    } else {
        let _ = write!(line, "{text:?}");
    }
}

fn json(time: String, record: &Record) -> String {
    let mut object = Map::new();
    object.insert("timestamp".to_owned(), Value::String(time));
    let level = Value::String(record.level.to_string());
    object.insert("level".to_owned(), level);
    let message = Value::String(record.message.clone());
    object.insert("message".to_owned(), message);
    for (name, value) in &record.fields {
        // A field must not take the place of what every line has.
        let name = match *name {
            "timestamp" | "level" | "message" | "target" => format!("{name}_"),
            name => name.to_owned(),
        };
        object.insert(name, value.clone());
    }
    let target = Value::String(record.target.to_owned());
    object.insert("target".to_owned(), target);
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Style = Style {
        format: LogFormat::Text,
        ansi: false,
    };

    fn record(target: &'static str, message: &str, fields: &[(&'static str, &str)]) -> Record {
        Record {
            level: Level::WARN,
            target,
            message: message.to_owned(),
            fields: fields
                .iter()
                .map(|(name, text)| (*name, Value::String((*text).to_owned())))
                .collect(),
        }
    }

    /// The line without its time.
    fn text(record: &Record) -> String {
        let line = String::from_utf8(TEXT.line(record)).unwrap();
        line.split_once(' ').unwrap().1.to_owned()
    }

    #[test]
    fn values_are_quoted_when_they_could_be_mistaken_and_not_otherwise() {
        for (value, expected) in [
            ("iqn.2026-11.com.example:a", "iqn.2026-11.com.example:a"),
            ("192.0.2.7:3260", "192.0.2.7:3260"),
            (
                "LoginRefused(ChapResponseWrong)",
                "LoginRefused(ChapResponseWrong)",
            ),
            ("", r#""""#),
            ("al ice", r#""al ice""#),
            ("a=b", r#""a=b""#),
            ("say \"x\"", r#""say \"x\"""#),
            ("back\\slash", r#""back\\slash""#),
            ("x\n2026 ERROR forged", r#""x\n2026 ERROR forged""#),
            ("\u{1b}[31mred\u{7}", r#""\u{1b}[31mred\u{7}""#),
            ("\u{202e}txt", r#""\u{202e}txt""#),
            ("café", "\"café\""),
        ] {
            let line = text(&record(
                "longshore_server",
                "login rejected",
                &[("user", value)],
            ));
            assert_eq!(
                line,
                format!(" WARN longshore_server: login rejected user={expected}\n")
            );
        }
    }

    #[test]
    fn numbers_stand_as_they_are() {
        let mut with_number = record("longshore_server", "closed", &[]);
        with_number.fields.push(("lost", Value::from(7_u64)));
        assert_eq!(
            text(&with_number),
            " WARN longshore_server: closed lost=7\n"
        );
    }

    #[test]
    fn a_message_with_something_of_a_peer_in_it_is_one_line() {
        let forged = "the controller: \u{1b}[0m\nforged";
        assert_eq!(
            text(&record("longshore_initiator", forged, &[])),
            " WARN longshore_initiator: the controller: \\u{1b}[0m\\nforged\n"
        );
        assert_eq!(
            text(&record("longshore_daemon::serve", "a problem:\nhere", &[])),
            " WARN longshore_daemon::serve: a problem:\n    here\n"
        );
    }

    #[test]
    fn json_is_valid_whatever_a_peer_calls_itself() {
        let style = Style {
            format: LogFormat::Json,
            ansi: false,
        };
        let name = "a\"\n\u{0}\u{1b}\\";
        let line = style.line(&record(
            "longshore_server",
            "login rejected",
            &[("initiator", name), ("target", "iqn.x"), ("level", "none")],
        ));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(object["initiator"], name);
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["level_"], "none");
        assert_eq!(object["target"], "longshore_server");
        assert_eq!(object["target_"], "iqn.x");
    }
}
