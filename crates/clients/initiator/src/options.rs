//! The options of an attachment. The defaults suit both protocols and most peers.

use std::time::Duration;

use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::negotiation::Preferences;
use longshore_iscsi::pdu::Isid;
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{ConfiguredKey, Derivation, Version};
use zeroize::Zeroizing;

pub use crate::digest::DigestWish;
use crate::operation::OperationKind;
use crate::url::Url;
use crate::volume::VolumeOptions;

/// All options. Credentials of a URL take precedence over those here.
#[derive(Clone, Debug)]
pub struct Options {
    /// InitiatorName; `None`: one made of the machine's name.
    pub initiator_name: Option<IscsiName>,
    /// InitiatorAlias: a text that targets may show (RFC 7143 §13.7).
    pub initiator_alias: Option<String>,
    /// HOSTNQN; `None`: one made of the host identifier.
    pub host_nqn: Option<Nqn>,
    /// HOSTID; `None`: one that is the same each time for this machine and user.
    pub host_id: Option<[u8; 16]>,
    /// The name and secret by which we prove who we are.
    pub chap: Option<ChapAccount>,
    /// The name and secret by which the target has to prove who it is.
    pub mutual_chap: Option<ChapAccount>,
    /// A CRC32C over every header.
    pub header_digest: DigestWish,
    /// A CRC32C over all data.
    pub data_digest: DigestWish,
    /// Parameters that only an iSCSI session negotiates.
    pub iscsi: IscsiOptions,
    /// Parameters of NVMe/TCP connections and queues.
    pub nvme: NvmeOptions,
    /// How many queues there are to be.
    pub queues: QueueMaps,
    /// Operations that a queue takes at a time.
    pub depth: u16,
    /// How bytes get to the socket and from it.
    pub paths: TransferPaths,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Choices of a [`RemoteVolume`](crate::volume::RemoteVolume): paths, drivers, resubmissions.
    pub volume: VolumeOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            initiator_name: None,
            initiator_alias: None,
            host_nqn: None,
            host_id: None,
            chap: None,
            mutual_chap: None,
            header_digest: DigestWish::default(),
            data_digest: DigestWish::default(),
            iscsi: IscsiOptions::default(),
            nvme: NvmeOptions::default(),
            queues: QueueMaps::default(),
            depth: 128,
            paths: TransferPaths::default(),
            timeouts: Timeouts::default(),
            volume: VolumeOptions::default(),
        }
    }
}

impl Options {
    /// As they are for one volume: with what its URL says. CHAP names and secrets that neither has are taken from the
    /// environment, under the names that libiscsi gave them: `LIBISCSI_CHAP_USERNAME`, `LIBISCSI_CHAP_PASSWORD`,
    /// `LIBISCSI_CHAP_TARGET_USERNAME`, `LIBISCSI_CHAP_TARGET_PASSWORD`.
    #[must_use]
    pub fn for_url(&self, url: &Url) -> Self {
        self.for_url_in(url, |name| std::env::var(name).ok().map(Zeroizing::new))
    }

    fn for_url_in(
        &self,
        url: &Url,
        environment: impl Fn(&str) -> Option<Zeroizing<String>>,
    ) -> Self {
        let mut options = self.clone();
        let digests = url.digests();
        options.header_digest = digests.header.unwrap_or(self.header_digest);
        options.data_digest = digests.data.unwrap_or(self.data_digest);
        let Url::Iscsi(url) = url else { return options };
        let secret_of = |name: &str| environment(name).map(|secret| Secret::from(secret.as_str()));
        let account = |url_name: Option<&String>,
                       url_secret: Option<&Secret>,
                       option: Option<&ChapAccount>,
                       variables: [&str; 2]| {
            let name = url_name
                .cloned()
                .or_else(|| option.map(|account| account.name.clone()))
                .or_else(|| environment(variables[0]).map(|name| name.to_string()))?;
            let of_option = option.filter(|account| account.name == name);
            let secret = url_secret
                .cloned()
                .or_else(|| of_option.map(|account| account.secret.clone()))
                .or_else(|| secret_of(variables[1]))?;
            Some(ChapAccount { name, secret })
        };
        options.chap = account(
            url.user.as_ref(),
            url.password.as_ref(),
            self.chap.as_ref(),
            ["LIBISCSI_CHAP_USERNAME", "LIBISCSI_CHAP_PASSWORD"],
        );
        options.mutual_chap = account(
            url.target_user.as_ref(),
            url.target_password.as_ref(),
            self.mutual_chap.as_ref(),
            [
                "LIBISCSI_CHAP_TARGET_USERNAME",
                "LIBISCSI_CHAP_TARGET_PASSWORD",
            ],
        );
        options
    }
}

/// What only iSCSI has.
#[derive(Clone, Debug)]
pub struct IscsiOptions {
    /// What is offered in the login. Its digests are ignored: see [`Options::header_digest`].
    pub preferences: Preferences,
    /// The ISID of the first queue's session; those of other queues and portals count from there. Attaching
    /// again with the same one reinstates the sessions: what the old ones had under way ends first. `None`: a
    /// [fresh one](crate::iscsi::fresh_isid), so that nobody's sessions are ended.
    pub isid: Option<Isid>,
    /// Redirections that are followed; 0 refuses them.
    pub redirections_max: u8,
}

impl Default for IscsiOptions {
    fn default() -> Self {
        Self {
            preferences: Preferences::default(),
            isid: None,
            redirections_max: 4,
        }
    }
}

/// What only NVMe/TCP has.
#[derive(Clone, Debug)]
pub struct NvmeOptions {
    /// HPDA as it travels: data for us starts at a multiple of so many dwords, plus one. At most 31.
    pub hpda: u8,
    /// R2Ts a command may have unanswered at a time, at least 1.
    pub max_r2t: u32,
    /// KATO; zero: no Keep Alive.
    pub keep_alive: Duration,
    /// Submission queues have flow control (SQHD).
    pub flow_control: bool,
    /// What this host proves itself with (DH-HMAC-CHAP) when it is asked.
    pub secret: Option<longshore_nvme::auth::Secret>,
    /// What the controller has to prove itself with.
    pub controller_secret: Option<longshore_nvme::auth::Secret>,
    /// With what connections go over TLS; `None`: they do not.
    pub tls: Option<TlsOptions>,
    /// Has a key for TLS made when the host authenticates, and goes over TLS with it (secure channel concatenation). Without,
    /// this is done where the controller asks for it.
    pub concatenate: bool,
}

/// A key that this host and the server share, and the forms it takes.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// As the server has it.
    pub key: ConfiguredKey,
    /// Of the identity by which the server finds the key.
    pub version: Version,
    /// How the keys of TLS come from it. Some servers know [`Derivation::Compat`] alone.
    pub derivation: Derivation,
}

impl TlsOptions {
    /// As most servers take it.
    #[must_use]
    pub const fn new(key: ConfiguredKey) -> Self {
        Self {
            key,
            version: Version::V1,
            derivation: Derivation::Standard,
        }
    }
}

impl Default for NvmeOptions {
    fn default() -> Self {
        Self {
            hpda: 0,
            max_r2t: 16,
            keep_alive: Duration::from_secs(10),
            flow_control: true,
            secret: None,
            controller_secret: None,
            tls: None,
            concatenate: false,
        }
    }
}

/// How many queues of each kind there are, or are to be. Numbers of queues run through the kinds in
/// the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueMaps {
    /// For all that has no queues of its own; at least 1.
    pub default: u16,
    /// For reads, so that they do not wait behind large writes.
    pub read: u16,
    /// For operations whose callers poll for the end.
    pub poll: u16,
}

impl Default for QueueMaps {
    fn default() -> Self {
        Self {
            default: 1,
            read: 0,
            poll: 0,
        }
    }
}

impl QueueMaps {
    /// The same queues for reads, writes and polled operations.
    #[must_use]
    pub const fn plain(queues: u16) -> Self {
        Self {
            default: queues,
            read: 0,
            poll: 0,
        }
    }

    /// Number of queues, so of connections, in all maps.
    #[must_use]
    pub fn total(self) -> usize {
        usize::from(self.default) + usize::from(self.read) + usize::from(self.poll)
    }

    /// The number of the queue for operations of this kind from this core. `poll`: the caller polls.
    #[inline]
    #[must_use]
    pub fn queue(&self, kind: OperationKind, poll: bool, cpu: usize) -> usize {
        let default = usize::from(self.default).max(1);
        let (first, count) = if poll && self.poll > 0 {
            (default + usize::from(self.read), usize::from(self.poll))
        } else if kind == OperationKind::Read && self.read > 0 {
            (default, usize::from(self.read))
        } else {
            (0, default)
        };
        first + cpu % count
    }

    /// As many of each kind as `granted` allows altogether: poll queues go first, then read queues.
    #[must_use]
    pub fn within(self, granted: u16) -> Self {
        let default = self.default.clamp(1, granted.max(1));
        let read = self.read.min(granted.saturating_sub(default));
        let poll = self.poll.min(granted.saturating_sub(default + read));
        Self {
            default,
            read,
            poll,
        }
    }
}

/// How written data gets into the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendPath {
    /// Headers and data are copied into one run of memory, which is sent.
    Copy,
    /// Data is sent from where it is; the kernel copies it.
    #[default]
    Gather,
    /// The kernel takes data from where it is (MSG_ZEROCOPY), from [`TransferPaths::zerocopy_threshold`] on.
    ZeroCopy,
}

/// How read data gets out of the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReceivePath {
    /// Into one large buffer; from there it is copied to its place.
    Buffered,
    /// What is large goes straight to its place.
    #[default]
    Direct,
}

/// How bytes move between memory and socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferPaths {
    /// How written data is sent.
    pub send: SendPath,
    /// Data of fewer bytes is copied by the kernel: pages are pinned and notifications read for each send.
    pub zerocopy_threshold: usize,
    /// A kernel that copies nevertheless (over loopback it always does) is asked no more after a while. Off for
    /// measurements.
    pub zerocopy_fallback: bool,
    /// How read data is received.
    pub receive: ReceivePath,
    /// What one receive call may bring, in bytes.
    pub receive_buffer: usize,
    /// Microseconds that the kernel polls the network card when a receive finds nothing (SO_BUSY_POLL).
    pub busy_poll_us: Option<u32>,
    /// The kernel prefers busy polling to interrupts (SO_PREFER_BUSY_POLL).
    pub prefer_busy_poll: bool,
    /// Priority of what is sent (SO_PRIORITY), for queueing disciplines and network cards.
    pub socket_priority: Option<u32>,
    /// Sizes of the socket's buffers; `None` leaves them to the kernel, which adapts them.
    pub socket_send_bytes: Option<usize>,
    /// The same of SO_RCVBUF; see [`Self::socket_send_bytes`].
    pub socket_receive_bytes: Option<usize>,
}

impl Default for TransferPaths {
    fn default() -> Self {
        Self {
            send: SendPath::default(),
            zerocopy_threshold: 32 << 10,
            zerocopy_fallback: true,
            receive: ReceivePath::default(),
            receive_buffer: 256 << 10,
            busy_poll_us: None,
            prefer_busy_poll: false,
            socket_priority: None,
            socket_send_bytes: None,
            socket_receive_bytes: None,
        }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first SYN to an established TCP connection, for each address.
    pub connect: Duration,
    /// From there to a usable queue: login, or ICReq and Connect. Also one command of the control path.
    pub login: Duration,
    /// One operation. A peer that has not answered by then loses the connection.
    pub request: Duration,
    /// A peer that has been silent for so long is asked whether it is there, and has as long to
    /// answer. Zero: never.
    pub keep_alive: Duration,
    /// Before the first attempt to reconnect; doubles from there.
    pub reconnect_min: Duration,
    /// Longest pause between attempts.
    pub reconnect_max: Duration,
    /// After so long without any path all operations fail.
    pub give_up: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            login: Duration::from_secs(10),
            request: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(5),
            give_up: Duration::from_secs(120),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: QueueMaps = QueueMaps {
        default: 2,
        read: 3,
        poll: 1,
    };

    fn account(name: &str, secret: &str) -> ChapAccount {
        ChapAccount {
            name: name.to_owned(),
            secret: Secret::from(secret),
        }
    }

    fn chap_of(
        url: &str,
        options: &Options,
        environment: &[(&str, &str)],
    ) -> [Option<ChapAccount>; 2] {
        let variable = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| Zeroizing::new((*value).to_owned()))
        };
        let options = options.for_url_in(&url.parse().unwrap(), variable);
        [options.chap, options.mutual_chap]
    }

    #[track_caller]
    fn assert_account(found: Option<&ChapAccount>, expected: &ChapAccount) {
        let found = found.expect("there is an account");
        assert_eq!(
            (&found.name, &found.secret),
            (&expected.name, &expected.secret)
        );
    }

    const PLAIN: &str = "iscsi://host/iqn.2026-11.com.example:a/0";
    const WITH_USER: &str = "iscsi://user%url@host/iqn.2026-11.com.example:a/0";
    const ENVIRONMENT: &[(&str, &str)] = &[
        ("LIBISCSI_CHAP_USERNAME", "from"),
        ("LIBISCSI_CHAP_PASSWORD", "environment"),
        ("LIBISCSI_CHAP_TARGET_USERNAME", "target"),
        ("LIBISCSI_CHAP_TARGET_PASSWORD", "proves"),
    ];

    #[test]
    fn credentials_come_from_the_url_then_the_options_then_the_environment() {
        let options = Options {
            chap: Some(account("from", "options")),
            ..Options::default()
        };
        let [url, _] = chap_of(WITH_USER, &options, ENVIRONMENT);
        assert_account(url.as_ref(), &account("user", "url"));
        let [option, mutual] = chap_of(PLAIN, &options, ENVIRONMENT);
        assert_account(option.as_ref(), &account("from", "options"));
        assert_account(mutual.as_ref(), &account("target", "proves"));
        let [environment, _] = chap_of(PLAIN, &Options::default(), ENVIRONMENT);
        assert_account(environment.as_ref(), &account("from", "environment"));
        let [none, _] = chap_of(PLAIN, &Options::default(), &[]);
        assert!(none.is_none());
    }

    #[test]
    fn a_user_of_the_url_does_not_get_the_secret_of_another() {
        let options = Options {
            chap: Some(account("other", "options")),
            ..Options::default()
        };
        let url = "iscsi://user@host/iqn.2026-11.com.example:a/0";
        assert!(chap_of(url, &options, &[])[0].is_none());
        let [found, _] = chap_of(url, &Options::default(), ENVIRONMENT);
        assert_account(found.as_ref(), &account("user", "environment"));
    }

    #[test]
    fn the_url_decides_about_digests_where_it_says_something() {
        let options = Options {
            data_digest: DigestWish::Ask,
            ..Options::default()
        };
        let url = "iscsi://host/iqn.2026-11.com.example:a/0?header_digest=crc32c";
        let options = options.for_url_in(&url.parse().unwrap(), |_| None);
        assert_eq!(options.header_digest, DigestWish::Require);
        assert_eq!(options.data_digest, DigestWish::Ask);
    }

    #[test]
    fn reads_and_polled_operations_have_queues_of_their_own() {
        assert_eq!(MAPS.queue(OperationKind::Write, false, 5), 1);
        assert_eq!(MAPS.queue(OperationKind::Other, false, 4), 0);
        assert_eq!(MAPS.queue(OperationKind::Read, false, 4), 3);
        assert_eq!(MAPS.queue(OperationKind::Read, true, 4), 5);
        assert_eq!(MAPS.queue(OperationKind::Write, true, 4), 5);
    }

    #[test]
    fn kinds_without_queues_use_the_default_ones() {
        let plain = QueueMaps::plain(2);
        assert_eq!(plain.queue(OperationKind::Read, true, 3), 1);
        assert_eq!(plain.total(), 2);
    }

    #[test]
    fn fewer_queues_than_asked_for_leave_the_default_ones() {
        assert_eq!(MAPS.within(6), MAPS);
        assert_eq!(MAPS.within(4).read, 2);
        assert_eq!(MAPS.within(4).poll, 0);
        assert_eq!(MAPS.within(1), QueueMaps::plain(1));
        assert_eq!(MAPS.within(0), QueueMaps::plain(1));
    }
}
