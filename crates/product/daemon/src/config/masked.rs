//! Text for messages, with the passwords of URLs hidden.
//!
//! `iscsi://USER%PASSWORD@HOST/…?target_password=SECRET` is shown as
//! `iscsi://USER%***@HOST/…?target_password=***`. What cannot be read as a URL is hidden rather too widely than too
//! narrowly: from the first `%` behind the `://` up to the last `@`.

use std::ops::Range;

/// What stands for a password.
const MASK: &str = "***";

/// A text and where its passwords were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked {
    /// The text without them.
    pub text: String,
    /// Their places in the original text, in order and apart.
    hidden: Vec<Range<usize>>,
}

impl Masked {
    /// Hides the passwords of `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let hidden = passwords(text);
        let mut masked = String::with_capacity(text.len());
        let mut at = 0;
        for range in &hidden {
            masked.push_str(&text[at..range.start]);
            masked.push_str(MASK);
            at = range.end;
        }
        masked.push_str(&text[at..]);
        Self {
            text: masked,
            hidden,
        }
    }

    /// Whether there was anything to hide.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Where a byte of the original text is now. One of a password is where its mask begins.
    #[must_use]
    pub fn position(&self, original: usize) -> usize {
        let mut position = original;
        for range in &self.hidden {
            if original >= range.end {
                position = position + MASK.len() - range.len();
            } else if original > range.start {
                position -= original - range.start;
            }
        }
        position
    }
}

/// Where passwords stand, in order and apart.
fn passwords(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    while let Some(scheme) = text[from..].find("://") {
        let start = from + scheme + "://".len();
        let end = end_of_url(text, start);
        let (authority_end, query) = match text[start..end].find('?') {
            Some(at) => (start + at, Some(start + at)),
            None => (end, None),
        };
        // A password with a question mark in it has its `@` behind it.
        let url = &text[start..end];
        let at_sign = url.rfind('@').map(|at| start + at);
        if let Some(at_sign) = at_sign
            && let Some(percent) = text[start..at_sign].find('%')
        {
            found.push(start + percent + 1..at_sign);
        }
        let query = query.unwrap_or(authority_end).max(at_sign.unwrap_or(0));
        found.extend(target_passwords(text, query, end));
        from = end;
    }
    found
}

/// A URL ends with the part of the argument, at a comma that is not doubled, or with the line or quote of a
/// file.
fn end_of_url(text: &str, start: usize) -> usize {
    let mut rest = text[start..].char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            ',' if matches!(rest.peek(), Some((_, ','))) => {
                rest.next();
            }
            ',' | '"' | '\'' | '\n' | '\r' => return start + at,
            _ => {}
        }
    }
    text.len()
}

/// Values of `target_password` in a query.
fn target_passwords(text: &str, start: usize, end: usize) -> Vec<Range<usize>> {
    const NAME: &str = "target_password=";
    let mut found = Vec::new();
    let mut from = start;
    while let Some(at) = text[from..end].find(NAME) {
        let value = from + at + NAME.len();
        let value_end = text[value..end].find('&').map_or(end, |at| value + at);
        found.push(value..value_end);
        from = value_end;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(text: &str) -> String {
        Masked::new(text).text
    }

    #[test]
    fn passwords_of_urls_are_hidden_and_nothing_else() {
        for (text, expected) in [
            (
                "r,url=iscsi://h/iqn.x/0,queues=2",
                "r,url=iscsi://h/iqn.x/0,queues=2",
            ),
            ("r,url=iscsi://u@h/iqn.x/0", "r,url=iscsi://u@h/iqn.x/0"),
            (
                "r,url=iscsi://u%pw@h/iqn.x/0,depth=4",
                "r,url=iscsi://u%***@h/iqn.x/0,depth=4",
            ),
            ("iscsi://u%p@w%,,/?x@h/i/0", "iscsi://u%***@h/i/0"),
            (
                "iscsi://u%p@h/i/0?target_user=t&target_password=s&portal=p",
                "iscsi://u%***@h/i/0?target_user=t&target_password=***&portal=p",
            ),
            (
                "url = \"iscsi://u%p@h/i/0\" # mail a%b@c",
                "url = \"iscsi://u%***@h/i/0\" # mail a%b@c",
            ),
            ("iscsi://[fe80::1%eth0]/i/0", "iscsi://[fe80::1%eth0]/i/0"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn positions_follow_what_was_hidden() {
        let text = "url=iscsi://u%secret@h/i/x";
        let masked = Masked::new(text);
        assert!(masked.has_secrets());
        let at = |needle: &str| masked.position(text.find(needle).unwrap());
        assert_eq!(&masked.text[at("iscsi")..at("u%")], "iscsi://");
        assert_eq!(&masked.text[at("/x")..], "/x");
        assert_eq!(at("cret"), at("secret"), "inside of the password");
        assert_eq!(masked.position(text.len()), masked.text.len());
    }

    proptest! {
        #[test]
        fn positions_are_boundaries_in_order(text in "(iscsi://|[a-z%@,?&é]|target_password=){0,12}") {
            let masked = Masked::new(&text);
            let mut last = 0;
            for (at, _) in text.char_indices() {
                let position = masked.position(at);
                prop_assert!(position >= last && masked.text.is_char_boundary(position));
                last = position;
            }
        }
    }
}
