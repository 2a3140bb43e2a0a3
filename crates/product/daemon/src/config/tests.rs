use std::num::NonZeroU16;
use std::path::Path;

use longshore_iscsi::name::IscsiName;
use longshore_server::config::{LunConfig, RelativePorts};

use super::reach::Addresses;
use super::*;

mod dhchap;
mod nvme;
mod tls;

fn file(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::parse(Path::new("/etc/longshore/x.toml"), text.to_owned())
        .map_err(|p| p.to_string())
}

fn assemble(text: &str) -> Result<Config, String> {
    Config::assemble(Some(&file(text)?), Arguments::default()).map_err(|p| p.to_string())
}

fn arguments(volumes: &[&str], iscsi: &[&str]) -> Arguments {
    Arguments {
        volumes: volumes.iter().map(|text| text.parse().unwrap()).collect(),
        iscsi: iscsi.iter().map(|text| text.parse().unwrap()).collect(),
        ..Arguments::default()
    }
}

/// A file with a volume in front of `rest`.
fn with_volume(rest: &str) -> String {
    format!("[[volume]]\nname = \"disk0\"\nbackend = \"mem\"\nsize = \"1G\"\n{rest}")
}

fn config(rest: &str) -> Config {
    assemble(&with_volume(rest)).unwrap_or_else(|e| panic!("{e}"))
}

fn refusal(rest: &str) -> String {
    assemble(&with_volume(rest)).expect_err("the file is refused")
}

/// Checks the addresses as configured.
fn check(config: &Config) -> Result<Vec<Warning>, String> {
    let checked = config.check_reach(&config.addresses());
    checked.map_err(|problem| problem.to_string())
}

#[test]
fn beside_trees_of_scst_there_is_no_default_target_without_volumes() {
    let targets = |volumes: &[&str], tree: Option<&str>| {
        let mut given = arguments(volumes, &["127.0.0.1:3260"]);
        given.scst_tree = tree.map(PathBuf::from);
        let parts = Parts {
            file: None,
            arguments: &given,
            objects: &[],
            unknown: UnknownVolumes::Refused,
        };
        Config::assemble_all(parts).unwrap().targets.len()
    };
    let volume = "null0,backend=null,size=1M";
    assert_eq!(targets(&[], Some("/run/scst")), 0);
    assert_eq!(targets(&[volume], Some("/run/scst")), 1);
    assert_eq!(targets(&[], None), 1);
}

/// A file with a remote volume of this URL and `rest` behind it.
fn remote(url: &str, rest: &str) -> String {
    format!("[[volume]]\nname = \"r\"\nbackend = \"iscsi\"\nurl = \"{url}\"\n{rest}")
}

#[test]
fn a_remote_volume_of_the_file_is_understood() {
    let keys = "secret-file = \"r.secret\"\nqueues = 2\ndepth = 64\ngive-up = \"30s\"\n\
                initiator-name = \"iqn.2026-11.x:me\"\n";
    let config = assemble(&remote("iscsi://ann@h/iqn.2026-11.x:y/3", keys)).unwrap();
    let remote = config.volumes[0].spec.options::<RemoteSpec>().unwrap();
    assert_eq!(remote.secret_file, Some("/etc/longshore/r.secret".into()));
    assert_eq!((remote.queues, remote.depth), (Some(2), Some(64)));
    assert_eq!(remote.give_up, Some(std::time::Duration::from_secs(30)));
    assert!(remote.url.is_some() && remote.initiator_name.is_some());
    assert_eq!(config.warnings, []);
}

#[test]
fn mistakes_of_a_remote_volume_have_a_place_and_show_no_password() {
    let bad_lun = assemble(&remote("iscsi://ann%hush-hush@h/iqn.2026-11.x:y/x", "")).unwrap_err();
    assert!(
        bad_lun.starts_with("/etc/longshore/x.toml:4:7: LUN \"x\""),
        "{bad_lun}"
    );
    assert!(!bad_lun.contains("hush"), "{bad_lun}");
    let fine = "iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0";
    let too_many = assemble(&remote(fine, "queues = 65\n")).unwrap_err();
    assert!(
        too_many.starts_with("/etc/longshore/x.toml:5:10: `65` is not"),
        "{too_many}"
    );
    let misspelt = assemble(&remote(fine, "giveup = 3\n")).unwrap_err();
    assert!(
        misspelt.contains("unknown key `giveup`; did you mean `give-up`?"),
        "{misspelt}"
    );
    assert!(!misspelt.contains("hush"), "{misspelt}");
    // A problem of the same line as the password, and one whose line is the password's own.
    for line in [
        "url = \"iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0\" url = 1",
        "url = \"iscsi://ann%hush-hush@h",
        "url = iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0",
    ] {
        let text = format!("[[volume]]\nname = \"r\"\n{line}\n");
        let error = file(&text).unwrap_err();
        assert!(
            error.contains("x.toml:3:") && !error.contains("hush"),
            "{error}"
        );
    }
}

#[test]
fn a_password_on_the_command_line_is_worth_a_warning() {
    let with = |url: &str| {
        let volume = format!("r,backend=iscsi,url={url}");
        Config::assemble(None, arguments(&[&volume], &[]))
            .unwrap()
            .warnings
    };
    assert_eq!(with("iscsi://ann@h/iqn.2026-11.x:y/0"), []);
    let warnings = with("iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0");
    assert!(matches!(&warnings[..], [Warning::PasswordInArgument { volume }] if volume == "r"));
    assert!(!warnings[0].to_string().contains("hush"));
}

#[test]
fn volumes_of_the_command_line_are_luns_of_the_default_target() {
    let given = arguments(&["a,backend=null,size=1T", "b,backend=mem,size=1M"], &[]);
    let config = Config::assemble(None, given).unwrap();
    let target = &config.targets[0];
    assert_eq!(target.name.as_str(), "iqn.2026-11.local.longshore:default");
    assert!(target.is_open());
    let expected = [
        LunConfig {
            lun: 0,
            volume: 0,
            read_only: false,
        },
        LunConfig {
            lun: 1,
            volume: 1,
            read_only: false,
        },
    ];
    assert_eq!(target.default_luns.as_deref(), Some(&expected[..]));
    assert_eq!(config.listeners, [DEFAULT_LISTENER]);
    assert!(config.listeners_by_default);
}

#[test]
fn the_command_line_wins_and_its_volumes_are_added() {
    let text = with_volume(
        "[listen]\niscsi = [\"127.0.0.1:1\"]\n[engine]\nkind = \"epoll\"\ncores = \"0\"\n\
         [log]\nformat = \"json\"\nlevel = \"debug\"\n",
    );
    let file = file(&text).unwrap();
    let mut given = arguments(&["d1,backend=null,size=1G"], &["127.0.0.1:2", "[::1]:2"]);
    given.engine = Some(EngineChoice::IoUring);
    let config = Config::assemble(Some(&file), given).unwrap();
    let names: Vec<&str> = config
        .volumes
        .iter()
        .map(|v| v.spec.name.as_str())
        .collect();
    assert_eq!(names, ["disk0", "d1"]);
    let addresses: Vec<String> = config
        .listeners
        .iter()
        .map(ListenerConfig::to_string)
        .collect();
    assert_eq!(addresses, ["127.0.0.1:2", "[::1]:2"]);
    assert_eq!(config.engine.kind, EngineChoice::IoUring);
    assert_eq!(config.engine.cores, Some(CoreList(vec![0])));
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn nothing_to_serve_is_refused() {
    let problem = Config::assemble(None, Arguments::default()).unwrap_err();
    assert!(
        problem.to_string().contains("there is no volume to serve"),
        "{problem}"
    );
}

#[test]
fn a_key_that_was_removed_is_an_unknown_one() {
    let message = refusal("[engine]\nzero-copy = \"off\"\n");
    assert!(
        message.contains(":6:1: unknown key `zero-copy`; known are kind, "),
        "{message}"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let message = refusal("[listen]\niscsi = [\"127.0.0.1:3260\"]\nallow-opem = true\n");
    assert!(
        message.starts_with(
            "/etc/longshore/x.toml:7:1: unknown key `allow-opem`; did you mean `allow-open`?"
        ),
        "{message}"
    );
    assert!(
        message.contains("\n  7 | allow-opem = true\n    | ^^^^^^^^^^"),
        "{message}"
    );

    for text in [
        "colour = 1\n",
        "[colour]\n",
        "[limits]\ncolour = 1\n",
        "[iscsi]\ncolour = 1\n",
    ] {
        let message = file(text).unwrap_err();
        let kind = if text.starts_with("[colour") {
            "table"
        } else {
            "key"
        };
        let expected = format!("unknown {kind} `colour`; known are ");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn a_bad_value_is_shown_where_it_stands() {
    let message = file("[[volume]]\nname = \"a\"\nsize = \"10X\"\n").unwrap_err();
    assert!(
        message.starts_with("/etc/longshore/x.toml:3:8: `X` is not a unit of size"),
        "{message}"
    );
    let message = file("[[volume]]\nname = \"a\"\nbackend = \"rbd\"\n").unwrap_err();
    assert!(
        message.contains(":3:11: backend `rbd` is not available in this version"),
        "{message}"
    );
    let message = file("[listen]\niscsi = [\"127.0.0.1:70000\"]\n").unwrap_err();
    assert!(message.contains("`70000` is not a port"), "{message}");
    let message = file("[limits]\nqueue-depth = 0\n").unwrap_err();
    assert!(
        message.contains(":2:15: 0 is out of range; use 1 to 4096"),
        "{message}"
    );
}

#[test]
fn tokens_cross_a_network_only_encrypted_unless_asked_for() {
    let volume = "[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"1M\"\n";
    let with = |text: &str| refusal(&format!("{volume}{text}"));
    let message = with("[listen]\napi = \"192.0.2.7:9260\"\n");
    assert!(message.contains("in the clear"), "{message}");
    let message = with("[api]\ntls-key = \"key.pem\"\n");
    assert!(message.contains("TLS needs both"), "{message}");
    for text in [
        "[listen]\napi = \"127.0.0.1\"\nsocket = \"none\"\n",
        "[listen]\napi = \"192.0.2.7\"\n[api]\nallow-plain = true\n",
        "[listen]\napi = \"0.0.0.0\"\n[api]\ntls-key = \"key.pem\"\ntls-certificate = \"cert.pem\"\n",
    ] {
        let config = assemble(&format!("{volume}{text}")).unwrap();
        assert_eq!(config.api.address.map(|it| it.0.port()), Some(9260));
    }
}

#[test]
fn volumes_need_names_of_their_own_and_a_backend() {
    let message = refusal("[[volume]]\nname = \"disk0\"\nbackend = \"mem\"\nsize = 512\n");
    assert!(
        message.contains(":6:8: two volumes have the name `disk0`"),
        "{message}"
    );
    let message = refusal("[[volume]]\nname = \"disk1\"\n");
    assert!(
        message.contains("volume `disk1` has no backend"),
        "{message}"
    );
    let message = refusal("[[volume]]\nname = \"disk 1\"\nbackend = \"mem\"\n");
    assert!(
        message.contains("`disk 1` is not a volume name"),
        "{message}"
    );

    let given = arguments(&["a,backend=mem,size=1G", "a,backend=null,size=1G"], &[]);
    let message = Config::assemble(None, given).unwrap_err().to_string();
    assert_eq!(message, "two volumes have the name `a`; rename one of them");
}

#[test]
fn relative_paths_start_at_the_directory_of_the_file() {
    let config = assemble(
        "state-dir = \"state\"\n[[volume]]\nname = \"d\"\nbackend = \"file\"\npath = \"d.img\"\n",
    )
    .unwrap();
    assert_eq!(
        config.volumes[0].spec.path.as_deref(),
        Some(Path::new("/etc/longshore/d.img"))
    );
    assert_eq!(
        config.state_dir.as_deref(),
        Some(Path::new("/etc/longshore/state"))
    );
}

#[test]
fn portals_are_texts_or_tables() {
    let config = config(
        "[listen]\niscsi = [\"127.0.0.1:1,advertise=192.0.2.7:3260\", \
         { address = \"[::1]:2\", advertise = \"nas.example.com\", tag = 2 }]\n",
    );
    assert_eq!(
        config.listeners[0].advertise.as_ref().unwrap().host,
        "192.0.2.7"
    );
    assert_eq!(config.listeners[1].address.to_string(), "[::1]:2");
    assert_eq!(config.listeners[1].tag, 2);
    assert_eq!(
        config.listeners[1].advertise.as_ref().unwrap().host,
        "nas.example.com"
    );
}

#[test]
fn two_listeners_on_one_address_are_refused_unless_the_port_is_free_choice() {
    let given = arguments(
        &["a,backend=mem,size=1G"],
        &["127.0.0.1:1", "127.0.0.1:1,tag=2"],
    );
    let message = Config::assemble(None, given).unwrap_err().to_string();
    assert!(
        message.contains("two listeners have the address 127.0.0.1:1"),
        "{message}"
    );
    let given = arguments(&["a,backend=mem,size=1G"], &["127.0.0.1:0", "127.0.0.1:0"]);
    assert!(Config::assemble(None, given).is_ok());
}

const TARGET: &str = "[[target]]\nname = \"iqn.2026-11.com.example:t\"\n";

#[test]
fn a_bad_iscsi_name_says_what_is_wrong_with_it() {
    let message = refusal("[[target]]\nname = \"disks\"\n");
    assert!(
        message.contains(":6:8: `disks` is not an iSCSI name: "),
        "{message}"
    );
    assert!(
        message.contains("does not start with iqn., eui. or naa."),
        "{message}"
    );
}

#[test]
fn two_targets_of_one_name_are_refused_whatever_their_case() {
    let message = refusal(&format!(
        "{TARGET}[[target]]\nname = \"IQN.2026-11.com.example:T\"\n"
    ));
    assert!(
        message.contains(":8:8: two targets have the name `iqn.2026-11.com.example:t`"),
        "{message}"
    );
}

#[test]
fn maps_of_logical_units_are_checked() {
    let map = |luns: &str| refusal(&format!("{TARGET}luns = [{luns}]\n"));
    for (luns, expected) in [
        (
            "{ lun = 0, volume = \"disc0\" }",
            "there is no volume `disc0`; did you mean `disk0`?",
        ),
        (
            "{ lun = 0, volume = \"disk0\" }, { lun = 0, volume = \"disk0\" }",
            "LUN 0 is given twice in one map",
        ),
        (
            "{ lun = 0, volume = \"disk0\" }, { lun = 1, volume = \"disk0\" }",
            "volume `disk0` is LUN 0 of this map already",
        ),
        (
            "{ lun = 16384, volume = \"disk0\" }",
            "LUN 16384 is out of range",
        ),
        (
            "{ lun = 0, volum = \"disk0\" }",
            "unknown key `volum`; did you mean `volume`?",
        ),
    ] {
        let message = map(luns);
        assert!(message.contains(expected), "{luns}: {message}");
    }
}

#[test]
fn a_device_that_never_ends_is_no_secret_file() {
    let keys = "accounts = [{ user = \"ann\", secret-file = \"/dev/zero\" }]\n";
    let message = refusal(&format!("{TARGET}{keys}"));
    assert!(
        message.contains("cannot read secret file /dev/zero"),
        "{message}"
    );
}

#[test]
fn a_map_can_be_empty_until_volumes_come() {
    let config = config(&format!("{TARGET}luns = []\n"));
    assert_eq!(config.targets[0].default_luns.as_deref(), Some(&[][..]));
}

#[test]
fn what_is_disabled_is_checked_and_not_served() {
    let checked = refusal(&format!(
        "{TARGET}enabled = false\nluns = [{{ lun = 0, volume = \"disc0\" }}]\n"
    ));
    assert!(checked.contains("did you mean `disk0`?"), "{checked}");
    let config = config(&format!("{TARGET}enabled = false\n"));
    assert!(config.targets.is_empty());
}

#[test]
fn all_problems_are_found_at_once_one_for_each_object() {
    let text = "[[volume]]\nname = \"a b\"\nbackend = \"mem\"\n[[volume]]\nname = \"c\"\n[[target]]\n\
                name = \"iqn.2026-11.x:t\"\nluns = [{ lun = 0, volume = \"none\" }]\n[limits]\nin-capsule-data = 5\n";
    let file = ConfigFile::parse(Path::new("x.toml"), text.to_owned()).unwrap();
    let arguments = Arguments::default();
    let problems = Config::assemble_all(Parts {
        file: Some(&file),
        arguments: &arguments,
        objects: &[],
        unknown: UnknownVolumes::Refused,
    })
    .unwrap_err();
    let lines: Vec<usize> = problems
        .iter()
        .map(|problem| problem.location.as_ref().unwrap().line)
        .collect();
    assert_eq!(lines, [2, 5, 10, 8], "{problems:?}");
}

#[test]
fn a_target_can_have_moved_for_now_or_for_good() {
    let moved = |keys: &str| {
        let target = &config(&format!("{TARGET}{keys}")).targets[0];
        let moved = target.moved_to.as_ref();
        moved.map(|moved| (moved.address.clone(), moved.permanent))
    };
    assert_eq!(moved(""), None);
    assert_eq!(moved("moved-permanently = false\n"), None);
    for (keys, address, permanent) in [
        ("moved-to = \"192.0.2.7:3261\"\n", "192.0.2.7:3261", false),
        (
            "moved-to = \"nas.example.com\"\n",
            "nas.example.com:3260",
            false,
        ),
        (
            "moved-to = \"2001:db8::7\"\nmoved-permanently = true\n",
            "[2001:db8::7]:3260",
            true,
        ),
    ] {
        assert_eq!(moved(keys), Some((address.to_owned(), permanent)), "{keys}");
    }
}

#[test]
fn the_relative_port_of_a_target_is_a_number_or_a_number_for_each_portal_group() {
    let number = |number| NonZeroU16::new(number).unwrap();
    let ports = |keys: &str| {
        config(&format!("{TARGET}{keys}")).targets[0]
            .relative_ports
            .clone()
    };
    assert_eq!(ports(""), RelativePorts::Automatic);
    assert_eq!(
        ports("relative-port = 7\n"),
        RelativePorts::Single(number(7))
    );
    let by_group = [(1, number(7)), (20, number(65_535))];
    assert_eq!(
        ports("relative-port = { 1 = 7, 20 = 65535 }\n"),
        RelativePorts::ByGroup(by_group.into())
    );
    for (value, reason) in [
        ("0", "numbers from 1 to 65535, not 0"),
        ("65536", "not 65536"),
        ("\"7\"", "a number from 1 to 65535, or a table"),
        ("{ one = 7 }", "`one` is no tag of a portal group"),
        ("{ 1 = 0 }", "not 0"),
    ] {
        let message = refusal(&format!("{TARGET}relative-port = {value}\n"));
        assert!(message.contains(reason), "{value}: {message}");
    }
}

#[test]
fn two_ports_cannot_have_one_relative_identifier() {
    let second = "[[target]]\nname = \"iqn.2026-11.x:second\"\n";
    for (one, other) in [
        ("7", "7"),
        ("7", "{ 1 = 8, 2 = 7 }"),
        ("{ 1 = 7 }", "{ 2 = 7 }"),
    ] {
        let message = refusal(&format!(
            "{TARGET}relative-port = {one}\n{second}relative-port = {other}\n"
        ));
        let expected =
            ":10:17: relative target port 7 is a port of target iqn.2026-11.com.example:t already";
        assert!(message.contains(expected), "{message}");
    }
    let message = refusal(&format!("{TARGET}relative-port = {{ 1 = 7, 2 = 7 }}\n"));
    assert!(
        message.contains("relative target port 7 is a port of target"),
        "{message}"
    );
}

#[test]
fn one_number_is_not_enough_for_a_target_in_two_portal_groups() {
    let listen = "[listen]\niscsi = [\"127.0.0.1:1,tag=1\", \"127.0.0.1:2,tag=4\"]\n";
    let two = config(&format!("{TARGET}relative-port = 7\n{listen}"));
    let message = check(&two).unwrap_err();
    assert!(
        message.contains("groups 1, 4") && message.contains("{ 1 = 7, 4 = … }"),
        "{message}"
    );
    for keys in [
        "portal-groups = [4]\nrelative-port = 7\n",
        "relative-port = { 1 = 7 }\n",
    ] {
        check(&config(&format!("{TARGET}{keys}{listen}"))).unwrap();
    }
}

#[test]
fn a_target_cannot_have_moved_to_where_nobody_can_connect() {
    for address in [
        "",
        "0.0.0.0:3260",
        "[::]",
        "192.0.2.7:0",
        "a b",
        "192.0.2.7:3260,1",
    ] {
        let message = refusal(&format!("{TARGET}moved-to = \"{address}\"\n"));
        let expected = format!(":7:12: initiators cannot be redirected to `{address}`");
        assert!(message.contains(&expected), "{message}");
    }
    let message = refusal(&format!("{TARGET}moved-permanently = true\n"));
    assert!(
        message.contains(":7:21: a target that has moved needs `moved-to`"),
        "{message}"
    );
}

#[test]
fn a_map_without_lun_zero_and_a_volume_nobody_reaches_are_worth_a_warning() {
    let config = config(&format!(
        "[[volume]]\nname = \"spare\"\nbackend = \"mem\"\nsize = 512\n\
         {TARGET}luns = [{{ lun = 1, volume = \"disk0\" }}]\n"
    ));
    let target = "iqn.2026-11.com.example:t".to_owned();
    assert_eq!(
        config.warnings,
        [
            Warning::NoLunZero { target },
            Warning::UnmappedVolume {
                volume: "spare".into()
            }
        ]
    );
}

#[test]
fn a_preference_for_polling_without_polling_is_worth_a_warning() {
    let warnings = |engine: &str| config(&format!("[engine]\n{engine}\n{TARGET}")).warnings;
    let alone = warnings("prefer-busy-poll = true");
    assert_eq!(alone, [Warning::PreferenceWithoutPolling]);
    assert!(alone[0].to_string().contains("--busy-poll MICROSECONDS"));
    assert_eq!(warnings("busy-poll = 20\nprefer-busy-poll = true"), []);
    assert_eq!(warnings("prefer-busy-poll = false"), []);
}

#[test]
fn access_rules_give_initiators_their_own_map_and_refuse_the_rest() {
    let config = config(&format!(
        "[[volume]]\nname = \"d1\"\nbackend = \"mem\"\nsize = 512\n\
         {TARGET}\
         [[target.access]]\ninitiators = [\"iqn.1993-08.org.debian:01:WEB\"]\n\
         luns = [{{ lun = 0, volume = \"d1\" }}]\n\
         [[target.access]]\ninitiators = [\"iqn.2008-11.org.linux-kvm:my_vm\"]\nread-only = true\n"
    ));
    let target = &config.targets[0];
    assert!(target.default_luns.is_none() && !target.is_open());
    let own = &target.access[0];
    assert_eq!(own.initiators[0].as_str(), "iqn.1993-08.org.debian:01:web");
    assert_eq!(
        own.luns,
        [LunConfig {
            lun: 0,
            volume: 1,
            read_only: false
        }]
    );
    let inherited = &target.access[1];
    assert!(inherited.luns.iter().all(|lun| lun.read_only));
    assert_eq!(inherited.luns.len(), 2);
}

#[test]
fn a_star_stands_for_all_others() {
    let config = config(&format!(
        "{TARGET}[[target.access]]\ninitiators = [\"iqn.2026-11.com.example:a\"]\n\
         [[target.access]]\ninitiators = [\"*\"]\nread-only = true\n"
    ));
    let others = config.targets[0].default_luns.as_ref().unwrap();
    assert!(others[0].read_only);
    assert!(!config.targets[0].access[0].luns[0].read_only);
    assert!(config.targets[0].is_open());
}

#[test]
fn a_rule_may_mean_initiators_by_a_pattern_with_exceptions_in_front() {
    let config = config(&format!(
        "{TARGET}[[target.access]]\ninitiators = [\"iqn.2026-11.com.example:web1\"]\n\
         [[target.access]]\ninitiators = [\"IQN.2026-11.com.example:*\", \"eui.*\"]\nread-only = true\n"
    ));
    let target = &config.targets[0];
    assert!(!target.is_open());
    let named = |name: &str| {
        let name = IscsiName::from_peer(name).unwrap();
        let mut rules = target.access.iter();
        rules.position(|rule| rule.initiators.iter().any(|it| it.matches(&name)))
    };
    assert_eq!(named("iqn.2026-11.com.example:WEB1"), Some(0));
    assert_eq!(named("iqn.2026-11.com.Example:web2"), Some(1));
    assert_eq!(named("eui.0123456789abcdef"), Some(1));
    assert_eq!(named("iqn.2026-11.com.other:web1"), None);
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let rule = |names: &str| format!("[[target.access]]\ninitiators = [{names}]\n");
    for (rules, expected) in [
        (rule(""), "a rule needs at least one initiator"),
        (
            rule("\"iqn.2026-11.com.example:a\"") + &rule("\"iqn.2026-11.com.example:A\""),
            "an earlier rule of this target names",
        ),
        (
            rule("\"*\"") + &rule("\"*\""),
            "names initiator `*` already",
        ),
        (rule("\"web1\""), "`web1` is not an iSCSI name"),
        (
            rule("\"web*\""),
            "`web*` is not an iSCSI name: the name does not start",
        ),
        (rule("\"iqn.*/x\""), "contains a character"),
        (rule("\"**\""), "`**` matches every name"),
        (
            rule("\"iqn.2026-11.com.example:*\"") + &rule("\"iqn.2026-11.com.Example:a\""),
            "`iqn.2026-11.com.Example:a` has no effect, because the earlier `iqn.2026-11.com.example:*`",
        ),
        (
            rule("\"iqn.2026-11.*\"") + &rule("\"iqn.2026-11.com.example:web?\""),
            "has no effect",
        ),
        (
            rule("\"iqn.2026-11.*\"") + &rule("\"IQN.2026-11.*\""),
            "an earlier rule of this target names",
        ),
    ] {
        let message = refusal(&format!("{TARGET}{rules}"));
        assert!(message.contains(expected), "{rules}: {message}");
    }
}

#[test]
fn chap_accounts_close_a_target_and_keep_their_secrets_to_themselves() {
    let config = config(&format!(
        "{TARGET}accounts = [{{ user = \"alice\", secret = \"correct-horse-battery\" }}]\n\
         mutual = {{ user = \"nas\", secret = \"staple-staple-staple\" }}\n\
         chap-algorithms = [\"SHA256\", \"md5\"]\n"
    ));
    let target = &config.targets[0];
    assert!(target.default_luns.is_some() && !target.is_open());
    assert!(!target.authentication.none_allowed);
    let chap = target.authentication.chap.as_ref().unwrap();
    assert_eq!(chap.accounts[0].name, "alice");
    assert_eq!(chap.mutual.as_ref().unwrap().name, "nas");
    assert_eq!(chap.algorithms.len(), 2);
    let printed = format!("{config:?}");
    assert!(
        !printed.contains("horse") && !printed.contains("staple"),
        "{printed}"
    );
}

#[test]
fn errors_about_accounts_never_show_a_secret() {
    let account = "{ user = \"alice\", secret = \"correct-horse-battery\" }";
    for (keys, expected) in [
        (
            format!("accounts = [{account}, {account}]"),
            "two accounts have the name `alice`",
        ),
        (
            "accounts = [{ user = \"alice\" }]".into(),
            "needs `secret` or `secret-file`, and not both",
        ),
        (
            "accounts = [{ user = \"alice\", secret = \"\" }]".into(),
            "the secret of account `alice` has 0 bytes",
        ),
        (
            format!(
                "accounts = [{account}]\nmutual = {{ user = \"t\", secret = \"correct-horse-battery\" }}"
            ),
            "account `alice` and `mutual` have the same secret",
        ),
        (
            "mutual = { user = \"t\", secret = \"correct-horse-battery\" }".into(),
            "`mutual` has no effect without `accounts`",
        ),
        (
            format!("accounts = [{account}]\nchap-algorithms = [\"rot13\"]"),
            "`rot13` is not a CHAP algorithm",
        ),
        (
            format!("accounts = [{account}]\nchap-algorithms = []"),
            "name at least one of sha3-256",
        ),
        (
            "accounts = [{ user = \"alice\", secret-file = \"/nonexistent/s\" }]".into(),
            "cannot read secret file /nonexistent/s",
        ),
    ] {
        let message = refusal(&format!("{TARGET}{keys}\n"));
        assert!(message.contains(expected), "{keys}: {message}");
    }
}

#[test]
fn the_line_of_a_secret_is_not_shown() {
    for keys in [
        "accounts = [{ user = \"alice\", secret = \"correct-horse-battery\", colour = 1 }]",
        "accounts = [{ user = \"\", secret = \"correct-horse-battery\" }]",
        "accounts = [{ user = \"alice\", secret = 0x1234horse }]",
        "[[target.accounts]]\nuser = \"alice\"\nsecret = [\"correct-horse-battery\"]",
        "[[target.accounts]]\nuser = \"alice\"\nsecret = \"correct-horse-battery",
    ] {
        let message = refusal(&format!("{TARGET}{keys}\n"));
        assert!(!message.contains("horse"), "{message}");
    }
}

#[test]
fn a_secret_file_loses_its_line_end_and_a_short_secret_is_worth_a_warning() {
    let path = std::env::temp_dir().join(format!("longshore-secret-{}", std::process::id()));
    std::fs::write(&path, "short\n").unwrap();
    let text = with_volume(&format!(
        "{TARGET}accounts = [{{ user = \"alice\", secret-file = \"{}\" }}]\n",
        path.display()
    ));
    let config = assemble(&text);
    std::fs::remove_file(&path).unwrap();
    let config = config.unwrap();
    let chap = config.targets[0].authentication.chap.clone().unwrap();
    assert_eq!(chap.accounts[0].secret, "short".into());
    assert!(config.warnings.contains(&Warning::ShortSecret {
        user: "alice".into()
    }));
}

#[test]
fn discovery_has_accounts_of_its_own() {
    let config =
        config("[discovery]\naccounts = [{ user = \"d\", secret = \"0123456789abcdef\" }]\n");
    assert!(!config.discovery.none_allowed);
    assert!(config.targets[0].is_open());
}

#[test]
fn negotiated_values_are_inherited_and_overridden() {
    let config = config(&format!(
        "[iscsi]\nmax-outstanding-r2t = 4\nimmediate-data = false\n\
         {TARGET}iscsi = {{ max-outstanding-r2t = 1 }}\n"
    ));
    let own = &config.targets[0].login;
    assert_eq!((own.max_outstanding_r2t, own.immediate_data), (1, false));
    assert_eq!(config.negotiation.max_outstanding_r2t, 4);
    let message = refusal("[iscsi]\nfirst-burst-length = 4096\nmax-burst-length = 2048\n");
    assert!(message.contains("first-burst-length 4096 is larger than max-burst-length 2048"));
}

#[test]
fn slow_volumes_are_kept_from_other_machines_unless_asked_for_by_name() {
    for listen in ["iscsi = [\"192.0.2.1:3260\"]", "nvme = [\"[::]:4420\"]"] {
        let text = |keys: &str| format!("{keys}[listen]\nallow-open = true\n{listen}\n");
        let message = check(&config(&text("delay = \"200us\"\n"))).unwrap_err();
        assert!(message.contains("slow-anywhere = true"), "{message}");
        assert!(message.contains("volume disk0"), "{message}");
        let message = check(&config(&text("rate = \"10M\"\n"))).unwrap_err();
        assert!(message.contains("made slow"), "{message}");
        let asked_for = config(&text("rate = \"10M\"\nslow-anywhere = true\n"));
        assert!(check(&asked_for).is_ok());
    }
    let own = config("delay = \"2ms\"\nrate = \"10M\"\n");
    assert_eq!(check(&own), Ok(vec![]));
    let slow = own.volumes[0].spec.slow;
    assert_eq!((slow.delay.as_micros(), slow.rate), (2_000, Some(10 << 20)));
    assert!(refusal("rate = 0\n").contains("lets nothing through"));
    assert!(refusal("delay = \"1m\"\n").contains("at most 10s"));
}

#[test]
fn open_targets_are_kept_from_other_machines_unless_asked_for() {
    for address in ["0.0.0.0:3260", "[::]:3260", "192.0.2.1:3260"] {
        let listen = format!("[listen]\niscsi = [\"{address}\"]\n");
        let open = config(&listen);
        let message = check(&open).unwrap_err();
        assert!(
            message.starts_with(&format!("other machines can reach {address}")),
            "{message}"
        );
        assert!(message.contains("[listen] allow-open = true"), "{message}");

        let asked_for = config(&format!("{listen}allow-open = true\n"));
        let warnings = check(&asked_for).unwrap();
        assert!(matches!(warnings[..], [Warning::Open { .. }]));
    }
    let account = "accounts = [{ user = \"a\", secret = \"0123456789abcdef\" }]\n";
    let rule = "[[target.access]]\ninitiators = [\"iqn.2026-11.com.example:a\"]\n";
    for protected in [account, rule] {
        let text = format!("[listen]\niscsi = [\"0.0.0.0:3260\"]\n{TARGET}{protected}");
        let config = config(&text);
        assert_eq!(check(&config), Ok(vec![]));
    }
}

#[test]
fn an_open_target_on_loopback_portals_only_may_stand_beside_outside_portals() {
    let text = format!(
        "[listen]\niscsi = [\"127.0.0.1:3260\", \"0.0.0.0:3261,tag=2\"]\n\
         {TARGET}portal-groups = [1]\n"
    );
    let inside = config(&text);
    assert_eq!(check(&inside), Ok(vec![]));
    let missing = config(&text.replace("[1]", "[3]"));
    let message = check(&missing).unwrap_err();
    assert!(
        message.contains("portal group 3, but no listener has that tag"),
        "{message}"
    );
}

#[test]
fn the_example_file_is_in_order() {
    let text = include_str!("../../../../../dist/longshore.toml");
    let config = assemble(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(check(&config), Ok(vec![]));
    assert_eq!(config.warnings, []);
}

#[test]
fn configurations_of_packages_are_in_order() {
    for text in [
        include_str!("../../../../../dist/container/longshore.toml"),
        include_str!("../../../../../dist/kubernetes/longshore.toml"),
    ] {
        let config = assemble(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.warnings, []);
    }
    let default = include_str!("../../../../../dist/default.toml");
    let file = file(default).unwrap();
    let found = super::check::check(Some(&file), Arguments::default());
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

#[test]
fn the_examples_of_the_documentation_are_in_order() {
    let page = include_str!("../../../../../docs/configuration.md");
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(examples.len(), 9);
    let directory = tempfile::tempdir().unwrap();
    for example in examples {
        let example = dhchap::with_secret_files(&directory, example);
        let config = assemble(&example).unwrap_or_else(|e| panic!("{e}"));
        check(&config).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// The keys that a page documents, by the headings of their tables: the first column of tables of keys.
fn documented(page: &str) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    let (mut heading, mut in_table) = (String::new(), false);
    for line in page.lines() {
        if let Some(text) = line.strip_prefix('#') {
            let text = text.trim_start_matches('#');
            // `[[volume]]` of "## `[[volume]]`: storage"; other headings continue that table.
            let named = text.split('`').nth(1).filter(|name| name.starts_with('['));
            if let Some(name) = named {
                heading = name.to_owned();
            }
        }
        in_table = line.starts_with('|') && (in_table || line.starts_with("| key |"));
        let first = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split('|').next());
        if let Some(first) = first.filter(|_| in_table) {
            let names = first
                .split('`')
                .filter(|name| !name.trim_matches([',', ' ']).is_empty());
            keys.extend(names.map(|name| (heading.clone(), name.to_owned())));
        }
    }
    keys
}

#[test]
fn the_documentation_has_every_key_and_no_other() {
    let page = include_str!("../../../../../docs/configuration.md");
    let documented = documented(page);
    // These tables share what another one says of their keys.
    let is_shared =
        |table: &str| ["[discovery]", "luns", "accounts", "namespaces"].contains(&table);
    for table in schema::tables() {
        for key in table.keys {
            let has_table =
                page.contains(&format!("`[{key}]`")) || page.contains(&format!("`[[{key}]]`"));
            let has_table = has_table
                || page.contains(&format!(
                    "`[[{}.{key}]]`",
                    table.header.trim_matches(['[', ']'])
                ));
            let has_row = documented.contains(&(table.header.to_owned(), (*key).to_owned()));
            let is_named = page.contains(&format!("`{key}`")) || page.contains(&format!("{key} ="));
            let is_there = if is_shared(table.header) {
                is_named
            } else {
                has_row || has_table
            };
            assert!(is_there, "{} {key}", table.header);
        }
    }
    let tables = schema::tables();
    for (heading, key) in documented {
        let known = tables.iter().find(|table| table.header == heading);
        assert!(
            known.is_some_and(|table| table.keys.contains(&key.as_str())),
            "{heading} {key}"
        );
    }
}

#[test]
fn volumes_name_pools_of_the_file_or_their_drives() {
    use longshore_pool::{POOL, PoolOptions};

    let text = "[[pool]]\nname = \"tank\"\ndrives = [\"a.img\", \"/dev/sdx\"]\ndirect = true\n\
        [[volume]]\nname = \"x\"\nbackend = \"pool\"\npool = \"tank\"\npool-volume = \"y@monday\"\n\
        [[volume]]\nname = \"z\"\nbackend = \"pool\"\npool = [\"./b.img\", \"/c.img\"]\nsize = \"1G\"\n\
        compression = \"lz4\"\nquota = \"2G\"\nreserve = \"full\"\n";
    let config = assemble(text).unwrap();
    let options = |place: usize| {
        let spec = &config.volumes[place].spec;
        assert_eq!(spec.backend, POOL);
        (spec.options::<PoolOptions>().unwrap().clone(), spec.direct)
    };
    let (named, direct) = options(0);
    assert!(direct);
    assert!(named.drives[0].ends_with("a.img") && named.drives[0] != Path::new("a.img"));
    assert_eq!(named.drives[1], Path::new("/dev/sdx"));
    assert_eq!(named.volume.as_deref(), Some("y@monday"));
    let (listed, direct) = options(1);
    assert!(!direct);
    assert_eq!(listed.drives.len(), 2);
    assert_eq!(listed.quota, Some(2 << 30));
    assert_eq!(listed.reserve, Some(longshore_pool::RESERVE_FULL));
    for (text, expected) in [
        (
            text.replace("pool = \"tank\"", "pool = \"tonk\""),
            "did you mean `tank`",
        ),
        (
            text.replace("[\"a.img\", \"/dev/sdx\"]", "[]"),
            "has no drives",
        ),
        (
            format!("{text}[[pool]]\nname = \"tank\"\ndrives = [\"c\"]\n"),
            "two pools",
        ),
        (
            text.replace("compression = \"lz4\"", "compression = \"zip\""),
            "use none, lz4 or zstd",
        ),
    ] {
        let message = refusal(&text);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn options_of_pools_mean_nothing_to_others_nor_those_of_others_to_pools() {
    for (volume, expected) in [
        (
            "d,backend=mem,size=1M,compression=lz4",
            "compression means nothing",
        ),
        ("d,backend=pool,pool=/a,queues=2", "queues means nothing"),
        ("d,backend=iscsi,quota=1G", "quota means nothing"),
        (
            "d,backend=mem,size=1M,reserve=full",
            "reserve means nothing",
        ),
        ("d,backend=pool", "needs pool="),
        ("d,backend=pool,pool=/a,path=/b", "path means nothing"),
    ] {
        let volume: VolumeArgument = volume.parse().unwrap();
        let spec = volume.settings.specification(&volume.name).unwrap();
        let refused = crate::backends::backends().survey(&spec);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn two_volumes_of_one_worldwide_name_are_refused() {
    let volume = |name: &str, key: &str| {
        format!("[[volume]]\nname = \"{name}\"\nbackend = \"mem\"\nsize = 512\n{key}\n")
    };
    let uuid = "uuid = \"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"";
    for (one, other) in [
        (
            "naa = \"5001405aaaabbbbb\"",
            "naa = \"naa.5001405AAAABBBBB\"",
        ),
        (uuid, uuid),
        (uuid, "naa = \"682d4fae7dec11d0a76500a0c91e6bf6\""),
    ] {
        let text = volume("x1", one) + &volume("x2", other);
        let message = refusal(&text);
        assert!(
            message.contains("volumes `x2` and `x1` have the worldwide name naa."),
            "{message}"
        );
    }
    config(&(volume("x1", uuid) + &volume("x2", "naa = \"5001405aaaabbbbb\"")));
}

#[test]
fn an_identifier_of_nvme_that_follows_from_another_name_is_the_same_as_one_that_is_given() {
    for (one, other) in [
        ("naa=5001405aaaabbbbb", "eui64=0014050aaaabbbbb"),
        (
            "naa=6001405aaaabbbbb0123456789abcdef",
            "nguid=0123456789abcdef0014050aaaabbbbb",
        ),
    ] {
        let volume = |name: &str, key: &str| {
            let (key, value) = key.split_once('=').unwrap();
            format!(
                "[[volume]]\nname = \"{name}\"\nbackend = \"mem\"\nsize = 512\n{key} = \"{value}\"\n"
            )
        };
        let message = refusal(&(volume("x1", one) + &volume("x2", other)));
        assert!(message.contains("worldwide name eui."), "{message}");
    }
}
