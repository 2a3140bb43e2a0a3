//! What an initiator says of itself while it logs in.

use crate::keys::Key;
use crate::text::Pair;

/// Bytes kept of each value; no name that means anything is longer (§4.2.7.1, §12.1.3).
const LENGTH_MAX: usize = 255;

/// Who the initiator says it is and what it asks for, as it wrote it: nothing of it has been checked,
/// so it is for messages only, above all for those about logins that were refused. No secret is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// InitiatorName, as sent and not yet checked.
    pub initiator: Option<String>,
    /// TargetName, as sent and not yet checked.
    pub target: Option<String>,
    /// CHAP_N, as sent and not yet proven.
    pub user: Option<String>,
}

impl Claims {
    /// Takes in a text of the login. What came first stays.
    pub(super) fn note(&mut self, pairs: &[Pair<'_>]) {
        for (key, claim) in [
            (Key::InitiatorName, &mut self.initiator),
            (Key::TargetName, &mut self.target),
            (Key::ChapN, &mut self.user),
        ] {
            let pair = pairs.iter().find(|pair| pair.key == key.name());
            if let (None, Some(pair)) = (&claim, pair) {
                let mut end = pair.value.len().min(LENGTH_MAX);
                while !pair.value.is_char_boundary(end) {
                    end -= 1;
                }
                *claim = Some(pair.value[..end].to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_stays_and_is_cut_between_characters() {
        let long = format!("iqn.{}", "\u{e9}".repeat(200));
        let pair = |key, value| Pair { key, value };
        let mut claims = Claims::default();
        claims.note(&[pair("InitiatorName", &long), pair("CHAP_R", "0x5a")]);
        claims.note(&[pair("InitiatorName", "other"), pair("CHAP_N", "alice")]);
        let initiator = claims.initiator.unwrap();
        assert!(long.starts_with(&initiator));
        assert_eq!(initiator.len(), 254);
        assert_eq!(
            (claims.target, claims.user.as_deref()),
            (None, Some("alice"))
        );
    }
}
