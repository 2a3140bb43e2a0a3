//! iSCSI names: `iqn.`, `eui.` and `naa.` (RFC 7143 §4.2.7).
//!
//! A name is kept in its normalised form, so that two names are the same exactly when their bytes
//! are. Normalising follows the iSCSI stringprep profile (RFC 3722): upper case becomes lower case,
//! Unicode is brought to form KC, and white space, controls and most ASCII punctuation are refused.
//!
//! What an administrator configures is held to the whole grammar ([`IscsiName::parse`]); what a peer
//! sends is accepted more widely ([`IscsiName::from_peer`]), because machines with names that break
//! the letter of the rules are in daily use (QEMU builds its initiator name from the name of the
//! virtual machine, Windows from the name of the host, and both may contain an underscore).

use std::fmt;
use std::str::FromStr;

use longshore_wire::pattern::Glob;
use thiserror::Error;

/// A validated and normalised iSCSI name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(String);

/// Why a string is not an iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing but the type designator, or nothing at all.
    #[error("the name is empty")]
    Empty,
    /// Longer than [`IscsiName::LENGTH_MAX`] bytes in its normalised form.
    #[error("the name has {length} bytes, and 223 is the most")]
    TooLong {
        /// Bytes of the name that was given.
        length: usize,
    },
    /// Does not start with `iqn.`, `eui.` or `naa.`.
    #[error("the name does not start with iqn., eui. or naa.")]
    UnknownType,
    /// Contains a character that no iSCSI name may contain.
    #[error("the name contains a character that is not allowed in iSCSI names")]
    ForbiddenCharacter,
    /// An `iqn.` name without `yyyy-mm.` after the designator.
    #[error("an iqn. name needs a date and a domain: iqn.2026-11.com.example")]
    MalformedDate,
    /// An `iqn.` name without a reversed domain name after the date.
    #[error("an iqn. name needs a reversed domain name after its date")]
    MissingNamingAuthority,
    /// An `eui.` name without exactly 16 hexadecimal digits, or a `naa.` name without 16 or 32.
    #[error("an eui. name takes 16 hexadecimal digits, a naa. name 16 or 32")]
    MalformedIdentifier,
}

/// The naming authority a name is based on (RFC 7143 §4.2.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameType {
    /// `iqn.`: a domain name and a date at which its owner owned it.
    Qualified,
    /// `eui.`: an IEEE EUI-64 identifier.
    Eui64,
    /// `naa.`: a T11 Network Address Authority identifier.
    Naa,
}

impl NameType {
    /// The designator at the front of the name, with its dot.
    #[must_use]
    pub const fn designator(self) -> &'static str {
        match self {
            Self::Qualified => "iqn.",
            Self::Eui64 => "eui.",
            Self::Naa => "naa.",
        }
    }

    const ALL: [Self; 3] = [Self::Qualified, Self::Eui64, Self::Naa];

    fn of(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| name.starts_with(kind.designator()))
    }
}

impl IscsiName {
    /// The longest name in bytes, type designator included (§4.2.7.1).
    pub const LENGTH_MAX: usize = 223;

    /// A name as configured: normalised, and held to the whole grammar of its type.
    ///
    /// # Errors
    /// Says which rule the name breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = normalise(text, Strictness::Configured)?;
        let kind = NameType::of(&name).ok_or(NameError::UnknownType)?;
        let rest = &name[kind.designator().len()..];
        match kind {
            NameType::Qualified => check_qualified(rest)?,
            NameType::Eui64 => check_hexadecimal(rest, &[16])?,
            NameType::Naa => check_hexadecimal(rest, &[16, 32])?,
        }
        Ok(Self(name))
    }

    /// A name as a peer sent it: normalised; the type, the length and the absence of characters that
    /// would confuse a log or a text key are checked, the inner grammar is not.
    ///
    /// # Errors
    /// Says which rule the name breaks.
    pub fn from_peer(text: &str) -> Result<Self, NameError> {
        let name = normalise(text, Strictness::Received)?;
        let kind = NameType::of(&name).ok_or(NameError::UnknownType)?;
        if name.len() == kind.designator().len() {
            return Err(NameError::Empty);
        }
        Ok(Self(name))
    }

    /// A pattern of names as configured, in which `*` stands for any characters and `?` for one: normalised as the
    /// names of peers are.
    ///
    /// # Errors
    /// Says which rule every name of the pattern would break.
    pub fn pattern(text: &str) -> Result<Glob, NameError> {
        let pattern = Glob::new(prepare(text)?);
        let is_allowed = |c: char| matches!(c, '*' | '?') || is_allowed(c, Strictness::Received);
        if !pattern.as_str().chars().all(is_allowed) {
            return Err(NameError::ForbiddenCharacter);
        }
        let length = pattern.length_min();
        if length > Self::LENGTH_MAX {
            return Err(NameError::TooLong { length });
        }
        let designators = NameType::ALL.map(NameType::designator);
        if !designators.iter().any(|it| pattern.may_begin_with(it)) {
            return Err(NameError::UnknownType);
        }
        Ok(pattern)
    }

    /// The name after normalisation, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Which naming authority it is based on.
    #[must_use]
    pub fn name_type(&self) -> NameType {
        NameType::of(&self.0).expect("every constructor checks the designator")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Configured,
    Received,
}

fn normalise(text: &str, strictness: Strictness) -> Result<String, NameError> {
    let name = prepare(text)?;
    if !name
        .chars()
        .all(|character| is_allowed(character, strictness))
    {
        return Err(NameError::ForbiddenCharacter);
    }
    if name.len() > IscsiName::LENGTH_MAX {
        return Err(NameError::TooLong { length: name.len() });
    }
    Ok(name)
}

/// Lower case and form KC.
fn prepare(text: &str) -> Result<String, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    // Normalising never makes a name four times shorter, so this bounds the work on hostile input.
    if text.len() > 4 * IscsiName::LENGTH_MAX {
        return Err(NameError::TooLong { length: text.len() });
    }
    if text.is_ascii() {
        return Ok(text.to_ascii_lowercase());
    }
    let name = stringprep::nameprep(text).map_err(|_| NameError::ForbiddenCharacter)?;
    Ok(name.into_owned())
}

/// RFC 3722 §6: of ASCII only lower-case letters, digits, dash, dot and colon; of the rest what the
/// prohibition tables leave over (`nameprep` has applied those), without the ideographic full stop.
fn is_allowed(character: char, strictness: Strictness) -> bool {
    match character {
        'a'..='z' | '0'..='9' | '-' | '.' | ':' => true,
        '_' => strictness == Strictness::Received,
        '\u{3002}' => false,
        other => !other.is_ascii(),
    }
}

/// `yyyy-mm.` and a reversed domain name, up to the optional colon (§4.2.7.4).
fn check_qualified(rest: &str) -> Result<(), NameError> {
    let (date, authority) = rest.split_once('.').ok_or(NameError::MalformedDate)?;
    let well_formed = match date.split_once('-') {
        Some((year, month)) => {
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            year.len() == 4
                && digits(year)
                && month.len() == 2
                && digits(month)
                && ("01"..="12").contains(&month)
        }
        None => false,
    };
    if !well_formed {
        return Err(NameError::MalformedDate);
    }
    let domain = authority.split(':').next().unwrap_or_default();
    if domain.is_empty() || domain.split('.').any(str::is_empty) {
        return Err(NameError::MissingNamingAuthority);
    }
    Ok(())
}

fn check_hexadecimal(rest: &str, lengths: &[usize]) -> Result<(), NameError> {
    if lengths.contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(())
    } else {
        Err(NameError::MalformedIdentifier)
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl AsRef<str> for IscsiName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    /// The same as [`IscsiName::parse`].
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_names() {
        for (text, kind) in [
            (
                "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
                NameType::Qualified,
            ),
            ("iqn.2001-04.com.example", NameType::Qualified),
            (
                "iqn.2001-04.com.example:storage.tape1.sys1.xyz",
                NameType::Qualified,
            ),
            ("eui.02004567a425678d", NameType::Eui64),
            ("naa.62004567ba64678d0123456789abcdef", NameType::Naa),
            ("naa.52004567ba64678d", NameType::Naa),
        ] {
            let name = IscsiName::parse(text).unwrap();
            assert_eq!(name.as_str(), text);
            assert_eq!(name.name_type(), kind);
        }
    }

    #[test]
    fn upper_case_is_the_same_name() {
        let upper = IscsiName::parse("IQN.2001-04.com.Example:Disk").unwrap();
        assert_eq!(
            upper,
            IscsiName::parse("iqn.2001-04.com.example:disk").unwrap()
        );
        assert_eq!(
            IscsiName::parse("eui.02004567A425678D").unwrap().as_str(),
            "eui.02004567a425678d"
        );
    }

    #[test]
    fn unicode_is_normalised_before_comparing() {
        let composed = IscsiName::parse("iqn.2001-04.com.example:b\u{fc}cher").unwrap();
        let decomposed = IscsiName::parse("iqn.2001-04.com.example:Bu\u{308}cher").unwrap();
        assert_eq!(composed, decomposed);
    }

    #[test]
    fn a_name_of_223_bytes_is_accepted_and_one_more_is_not() {
        let longest = format!("iqn.2001-04.com.example:{}", "x".repeat(223 - 24));
        assert_eq!(longest.len(), 223);
        assert!(IscsiName::parse(&longest).is_ok());
        let longer = format!("{longest}x");
        assert_eq!(
            IscsiName::parse(&longer),
            Err(NameError::TooLong { length: 224 })
        );
        assert_eq!(
            IscsiName::from_peer(&longer),
            Err(NameError::TooLong { length: 224 })
        );
    }

    #[test]
    fn each_broken_rule_is_named() {
        for (text, error) in [
            ("", NameError::Empty),
            ("disk0", NameError::UnknownType),
            ("iqn2001-04.com.example", NameError::UnknownType),
            ("iqn.", NameError::MalformedDate),
            ("iqn.2001-13.com.example", NameError::MalformedDate),
            ("iqn.2001-00.com.example", NameError::MalformedDate),
            ("iqn.201-04.com.example", NameError::MalformedDate),
            ("iqn.2001-04.", NameError::MissingNamingAuthority),
            (
                "iqn.2001-04.com..example",
                NameError::MissingNamingAuthority,
            ),
            ("iqn.2001-04.com.example:a b", NameError::ForbiddenCharacter),
            ("iqn.2001-04.com.example:a_b", NameError::ForbiddenCharacter),
            ("iqn.2001-04.com.example:a/b", NameError::ForbiddenCharacter),
            (
                "iqn.2001-04.com.example:a\u{3000}b",
                NameError::ForbiddenCharacter,
            ),
            ("eui.02004567a425678", NameError::MalformedIdentifier),
            ("eui.02004567a425678g", NameError::MalformedIdentifier),
            ("naa.02004567a425678d0", NameError::MalformedIdentifier),
        ] {
            assert_eq!(IscsiName::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_peer_may_have_a_name_an_administrator_may_not_give() {
        for text in [
            "iqn.2008-11.org.linux-kvm:my_machine",
            "iqn.anything",
            "eui.1",
        ] {
            assert!(IscsiName::parse(text).is_err());
            assert!(IscsiName::from_peer(text).is_ok(), "{text}");
        }
        for text in ["", "iqn.", "host", "iqn.2001-04.com.example:a b", "iqn.x\n"] {
            assert!(IscsiName::from_peer(text).is_err(), "{text:?}");
        }
    }
}
