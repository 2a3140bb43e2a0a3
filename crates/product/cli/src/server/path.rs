//! Paths of the API.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a part of a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// `/api/v1/volumes/NAME` of `volumes` and a name.
pub fn path(parts: &[&str]) -> String {
    let mut path = "/api/v1".to_owned();
    for part in parts {
        path.push('/');
        path.extend(utf8_percent_encode(part, PLAIN));
    }
    path
}

/// The query of names and values, without its question mark.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let encode = |text| utf8_percent_encode(text, PLAIN);
    let pairs = pairs.iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_leave_their_part_of_a_path() {
        assert_eq!(
            path(&["targets", "iqn.2026-11.x:a/b?c", "luns", "0"]),
            "/api/v1/targets/iqn.2026-11.x:a%2Fb%3Fc/luns/0"
        );
    }
}
