//! Discovery by the library.

use longshore_initiator::nvme::{EntryKind, discover, discover_host};
use longshore_initiator::options::Options;
use longshore_initiator::url::HostPort;
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::free_port;

use crate::{attach_error, portal_of, serve, volumes};

#[test]
fn discovery_lists_the_subsystem_where_it_is() {
    let server = serve();
    let entries = discover(&portal_of(&server), &Options::default()).unwrap();
    let [entry] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(entry.kind, EntryKind::Nvm);
    assert_eq!(entry.subsystem, SUBSYSTEM);
    assert_eq!(entry.transport, "tcp");
    assert_eq!(entry.portal(), Some(server.nvme(0)));
    assert_eq!(entry.nqn().unwrap().as_str(), SUBSYSTEM);
    assert!(entry.flow_control_optional && !entry.requires_secure_channel);
}

#[test]
fn discovery_answers_at_every_listener() {
    let (one, two) = (free_port(), free_port());
    let server = volumes().nvme_at(one, "").nvme_at(two, "").start().unwrap();
    for asked in [one, two] {
        let found = discover_host(
            &asked.ip().to_string(),
            Some(asked.port()),
            &Options::default(),
        );
        let (portal, entries) = found.unwrap();
        assert_eq!(portal.port, asked.port());
        let mut places: Vec<_> = entries.iter().filter_map(|entry| entry.portal()).collect();
        places.sort();
        let mut expected = vec![one, two];
        expected.sort();
        assert_eq!(places, expected);
    }
    drop(server);
}

#[test]
fn a_port_for_discovery_alone_tells_where_volumes_are_and_has_none() {
    let discovery = free_port();
    let server = volumes()
        .nvme()
        .argument("--nvme-discovery")
        .argument(&discovery.to_string())
        .start()
        .unwrap();
    let portal = HostPort::from(discovery);
    let entries = discover(&portal, &Options::default()).unwrap();
    let of = |kind| entries.iter().filter(move |entry| entry.kind == kind);
    assert_eq!(of(EntryKind::Nvm).count(), 1);
    assert!(of(EntryKind::Nvm).all(|entry| entry.portal() == Some(server.nvme(0))));
    let url = format!("nvme+tcp://{discovery}/{SUBSYSTEM}/1");
    let text = attach_error(&url.parse().unwrap(), &Options::default()).to_string();
    assert!(text.contains(&discovery.to_string()), "{text}");
}

#[test]
fn a_port_that_speaks_something_else_is_told_from_one_that_is_closed() {
    let server = volumes().iscsi().start().unwrap();
    let mut options = Options::default();
    options.timeouts.login = std::time::Duration::from_secs(2);
    let portal = HostPort::from(server.portal(0));
    let text = discover(&portal, &options).unwrap_err().to_string();
    assert!(text.contains("initialization"), "{text}");
}
