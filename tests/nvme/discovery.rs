//! Discovery: which subsystems a host is told of, and where.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::nvme::{DISCOVERY, Host, HostOptions, SUBSYSTEM, discover};
use longshore_tests::server::free_port;
use longshore_tests::skip::skip;

use crate::{number, serve, volumes};

#[test]
fn a_host_is_told_of_the_subsystem_where_it_asked() {
    let server = serve();
    let (_, entries) = discover(server.nvme(0), &HostOptions::default()).unwrap();
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(entry.transport, 3, "TCP");
    assert_eq!(entry.address_family, 1, "IPv4");
    assert_eq!(entry.subsystem_type, 2, "an NVM subsystem");
    assert_eq!(entry.controller_id, 0xffff, "dynamic controllers");
    assert_eq!(entry.subsystem, SUBSYSTEM);
    assert_eq!(entry.address, server.nvme(0).ip().to_string());
    assert_eq!(entry.service, server.nvme(0).port().to_string());
}

#[test]
fn every_listener_is_told_with_the_address_it_advertises() {
    let (one, two) = (free_port(), free_port());
    let server = volumes()
        .nvme_at(one, "")
        .nvme_at(two, ",advertise=192.0.2.7:4420")
        .start()
        .unwrap();
    for asked in [one, two] {
        let (_, entries) = discover(asked, &HostOptions::default()).unwrap();
        let mut places: Vec<_> = entries
            .iter()
            .map(|entry| (entry.address.clone(), entry.service.clone()))
            .collect();
        places.sort();
        let expected = [
            (one.ip().to_string(), one.port().to_string()),
            ("192.0.2.7".to_owned(), "4420".to_owned()),
        ];
        assert_eq!(places, expected);
        let mut ports: Vec<_> = entries.iter().map(|entry| entry.port_id).collect();
        ports.dedup();
        assert_eq!(ports.len(), 2, "a port identifier each");
    }
    drop(server);
}

#[test]
fn an_unspecified_address_is_never_told() {
    let port = free_port().port();
    let server = volumes()
        .nvme_at(([0, 0, 0, 0], port).into(), "")
        .config("[listen]\nallow-open = true\n")
        .start()
        .unwrap();
    let at = ([127, 0, 0, 1], port).into();
    let (_, entries) = discover(at, &HostOptions::default()).unwrap();
    assert!(!entries.is_empty());
    for entry in entries {
        assert_eq!(entry.address, "127.0.0.1", "where the host asked");
        assert_eq!(entry.service, port.to_string());
    }
    drop(server);
}

#[test]
fn a_listener_on_ipv6_is_told_as_such() {
    let port = free_port().port();
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    if TcpListener::bind(at).is_err() {
        skip("this machine has no IPv6");
        return;
    }
    let server = volumes()
        .nvme()
        .nvme_at(at, "")
        .nvme_at(free_port(), ",advertise=[2001:db8::7]:4420")
        .start()
        .unwrap();
    let (_, entries) = discover(at, &HostOptions::default()).unwrap();
    // The loopback address of the other family says nothing to whoever asks by this one.
    let mut families: Vec<_> = entries
        .iter()
        .map(|entry| (entry.address_family, entry.address.as_str()))
        .collect();
    families.sort_unstable();
    assert_eq!(families, [(2, "2001:db8::7"), (2, "::1")]);
    Host::connect(at, &HostOptions::default()).unwrap();
    drop(server);
}

#[test]
fn a_discovery_listener_answers_and_serves_no_volumes() {
    let (volumes_at, discovery_at) = (free_port(), free_port());
    let server = volumes()
        .nvme_at(volumes_at, "")
        .argument("--nvme-discovery")
        .argument(&discovery_at.to_string())
        .start()
        .unwrap();
    let (_, entries) = discover(discovery_at, &HostOptions::default()).unwrap();
    let subsystem = entries.iter().find(|entry| entry.subsystem == SUBSYSTEM);
    assert_eq!(subsystem.unwrap().service, volumes_at.port().to_string());
    assert!(Host::connect(discovery_at, &HostOptions::default()).is_err());
    drop(server);
}

#[test]
fn a_discovery_controller_is_one() {
    let server = serve();
    let options = HostOptions::default().discovery();
    let mut host = Host::connect(server.nvme(0), &options).unwrap();
    let identify = host.identify(0x01, 0).unwrap();
    let name = String::from_utf8_lossy(&identify[768..1024]).into_owned();
    assert_eq!(name.trim_end_matches('\0'), DISCOVERY);
    assert_eq!(identify[111], 2, "CNTRLTYPE");
    let io = host
        .options
        .try_connect(server.nvme(0), 1, host.controller_id);
    assert!(!io.unwrap().1.is_success(), "it has no I/O queues");
    let smart = commands::get_log_page(0x02, longshore_nvme::command::NamespaceId(0), 0, 512);
    let answer = host.admin(&smart, &[]).unwrap();
    assert!(!answer.is_success());
    // The header alone, as hosts read it first.
    let header = host.log_page(0x70, 0, 16).unwrap();
    assert_eq!(number(&header, 8, 8), 1);
    // A persistent connection keeps alive.
    host.admin(&commands::keep_alive(), &[])
        .unwrap()
        .expect_success();
}

#[test]
fn an_unknown_subsystem_is_refused_by_field() {
    let server = serve();
    let options = HostOptions {
        subsystem: "nqn.2026-11.local.longshore:nowhere".to_owned(),
        ..HostOptions::default()
    };
    let (_, answer) = options.try_connect(server.nvme(0), 0, 0xffff).unwrap();
    assert_eq!(answer.code(), Status::CONNECT_INVALID_PARAMETERS);
    // SUBNQN is at byte 256 of the data.
    assert_eq!(answer.result & 0x1_ffff, 0x1_0100);
}
