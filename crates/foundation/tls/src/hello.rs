//! The extension `pre_shared_key` of a ClientHello (RFC 8446 §4.2.11): unauthenticated input.
//!
//! ```text
//! u16 length, { u16 length, identity, u32 age }…, u16 length, { u8 length, binder }…      numbers are big endian
//! ```

use crate::psk::IDENTITY_BYTES_MAX;

/// More keys than that a client does not offer: NVMe has two versions and two derivations of a handful of keys.
pub const IDENTITIES_MAX: usize = 16;

/// A key that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    pub identity: &'a [u8],
    /// Bytes of its binder, which is as long as its hash.
    pub binder_length: usize,
}

/// What the extension offers, in the client's order. `None`: it breaks the rules.
#[must_use]
pub fn offers(extension: &[u8]) -> Option<Vec<Offer<'_>>> {
    let mut rest = extension;
    let mut identities = long_vector(&mut rest)?;
    let mut binders = long_vector(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let mut offers = Vec::new();
    while !identities.is_empty() {
        let identity = long_vector(&mut identities)?;
        let _age = take(&mut identities, 4)?;
        let binder_length = usize::from(take(&mut binders, 1)?[0]);
        take(&mut binders, binder_length)?;
        if identity.is_empty()
            || identity.len() > IDENTITY_BYTES_MAX
            || offers.len() == IDENTITIES_MAX
        {
            return None;
        }
        offers.push(Offer {
            identity,
            binder_length,
        });
    }
    (binders.is_empty() && !offers.is_empty()).then_some(offers)
}

/// Whether a list of cipher suites, of two bytes each, has this one.
#[must_use]
pub fn has_suite(suites: &[u8], id: [u8; 2]) -> bool {
    suites.chunks_exact(2).any(|suite| suite == id)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn long_vector<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(bytes, 2)?;
    take(
        bytes,
        usize::from(u16::from_be_bytes([length[0], length[1]])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(identities: &[&[u8]], binders: &[usize]) -> Vec<u8> {
        let length = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
        let mut first = Vec::new();
        for identity in identities {
            first.extend(length(identity.len()));
            first.extend(*identity);
            first.extend([0, 0, 0, 1]);
        }
        let mut second = Vec::new();
        for binder in binders {
            second.push(u8::try_from(*binder).unwrap());
            second.extend(vec![7; *binder]);
        }
        let mut all = length(first.len()).to_vec();
        all.extend(first);
        all.extend(length(second.len()));
        all.extend(second);
        all
    }

    #[test]
    fn offers_are_read_in_order() {
        let bytes = extension(&[b"one", b"other"], &[32, 48]);
        let offers = offers(&bytes).unwrap();
        let expected = [(&b"one"[..], 32), (b"other", 48)].map(|(identity, binder_length)| Offer {
            identity,
            binder_length,
        });
        assert_eq!(offers, expected);
    }

    #[test]
    fn what_is_cut_or_does_not_fit_is_refused() {
        let whole = extension(&[b"one", b"other"], &[32, 48]);
        for length in 0..whole.len() {
            assert_eq!(offers(&whole[..length]), None, "{length}");
        }
        let mut longer = whole;
        longer.push(0);
        assert_eq!(offers(&longer), None);
        for (identities, binders) in [
            (&[&b"one"[..]][..], &[][..]),
            (&[b"one"], &[32, 32]),
            (&[], &[]),
            (&[b""], &[32]),
        ] {
            assert_eq!(offers(&extension(identities, binders)), None);
        }
        let many = vec![&b"i"[..]; IDENTITIES_MAX + 1];
        assert_eq!(offers(&extension(&many, &[32; IDENTITIES_MAX + 1])), None);
        let long = vec![b'n'; IDENTITY_BYTES_MAX + 1];
        assert_eq!(offers(&extension(&[&long], &[32])), None);
    }

    #[test]
    fn suites_are_found_in_whole_pairs() {
        assert!(has_suite(&[0x13, 0x02, 0x13, 0x01], [0x13, 0x01]));
        assert!(!has_suite(&[0x00, 0x13, 0x01, 0x00], [0x13, 0x01]));
        assert!(!has_suite(&[0x13], [0x13, 0x01]));
    }
}
