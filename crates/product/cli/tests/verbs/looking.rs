//! `longshore discover` and `longshore info`.

use std::io::{Read, copy};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::{Desk, SUBSYSTEM, TARGET, builder, namespace, serve, unit};

#[test]
fn a_portal_is_asked_in_both_protocols_and_says_what_it_has() {
    let desk = Desk::new();
    let server = serve(&[
        "a,backend=mem,size=2M",
        "b,backend=mem,size=4M,block-size=4096",
    ]);
    let (iscsi, nvme) = (server.portal(0).to_string(), server.nvme(0).to_string());
    let text = desk.run(&["discover", &iscsi]).good().stdout;
    for expected in [
        &format!("iSCSI at {iscsi}"),
        TARGET,
        "LUN 0, 2 MiB, blocks of 512",
        "LUN 1, 4 MiB, blocks of 4096",
        &unit(&server, 1),
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = desk.run(&["discover", &nvme]).good().stdout;
    for expected in [
        &format!("NVMe/TCP at {nvme}"),
        SUBSYSTEM,
        "NSID 1, 2 MiB, blocks of 512",
        &namespace(&server, 1),
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn urls_that_discover_prints_are_taken_by_the_other_verbs() {
    let desk = Desk::new();
    desk.image("image", 2 << 20);
    let server = serve(&["a,backend=mem,size=2M"]);
    for address in [server.portal(0), server.nvme(0)] {
        let address = address.to_string();
        let found = desk.run(&["discover", &address, "--output", "json"]);
        let found = found.good().json();
        let volume = &found["targets"][0]["volumes"][0];
        assert_eq!(volume["size_bytes"], 2 << 20);
        let url = volume["url"].as_str().unwrap();
        let info = desk.run(&["info", url, "--output", "json"]).good().json();
        assert_eq!(info["size_bytes"], 2 << 20);
        assert_eq!(info["block_size"], 512);
        desk.run(&["copy", &desk.path("image"), url]).good();
    }
}

#[test]
fn info_tells_limits_identifiers_and_parameters() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=2M"]);
    for (url, protocol, parameter) in [
        (unit(&server, 0), "iscsi", "MaxBurstLength"),
        (namespace(&server, 0), "nvme-tcp", "MAXH2CDATA"),
    ] {
        let info = desk.run(&["info", &url, "--output", "json"]).good().json();
        for key in [
            "url",
            "portal",
            "size_bytes",
            "block_size",
            "block_count",
            "max_transfer_blocks",
            "identifiers",
            "reservation",
        ] {
            assert!(!info[key].is_null(), "{key}: {info}");
        }
        assert_eq!(info["protocol"], protocol);
        assert!(info["negotiated"][parameter].is_string(), "{info}");
        let text = desk.run(&["info", &url]).good().stdout;
        assert!(text.contains("2 MiB (2097152 bytes)"), "{text}");
        assert!(text.contains(parameter), "{text}");
    }
}

#[test]
fn nothing_there_is_said_with_each_reason() {
    let desk = Desk::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let text = desk.run(&["discover", &address]).refused(1);
    assert!(text.contains("error: no iSCSI at"), "{text}");
    assert!(text.contains("error: no NVMe/TCP at"), "{text}");
    desk.run(&["discover", "http://host"]).refused(2);
}

#[test]
fn a_silent_server_is_given_up() {
    let desk = Desk::new();
    // Connections are made, and nobody ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arguments = ["discover", &address, "--connect-timeout", "1s"];
    let text = desk.run(&arguments).refused(1);
    assert!(text.contains("no answer"), "{text}");
}

#[test]
fn secrets_open_targets_and_are_never_printed() {
    let desk = Desk::new();
    std::fs::write(desk.path("secret"), "sixteen-letters!\n").unwrap();
    let config = format!(
        r#"
[[volume]]
name = "a"
backend = "mem"
size = "2M"

[[target]]
name = "iqn.2026-11.com.example:locked"
accounts = [{{ user = "ann", secret-file = "{}" }}]
"#,
        desk.path("secret")
    );
    let server = builder().iscsi().config(&config).start().unwrap();
    let address = server.portal(0).to_string();
    let secret = desk.path("secret");
    let account = ["--chap-user", "ann", "--chap-secret-file", &secret];
    let open = [&["discover", address.as_str()][..], &account].concat();
    let text = desk.run(&open).good().stdout;
    assert!(text.contains("LUN 0, 2 MiB"), "{text}");

    let url = format!("iscsi://{address}/iqn.2026-11.com.example:locked/0");
    desk.run(&[&["info", url.as_str()][..], &account].concat())
        .good();
    desk.run(&["info", &url]).refused(1);
    let with_password = url.replace("iscsi://", "iscsi://ann%sixteen-letters!@");
    let ran = desk.run(&["info", &with_password]).good();
    assert!(!ran.stdout.contains("sixteen"), "{ran:?}");
    let wrong = url.replace("iscsi://", "iscsi://ann%not-this-secret@");
    let text = desk.run(&["info", &wrong]).refused(1);
    assert!(!text.contains("not-this-secret"), "{text}");
}

#[test]
fn discover_takes_the_url_of_a_volume_for_its_server() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=2M"]);
    for url in [unit(&server, 0), namespace(&server, 0)] {
        let text = desk.run(&["discover", &url]).good().stdout;
        assert!(text.contains(&url), "{text}");
    }
    let portal = format!("iscsi://{}", server.portal(0));
    let text = desk.run(&["discover", &portal]).good().stdout;
    assert!(text.contains(TARGET), "{text}");
}

/// A portal that passes connections with this first byte on to `to`, and never answers others.
fn silent_for_others(first: u8, to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || relay_or_stay_silent(client, first, to));
        }
    });
    address
}

fn relay_or_stay_silent(mut client: TcpStream, first: u8, to: SocketAddr) {
    let mut byte = [0];
    if !matches!(client.peek(&mut byte), Ok(1)) {
        return;
    }
    if byte[0] != first {
        while matches!(client.read(&mut [0; 512]), Ok(1..)) {}
        return;
    }
    let mut server = TcpStream::connect(to).expect("connect");
    let halves = (server.try_clone(), client.try_clone());
    let (mut from_server, mut to_client) = (halves.0.unwrap(), halves.1.unwrap());
    let back = thread::spawn(move || copy(&mut from_server, &mut to_client));
    let _ = copy(&mut client, &mut server);
    let _ = server.shutdown(std::net::Shutdown::Write);
    let _ = back.join();
}

#[test]
fn a_server_of_the_other_protocol_is_recognized() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=2M"]);
    let (iscsi, nvme) = (server.portal(0), server.nvme(0));
    let (login, icreq) = (0x43, 0x00);
    let cases = [
        (iscsi, nvme),
        // Some targets never answer the other protocol. Greetings are repeated until one is answered.
        (
            silent_for_others(login, iscsi),
            silent_for_others(icreq, nvme),
        ),
    ];
    for (iscsi, nvme) in cases {
        let wrong = format!("nvme+tcp://{iscsi}/{SUBSYSTEM}/1");
        let right = format!("iscsi://{iscsi}/IQN/LUN");
        let copied = desk.path("copied");
        let verbs: [&[&str]; 3] = [
            &["info", &wrong],
            &["copy", &wrong, &copied],
            &["bench", &wrong, "--operations", "1"],
        ];
        for verb in verbs {
            let ran = desk.run(&[verb, &["--connect-timeout", "60s"]].concat());
            let text = ran.refused(1);
            assert!(text.contains("speaks iSCSI, not NVMe/TCP"), "{text}");
            assert!(text.contains(&right), "{text}");
        }
        let wrong = format!("iscsi://{nvme}/{TARGET}/0");
        let right = format!("nvme+tcp://{nvme}/NQN/NSID");
        let text = desk.run(&["info", &wrong, "--connect-timeout", "60s"]);
        let text = text.refused(1);
        assert!(text.contains("speaks NVMe/TCP, not iSCSI"), "{text}");
        assert!(text.contains(&right), "{text}");
    }
}
