//! Bytes written as `%` and two hexadecimal digits.

use std::fmt::{self, Write as _};

use zeroize::{Zeroize as _, Zeroizing};

/// The text that an escaped one stands for; `None` when that is no UTF-8. A `%` without two hexadecimal
/// digits behind it stands for itself. The text may be a secret, so it is wiped when dropped.
pub(super) fn decode(text: &str) -> Option<Zeroizing<String>> {
    // As much as there can be: growing would leave parts of a secret behind.
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| hexadecimal(behind)).flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            &behind[2..]
        } else {
            behind
        };
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(Zeroizing::new(text)),
        Err(error) => {
            error.into_bytes().zeroize();
            None
        }
    }
}

fn hexadecimal(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// Writes a name so that [`decode`] gives it back, whatever is in it.
pub(super) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if matches!(c, '%' | '/' | '?' | '#' | '&' | '@') || c.is_whitespace() || c.is_control()
            {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}
