//! A server with secrets in files, which tests replace.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use longshore_initiator::attach::{self, Attachment};
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_nvme::auth::{Hash, Secret};
use longshore_nvme::nqn::Nqn;
use longshore_tests::nvme::{HostOptions, SUBSYSTEM};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, free_port};

pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) nvme: SocketAddr,
    pub(crate) scratch: Scratch,
}

/// A secret that differs with the seed.
pub(crate) fn secret(seed: u8) -> Secret {
    Secret::generate(Some(Hash::Sha256), &mut |bytes| {
        for (byte, at) in bytes.iter_mut().zip(0..) {
            *byte = seed.wrapping_mul(31).wrapping_add(at);
        }
    })
}

/// Writes a file that only its owner reads.
pub(crate) fn keep(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.join(name);
    fs::write(&path, format!("{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The name of a host.
pub(crate) fn host_nqn(number: u8) -> Nqn {
    Nqn::new(&HostOptions::numbered(number).host).unwrap()
}

impl Rig {
    /// Hosts 1 and 2 authenticate with secrets 1 and 2, if they want a proof, the controller with secret 9. Host 3 does
    /// not. `keys` are added to the rule of host 1, `more` to the file.
    pub(crate) fn start(name: &str, keys: &str, more: &str) -> Self {
        Self::start_with(name, keys, more, |builder| builder)
    }

    /// Starts the server with further arguments.
    pub(crate) fn start_with(
        name: &str,
        keys: &str,
        more: &str,
        arguments: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let scratch = Scratch::new(name);
        for (file, seed) in [("host1", 1), ("host2", 2), ("controller", 9)] {
            keep(&scratch, file, &secret(seed).to_text());
        }
        let nvme = free_port();
        let rule = |number: u8, keys: &str| {
            format!(
                "[[subsystem.access]]\nhosts = [\"{}\"]\n{keys}\n",
                host_nqn(number).as_str()
            )
        };
        let text = format!(
            "{more}\n[listen]\nnvme = [\"{nvme}\"]\n[[volume]]\nname = \"m\"\nbackend = \"mem\"\nsize = \"16M\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n{}{}{}",
            rule(
                1,
                &format!(
                    "dhchap-secret-file = \"host1\"\ndhchap-ctrl-secret-file = \"controller\"\n{keys}"
                )
            ),
            rule(
                2,
                "dhchap-secret-file = \"host2\"\ndhchap-groups = [\"null\"]"
            ),
            rule(3, ""),
        );
        let file = keep(&scratch, "served.toml", &text);
        let state = scratch.join("state");
        let server = arguments(ServerBuilder::new())
            .argument("--config")
            .argument(&file.display().to_string())
            .argument("--state-dir")
            .argument(&state.display().to_string())
            .start()
            .unwrap();
        Self {
            server,
            nvme,
            scratch,
        }
    }

    /// Attaches the namespace as a host with these secrets.
    pub(crate) fn attach(
        &self,
        number: u8,
        secret: Option<Secret>,
        controller: Option<Secret>,
    ) -> Result<Attachment, longshore_initiator::error::Error> {
        Self::attach_at(self.nvme, number, secret, controller)
    }

    /// The same at another address, which leads there.
    pub(crate) fn attach_at(
        address: SocketAddr,
        number: u8,
        secret: Option<Secret>,
        controller: Option<Secret>,
    ) -> Result<Attachment, longshore_initiator::error::Error> {
        let url: Url = format!("nvme+tcp://{address}/{SUBSYSTEM}/1")
            .parse()
            .unwrap();
        let mut options = Options {
            host_nqn: Some(host_nqn(number)),
            ..Options::default()
        };
        options.nvme.secret = secret;
        options.nvme.controller_secret = controller;
        attach::attach(&url, &options)
    }

    /// Why an attachment fails.
    #[track_caller]
    pub(crate) fn refusal(
        &self,
        number: u8,
        secret: Option<Secret>,
        controller: Option<Secret>,
    ) -> String {
        match self.attach(number, secret, controller) {
            Ok(_) => panic!("the host was let in"),
            Err(error) => error.to_string(),
        }
    }
}
