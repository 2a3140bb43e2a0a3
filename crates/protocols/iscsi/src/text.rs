//! Text of logins and text requests: `key=value` pairs, each ended by a zero byte (RFC 7143 §6.1).
//!
//! ```text
//! InitiatorName=iqn.1999-07.com.os:hostid.77␀SessionType=Discovery␀AuthMethod=CHAP,None␀
//! ```
//!
//! A *logical text data segment* is what the data segments of PDUs with the C bit, and of the one
//! without that ends them, make when joined ([`TextAssembly`]); a pair may be cut anywhere between
//! two of them. Going out, [`TextSegments`] cuts a long text into data segments the peer can take.
//!
//! Lengths are bytes. What a key or value means is not decided here; see `keys`.

use std::fmt::{self, Write as _};

use thiserror::Error;

/// The longest key (RFC 7143 §6.1, standard-label).
pub const KEY_LENGTH_MAX: usize = 63;

/// The longest value of any key. Most keys allow 255 bytes; binary values take two digits a byte.
pub const VALUE_LENGTH_MAX: usize = 8192;

/// The longest logical text data segment taken: what §6.1 asks for where authentication items are
/// long, and eight times what it asks for otherwise.
pub const TEXT_LENGTH_MAX: usize = 65_536;

/// Pairs taken in one logical text data segment. The standard defines fewer than fifty keys.
pub const PAIRS_MAX: usize = 256;

/// Answer to a proposal in which the acceptor finds no admissible value (§6.2).
pub const REJECT: &str = "Reject";
/// Answer to a proposal that another choice has made pointless.
pub const IRRELEVANT: &str = "Irrelevant";
/// Answer to a key the acceptor does not know.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// In lists, the choice of doing without.
pub const NONE: &str = "None";
pub const YES: &str = "Yes";
pub const NO: &str = "No";

/// One `key=value`, without its zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Up to 63 characters of a standard-label.
    pub key: &'a str,
    /// Anything up to the zero byte; may be empty.
    pub value: &'a str,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// More than [`TEXT_LENGTH_MAX`] bytes.
    #[error("the text has more than {TEXT_LENGTH_MAX} bytes")]
    TooLong,
    /// More than [`PAIRS_MAX`] pairs.
    #[error("the text has more than {PAIRS_MAX} pairs")]
    TooManyPairs,
    /// The last pair has no zero byte after it.
    #[error("the last pair, at byte {at}, does not end in a zero byte")]
    NotTerminated {
        /// Where the pair starts.
        at: usize,
    },
    /// A pair without an equals sign.
    #[error("the pair at byte {at} has no equals sign")]
    NoEqualsSign {
        /// Where the pair starts.
        at: usize,
    },
    /// A key that is empty, longer than [`KEY_LENGTH_MAX`], or has characters no key has.
    #[error("the key at byte {at} is not a standard-label")]
    MalformedKey {
        /// Where the pair starts.
        at: usize,
    },
    /// A value longer than [`VALUE_LENGTH_MAX`].
    #[error("the value of the pair at byte {at} has {length} bytes")]
    ValueTooLong {
        /// Where the pair starts.
        at: usize,
        /// Bytes in the value.
        length: usize,
    },
    /// A value that is not UTF-8.
    #[error("the value of the pair at byte {at} is not UTF-8")]
    NotUtf8 {
        /// Where the pair starts.
        at: usize,
    },
}

/// The pairs of a complete text, in order.
///
/// Stray zero bytes between or after pairs are skipped: there are peers that pad with them. A key
/// that does not begin with a capital letter is let through, to be answered NotUnderstood.
///
/// # Errors
/// Says what is malformed, and where.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    if text.len() > TEXT_LENGTH_MAX {
        return Err(TextError::TooLong);
    }
    let mut pairs = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let length = rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(TextError::NotTerminated { at })?;
        if length > 0 {
            if pairs.len() == PAIRS_MAX {
                return Err(TextError::TooManyPairs);
            }
            pairs.push(parse_pair(&rest[..length], at)?);
        }
        at += length + 1;
    }
    Ok(pairs)
}

fn parse_pair(pair: &[u8], at: usize) -> Result<Pair<'_>, TextError> {
    let equals = pair
        .iter()
        .position(|&byte| byte == b'=')
        .ok_or(TextError::NoEqualsSign { at })?;
    let (key, value) = (&pair[..equals], &pair[equals + 1..]);
    if key.is_empty() || key.len() > KEY_LENGTH_MAX || !key.iter().copied().all(is_key_byte) {
        return Err(TextError::MalformedKey { at });
    }
    if value.len() > VALUE_LENGTH_MAX {
        return Err(TextError::ValueTooLong {
            at,
            length: value.len(),
        });
    }
    Ok(Pair {
        key: std::str::from_utf8(key).map_err(|_| TextError::MalformedKey { at })?,
        value: std::str::from_utf8(value).map_err(|_| TextError::NotUtf8 { at })?,
    })
}

/// Letters, digits, dot, minus, plus, commercial at, underscore; and the number sign, for the one key
/// `X#NodeArchitecture`.
const fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'@' | b'_' | b'#')
}

/// A number: decimal, or hexadecimal after `0x` (RFC 7143 §6.1, numerical-value). `None` for anything
/// else, and for what does not fit 64 bits.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` takes a sign, the standard does not.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Writes pairs, each with its zero byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextWriter {
    bytes: Vec<u8>,
}

impl TextWriter {
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Appends `key=value`.
    ///
    /// # Panics
    /// When the value contains a zero byte: values come from our tables, from validated names, or from
    /// what a peer's text, in which there is none, said.
    pub fn push(&mut self, key: &str, value: impl fmt::Display) {
        let start = self.bytes.len();
        let mut text = String::with_capacity(key.len() + 16);
        write!(text, "{key}={value}").expect("a String takes what is written to it");
        self.bytes.extend_from_slice(text.as_bytes());
        assert!(
            !self.bytes[start..].contains(&0),
            "a zero byte would end the pair {key} early"
        );
        self.bytes.push(0);
    }

    /// Appends all that was written to another.
    pub fn append(&mut self, other: Self) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What has been written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Joins the data segments of a logical text data segment.
#[derive(Clone, Debug, Default)]
pub struct TextAssembly {
    bytes: Vec<u8>,
}

impl TextAssembly {
    /// Takes in one data segment.
    ///
    /// # Errors
    /// [`TextError::TooLong`] when the whole grows past [`TEXT_LENGTH_MAX`].
    pub fn push(&mut self, data_segment: &[u8]) -> Result<(), TextError> {
        if self.bytes.len() + data_segment.len() > TEXT_LENGTH_MAX {
            return Err(TextError::TooLong);
        }
        self.bytes.extend_from_slice(data_segment);
        Ok(())
    }

    /// Whether nothing has come in since the last [`TextAssembly::take`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The whole text; the next one starts empty.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Cuts a text into data segments.
#[derive(Clone, Debug, Default)]
pub struct TextSegments {
    bytes: Vec<u8>,
    sent: usize,
}

impl TextSegments {
    /// All of `text` is still to be sent.
    #[must_use]
    pub const fn new(text: Vec<u8>) -> Self {
        Self {
            bytes: text,
            sent: 0,
        }
    }

    /// Whether everything has been handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Bytes not handed out yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The next data segment of at most `limit` bytes; [`TextSegments::is_empty`] tells afterwards
    /// whether the C bit goes with it. Empty when nothing is left.
    pub fn next_segment(&mut self, limit: usize) -> &[u8] {
        let start = self.sent;
        self.sent = self.bytes.len().min(start + limit);
        &self.bytes[start..self.sent]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_login_text_is_read_pair_by_pair() {
        let text = b"InitiatorName=iqn.1999-07.com.os:hostid.77\0TargetAlias=\0X-com.a=b=c\0";
        let pairs = parse(text).unwrap();
        assert_eq!(
            pairs,
            [
                Pair {
                    key: "InitiatorName",
                    value: "iqn.1999-07.com.os:hostid.77"
                },
                Pair {
                    key: "TargetAlias",
                    value: ""
                },
                Pair {
                    key: "X-com.a",
                    value: "b=c"
                },
            ]
        );
    }

    #[test]
    fn what_is_written_has_a_zero_byte_after_each_pair() {
        let mut writer = TextWriter::new();
        writer.push("MaxBurstLength", 262_144);
        writer.push("InitialR2T", YES);
        assert_eq!(
            writer.into_bytes(),
            b"MaxBurstLength=262144\0InitialR2T=Yes\0"
        );
    }

    #[test]
    fn each_malformation_is_named() {
        let long_key = format!("{}=1\0", "K".repeat(64));
        let long_value = format!("Key={}\0", "v".repeat(VALUE_LENGTH_MAX + 1));
        let many = "K=1\0".repeat(PAIRS_MAX + 1);
        let cases: [(&[u8], TextError); 10] = [
            (b"A=1\0B=2", TextError::NotTerminated { at: 4 }),
            (b"A=1\0B\0", TextError::NoEqualsSign { at: 4 }),
            (b"=1\0", TextError::MalformedKey { at: 0 }),
            (b"A B=1\0", TextError::MalformedKey { at: 0 }),
            (b"\xc3\xa4=1\0", TextError::MalformedKey { at: 0 }),
            (b"A=\xff\0", TextError::NotUtf8 { at: 0 }),
            (long_key.as_bytes(), TextError::MalformedKey { at: 0 }),
            (
                long_value.as_bytes(),
                TextError::ValueTooLong {
                    at: 0,
                    length: VALUE_LENGTH_MAX + 1,
                },
            ),
            (many.as_bytes(), TextError::TooManyPairs),
            (&[0; TEXT_LENGTH_MAX + 1], TextError::TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error));
        }
    }

    #[test]
    fn stray_zero_bytes_are_skipped() {
        assert_eq!(parse(b"\0A=1\0\0\0B=2\0\0").unwrap().len(), 2);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_have_no_sign() {
        for (text, number) in [
            ("0", 0),
            ("65536", 65_536),
            ("0x1F", 31),
            ("0Xff", 255),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_number(text), Some(number), "{text}");
        }
        for text in [
            "",
            "0x",
            "+1",
            "-1",
            "0x+1",
            "1 ",
            " 1",
            "1~2",
            "18446744073709551616",
            "abc",
            "Yes",
        ] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    #[test]
    fn an_assembly_stops_at_its_limit() {
        let mut assembly = TextAssembly::default();
        assembly.push(&[b'a'; TEXT_LENGTH_MAX]).unwrap();
        assert_eq!(assembly.push(b"b"), Err(TextError::TooLong));
    }

    prop_compose! {
        fn pair()(key in "[A-Z][a-zA-Z0-9.+@_-]{0,62}", value in "[^\0]{0,100}") -> (String, String) {
            (key, value)
        }
    }

    proptest! {
        #[test]
        fn pairs_written_are_the_pairs_read(pairs in prop::collection::vec(pair(), 0..20)) {
            let mut writer = TextWriter::new();
            for (key, value) in &pairs {
                writer.push(key, value);
            }
            let bytes = writer.into_bytes();
            let read = parse(&bytes).unwrap();
            let read: Vec<_> =
                read.iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_text_of_likely_bytes_panics(text in "[A-C=\0,~#0x]{0,60}") {
            let _ = parse(text.as_bytes());
            let _ = parse_number(&text);
        }

        #[test]
        fn segments_joined_are_the_text(
            text in prop::collection::vec(any::<u8>(), 0..200),
            limit in 1_usize..50,
        ) {
            let mut segments = TextSegments::new(text.clone());
            let mut assembly = TextAssembly::default();
            while !segments.is_empty() {
                let segment = segments.next_segment(limit);
                prop_assert!(!segment.is_empty() && segment.len() <= limit);
                assembly.push(segment).unwrap();
            }
            prop_assert_eq!(assembly.take(), text);
        }
    }
}
