//! The text of a slot of a journal.

use std::fmt::Write as _;

use longshore_wire::crc32c;

/// First line of every slot of this version.
const MAGIC: &str = "longshore-copy 2";

/// First line of journals of version 1, which are read and never written.
const MAGIC_1: &str = "longshore-copy 1";

/// Fills a slot up to its end.
pub(super) const PADDING: char = ' ';

/// The contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The source, and marks by which a change of it shows.
    pub source: String,
    pub destination: String,
    /// Bytes to copy in all.
    pub size: u64,
    /// Bytes of a block: the larger one of both sides.
    pub block_size: u64,
    /// Everything before was copied and flushed.
    pub done: u64,
}

/// Why the text of a journal is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalDamage {
    /// Not a journal, or one of another version.
    #[error("it is not a journal of this version")]
    Unknown,
    /// The checksum is missing or differs.
    #[error("it is damaged (checksum)")]
    Checksum,
    /// A field is missing or makes no sense.
    #[error("it is damaged (fields)")]
    Fields,
}

impl Record {
    /// The text of a slot, without its padding.
    pub(super) fn encode(&self, number: u64) -> String {
        let mut text = format!(
            "{MAGIC}\nnumber {number}\nsource {}\ndestination {}\nsize {}\nblock-size {}\ndone {}\n",
            escape(&self.source),
            escape(&self.destination),
            self.size,
            self.block_size,
            self.done
        );
        let checksum = checksum(&text);
        writeln!(text, "crc32c {checksum:08x}").expect("a string takes everything");
        text
    }

    /// Reads a slot and its number. A file of version 1 is one slot without a number.
    pub(super) fn decode(bytes: &[u8]) -> Result<(u64, Self), JournalDamage> {
        let text = std::str::from_utf8(bytes).map_err(|_| JournalDamage::Unknown)?;
        let is_numbered = match text.lines().next() {
            Some(MAGIC) => true,
            Some(MAGIC_1) => false,
            _ => return Err(JournalDamage::Unknown),
        };
        let text = text.trim_end_matches([PADDING, '\n']);
        let body = text
            .rfind('\n')
            .map(|at| text.split_at(at + 1))
            .filter(|(body, last)| *last == format!("crc32c {:08x}", checksum(body)))
            .map(|(body, _)| body)
            .ok_or(JournalDamage::Checksum)?;
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str| {
            lines
                .next()
                .and_then(|line| line.split_once(' '))
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .ok_or(JournalDamage::Fields)
        };
        let text = |value: &str| unescape(value).ok_or(JournalDamage::Fields);
        let number = |value: &str| value.parse().map_err(|_| JournalDamage::Fields);
        let sequence = match is_numbered {
            true => number(field("number")?)?,
            false => 0,
        };
        let record = Self {
            source: text(field("source")?)?,
            destination: text(field("destination")?)?,
            size: number(field("size")?)?,
            block_size: number(field("block-size")?)?,
            done: number(field("done")?)?,
        };
        // A copy goes on at a block.
        let is_place = record.done == record.size
            || (record.done < record.size && record.done.is_multiple_of(record.block_size));
        if lines.next().is_some() || !is_place {
            return Err(JournalDamage::Fields);
        }
        Ok((sequence, record))
    }
}

pub(super) fn checksum(text: &str) -> u32 {
    crc32c(text.as_bytes()).value()
}

/// Without line ends; `%` itself is escaped too.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '%' => escaped.push_str("%25"),
            '\n' => escaped.push_str("%0A"),
            '\r' => escaped.push_str("%0D"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        plain.push(match code {
            "25" => '%',
            "0A" => '\n',
            "0D" => '\r',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}
