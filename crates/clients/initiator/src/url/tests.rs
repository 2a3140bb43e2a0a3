use proptest::prelude::*;

use super::*;

const IQN: &str = "iqn.2026-11.com.example:disks";
const NQN: &str = "nqn.2026-11.com.example:disks";

fn iscsi(text: &str) -> IscsiUrl {
    match text.parse() {
        Ok(Url::Iscsi(url)) => url,
        other => panic!("{text}: {other:?}"),
    }
}

fn nvme(text: &str) -> NvmeUrl {
    match text.parse() {
        Ok(Url::NvmeTcp(url)) => url,
        other => panic!("{text}: {other:?}"),
    }
}

fn error(text: &str) -> String {
    text.parse::<Url>().unwrap_err().to_string()
}

fn portal(host: &str, port: u16) -> HostPort {
    HostPort {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn an_iscsi_url_names_portal_target_and_lun() {
    let url = iscsi("iscsi://192.0.2.1/iqn.2026-11.com.example:disks/3");
    assert_eq!(url.portals, [portal("192.0.2.1", 3260)]);
    assert_eq!(url.target.as_str(), IQN);
    assert_eq!(url.lun, 3);
    assert!(url.user.is_none() && url.password.is_none() && url.chap().is_none());
    let url = iscsi("iscsi://storage.example:3261/iqn.2026-11.com.example:disks/0");
    assert_eq!(url.portals, [portal("storage.example", 3261)]);
}

#[test]
fn an_nvme_url_names_portal_subsystem_and_namespace() {
    let url = nvme("nvme+tcp://[fe80::1%eth0]:4421/nqn.2026-11.com.example:disks/7");
    assert_eq!(url.portals, [portal("fe80::1%eth0", 4421)]);
    assert_eq!(url.subsystem.as_str(), NQN);
    assert_eq!(url.namespace, 7);
    let url = nvme("nvme+tcp://[::1]/nqn.2026-11.com.example:disks/1");
    assert_eq!(url.portals, [portal("::1", 4420)]);
}

#[test]
fn user_and_password_stand_in_front_of_the_host() {
    let url = iscsi("iscsi://user%pass%40word%@host/iqn.2026-11.com.example:disks/0");
    assert_eq!(url.user.as_deref(), Some("user"));
    assert_eq!(url.password, Some(Secret::from("pass@word%")));
    let url = iscsi("iscsi://user%with@at@host/iqn.2026-11.com.example:disks/0");
    assert_eq!(url.password, Some(Secret::from("with@at")));
    let url = iscsi("iscsi://user@host/iqn.2026-11.com.example:disks/0");
    assert_eq!((url.user.as_deref(), url.password), (Some("user"), None));
}

#[test]
fn passwords_are_never_printed() {
    let text = "iscsi://user%hidden@host/iqn.2026-11.com.example:disks/0?target_user=t&target_password=secret";
    let url: Url = text.parse().unwrap();
    for printed in [url.to_string(), format!("{url:?}"), format!("{url:#?}")] {
        assert!(printed.contains("user"));
        assert!(
            !printed.contains("hidden") && !printed.contains("secret"),
            "{printed}"
        );
    }
    for wrong in [
        "iscsi://user%hidden@host",
        "iscsi://user%hidden@host:0/iqn.2026-11.com.example:disks/0",
        "iscsi://user%hidden@host/iqn.2026-11.com.example:disks/0?nonsense=hidden",
        "nvme+tcp://user%hidden@host/nqn.2026-11.com.example:disks/1",
        "iscsi://host/iqn.2026-11.com.example:disks/0?target_password=hidden",
        "http://user%hidden@host",
    ] {
        let error = wrong.parse::<Url>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hidden"), "{error}");
    }
}

#[test]
fn a_query_names_further_portals_digests_and_the_account_of_the_target() {
    let url = iscsi(
        "iscsi://a/iqn.2026-11.com.example:disks/0?portal=b:3261&portal=[::1]&portal=b:3261&header_digest=CRC32C&data_digest=none&target_user=t&target_password=p%26q",
    );
    let expected = [portal("a", 3260), portal("b", 3261), portal("::1", 3260)];
    assert_eq!(url.portals, expected);
    assert_eq!(url.digests.header, Some(DigestWish::Require));
    assert_eq!(url.digests.data, Some(DigestWish::Off));
    let account = url.mutual_chap().unwrap();
    assert_eq!(account.name, "t");
    assert_eq!(account.secret, Secret::from("p&q"));
}

#[test]
fn escapes_in_names_are_decoded() {
    let url = iscsi("iscsi://host/iqn.2026-11.com.example%3Adisks/0");
    assert_eq!(url.target.as_str(), IQN);
}

#[test]
fn mistakes_are_told_with_the_form_that_is_right() {
    for (text, expected) in [
        ("disk.img", "starts with neither"),
        ("iscsi://host", "the part after the host is missing"),
        (
            "iscsi://host/iqn.2026-11.com.example:a",
            "iscsi://[USER[%PASSWORD]@]HOST[:PORT]/IQN/LUN",
        ),
        (
            "iscsi://host/iqn.2026-11.com.example:a/0/1",
            "one / too many",
        ),
        (
            "iscsi:///iqn.2026-11.com.example:a/0",
            "the host is missing",
        ),
        (
            "iscsi://host:99999/iqn.2026-11.com.example:a/0",
            "from 1 to 65535",
        ),
        ("iscsi://fe80::1/iqn.2026-11.com.example:a/0", "in brackets"),
        ("iscsi://[host]/iqn.2026-11.com.example:a/0", "in brackets"),
        ("iscsi://host/disks/0", "does not start with iqn."),
        (
            "iscsi://host/iqn.2026-11.com.example:a/x",
            "from 0 to 16383",
        ),
        (
            "iscsi://host/iqn.2026-11.com.example:a/16384",
            "from 0 to 16383",
        ),
        (
            "iscsi://@host/iqn.2026-11.com.example:a/0",
            "user before the @",
        ),
        (
            "iscsi://host/iqn.2026-11.com.example:a/0?target_user=x",
            "need each other",
        ),
        (
            "iscsi://host/iqn.2026-11.com.example:a/0?data_digest=md5",
            "none or crc32c",
        ),
        ("nvme+tcp://host/nqn.2026-11.com.example:a/0", "from 1"),
        (
            "nvme+tcp://host/nqn.2026-11.com.example:a/4294967295",
            "from 1",
        ),
        (
            "nvme+tcp://host/nqn.2026-11.com.example:a/1?hostnqn=x",
            "use portal",
        ),
        (
            "nvme+tcp://host/nqn.2026-11.com.example:a/1?data_digest=none&data_digest=none",
            "given twice",
        ),
        (
            "nvme+tcp://user@host/nqn.2026-11.com.example:a/1",
            "has no users",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many: String = (1..=17).map(|n| format!("portal=h{n}&")).collect();
    assert!(error(&format!("iscsi://h/{IQN}/0?{many}")).contains("16 portals"));
    assert!(error(&format!("iscsi://{}", "x".repeat(5000))).contains("4096"));
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9.-]{0,30}",
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| format!("{address}%eth0")),
    ]
}

fn portals() -> impl Strategy<Value = Vec<HostPort>> {
    let portal = (host(), 1_u16..).prop_map(|(host, port)| HostPort { host, port });
    prop::collection::vec(portal, 1..5).prop_map(|mut portals| {
        let mut seen = std::collections::HashSet::new();
        portals.retain(|portal| seen.insert(portal.clone()));
        portals
    })
}

fn digests() -> impl Strategy<Value = DigestWishes> {
    let digest = || {
        prop::option::of(prop_oneof![
            Just(DigestWish::Off),
            Just(DigestWish::Require)
        ])
    };
    (digest(), digest()).prop_map(|(header, data)| DigestWishes { header, data })
}

fn iscsi_urls() -> impl Strategy<Value = Url> {
    let name = "[a-z0-9.:-]{1,40}";
    let user = prop::option::of("[a-zA-Z0-9:@._-]{1,20}");
    (portals(), name, 0..=LUN_MAX, user, digests()).prop_filter_map(
        "a name",
        |(portals, name, lun, user, digests)| {
            let target = IscsiName::parse(&format!("iqn.2026-11.com.example:{name}")).ok()?;
            Some(Url::Iscsi(IscsiUrl {
                user,
                password: None,
                target_user: None,
                target_password: None,
                portals,
                target,
                lun,
                digests,
            }))
        },
    )
}

fn nvme_urls() -> impl Strategy<Value = Url> {
    (portals(), "\\PC{1,30}", 1..u32::MAX, digests()).prop_filter_map(
        "a name",
        |(portals, name, namespace, digests)| {
            let subsystem = Nqn::new(&format!("nqn.2026-11.com.example:{name}")).ok()?;
            Some(Url::NvmeTcp(NvmeUrl {
                portals,
                subsystem,
                namespace,
                digests,
            }))
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_is_the_same_url(url in prop_oneof![iscsi_urls(), nvme_urls()]) {
        let printed = url.to_string();
        prop_assert_eq!(printed.parse::<Url>(), Ok(url), "{}", printed);
    }

    #[test]
    fn no_text_panics(text in "(iscsi://|nvme\\+tcp://)?(\\PC|[%@/:?&=\\[\\]]){0,60}") {
        if let Ok(url) = text.parse::<Url>() {
            let printed = url.to_string();
            prop_assert!(printed.parse::<Url>().is_ok(), "{}", printed);
        }
    }

    #[test]
    fn portals_print_as_they_are_parsed(host in host(), port in 1_u16..) {
        let portal = HostPort { host, port };
        prop_assert_eq!(HostPort::parse(&portal.to_string(), 1), Ok(portal));
    }
}
