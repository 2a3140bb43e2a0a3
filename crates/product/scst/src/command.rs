//! The grammar of `mgmt` files: a verb, words, and parameters.
//!
//! ```text
//! add_device disk0 filename=/srv/disk0.img;blocksize=512;
//! add_target_attribute iqn.2026-11.com.example:a IncomingUser web1 its-secret
//! ```
//!
//! Words are separated by blanks. Parameters are `key=value`, separated by `;`; a value may have blanks.

/// A command as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    pub verb: &'a str,
    /// What follows the verb.
    pub rest: &'a str,
}

/// A parameter that is not `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadParameter<'a>(pub &'a str);

/// The text of a write: without the line ends and zeros that tools put behind it.
#[must_use]
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.trim_end_matches(['\0', '\n', '\r', ' ', '\t']);
    let is_clean = !text.chars().any(char::is_control);
    is_clean.then(|| text.trim_start())
}

impl<'a> Command<'a> {
    /// The first word, and the rest.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let (verb, rest) = word(text);
        Self { verb, rest }
    }

    /// The next word, and what follows it.
    #[must_use]
    pub fn word(&self) -> (&'a str, &'a str) {
        word(self.rest)
    }

    /// The words of the command, in their order.
    #[must_use]
    pub fn words(&self) -> Vec<&'a str> {
        self.rest.split_whitespace().collect()
    }
}

/// The first word of a text, and what follows it.
#[must_use]
pub fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

/// Parameters, in their order.
///
/// # Errors
/// One that is not `key=value`.
pub fn parameters(text: &str) -> Result<Vec<(&str, &str)>, BadParameter<'_>> {
    let parts = text.split(';').map(str::trim).filter(|it| !it.is_empty());
    let pairs = parts.map(|part| {
        let (key, value) = part.split_once('=').ok_or(BadParameter(part))?;
        let key = key.trim_end();
        match key.is_empty() || key.contains(char::is_whitespace) {
            true => Err(BadParameter(part)),
            false => Ok((key, value.trim_start())),
        }
    });
    pairs.collect()
}

/// A number as the kernel reads it: decimal, hexadecimal with `0x`, octal with a leading `0`.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (digits, 10),
    };
    // The parser of Rust would take a second sign.
    let is_plain = digits.starts_with(|it: char| it.is_ascii_hexdigit());
    is_plain
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

/// Whether a switch is on: `1`, `0`, `Yes`, `No`.
#[must_use]
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" => Some(true),
        "0" | "no" | "n" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_does() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("+7", Some(7)),
            ("0x10", Some(16)),
            ("0XfF", Some(255)),
            ("010", Some(8)),
            ("08", None),
            ("0x", None),
            ("", None),
            ("-1", None),
            ("++1", None),
            ("0x+1", None),
            ("1 2", None),
            ("ten", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
