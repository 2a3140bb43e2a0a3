//! DH-HMAC-CHAP: proving knowledge of a secret without sending it (NVMe base 2.0 §8.13.5, TP 8006), both roles.
//!
//! ```text
//!  host                                              controller
//!   Negotiate: hashes, groups        Send    ──►
//!                                    Receive ◄──     Challenge: hash, group, S1, C1, g^x
//!   Reply: proof, [S2, C2], g^y      Send    ──►
//!                                    Receive ◄──     Success1: [proof]                   or Failure1
//!  [Success2                         Send    ──►]                                        or Failure2
//!
//!  proof of the host:       HMAC(KT, Ca1 ‖ S1 ‖ T_ID ‖ SC_C ‖ "HostHost"   ‖ HostNQN ‖ 00h ‖ SubNQN)
//!  proof of the controller: HMAC(KT, Ca2 ‖ S2 ‖ T_ID ‖ SC_C ‖ "Controller" ‖ SubNQN  ‖ 00h ‖ HostNQN)
//!  Ca: the challenge C; with a group, HMAC(H(g^xy), C)
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `hash.rs`, `group.rs` | tables of hash functions and Diffie-Hellman groups |
//! | `secret.rs` | the interchange format `DHHC-1`, transformed keys |
//! | `proof.rs` | the formulas above, and the PSK that a secure channel is made of |
//! | `secure_channel.rs` | secure channel concatenation: who may have such a PSK |
//! | `message.rs`, `command.rs` | messages, and the Fabrics commands that carry them |
//! | `entropy.rs` | where random bytes come from |
//! | `controller.rs`, `host.rs` | the two roles |
//!
//! Proofs are compared in constant time. Secrets, private exponents and shared secrets are wiped when dropped. A host
//! learns of a wrong proof that it is wrong, and nothing else.
//!
//! A PSK is made with a group and with SHA-256 or SHA-384 only: without a group there is no secret that others do not see,
//! and no cipher suite goes with SHA-512. Not supported are groups that are not those of RFC 7919.

mod command;
mod controller;
mod entropy;
mod group;
mod hash;
mod host;
mod message;
mod proof;
mod secret;
mod secure_channel;

#[cfg(test)]
mod tests;

pub use command::{AuthenticationCommand, RECEIVE_LENGTH, SEND_LENGTH_MAX};
pub use controller::{
    Computation, Computed, Controller, Credentials, GeneratedKey, Received, Sent,
};
pub use entropy::Entropy;
pub use group::Group;
pub use hash::Hash;
pub use host::{Answer, Host, HostError};
pub use message::{Failure, Frame, Message};
pub use proof::{Parties, generated_psk};
pub use secret::{Secret, SecretError};
pub use secure_channel::{Concatenation, QueueChannel, SecureChannel};
