//! Hosts and addresses with TLS beside those without.

use longshore_initiator::nvme::discover;
use longshore_initiator::url::HostPort;

use super::*;

fn other_host() -> String {
    format!("\n[[subsystem.access]]\nhosts = [\"{OTHER_HOST}\"]\n")
}

#[test]
fn one_address_serves_both() {
    let scene = Scene::start(PskHash::Sha256, "", &other_host());
    let plain = options(OTHER_HOST, None);
    let mut one = attach(&scene.url(), &plain).unwrap();
    let mut other = scene.attach();
    for round in 0..3 {
        use_it(&mut one, round).unwrap();
        use_it(&mut other, round).unwrap();
    }
}

#[test]
fn a_host_that_may_comes_either_way() {
    let scene = Scene::start(PskHash::Sha256, "", "tls-required = false\n");
    use_it(&mut scene.attach(), 1).unwrap();
    use_it(&mut attach(&scene.url(), &options(HOST, None)).unwrap(), 2).unwrap();
}

#[test]
fn an_address_can_require_tls_or_do_without() {
    let scene = Scene::start(PskHash::Sha256, ",tls=required", &other_host());
    let plain = options(OTHER_HOST, None);
    refusal(&scene.url(), &plain);
    let portal = HostPort::from(scene.server.nvme(0));
    discover(&portal, &plain).unwrap_err();
    use_it(&mut scene.attach(), 1).unwrap();
    let scene = Scene::start(PskHash::Sha256, ",tls=none", &other_host());
    use_it(&mut attach(&scene.url(), &plain).unwrap(), 1).unwrap();
    let mut hasty = scene.options();
    hasty.timeouts.login = Duration::from_secs(3);
    refusal(&scene.url(), &hasty);
}

#[test]
fn discovery_over_tls_says_who_needs_it() {
    let scene = Scene::start(PskHash::Sha256, "", &other_host());
    let portal = HostPort::from(scene.server.nvme(0));
    let told = |options: &Options| {
        let entries = discover(&portal, options).unwrap();
        let entry = entries
            .into_iter()
            .find(|entry| entry.subsystem == SUBSYSTEM)
            .unwrap();
        (entry.requires_secure_channel, entry.security)
    };
    assert_eq!(told(&scene.options()), (true, "tls".to_owned()));
    assert_eq!(told(&options(HOST, None)), (true, "tls".to_owned()));
    assert_eq!(told(&options(OTHER_HOST, None)), (false, "none".to_owned()));
}

/// The oldest of them makes room.
#[test]
fn silent_connections_keep_no_host_out() {
    use std::io::Read;
    use std::net::TcpStream;
    let limits = "\n[limits]\npending-logins = 4\nlogin-timeout = \"60s\"\n";
    let scene = Scene::start(PskHash::Sha256, "", limits);
    let connect = || TcpStream::connect(scene.server.nvme(0)).unwrap();
    let mut silent: Vec<TcpStream> = (0..12).map(|_| connect()).collect();
    use_it(&mut scene.attach(), 1).unwrap();
    silent[0].set_read_timeout(Some(LIMIT)).unwrap();
    let ended = silent[0].read(&mut [0]);
    assert!(
        matches!(&ended, Ok(0))
            || matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset),
        "{ended:?}"
    );
}

/// What the first byte is decides; before it, time does.
#[test]
fn connections_that_say_nothing_or_nonsense_end() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let scratch = Scratch::new("tls-silent");
    let key_file = scratch.join("key");
    keep(&key_file, &new_key(PskHash::Sha256));
    let text = configuration(&key_file, "\n[limits]\nlogin-timeout = \"500ms\"\n");
    let server = ServerBuilder::new().nvme().config(&text).start().unwrap();
    for said in [&b""[..], &[0x16], &[0x16; 40], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.nvme(0)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(said).unwrap();
        let mut rest = Vec::new();
        // An end or a reset, and no wait for ever.
        let ended = stream.read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset,
            "{said:?}"
        );
    }
}
