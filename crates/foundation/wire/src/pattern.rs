//! Names that rules of access mean: one by one, or many by a pattern.
//!
//! In a pattern, `*` stands for any characters and `?` for one. How names are compared (letter case, forms of
//! Unicode) is the affair of the protocol, which normalises both names and patterns.

use std::fmt;

/// A pattern of names.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob(String);

const ANY: char = '*';
const ONE: char = '?';

impl Glob {
    /// A pattern, normalised as the names are.
    #[must_use]
    pub fn new(pattern: String) -> Self {
        Self(pattern)
    }

    /// Whether a text is a pattern rather than a name.
    #[must_use]
    pub fn is_pattern(text: &str) -> bool {
        text.contains([ANY, ONE])
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.accepts(name, |own, other| own == other || own == ONE)
    }

    /// Whether every name of `other` is one of this, as far as that shows in the patterns.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // What stands for many characters there needs the same here.
        self.accepts(&other.0, |own, other| {
            own == other || own == ONE && other != ANY
        })
    }

    /// Whether there are names of this pattern that begin so.
    #[must_use]
    pub fn may_begin_with(&self, beginning: &str) -> bool {
        let mut own = self.0.chars();
        for expected in beginning.chars() {
            match own.next() {
                Some(ANY) => return true,
                Some(found) if found == expected || found == ONE => {}
                Some(_) | None => return false,
            }
        }
        true
    }

    /// Whether nothing in it is fixed, so that it means everybody.
    #[must_use]
    pub fn is_all_wild(&self) -> bool {
        self.0.chars().all(|c| matches!(c, ANY | ONE))
    }

    /// The shortest name that it can mean, in bytes.
    #[must_use]
    pub fn length_min(&self) -> usize {
        self.0.len() - self.0.matches(ANY).count()
    }

    /// Goes through a text once, and back to the last `*` when something does not fit.
    fn accepts(&self, text: &str, fits: impl Fn(char, char) -> bool) -> bool {
        let (mut own, mut rest) = (self.0.chars(), text.chars());
        // Behind the last `*`, and the text that it has not taken.
        let mut back = None;
        loop {
            let untaken = rest.clone();
            match (own.next(), rest.next()) {
                (None, None) => return true,
                (Some(ANY), _) => {
                    back = Some((own.clone(), untaken.clone()));
                    rest = untaken;
                }
                (Some(one), Some(other)) if fits(one, other) => {}
                _ => {
                    let Some((behind, untaken)) = &mut back else {
                        return false;
                    };
                    if untaken.next().is_none() {
                        return false;
                    }
                    (own, rest) = (behind.clone(), untaken.clone());
                }
            }
        }
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A name of a rule, or a pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern<N> {
    Name(N),
    Pattern(Glob),
}

impl<N: AsRef<str> + PartialEq> NamePattern<N> {
    #[must_use]
    pub fn matches(&self, name: &N) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Pattern(pattern) => pattern.matches(name.as_ref()),
        }
    }

    /// Whether every name of `other` is one of this, as far as that shows.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Name(name)) => self.matches(name),
            (Self::Pattern(own), Self::Pattern(other)) => own.covers(other),
            (Self::Name(_), Self::Pattern(_)) => false,
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(name) => name.as_ref(),
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }
}

impl<N> From<N> for NamePattern<N> {
    fn from(name: N) -> Self {
        Self::Name(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(pattern: &str) -> Glob {
        Glob::new(pattern.to_owned())
    }

    #[test]
    fn stars_take_any_characters_and_question_marks_one() {
        for (pattern, name, expected) in [
            ("iqn.*", "iqn.2026-11.com.example:a", true),
            ("iqn.*:web?", "iqn.2026-11.com.example:web1", true),
            ("iqn.*:web?", "iqn.2026-11.com.example:web12", false),
            ("iqn.*:web?", "iqn.2026-11.com.example:web", false),
            ("*a*b", "xaybab", true),
            ("*a*b", "xaybac", false),
            ("a**", "a", true),
            ("a?", "aé", true),
            ("a", "b", false),
            ("", "", true),
        ] {
            assert_eq!(glob(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_cover_narrower_ones() {
        for (wide, narrow, expected) in [
            ("a*", "a?", true),
            ("a*", "ab*", true),
            ("a?", "a*", false),
            ("a?*", "a*", false),
            ("a*c", "a*bc", true),
            ("a*", "b*", false),
            ("a*", "a*", true),
        ] {
            assert_eq!(
                glob(wide).covers(&glob(narrow)),
                expected,
                "{wide} {narrow}"
            );
        }
    }

    #[test]
    fn a_pattern_tells_how_its_names_can_begin() {
        for (pattern, expected) in [
            ("iqn.a*", true),
            ("i*", true),
            ("???.x", true),
            ("*:web", true),
        ] {
            assert_eq!(glob(pattern).may_begin_with("iqn."), expected, "{pattern}");
        }
        for pattern in ["nqn.*", "iq", "web*"] {
            assert!(!glob(pattern).may_begin_with("iqn."), "{pattern}");
        }
        assert!(glob("*?*").is_all_wild() && !glob("*.").is_all_wild());
    }

    /// The meaning of a pattern, as plainly as it can be said.
    fn means(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([ANY, rest @ ..], _) => {
                means(rest, name) || !name.is_empty() && means(pattern, &name[1..])
            }
            ([one, rest @ ..], [first, others @ ..]) if *one == ONE || one == first => {
                means(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_what_they_mean(pattern in "[ab*?]{0,6}", name in "[ab]{0,7}") {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                glob(&pattern).matches(&name),
                means(&characters(&pattern), &characters(&name))
            );
        }

        #[test]
        fn what_a_covered_pattern_matches_the_wider_one_matches(
            wide in "[ab*?]{0,5}", narrow in "[ab*?]{0,5}", name in "[ab]{0,6}"
        ) {
            if glob(&wide).covers(&glob(&narrow)) && glob(&narrow).matches(&name) {
                prop_assert!(glob(&wide).matches(&name));
            }
        }
    }
}
