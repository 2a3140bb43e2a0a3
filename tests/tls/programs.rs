//! OpenSSL's own programs at the other end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use longshore_nvme::psk::{Derivation, Origin, TlsPsk, Version};
use longshore_tests::skip::skip;

use super::*;

/// An ICReq: PDU type 0, HLEN and PLEN 128.
fn initialization() -> [u8; 128] {
    let mut pdu = [0; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu
}

fn derive(key: &ConfiguredKey) -> TlsPsk {
    let (host, subsystem) = (Nqn::new(HOST).unwrap(), Nqn::new(SUBSYSTEM).unwrap());
    key.retained(&host, Derivation::Standard)
        .tls_psk(&host, &subsystem, Version::V1, Origin::Configured)
        .unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `openssl`, if it is installed.
fn openssl() -> Option<Command> {
    let is_there = Command::new("openssl").arg("version").output().is_ok();
    if !is_there {
        skip("openssl is not installed");
    }
    is_there.then(|| Command::new("openssl"))
}

/// Ends it, whatever the test does.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn s_client(address: SocketAddr, psk: &TlsPsk, key: &[u8], more: &[&str]) -> Option<Ends> {
    let mut command = openssl()?;
    command.args(["s_client", "-tls1_3", "-quiet", "-connect"]);
    command.args([&address.to_string(), "-psk", &hex(key)]);
    command.args(["-psk_identity", &psk.identity.to_string()]);
    command.args(more);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Some(Ends(command.spawn().unwrap()))
}

#[test]
fn s_client_is_answered_with_an_icresp() {
    let scene = Scene::usual();
    let psk = derive(&scene.key);
    for more in [
        &[][..],
        &[
            "-ciphersuites",
            "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256",
        ],
        &["-groups", "P-256"],
        // The server's first group is not among those that it guesses.
        &["-groups", "P-384:X25519"],
    ] {
        let Some(mut client) = s_client(scene.server.nvme(0), &psk, psk.key(), more) else {
            return;
        };
        client
            .0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(&initialization())
            .unwrap();
        let mut answer = [0; 128];
        client
            .0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        assert_eq!((answer[0], answer[2], answer[4]), (1, 128, 128), "{more:?}");
    }
}

#[test]
fn s_client_gets_nothing_with_a_wrong_key_or_offer() {
    let scene = Scene::usual();
    let psk = derive(&scene.key);
    let mut wrong = psk.key().to_vec();
    wrong[0] ^= 1;
    for (key, more) in [
        (&wrong[..], &[][..]),
        (psk.key(), &["-ciphersuites", "TLS_AES_256_GCM_SHA384"]),
        (
            psk.key(),
            &["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        ),
        (psk.key(), &["-groups", "ffdhe2048"]),
    ] {
        let Some(mut client) = s_client(scene.server.nvme(0), &psk, key, more) else {
            return;
        };
        // It may be gone before it has read this.
        let _ = client
            .0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(&initialization());
        let mut answer = Vec::new();
        client
            .0
            .stdout
            .as_mut()
            .unwrap()
            .read_to_end(&mut answer)
            .unwrap();
        assert!(answer.is_empty(), "{more:?}: {answer:?}");
    }
}

#[test]
fn our_host_shakes_hands_with_s_server() {
    let scene = Scene::usual();
    let psk = derive(&scene.key);
    let Some(mut command) = openssl() else { return };
    let address = free_port();
    command.args(["s_server", "-tls1_3", "-nocert", "-quiet", "-accept"]);
    command.args([&address.to_string(), "-psk", &hex(psk.key())]);
    command.args(["-psk_identity", &psk.identity.to_string()]);
    command.args(["-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Ends(command.spawn().unwrap());
    let mut options = scene.options();
    options.timeouts.login = Duration::from_secs(2);
    let until = Instant::now() + LIMIT;
    let error = loop {
        match refusal(&url_at(address), &options) {
            Error::Connect { .. } => std::thread::sleep(Duration::from_millis(10)),
            error => break error,
        }
        assert!(Instant::now() < until, "s_server does not listen");
    };
    // It is no controller, so nothing comes of it but the ICReq that it has read.
    assert!(!is_no_tls(&error), "{error}");
    let mut request = [0; 128];
    server
        .0
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut request)
        .unwrap();
    assert_eq!((request[0], request[2], request[4]), (0, 128, 128));
    let mut wrong = options.clone();
    wrong.nvme.tls = Some(TlsOptions::new(new_key(PskHash::Sha256)));
    wrong.host_nqn = Some(Nqn::new(OTHER_HOST).unwrap());
    assert!(is_no_tls(&refusal(&url_at(address), &wrong)));
}
