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
    /// A password that every user can read.
    #[error(
        "the password in the URL of volume `{volume}` can be seen by every user of this machine, in the \
         list of processes; put it into a file of mode 0600 and name that with secret-file, or \
         write the volume into the file given with --config"
    )]
    PasswordInArgument {
        /// The volume.
        volume: String,
    },
    /// A map that initiators may not find.
    #[error("target {target} has a map without LUN 0; many initiators look there first")]
    NoLunZero {
        /// The target.
        target: String,
    },
    /// A volume nobody can reach.
    #[error("volume `{volume}` is in no map of what is served; nobody can reach it")]
    UnmappedVolume {
        /// The volume.
        volume: String,
    },
    /// Polling that is to take the place of interrupts, and is not asked for.
    #[error(
        "prefer-busy-poll does nothing without busy-poll, which says for how long the network card is polled: add \
         --busy-poll MICROSECONDS, or busy-poll to [engine] of the file"
    )]
    PreferenceWithoutPolling,
    /// A target everybody can write to, as asked for.
    #[error(
        "{listener} can be reached from other machines and target {target} has no access control \
         (allow-open is set)"
    )]
    Open {
        /// The listener.
        listener: String,
        /// The target.
        target: String,
    },
    /// The same of a subsystem.
    #[error(
        "{listener} can be reached from other machines and subsystem {subsystem} has no access \
         control (allow-open is set)"
    )]
    OpenSubsystem {
        /// The listener.
        listener: String,
        /// The subsystem.
        subsystem: String,
    },
    /// Two namespaces that a host takes for one.
    #[error(
        "volume `{volume}` is shown to the same hosts in subsystems {first} and {second}; Linux hosts \
         refuse the second one, because it has the identifiers of the first"
    )]
    VolumeInTwoSubsystems {
        /// The volume.
        volume: String,
        /// The first subsystem.
        first: String,
        /// The second.
        second: String,
    },
    /// Access control of one protocol that the other goes round.
    #[error(
        "[[{guarded}]] tables say who may use volumes, but there is no [[{open}]] table: over {protocol} \
         everybody who can connect may use them all"
    )]
    OpenBeside {
        /// `target` or `subsystem`, with rules.
        guarded: &'static str,
        /// The other one.
        open: &'static str,
        /// The protocol of the other one.
        protocol: &'static str,
    },
    /// Tables of a protocol nobody can speak.
    #[error(
        "there are [[{table}]] tables, but nothing listens for {protocol}: add {option} ADDR:PORT, or \
         [listen] {key} to the file"
    )]
    NotListening {
        /// `target` or `subsystem`.
        table: &'static str,
        /// `iSCSI` or `NVMe`.
        protocol: &'static str,
        /// The option of the command line.
        option: &'static str,
        /// The key of the file.
        key: &'static str,
    },
}
