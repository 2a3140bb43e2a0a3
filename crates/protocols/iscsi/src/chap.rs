//! CHAP: proving knowledge of a secret without sending it (RFC 1994, RFC 7143 §12.1.3 and §9.2.1).
//!
//! ```text
//! initiator                                target
//!   CHAP_A=8,7,6,5                  ──►
//!                                   ◄──    CHAP_A=7  CHAP_I=<identifier>  CHAP_C=<challenge>
//!   CHAP_N=<name> CHAP_R=<response> ──►    response = H(identifier ‖ secret ‖ challenge)
//!   [CHAP_I=<i2>  CHAP_C=<c2>]             [the initiator wants the target to prove itself]
//!                                   ◄──    [CHAP_N=<name2>  CHAP_R=H(i2 ‖ secret2 ‖ c2)]
//! ```
//!
//! The two proofs must use different secrets and different challenges; the login machines refuse
//! peers that reflect ours.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The longest challenge or response in bytes (RFC 7143 §12.1.3).
pub const BINARY_LENGTH_MAX: usize = 1024;

/// What two parties know and nobody else. Printed as `***`, wiped when dropped, compared without
/// leaking through time where it differs.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Secrets shorter than this, 96 bits, can be found by trying (RFC 7143 §9.2.1): configuration
    /// should refuse them or warn.
    pub const LENGTH_RECOMMENDED_MIN: usize = 12;

    /// A secret of these bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Whether it is shorter than the standard recommends.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.0.len() < Self::LENGTH_RECOMMENDED_MIN
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A CHAP name with its secret.
#[derive(Clone, Debug)]
pub struct ChapAccount {
    /// CHAP_N: 1 to 255 bytes of text.
    pub name: String,
    /// What its owner knows.
    pub secret: Secret,
}

/// The hash of a CHAP exchange, with the number CHAP_A gives it (IANA, PPP authentication algorithms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChapAlgorithm {
    /// 5. Every initiator offers it.
    Md5,
    /// 6: SHA-1, responses of 20 bytes.
    Sha1,
    /// 7: SHA-256, responses of 32 bytes.
    Sha256,
    /// 8: SHA3-256, responses of 32 bytes.
    Sha3_256,
}

impl ChapAlgorithm {
    /// All of them, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// Its number in CHAP_A.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The algorithm of a number in CHAP_A, if it is one of ours.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| u64::from(algorithm.number()) == number)
    }

    /// Bytes of a response, and of the challenges we make.
    #[must_use]
    pub const fn digest_length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3_256 => 32,
        }
    }

    /// The response of whoever knows `secret`: H(identifier ‖ secret ‖ challenge) (RFC 1994 §4.1).
    #[must_use]
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn hash<D: md5::Digest>(identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
            D::new()
                .chain_update([identifier])
                .chain_update(&secret.0)
                .chain_update(challenge)
                .finalize()
                .to_vec()
        }
        match self {
            Self::Md5 => hash::<md5::Md5>(identifier, secret, challenge),
            Self::Sha1 => hash::<sha1::Sha1>(identifier, secret, challenge),
            Self::Sha256 => hash::<sha2::Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(identifier, secret, challenge),
        }
    }
}

/// A question to the peer: what CHAP_A, CHAP_I and CHAP_C say.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    pub algorithm: ChapAlgorithm,
    /// CHAP_I: one byte that enters the response.
    pub identifier: u8,
    /// CHAP_C: the random challenge, 1 to 1024 bytes.
    pub bytes: Vec<u8>,
}

impl Challenge {
    /// What one who knows `secret` answers.
    #[must_use]
    pub fn response(&self, secret: &Secret) -> Vec<u8> {
        self.algorithm
            .response(self.identifier, secret, &self.bytes)
    }

    /// Whether `response` proves knowledge of `secret`. Takes the same time for every wrong response
    /// of the right length.
    #[must_use]
    pub fn is_answered_by(&self, response: &[u8], secret: &Secret) -> bool {
        let mut expected = self.response(secret);
        let right: Choice = expected.ct_eq(response);
        expected.zeroize();
        right.into()
    }
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge")
            .field("algorithm", &self.algorithm)
            .field("identifier", &self.identifier)
            .field("length", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Why text is not a binary value (RFC 7143 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BinaryValueError {
    /// Starts neither with `0x` nor with `0b`.
    #[error("a binary value starts with 0x or 0b")]
    UnknownEncoding,
    /// Contains something other than digits of its encoding, or nothing.
    #[error("a binary value needs at least one digit, and only digits of its encoding")]
    Malformed,
    /// More than [`BINARY_LENGTH_MAX`] bytes.
    #[error("the binary value is longer than 1024 bytes")]
    TooLong,
}

/// Padding may be there or not: peers differ. Bits beyond the last byte must be zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes of a hex-constant or base64-constant (RFC 7143 §6.1). An odd number of hexadecimal
/// digits has its first byte from one digit.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_binary_value(text: &str) -> Result<Vec<u8>, BinaryValueError> {
    if !text.is_char_boundary(2) || text.len() < 2 {
        return Err(BinaryValueError::UnknownEncoding);
    }
    let (prefix, digits) = text.split_at(2);
    let bytes = match prefix {
        "0x" | "0X" => parse_hexadecimal(digits)?,
        "0b" | "0B" => {
            // Four digits hold three bytes.
            if digits.len() > BINARY_LENGTH_MAX.div_ceil(3) * 4 {
                return Err(BinaryValueError::TooLong);
            }
            BASE64
                .decode(digits)
                .map_err(|_| BinaryValueError::Malformed)?
        }
        _ => return Err(BinaryValueError::UnknownEncoding),
    };
    match bytes.len() {
        0 => Err(BinaryValueError::Malformed),
        length if length > BINARY_LENGTH_MAX => Err(BinaryValueError::TooLong),
        _ => Ok(bytes),
    }
}

fn parse_hexadecimal(digits: &str) -> Result<Vec<u8>, BinaryValueError> {
    if digits.len() > 2 * BINARY_LENGTH_MAX {
        return Err(BinaryValueError::TooLong);
    }
    let nibble = |digit: &u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BinaryValueError::Malformed),
    };
    let (first, pairs) = digits.as_bytes().split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    for digit in first {
        bytes.push(nibble(digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        bytes.push(nibble(&pair[0])? << 4 | nibble(&pair[1])?);
    }
    Ok(bytes)
}

/// The hex-constant of `bytes`. We always write this form: every peer reads it.
#[must_use]
pub fn format_binary_value(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes what is written to it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The digests below were computed by Python's hashlib.
    fn example(algorithm: ChapAlgorithm) -> Challenge {
        Challenge {
            algorithm,
            identifier: 0x2a,
            bytes: (0..16).collect(),
        }
    }

    #[test]
    fn responses_are_the_digest_of_identifier_secret_and_challenge() {
        let secret = Secret::from("a secret of 22 bytes..");
        for (algorithm, expected) in [
            (ChapAlgorithm::Md5, "0x244cc9b1d54b454e5307ff374d71248d"),
            (
                ChapAlgorithm::Sha1,
                "0x944fe2f44f40c76fe3b1d96f4df67d07bb2664b8",
            ),
            (
                ChapAlgorithm::Sha256,
                "0xafb1e09d05c1d17226791ae020eb4009cb893e69c7ba13bc3fb8f4b44b371b3a",
            ),
            (
                ChapAlgorithm::Sha3_256,
                "0xc1f09d662679fe4b606d7ca220c3c6d9ea44ac62595559653633f4a2d9ec9927",
            ),
        ] {
            let challenge = example(algorithm);
            let response = challenge.response(&secret);
            assert_eq!(format_binary_value(&response), expected);
            assert_eq!(response.len(), algorithm.digest_length());
            assert!(challenge.is_answered_by(&response, &secret));
            assert!(!challenge.is_answered_by(&response, &Secret::from("another")));
            assert!(!challenge.is_answered_by(&response[1..], &secret));
        }
    }

    #[test]
    fn algorithms_have_the_numbers_of_the_registry() {
        let numbers = ChapAlgorithm::ALL.map(ChapAlgorithm::number);
        assert_eq!(numbers, [8, 7, 6, 5]);
        for algorithm in ChapAlgorithm::ALL {
            let number = u64::from(algorithm.number());
            assert_eq!(ChapAlgorithm::from_number(number), Some(algorithm));
        }
        assert_eq!(ChapAlgorithm::from_number(4), None);
        assert_eq!(ChapAlgorithm::from_number(261), None);
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        for (text, bytes) in [
            ("0x00ff", &[0x00, 0xff][..]),
            ("0X0aF", &[0x00, 0xaf]),
            ("0x1", &[0x01]),
            ("0b//8=", &[0xff, 0xff]),
            ("0B//8", &[0xff, 0xff]),
            (
                "0bAAECAwQFBgcICQoLDA0ODw==",
                &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
        ] {
            assert_eq!(parse_binary_value(text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn malformed_binary_values_are_named() {
        use BinaryValueError::{Malformed, TooLong, UnknownEncoding};
        let long = |prefix: &str, digits: usize| format!("{prefix}{}", "A".repeat(digits));
        for (text, error) in [
            ("".to_owned(), UnknownEncoding),
            ("0".to_owned(), UnknownEncoding),
            ("1234".to_owned(), UnknownEncoding),
            ("é1".to_owned(), UnknownEncoding),
            ("\u{20ac}".to_owned(), UnknownEncoding),
            ("0x".to_owned(), Malformed),
            ("0b".to_owned(), Malformed),
            ("0b==".to_owned(), Malformed),
            ("0xfg".to_owned(), Malformed),
            ("0x+1".to_owned(), Malformed),
            ("0b/".to_owned(), Malformed),
            ("0b//9=".to_owned(), Malformed),
            ("0b-_8=".to_owned(), Malformed),
            (long("0x", 2 * BINARY_LENGTH_MAX + 1), TooLong),
            (long("0b", 1368 + 4), TooLong),
        ] {
            assert_eq!(parse_binary_value(&text), Err(error), "{text}");
        }
        assert!(parse_binary_value(&long("0x", 2 * BINARY_LENGTH_MAX)).is_ok());
    }

    #[test]
    fn secrets_are_compared_and_not_printed() {
        let secret = Secret::from("twelve bytes");
        assert_eq!(secret, Secret::new(*b"twelve bytes"));
        assert_ne!(secret, Secret::from("twelve byteS"));
        assert_ne!(secret, Secret::from("twelve"));
        assert_eq!(format!("{secret:?}"), "***");
        let account = ChapAccount {
            name: "alice".to_owned(),
            secret,
        };
        assert_eq!(
            format!("{account:?}"),
            r#"ChapAccount { name: "alice", secret: *** }"#
        );
        assert!(!Secret::from("twelve bytes").is_short());
        assert!(Secret::from("eleven byte").is_short());
    }

    proptest! {
        #[test]
        fn binary_values_written_are_the_values_read(
            bytes in prop::collection::vec(any::<u8>(), 1..=BINARY_LENGTH_MAX),
        ) {
            prop_assert_eq!(parse_binary_value(&format_binary_value(&bytes)), Ok(bytes.clone()));
            let base64 = base64::engine::general_purpose::STANDARD.encode(&bytes);
            prop_assert_eq!(parse_binary_value(&format!("0b{base64}")), Ok(bytes));
        }

        #[test]
        fn no_text_panics_the_reader(text in "\\PC{0,40}", prefix in "0[xXbB]") {
            let _ = parse_binary_value(&text);
            let _ = parse_binary_value(&format!("{prefix}{text}"));
        }
    }
}
