//! NVMe Qualified Names (NVMe base 2.0 §4.5).

use std::fmt;

use longshore_wire::pattern::Glob;

/// A name of a host or subsystem: UTF-8, at most 223 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(String);

/// Bytes of the field that carries a name, padded with zeros.
pub const NQN_FIELD_LENGTH: usize = 256;

/// Longest NQN in bytes, without the NUL (NVMe base §4.5).
pub const NQN_LENGTH_MAX: usize = 223;

/// The name under which every discovery controller can be reached (§3.1.2.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Why something is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NqnError {
    #[error("an NQN has at most {NQN_LENGTH_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// It does not start as all names do.
    #[error(
        "an NQN starts with \"nqn.\", a year and month and a reversed domain, for example nqn.2026-11.com.example:disks"
    )]
    Prefix,
    /// Control characters, spaces or slashes.
    #[error("{0:?} does not belong in an NQN")]
    Character(char),
    /// Not UTF-8, or no zero behind it.
    #[error("not UTF-8 with a zero byte at the end")]
    Encoding,
}

impl Nqn {
    /// A name.
    ///
    /// # Errors
    /// The text is none.
    pub fn new(text: &str) -> Result<Self, NqnError> {
        if text.len() > NQN_LENGTH_MAX {
            return Err(NqnError::TooLong(text.len()));
        }
        let is_bad = |c: &char| c.is_control() || c.is_whitespace();
        if let Some(bad) = text.chars().find(is_bad) {
            return Err(NqnError::Character(bad));
        }
        let rest = text.strip_prefix("nqn.").ok_or(NqnError::Prefix)?;
        let date = rest.as_bytes();
        let digit = |at: usize| date.get(at).is_some_and(u8::is_ascii_digit);
        let month = rest.get(5..7).and_then(|month| month.parse::<u8>().ok());
        let dated = month.is_some_and(|month| (1..=12).contains(&month))
            && [0, 1, 2, 3, 5, 6].into_iter().all(digit)
            && date.get(4) == Some(&b'-')
            && date.get(7) == Some(&b'.')
            && date
                .get(8)
                .is_some_and(|first| first.is_ascii_alphanumeric());
        if !dated {
            return Err(NqnError::Prefix);
        }
        Ok(Self(text.to_owned()))
    }

    /// A pattern of names, in which `*` stands for any characters and `?` for one.
    ///
    /// # Errors
    /// No name matches it.
    pub fn pattern(text: &str) -> Result<Glob, NqnError> {
        let pattern = Glob::new(text.to_owned());
        if pattern.length_min() > NQN_LENGTH_MAX {
            return Err(NqnError::TooLong(pattern.length_min()));
        }
        let is_bad = |c: &char| c.is_control() || c.is_whitespace();
        if let Some(bad) = text.chars().find(is_bad) {
            return Err(NqnError::Character(bad));
        }
        if !pattern.may_begin_with("nqn.") {
            return Err(NqnError::Prefix);
        }
        Ok(pattern)
    }

    /// From a field of a Connect command's data or a log page: any text will do, none included. What it has to be
    /// beyond that depends on whose name it is.
    ///
    /// # Errors
    /// There is no text in it.
    pub fn from_field(field: &[u8; NQN_FIELD_LENGTH]) -> Result<Self, NqnError> {
        let end = field.iter().position(|byte| *byte == 0);
        let end = end.ok_or(NqnError::Encoding)?;
        let text = std::str::from_utf8(&field[..end]).map_err(|_| NqnError::Encoding)?;
        if text.len() > NQN_LENGTH_MAX {
            return Err(NqnError::TooLong(text.len()));
        }
        if let Some(bad) = text.chars().find(|c| c.is_control()) {
            return Err(NqnError::Character(bad));
        }
        Ok(Self(text.to_owned()))
    }

    /// As a field, padded with zeros.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_LENGTH] {
        let mut field = [0; NQN_FIELD_LENGTH];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is that of discovery.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.0 == DISCOVERY_NQN
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nqn({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_standard_s_forms_are_taken() {
        for name in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2026-11.local.longshore:default",
        ] {
            let nqn = Nqn::new(name).unwrap();
            assert_eq!(Nqn::from_field(&nqn.to_field()).unwrap(), nqn);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(Nqn::new("iqn.2026-11.a:b"), Err(NqnError::Prefix));
        assert_eq!(Nqn::new("nqn.2026-1.a:b"), Err(NqnError::Prefix));
        assert_eq!(Nqn::new("nqn.2026-13.a:b"), Err(NqnError::Prefix));
        assert_eq!(Nqn::new("nqn.2026-11."), Err(NqnError::Prefix));
        for text in [
            "",
            "x",
            "nqn.",
            "nqn.2026-11",
            "nqn.2026-11.:b",
            "nqn.2026-11..b",
        ] {
            assert_eq!(Nqn::new(text), Err(NqnError::Prefix), "{text:?}");
        }
        assert_eq!(Nqn::new("nqn.2026-11.a b"), Err(NqnError::Character(' ')));
        let long = format!("nqn.2026-11.a:{}", "x".repeat(300));
        assert!(matches!(Nqn::new(&long), Err(NqnError::TooLong(_))));
        assert_eq!(Nqn::from_field(&[b'x'; 256]), Err(NqnError::Encoding));
    }
}
