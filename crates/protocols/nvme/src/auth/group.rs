//! The Diffie-Hellman groups of DH-HMAC-CHAP: none, and those of RFC 7919 Appendix A.
//!
//! Exponentiation takes the same time for all exponents of a group. Private exponents are short: RFC 7919 §5.2 allows
//! it for these groups, and it makes them up to 20 times faster.

use std::time::Duration;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use super::entropy::Entropy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The null group: no Diffie-Hellman exchange.
    Null,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

/// What there is to know of a group.
struct Parameters {
    group: Group,
    /// Its identifier in messages.
    id: u8,
    name: &'static str,
    /// Bits of the prime; 0: none.
    bits: u32,
    /// What is added to the digits of e, so that the prime is one.
    addend: u32,
    /// Bits of private exponents (RFC 7919 Appendix A).
    exponent_bits: u32,
}

const fn row(
    group: Group,
    id: u8,
    name: &'static str,
    bits: u32,
    addend: u32,
    exponent_bits: u32,
) -> Parameters {
    Parameters {
        group,
        id,
        name,
        bits,
        addend,
        exponent_bits,
    }
}

const TABLE: [Parameters; 6] = [
    row(Group::Null, 0, "null", 0, 0, 0),
    row(Group::Ffdhe2048, 1, "ffdhe2048", 2048, 560_316, 225),
    row(Group::Ffdhe3072, 2, "ffdhe3072", 3072, 2_625_351, 275),
    row(Group::Ffdhe4096, 3, "ffdhe4096", 4096, 5_736_041, 325),
    row(Group::Ffdhe6144, 4, "ffdhe6144", 6144, 15_705_020, 375),
    row(Group::Ffdhe8192, 5, "ffdhe8192", 8192, 10_965_728, 400),
];

/// The first 8064 bits of e: primes are 2^b - 2^(b-64) + (the first b - 128 bits of e + addend) · 2^64 - 1.
const E: &str = "adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe363\
    630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935\
    984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94b\
    b2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ec\
    c03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef183\
    7d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c023861b46fc9d6e6c907\
    7ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452e2d74dd364f2e21e\
    71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e0abcd06bfa53ddef\
    3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42d69f6d187763cf1d\
    5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c46dc778f971ad0038\
    092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b4db5a851\
    f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8\
    917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb4cfdb477a52471f7\
    a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4\
    763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b\
    462d538cd72b03746ae77f5e62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403\
    ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329c\
    cff46aaa36ad004cf600c8381e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef\
    86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba\
    35c35f5c59160cc046fd8251541fc68c9c86b022bb7099876a460e7451a8a93109703fee1c217e6c3826e52c\
    51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0a1fe3075a577e23183f81d4a\
    3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e2f741ef8c1fe86fe\
    a6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7c51eef6d";

/// The generator of all groups.
const GENERATOR: u8 = 2;

impl Group {
    /// All of them, by strength.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// Bytes of the longest public value.
    pub const LENGTH_MAX: usize = 1024;

    fn parameters(self) -> &'static Parameters {
        let found = TABLE.iter().find(|row| row.group == self);
        found.expect("each group has a row")
    }

    /// Its identifier in messages.
    #[must_use]
    pub fn id(self) -> u8 {
        self.parameters().id
    }

    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        let found = TABLE.iter().find(|row| row.id == id)?;
        Some(found.group)
    }

    /// Its name in configuration files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.parameters().name
    }

    /// Bytes of public values; 0: there are none.
    #[must_use]
    pub fn length(self) -> usize {
        self.parameters().bits as usize / 8
    }

    /// What an exponentiation takes, about: 20 ms with 8,192 bits. Multiplications take the square of the bits, and each bit
    /// of the exponent takes one.
    pub(super) fn cost(self) -> Duration {
        const PER_MICROSECOND: u64 = 1_342_177;
        let row = self.parameters();
        let bits = u64::from(row.bits);
        Duration::from_micros(bits * bits * u64::from(row.exponent_bits) / PER_MICROSECOND)
    }

    /// The prime of RFC 7919, big-endian.
    pub(super) fn prime(self) -> Vec<u8> {
        const ONES: [u8; 8] = [0xff; 8];
        let row = self.parameters();
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => digit - b'0',
            _ => digit - b'a' + 10,
        };
        let digits = &E.as_bytes()[..self.length().saturating_sub(16) * 2];
        let pairs = digits.chunks_exact(2);
        let mut middle: Vec<u8> = pairs.map(|p| nibble(p[0]) << 4 | nibble(p[1])).collect();
        // The last 64 bits are those of -1, which is taken from the digits.
        let mut carry = row.addend.saturating_sub(1);
        for byte in middle.iter_mut().rev() {
            let sum = u32::from(*byte) + (carry & 0xff);
            *byte = sum.to_le_bytes()[0];
            carry = (carry >> 8) + (sum >> 8);
        }
        [&ONES, middle.as_slice(), &ONES].concat()
    }

    /// A private exponent, big-endian.
    pub(super) fn private_exponent(self, entropy: Entropy<'_>) -> Zeroizing<Vec<u8>> {
        let bits = self.parameters().exponent_bits;
        let mut exponent = Zeroizing::new(vec![0; bits.div_ceil(8) as usize]);
        entropy(&mut exponent);
        if let (Some(first), unused @ 1..) = (exponent.first_mut(), bits.next_multiple_of(8) - bits)
        {
            *first &= 0xff >> unused;
        }
        // The top bit is set in all of them: none is small.
        if let Some(first) = exponent.first_mut() {
            *first |= 1 << ((bits - 1) % 8);
        }
        exponent
    }

    /// Whether a public value of a peer is one: of the right length, above 1 and below p - 1. Others would make the
    /// shared secret one of few. Without a group it is empty.
    pub(super) fn is_public_value(self, value: &[u8]) -> bool {
        if self == Self::Null {
            return value.is_empty();
        }
        let prime = self.prime();
        let (last, rest) = match value.split_last() {
            Some((last, rest)) if value.len() == self.length() => (*last, rest),
            _ => return false,
        };
        let is_small = last <= 1 && rest.iter().all(|byte| *byte == 0);
        // The prime is odd: p - 1 differs from it in the last bit alone.
        let mut largest = prime;
        if let Some(last) = largest.last_mut() {
            *last &= !1;
        }
        !is_small && value < largest.as_slice()
    }

    /// The generator to that power, with leading zeros.
    pub(super) fn public_value(self, exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        self.power(&[GENERATOR], exponent)
    }

    /// A public value to that power, with leading zeros.
    pub(super) fn power(self, base: &[u8], exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        let row = self.parameters();
        let number = |bytes: &[u8], bits: u32| {
            BoxedUint::from_be_slice(bytes, bits).expect("numbers fit their group")
        };
        let width = row.exponent_bits.next_multiple_of(64);
        let prime = Odd::new(number(&self.prime(), row.bits));
        let prime = prime.into_option().expect("primes are odd");
        let base = number(base, row.bits);
        let exponent = Zeroizing::new(number(exponent, width));
        let parameters = BoxedMontyParams::new(prime);
        let base = BoxedMontyForm::new(base, &parameters);
        let power = Zeroizing::new(base.pow_bounded_exp(&exponent, row.exponent_bits));
        let power = Zeroizing::new(power.retrieve());
        Zeroizing::new(power.to_be_bytes().into_vec())
    }
}
