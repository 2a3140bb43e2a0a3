//! The proofs of both roles, and the pre-shared key that they agree on when asked (TP 8018).

use zeroize::Zeroizing;

use super::hash::Hash;
use super::secure_channel::SecureChannel;
use crate::nqn::Nqn;

/// Who authenticates with whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parties {
    pub host: Nqn,
    pub subsystem: Nqn,
}

/// What a proof is about, beside names and keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub hash: Hash,
    /// The challenge: C1 or C2.
    pub challenge: &'a [u8],
    /// The sequence number: S1 or S2.
    pub sequence: u32,
    pub transaction: u16,
    pub secure_channel: SecureChannel,
    /// H of what Diffie-Hellman gave, with a group.
    pub session_key: Option<&'a [u8]>,
}

impl Question<'_> {
    fn answer(&self, key: &[u8], label: &[u8], first: &Nqn, second: &Nqn) -> Zeroizing<Vec<u8>> {
        let augmented = match self.session_key {
            Some(session_key) => self.hash.hmac(session_key, &[self.challenge]),
            None => Zeroizing::new(self.challenge.to_vec()),
        };
        self.hash.hmac(
            key,
            &[
                &augmented,
                &self.sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[self.secure_channel.id()],
                label,
                first.as_str().as_bytes(),
                &[0],
                second.as_str().as_bytes(),
            ],
        )
    }

    /// The proof of a host with that transformed key.
    pub(super) fn of_host(&self, key: &[u8], parties: &Parties) -> Zeroizing<Vec<u8>> {
        self.answer(key, b"HostHost", &parties.host, &parties.subsystem)
    }

    /// The proof of a controller.
    pub(super) fn of_controller(&self, key: &[u8], parties: &Parties) -> Zeroizing<Vec<u8>> {
        self.answer(key, b"Controller", &parties.subsystem, &parties.host)
    }
}

/// The key for TLS of a transaction with secure channel concatenation: HMAC(KS, C1 ‖ C2), where KS is the hash of the
/// shared secret, C1 the controller's challenge, and C2 the host's. SHA-512 has none.
#[must_use]
pub fn generated_psk(
    hash: Hash,
    session_key: &[u8],
    first_challenge: &[u8],
    second_challenge: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    match hash {
        Hash::Sha256 | Hash::Sha384 => {
            Some(hash.hmac(session_key, &[first_challenge, second_challenge]))
        }
        Hash::Sha512 => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    /// Those of the Linux kernel, `drivers/nvme/common/tests/auth_kunit.c`. The digest covers the whole key.
    #[test]
    fn generated_keys_are_those_of_the_linux_kernel() {
        let digests = [
            (Hash::Sha256, "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI="),
            (
                Hash::Sha384,
                "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            ),
        ];
        for (hash, digest) in digests {
            let counted = |from: u8| (from..).take(hash.length()).collect::<Vec<u8>>();
            let second: Vec<u8> = counted(0).iter().map(|byte| !byte).collect();
            let psk = generated_psk(hash, &counted(b'A'), &counted(0), &second).unwrap();
            let found = hash.hmac(&psk, &[b"hostnqn subsysnqn NVMe-over-Fabrics"]);
            assert_eq!(BASE64.encode(&*found), digest);
        }
        assert!(generated_psk(Hash::Sha512, &[], &[], &[]).is_none());
    }
}
