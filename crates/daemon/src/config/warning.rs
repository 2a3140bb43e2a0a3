//! What is allowed and yet worth a line in the log.

use std::path::PathBuf;

use longshore_iscsi::chap::Secret;

/// Something an administrator should know, found while the configuration was put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A secret that can be found by trying.
    #[error(
        "the secret of account `{user}` is shorter than {} bytes and can be found by trying \
         (RFC 7143 §9.2.1); use a longer random one",
        Secret::LENGTH_RECOMMENDED_MIN
    )]
    ShortSecret {
        /// The account.
        user: String,
    },
    /// A secret file that every user can read.
    #[error("secret file {} can be read by every user; chmod 600 it", path.display())]
    SecretFileForAll {
        /// The file.
        path: PathBuf,
    },
    /// A map that initiators may not find.
    #[error("target {target} has a map without LUN 0; many initiators look there first")]
    NoLunZero {
        /// The target.
        target: String,
    },
    /// A volume nobody can reach.
    #[error("volume `{volume}` is in no target's map; nobody can reach it")]
    UnmappedVolume {
        /// The volume.
        volume: String,
    },
    /// A target everybody can write to, as asked for.
    #[error(
        "{listener} can be reached from other machines and target {target} has no access control \
         (listen.allow-open is set)"
    )]
    Open {
        /// The listener.
        listener: String,
        /// The target.
        target: String,
    },
}
