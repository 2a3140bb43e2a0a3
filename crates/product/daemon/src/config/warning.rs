//! What is allowed and yet worth a line in the log.

use std::path::PathBuf;

use longshore_iscsi::chap::Secret;

/// Something an administrator should know, found while the configuration was put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A secret that can be found by trying.
    #[error(
        "the secret of account `{user}` is shorter than {} bytes and can be guessed (RFC 7143 \
         §9.2.1); use a longer random one",
        Secret::LENGTH_RECOMMENDED_MIN
    )]
    ShortSecret { user: String },
    /// A secret file that every user can read.
    #[error("secret file {} can be read by every user; chmod 600 it", path.display())]
    SecretFileForAll { path: PathBuf },
    /// A password that every user can read.
    #[error(
        "every user of this machine can see the password in the URL of volume `{volume}` in the \
         process list; put it in a file of mode 0600 and name the file with secret-file, or put \
         the volume in the file given with --config"
    )]
    PasswordInArgument { volume: String },
    /// A map that initiators may not find.
    #[error(
        "target {target} has a map without LUN 0, which many initiators query first; add LUN 0"
    )]
    NoLunZero { target: String },
    /// A volume nobody can reach.
    #[error(
        "no map contains volume `{volume}`, so no client can reach it; add it to a map, or \
         remove it"
    )]
    UnmappedVolume { volume: String },
    /// A map of a volume that is gone.
    #[error(
        "{object} maps volume `{volume}`, which does not exist: it is served without it; add the volume, or remove \
         it from the map"
    )]
    LostVolume {
        /// Kind and name of the object.
        object: String,
        volume: String,
    },
    /// Polling that is to take the place of interrupts, and is not asked for.
    #[error(
        "prefer-busy-poll has no effect without busy-poll, the time for which the network card is \
         polled: add \
         --busy-poll MICROSECONDS, or busy-poll to [engine] of the file"
    )]
    PreferenceWithoutPolling,
    /// A target everybody can write to, as asked for.
    #[error(
        "other machines can reach {listener}, and target {target} has no access control \
         (allow-open is set)"
    )]
    Open { listener: String, target: String },
    /// The same of a subsystem.
    #[error(
        "other machines can reach {listener}, and subsystem {subsystem} has no access control \
         (allow-open is set)"
    )]
    OpenSubsystem { listener: String, subsystem: String },
    /// Two namespaces that a host takes for one.
    #[error(
        "subsystems {first} and {second} show volume `{volume}` to the same hosts; Linux hosts \
         refuse the second one, because it has the identifiers of the first"
    )]
    VolumeInTwoSubsystems {
        volume: String,
        first: String,
        second: String,
    },
    /// Access control of one protocol that the other goes round.
    #[error(
        "[[{guarded}]] tables restrict access to volumes, but there is no [[{open}]] table: over \
         {protocol}, every client that can connect may use all volumes"
    )]
    OpenBeside {
        /// `target` or `subsystem`, with rules.
        guarded: &'static str,
        open: &'static str,
        /// The protocol of the other one.
        protocol: &'static str,
    },
    /// Tables of a protocol nobody can speak.
    #[error(
        "there are [[{table}]] tables, but no listener for {protocol}: add {option} ADDR:PORT, or \
         [listen] {key} to the file"
    )]
    NotListening {
        /// Table of the object: `target` or `subsystem`.
        table: &'static str,
        /// Protocol of the object: `iSCSI` or `NVMe`.
        protocol: &'static str,
        /// The option of the command line.
        option: &'static str,
        /// The key of the file.
        key: &'static str,
    },
}
