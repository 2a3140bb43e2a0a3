//! Subsystems, listeners for NVMe, and what both protocols mean to each other.

use longshore_server::config::NamespaceMapEntry;

use super::super::nvme_listener::DISCOVERY_PORT;
use super::*;

const SUBSYSTEM: &str = "[[subsystem]]\nnqn = \"nqn.2026-11.com.example:s\"\n";
const NVME: &str = "[listen]\nnvme = [\"127.0.0.1:4420\"]\n";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

fn namespace(nsid: u32, volume: usize, read_only: bool) -> NamespaceMapEntry {
    NamespaceMapEntry {
        nsid,
        volume,
        read_only,
    }
}

/// Arguments with listeners for NVMe.
fn with_nvme(nvme: &[&str], discovery: &[&str]) -> Arguments {
    Arguments {
        nvme: nvme.iter().map(|text| text.parse().unwrap()).collect(),
        nvme_discovery: discovery.iter().map(|text| text.parse().unwrap()).collect(),
        ..arguments(&["a,backend=null,size=1T", "b,backend=mem,size=1M"], &[])
    }
}

/// Two more volumes beside `disk0`.
const SPARES: &str = "[[volume]]\nname = \"disk1\"\nbackend = \"mem\"\nsize = 512\n\
                      [[volume]]\nname = \"disk2\"\nbackend = \"mem\"\nsize = 512\n";

#[test]
fn volume_i_is_namespace_i_plus_1_of_the_default_subsystem() {
    let config = Config::assemble(None, with_nvme(&["127.0.0.1"], &[])).unwrap();
    let subsystem = &config.subsystems[0];
    assert_eq!(
        subsystem.nqn.as_str(),
        "nqn.2026-11.local.longshore:default"
    );
    assert!(subsystem.is_open() && subsystem.hosts.is_empty());
    let expected = [namespace(1, 0, false), namespace(2, 1, false)];
    assert_eq!(subsystem.default_namespaces.as_deref(), Some(&expected[..]));
}

#[test]
fn without_a_word_both_protocols_are_served_on_loopback() {
    let given = arguments(&["a,backend=mem,size=1G"], &[]);
    let config = Config::assemble(None, given).unwrap();
    assert!(config.listeners_by_default);
    assert_eq!(config.listeners, [DEFAULT_LISTENER]);
    assert_eq!(config.nvme_listeners, [DEFAULT_NVME_LISTENER]);
    assert_eq!(config.nvme_discovery, DiscoveryListeners::Automatic);
}

#[test]
fn naming_a_listener_of_one_protocol_leaves_the_other_out() {
    let config = Config::assemble(None, with_nvme(&["127.0.0.1:4421"], &[])).unwrap();
    assert_eq!(config.listeners, []);
    assert!(!config.listeners_by_default);
    let given = arguments(&["a,backend=mem,size=1G"], &["127.0.0.1:0"]);
    let config = Config::assemble(None, given).unwrap();
    assert_eq!(config.nvme_listeners, []);
}

#[test]
fn a_file_that_speaks_of_one_protocol_opens_no_listener_of_the_other_by_itself() {
    let targets = config(TARGET);
    assert_eq!(targets.listeners, [DEFAULT_LISTENER]);
    assert_eq!(targets.nvme_listeners, []);
    let subsystems = config(SUBSYSTEM);
    assert_eq!(subsystems.listeners, []);
    assert_eq!(subsystems.nvme_listeners, [DEFAULT_NVME_LISTENER]);
    let both = config(&format!("{TARGET}{SUBSYSTEM}"));
    assert_eq!(both.listeners.len() + both.nvme_listeners.len(), 2);
}

#[test]
fn listeners_for_nvme_are_texts_or_tables() {
    let config = config(
        "[listen]\nnvme = [\"127.0.0.1:1,advertise=192.0.2.7:4420\", \
         { address = \"[::1]\", advertise = \"2001:db8::1\" }]\n\
         nvme-discovery = [\"127.0.0.1\"]\n",
    );
    let [first, second] = &config.nvme_listeners[..] else {
        panic!("two listeners");
    };
    let bound = |listener: &NvmeListenerConfig| {
        let told = listener.advertise.unwrap();
        told.with_port_of(listener.address).to_string()
    };
    assert_eq!(bound(first), "192.0.2.7:4420");
    assert_eq!(second.address.to_string(), "[::1]:4420");
    assert_eq!(bound(second), "[2001:db8::1]:4420");
    let discovery = config.nvme_discovery.by_name();
    assert_eq!(discovery[0].address.port(), DISCOVERY_PORT);
}

#[test]
fn listeners_that_make_no_sense_are_shown_where_they_stand() {
    for (text, expected) in [
        (
            "nvme = [\"127.0.0.1:70000\"]",
            ":6:9: `70000` is not a port",
        ),
        (
            "nvme = [\"127.0.0.1,advertise=nas.example.com\"]",
            "reports addresses, not names",
        ),
        (
            "nvme = [{ address = \"127.0.0.1\", tag = 1 }]",
            "unknown key `tag`",
        ),
        ("nvme = [4420]", "an address such as \"127.0.0.1:4420\""),
        (
            "nvme-discovery = \"127.0.0.1\"",
            "expected a list of addresses",
        ),
        (
            "nvme-discovery = [\"nowhere\"]",
            "for example 127.0.0.1:8009",
        ),
    ] {
        let message = refusal(&format!("[listen]\n{text}\n"));
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn discovery_can_be_moved_and_turned_off_and_the_command_line_wins() {
    let discovery = |file_says: &str, arguments: &[&str]| {
        let text = with_volume(&format!("{NVME}{file_says}"));
        let file = file(&text).unwrap();
        Config::assemble(Some(&file), with_nvme(&[], arguments)).map(|config| config.nvme_discovery)
    };
    let off = DiscoveryListeners::At(Vec::new());
    assert_eq!(discovery("", &[]).unwrap(), DiscoveryListeners::Automatic);
    assert_eq!(discovery("", &["none"]).unwrap(), off);
    assert_eq!(discovery("nvme-discovery = []\n", &[]).unwrap(), off);
    assert_eq!(discovery("nvme-discovery = \"none\"\n", &[]).unwrap(), off);
    let moved = discovery("nvme-discovery = \"none\"\n", &["127.0.0.1:9"]).unwrap();
    assert_eq!(moved.by_name()[0].address.port(), 9);
    let message = discovery("", &["none", "127.0.0.1:9"]).unwrap_err();
    assert!(
        message.to_string().contains("contradicts an address"),
        "{message}"
    );
}

#[test]
fn listeners_of_both_protocols_need_addresses_of_their_own() {
    for (nvme, discovery) in [
        ("127.0.0.1:3260", "none"),
        ("127.0.0.1:4420", "127.0.0.1:3260"),
        ("127.0.0.1:4420", "127.0.0.1:4420"),
    ] {
        let mut given = with_nvme(&[nvme], &[discovery]);
        given.iscsi = vec![DEFAULT_LISTENER];
        let message = Config::assemble(None, given).unwrap_err().to_string();
        assert!(
            message.contains("two listeners have the address"),
            "{message}"
        );
    }
    let mut given = with_nvme(&["127.0.0.1:0", "127.0.0.1:0"], &["127.0.0.1:0"]);
    given.iscsi = vec!["127.0.0.1:0".parse().unwrap()];
    assert!(Config::assemble(None, given).is_ok());
}

#[test]
fn a_subsystem_has_a_name_a_serial_number_and_a_map() {
    let config = config(&format!(
        "{SPARES}{NVME}{SUBSYSTEM}serial = \"LS-0001\"\n\
         namespaces = [{{ nsid = 7, volume = \"disk1\", read-only = true }}, \
         {{ nsid = 2, volume = \"disk0\" }}]\n"
    ));
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.serial.as_deref(), Some("LS-0001"));
    let expected = [namespace(2, 0, false), namespace(7, 1, true)];
    assert_eq!(subsystem.default_namespaces.as_deref(), Some(&expected[..]));
    let volume = "disk2".to_owned();
    assert_eq!(config.warnings, [Warning::UnmappedVolume { volume }]);
}

#[test]
fn bad_names_and_serial_numbers_say_what_is_wrong() {
    for (text, expected) in [
        (
            "[[subsystem]]\nnqn = \"iqn.2026-11.com.example:s\"\n".to_owned(),
            ":6:7: `iqn.2026-11.com.example:s` is not an NVMe qualified name: an NQN starts with",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"\n".to_owned(),
            ":6:7: nqn.2014-08.org.nvmexpress.discovery is the name of the discovery subsystem",
        ),
        (
            format!("{SUBSYSTEM}{SUBSYSTEM}"),
            ":8:7: two subsystems have the name `nqn.2026-11.com.example:s`",
        ),
        (
            format!("{SUBSYSTEM}serial = \"\""),
            ":7:10: `` is not a serial number",
        ),
        (
            format!("{SUBSYSTEM}serial = \"a serial number beyond 20\""),
            "use 1 to 20 printable ASCII characters",
        ),
        (
            "[[subsystem]]\nname = \"nqn.2026-11.com.example:s\"\n".to_owned(),
            ":6:1: unknown key `name`; known are nqn, ",
        ),
        ("[[subsystem]]\n".to_owned(), "the key `nqn` is missing"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn maps_of_namespaces_are_checked() {
    let map = |entries: &str| refusal(&format!("{SPARES}{SUBSYSTEM}namespaces = [{entries}]\n"));
    for (entries, expected) in [
        (
            "{ nsid = 1, volume = \"disc0\" }",
            ":15:15: there is no volume `disc0`; did you mean `disk0`?",
        ),
        (
            "{ nsid = 1, volume = \"disk0\" }, { nsid = 1, volume = \"disk1\" }",
            "NSID 1 is given twice in one map",
        ),
        (
            "{ nsid = 1, volume = \"disk0\" }, { nsid = 2, volume = \"disk0\" }",
            "volume `disk0` is NSID 1 of this subsystem already and cannot be NSID 2 as well",
        ),
        (
            "{ nsid = 0, volume = \"disk0\" }",
            "NSID 0 is out of range; use 1 to 16384",
        ),
        (
            "{ nsid = 4294967295, volume = \"disk0\" }",
            "NSID 4294967295 is out of range",
        ),
        (
            "{ lun = 0, volume = \"disk0\" }",
            "unknown key `lun`; known are nsid, ",
        ),
    ] {
        let message = map(entries);
        assert!(message.contains(expected), "{entries}: {message}");
    }
}

#[test]
fn access_rules_give_hosts_their_own_map_and_refuse_the_rest() {
    let config = config(&format!(
        "{SPARES}{SUBSYSTEM}\
         [[subsystem.access]]\nhosts = [\"{HOST}\"]\n\
         namespaces = [{{ nsid = 2, volume = \"disk1\" }}]\n\
         [[subsystem.access]]\nhosts = [\"nqn.2026-11.com.example:backup\"]\nread-only = true\n"
    ));
    let subsystem = &config.subsystems[0];
    assert!(!subsystem.is_open());
    let own = &subsystem.hosts[0];
    assert_eq!(own.hosts[0].as_str(), HOST);
    assert_eq!(own.namespaces, [namespace(2, 1, false)]);
    let inherited = [1, 2, 3].map(|nsid| namespace(nsid, nsid as usize - 1, true));
    assert_eq!(subsystem.hosts[1].namespaces, inherited);
}

#[test]
fn a_star_stands_for_all_other_hosts() {
    let config = config(&format!(
        "{SUBSYSTEM}[[subsystem.access]]\nhosts = [\"{HOST}\"]\n\
         [[subsystem.access]]\nhosts = [\"*\"]\nread-only = true\n"
    ));
    let subsystem = &config.subsystems[0];
    assert!(subsystem.is_open());
    assert_eq!(
        subsystem.default_namespaces.as_deref(),
        Some(&[namespace(1, 0, true)][..])
    );
    assert!(!subsystem.hosts[0].namespaces[0].read_only);
}

#[test]
fn rules_for_hosts_that_contradict_each_other_are_refused() {
    let rule = |hosts: &str| format!("[[subsystem.access]]\nhosts = [{hosts}]\n");
    let (host, star) = (format!("\"{HOST}\""), "\"*\"");
    for (rules, expected) in [
        (rule(""), "a rule needs at least one host"),
        (
            rule(&host) + &rule(&host),
            "an earlier rule of this subsystem names",
        ),
        (rule(star) + &rule(star), "names host `*` already"),
        (rule("\"web1\""), "`web1` is not an NVMe qualified name"),
    ] {
        let message = refusal(&format!("{SUBSYSTEM}{rules}"));
        assert!(message.contains(expected), "{rules}: {message}");
    }
}

#[test]
fn a_namespace_has_one_number_for_all_hosts() {
    let rule = |nsid: u32, volume: &str| {
        format!(
            "[[subsystem.access]]\nhosts = [\"nqn.2026-11.com.example:h{nsid}{volume}\"]\n\
             namespaces = [{{ nsid = {nsid}, volume = \"{volume}\" }}]\n"
        )
    };
    let refused = |rules: &str| refusal(&format!("{SPARES}{SUBSYSTEM}{rules}"));
    let message = refused(&(rule(1, "disk0") + &rule(1, "disk1")));
    assert!(
        message.contains("volume `disk1` cannot be NSID 1, which is volume `disk0`"),
        "{message}"
    );
    let message = refused(&(rule(1, "disk0") + &rule(2, "disk0")));
    assert!(
        message.contains("volume `disk0` is NSID 1 of this subsystem already"),
        "{message}"
    );
    // The map of the subsystem itself counts where a rule takes it, and nowhere else.
    let everybody = "[[subsystem.access]]\nhosts = [\"*\"]\n";
    let message = refused(&(rule(2, "disk0") + everybody));
    assert!(
        message.contains("volume `disk0` cannot be NSID 2, which is volume `disk1`"),
        "{message}"
    );
    config(&format!("{SPARES}{SUBSYSTEM}{}", rule(2, "disk0")));
}

#[test]
fn a_volume_that_one_host_sees_in_two_subsystems_is_worth_a_warning() {
    let subsystem = |name: &str, host: &str| {
        format!(
            "[[subsystem]]\nnqn = \"nqn.2026-11.com.example:{name}\"\n\
             [[subsystem.access]]\nhosts = [\"{host}\"]\n"
        )
    };
    let apart = subsystem("a", HOST) + &subsystem("b", "nqn.2026-11.com.example:other");
    assert_eq!(config(&apart).warnings, []);
    for other in [HOST, "*"] {
        let together = subsystem("a", HOST) + &subsystem("b", other);
        let expected = Warning::VolumeInTwoSubsystems {
            volume: "disk0".into(),
            first: "nqn.2026-11.com.example:a".into(),
            second: "nqn.2026-11.com.example:b".into(),
        };
        assert_eq!(config(&together).warnings, [expected]);
    }
}

#[test]
fn open_subsystems_are_kept_from_other_machines_unless_asked_for() {
    for address in ["0.0.0.0:4420", "[::]:4420", "192.0.2.1:4420"] {
        let listen = format!("[listen]\nnvme = [\"127.0.0.1:1\", \"{address}\"]\n");
        let message = check(&config(&listen)).unwrap_err();
        assert!(
            message.starts_with(&format!("other machines can reach {address}")),
            "{message}"
        );
        for way_out in [
            "--nvme 127.0.0.1:4420",
            "[[subsystem.access]]",
            "allow-open",
        ] {
            assert!(message.contains(way_out), "{message}");
        }
        let asked_for = config(&format!("{listen}allow-open = true\n"));
        let warnings = check(&asked_for).unwrap();
        assert!(matches!(warnings[..], [Warning::OpenSubsystem { .. }]));
        let rule = format!("[[subsystem.access]]\nhosts = [\"{HOST}\"]\n");
        let guarded = config(&format!("{listen}{SUBSYSTEM}{rule}"));
        assert_eq!(check(&guarded), Ok(vec![]));
    }
    // Discovery tells names and addresses, and gives nobody a volume.
    let discovery = config(&format!("{NVME}nvme-discovery = [\"0.0.0.0:8009\"]\n"));
    assert_eq!(check(&discovery), Ok(vec![]));
}

#[test]
fn access_control_that_the_other_protocol_goes_round_is_worth_a_warning() {
    let listen = "[listen]\niscsi = [\"127.0.0.1:3260\"]\nnvme = [\"127.0.0.1:4420\"]\n";
    let account = "accounts = [{ user = \"a\", secret = \"0123456789abcdef\" }]\n";
    let rule = format!("[[subsystem.access]]\nhosts = [\"{HOST}\"]\n");
    let found = |text: &str| check(&config(text)).unwrap();
    for (text, guarded) in [
        (format!("{listen}{TARGET}{account}"), "target"),
        (format!("{listen}{SUBSYSTEM}{rule}"), "subsystem"),
    ] {
        let warnings = found(&text);
        let [Warning::OpenBeside { guarded: named, .. }] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert_eq!(*named, guarded);
    }
    let both = format!("{listen}{TARGET}{account}{SUBSYSTEM}{rule}");
    assert_eq!(found(&both), []);
    assert_eq!(found(&format!("{listen}{TARGET}")), []);
}

#[test]
fn tables_of_a_protocol_that_nothing_listens_for_are_worth_a_warning() {
    let addresses = Addresses {
        nvme: vec!["127.0.0.1:4420".parse().unwrap()],
        ..Addresses::default()
    };
    let targets = config(&format!("{TARGET}portal-groups = [9]\n"));
    let warnings = targets.check_reach(&addresses).unwrap();
    assert!(
        warnings[0]
            .to_string()
            .contains("[[target]] tables, but no listener for iSCSI: add --iscsi"),
        "{warnings:?}"
    );
    let subsystems = config(&format!(
        "[listen]\niscsi = [\"127.0.0.1:3260\"]\n{SUBSYSTEM}"
    ));
    let warnings = check(&subsystems).unwrap();
    assert!(
        warnings[0].to_string().contains("no listener for NVMe"),
        "{warnings:?}"
    );
}

#[test]
fn in_capsule_data_comes_in_units_of_16_bytes() {
    let message = refusal("[limits]\nin-capsule-data = 8200\n");
    assert!(
        message.contains(":6:19: in-capsule-data 8200 is not a multiple of 16 bytes"),
        "{message}"
    );
    let limits = config("[limits]\nin-capsule-data = 8208\n").limits;
    assert_eq!(limits.in_capsule_data, 8208);
}
