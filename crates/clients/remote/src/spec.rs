//! What is to be said of a volume of another server.

use std::path::PathBuf;
use std::time::Duration;

use longshore_initiator::url::Url;
use longshore_iscsi::name::IscsiName;
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{Derivation, Version};
use longshore_volume::open::BackendOptions;

/// The options of `iscsi` and `nvme-tcp`. Everything but the URL can be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSpec {
    pub url: Option<Url>,
    /// A file with the secret of the URL's user (CHAP).
    pub secret_file: Option<PathBuf>,
    /// A file with the secret of this host (DH-HMAC-CHAP).
    pub dhchap_secret_file: Option<PathBuf>,
    /// A file with the secret that the controller proves itself with.
    pub dhchap_ctrl_secret_file: Option<PathBuf>,
    /// A file with the key by which connections go over TLS.
    pub tls_key_file: Option<PathBuf>,
    /// Version of the identity by which the server finds that key.
    pub tls_identity: Option<Version>,
    /// How TLS derives its keys from that key.
    pub tls_derivation: Option<Derivation>,
    /// The name to log in with over iSCSI; otherwise one of this machine and user.
    pub initiator_name: Option<IscsiName>,
    /// The name to connect with over NVMe/TCP; otherwise one of this machine and user.
    pub host_nqn: Option<Nqn>,
    /// The block size that it has to have.
    pub block_size: Option<u32>,
    /// Connections, each with its own queue of commands.
    pub queues: Option<u16>,
    /// Commands that a connection carries at a time.
    pub depth: Option<u16>,
    /// How long operations wait for a server that cannot be reached before they fail.
    pub give_up: Option<Duration>,
}

impl BackendOptions for RemoteSpec {
    fn first_given(&self) -> Option<&'static str> {
        let RemoteSpec {
            url,
            secret_file,
            dhchap_secret_file,
            dhchap_ctrl_secret_file,
            tls_key_file,
            tls_identity,
            tls_derivation,
            initiator_name,
            host_nqn,
            block_size: _,
            queues,
            depth,
            give_up,
        } = self;
        [
            (url.is_some(), "url"),
            (secret_file.is_some(), "secret-file"),
            (dhchap_secret_file.is_some(), "dhchap-secret-file"),
            (dhchap_ctrl_secret_file.is_some(), "dhchap-ctrl-secret-file"),
            (tls_key_file.is_some(), "tls-key-file"),
            (tls_identity.is_some(), "tls-identity"),
            (tls_derivation.is_some(), "tls-derivation"),
            (initiator_name.is_some(), "initiator-name"),
            (host_nqn.is_some(), "host-nqn"),
            (queues.is_some(), "queues"),
            (depth.is_some(), "depth"),
            (give_up.is_some(), "give-up"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}
