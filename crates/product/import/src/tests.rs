//! Sources of each format, and what becomes of every line.

use proptest::prelude::*;

use super::*;

mod tgt;

use tgt::TGT;

fn source(text: &str) -> Source {
    Source {
        name: "source".to_owned(),
        text: text.to_owned(),
    }
}

fn imported(format: Format, text: &str) -> Imported {
    import(format, &source(text), &Options::default()).unwrap()
}

/// The configuration, where nothing may be refused.
fn taken(format: Format, text: &str) -> (toml::Table, Vec<SecretFile>, Report) {
    let imported = imported(format, text);
    let refused: Vec<&Entry> = imported.report.refused().collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let (text, secrets) = imported.configuration.to_toml("secrets");
    (text.parse().expect("TOML"), secrets, imported.report)
}

/// Lines that are refused, each with its first reason.
fn refused(format: Format, text: &str) -> Vec<(u32, String)> {
    let report = imported(format, text).report;
    let reason = |entry: &Entry| match &entry.verdict {
        Verdict::Refused { why } => (entry.line, why.clone()),
        other => panic!("{other:?}"),
    };
    let mut lines: Vec<_> = report.refused().map(reason).collect();
    lines.dedup_by_key(|(line, _)| *line);
    lines
}

/// Lines that say something and have no entry.
fn unaccounted(text: &str, report: &Report, silent: &[&str]) -> Vec<String> {
    let lines = text.lines().zip(1_u32..);
    let missing = lines.filter(|(line, number)| {
        let line = line.trim().trim_end_matches(',');
        let empty = line.is_empty() || line.starts_with('#') || silent.contains(&line);
        !empty && !report.entries.iter().any(|entry| entry.line == *number)
    });
    missing.map(|(line, _)| line.to_owned()).collect()
}

const SCST: &str = r#"
# Today's grammar.
HANDLER vdisk_fileio {
    DEVICE disk1 {
        filename /srv/disk1.img
        blocksize 4096
        usn 0123abcd
        t10_dev_id 0123abcd-disk1
        naa_id 0x6000000000000000000000000000abcd
        write_through 1
    }
    DEVICE media { filename "/srv/with blank.img"
        usn 7
        read_only 1 }
}
HANDLER vdisk_nullio {
    DEVICE zero {
        usn 8
        size_mb 16
    }
    DEVICE nothing {
        dummy 1
    }
}
TARGET_DRIVER copy_manager {
}
TARGET_DRIVER iscsi {
    enabled 1
    TARGET iqn.2026-11.com.example:store {
        enabled 1
        rel_tgt_id 1
        IncomingUser "joe 123456789012"
        OutgoingUser back 210987654321
        MaxBurstLength 262144
        HeaderDigest CRC32C,None
        NopInInterval 20
        LUN 0 nothing
        LUN 1 disk1 {
            read_only 1
        }
        GROUP hosts {
            LUN 0 media
            LUN 5 zero
            INITIATOR iqn.1993-08.org.debian:*
            cpu_mask ff
        }
    }
}
"#;

#[test]
fn scst_of_today_keeps_disks_maps_groups_and_accounts() {
    let (config, secrets, report) = taken(Format::Scst, SCST);
    let volumes = config["volume"].as_array().unwrap();
    let names: Vec<_> = volumes
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["disk1", "media", "zero"]);
    assert_eq!(volumes[0]["path"].as_str(), Some("/srv/disk1.img"));
    assert_eq!(volumes[0]["block-size"].as_integer(), Some(4096));
    assert_eq!(volumes[0]["serial"].as_str(), Some("0123abcd"));
    assert_eq!(
        volumes[0]["naa"].as_str(),
        Some("naa.6000000000000000000000000000abcd")
    );
    assert_eq!(volumes[0]["write-through"].as_bool(), Some(true));
    assert_eq!(volumes[1]["path"].as_str(), Some("/srv/with blank.img"));
    assert_eq!(volumes[1]["read-only"].as_bool(), Some(true));
    assert_eq!(volumes[2]["size"].as_integer(), Some(16 << 20));
    let target = &config["target"].as_array().unwrap()[0];
    assert_eq!(target["relative-port"].as_integer(), Some(1));
    let luns = target["luns"].as_array().unwrap();
    assert_eq!(luns.len(), 1);
    assert_eq!(luns[0]["lun"].as_integer(), Some(1));
    assert_eq!(luns[0]["read-only"].as_bool(), Some(true));
    let access = target["access"].as_array().unwrap();
    assert_eq!(
        access[0]["initiators"][0].as_str(),
        Some("iqn.1993-08.org.debian:*")
    );
    assert_eq!(access[0]["luns"][1]["lun"].as_integer(), Some(5));
    assert_eq!(access[1]["initiators"][0].as_str(), Some("*"));
    assert_eq!(
        target["iscsi"]["max-burst-length"].as_integer(),
        Some(262_144)
    );
    assert_eq!(config["limits"]["nop-interval"].as_integer(), Some(20));
    let texts: Vec<&str> = secrets.iter().map(|file| file.secret.as_str()).collect();
    assert_eq!(texts, ["123456789012", "210987654321"]);
    assert_eq!(
        unaccounted(SCST, &report, &["}", "}"]),
        Vec::<String>::new()
    );
}

#[test]
fn secrets_are_in_their_files_alone() {
    let imported = imported(Format::Scst, SCST);
    let (toml, _) = imported.configuration.to_toml("secrets");
    let json = serde_json::to_string(&imported.report).unwrap();
    for text in [toml, imported.report.to_text(), json] {
        assert!(
            !text.contains("123456789012") && !text.contains("210987654321"),
            "{text}"
        );
    }
}

#[test]
fn secrets_stay_out_of_the_report_in_odd_places_too() {
    let odd = [
        (
            Format::Scst,
            "TARGET_DRIVER iscsi {\nIncomingUser=joe hidden\nincominguser1 joe hidden; x\n}\n",
        ),
        (
            Format::Tgt,
            "<target iqn.2026-11.x:t>\nIncomingUser joe hidden\nincominguser a hidden b\n</target>\n",
        ),
        (
            Format::Istgt,
            "[AuthGroup1]\nAuthh joe hidden\nauth \"joe\" \"hidden\"\n",
        ),
        (
            Format::Lio,
            "{\"targets\": [{\"wwn\": \"x\", \"new_password\": \"hidden\"}]}",
        ),
        (
            Format::Nvmet,
            "{\"hosts\": [{\"nqn\": \"n\", \"tls_psk\": {\"key\": \"hidden\"}}]}",
        ),
        (
            Format::Spdk,
            "{\"config\": [{\"method\": \"m\", \"params\": {\"mutual_secret\": \"hidden\"}}]}",
        ),
    ];
    for (format, text) in odd {
        let report = imported(format, text).report.to_text();
        assert!(!report.contains("hidden"), "{report}");
    }
}

#[test]
fn what_scst_does_unsafely_is_refused_by_name() {
    let text = "HANDLER vdisk_fileio {\n DEVICE d {\n filename /x\n usn 1\n nv_cache 1\n }\n}\n";
    let lines: Vec<u32> = refused(Format::Scst, text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [2, 5]);
    let accepted = import(
        Format::Scst,
        &source(text),
        &Options {
            accept_unsafe_cache: true,
            ..Options::default()
        },
    );
    assert_eq!(accepted.unwrap().report.refused().count(), 0);
}

#[test]
fn what_scstadmin_would_lose_is_refused() {
    let text =
        "HANDLER vdisk_fileio {\n DEVICE d {\n filename /x; usn 1\n filename /a b c\n }\n}\n";
    let lines: Vec<u32> = refused(Format::Scst, text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [2, 3, 4]);
}

#[test]
fn comments_and_escapes_are_read_as_scstadmin_does() {
    let text = "HANDLER vdisk_fileio {\nDEVICE d{\nfilename /a\\#b x# comment\nusn 1 # c\n}}\n";
    let (config, _, _) = taken(Format::Scst, text);
    assert_eq!(config["volume"][0]["path"].as_str(), Some("/a#b"));
}

const SCST_OLD: &str = "\
[HANDLER vdisk]
DEVICE disk1,/srv/one.img,WRITE_THROUGH,512,t10one
DEVICE disk2,/dev/vg/two,BLOCKIO|READ_ONLY
DEVICE zero,/dev/zero,NULLIO,4096
[GROUP Default]
[GROUP Lab]
USER iqn.1993-08.org.debian:*
[ASSIGNMENT Default]
DEVICE disk1,0
[ASSIGNMENT Lab]
DEVICE disk2,0
DEVICE zero,1
[OPTIONS]
setup_id 7
[TARGETS enable]
HOST 21:00:00:e0:8b:00:00:01
";

#[test]
fn scst_of_the_procfs_era_has_groups_for_all_targets() {
    let options = Options {
        targets: vec!["iqn.2026-11.com.example:old".to_owned()],
        ..Options::default()
    };
    let imported = import(Format::Scst, &source(SCST_OLD), &options).unwrap();
    assert_eq!(
        imported.report.refused().count(),
        0,
        "{}",
        imported.report.to_text()
    );
    assert_eq!(
        unaccounted(SCST_OLD, &imported.report, &[]),
        Vec::<String>::new()
    );
    let (text, _) = imported.configuration.to_toml("secrets");
    let config: toml::Table = text.parse().unwrap();
    assert_eq!(config["volume"][1]["backend"].as_str(), Some("block"));
    assert_eq!(config["volume"][2]["backend"].as_str(), Some("null"));
    let target = &config["target"][0];
    assert_eq!(target["luns"][0]["volume"].as_str(), Some("disk1"));
    assert_eq!(target["access"][0]["luns"].as_array().unwrap().len(), 2);
    assert_eq!(target["access"][1]["initiators"][0].as_str(), Some("*"));
}

#[test]
fn scst_of_the_procfs_era_needs_the_names_of_its_targets() {
    let found = refused(Format::Scst, SCST_OLD);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("--target"), "{found:?}");
}

const LIO: &str = r#"{
  "fabric_modules": [
    {
      "discovery_enable_auth": false,
      "name": "iscsi"
    }
  ],
  "storage_objects": [
    {
      "aio": false,
      "alua_tpgs": [
        {
          "name": "default_tg_pt_gp",
          "tg_pt_gp_id": 0
        }
      ],
      "attributes": {
        "block_size": 512,
        "emulate_model_alias": 1,
        "emulate_tpu": 1,
        "pi_prot_type": 0
      },
      "dev": "/srv/web1.img",
      "name": "web1",
      "plugin": "fileio",
      "size": 10485760,
      "write_back": false,
      "wwn": "7f0b5e0a-9a0b-4a1e-8a51-5e3c1a2b3c4d"
    },
    {
      "attributes": {},
      "dev": "/dev/vg/db",
      "name": "db",
      "plugin": "block",
      "readonly": false,
      "write_back": true,
      "wwn": "11111111-2222-3333-4444-555555555555"
    }
  ],
  "targets": [
    {
      "fabric": "iscsi",
      "tpgs": [
        {
          "attributes": {
            "authentication": 1,
            "demo_mode_write_protect": 1,
            "generate_node_acls": 0
          },
          "enable": true,
          "luns": [
            {
              "alias": "a",
              "index": 0,
              "storage_object": "/backstores/fileio/web1"
            },
            {
              "index": 1,
              "storage_object": "/backstores/block/db"
            }
          ],
          "node_acls": [
            {
              "chap_password": "secret-of-twelve",
              "chap_userid": "web",
              "mapped_luns": [
                {
                  "index": 3,
                  "tpg_lun": 1,
                  "write_protect": true
                }
              ],
              "node_wwn": "iqn.1993-08.org.debian:01:web1"
            }
          ],
          "parameters": {
            "FirstBurstLength": "65536",
            "HeaderDigest": "CRC32C,None",
            "TargetAlias": "LIO Target"
          },
          "portals": [
            {
              "ip_address": "192.0.2.7",
              "iser": false,
              "offload": false,
              "port": 3260
            }
          ],
          "tag": 1
        }
      ],
      "wwn": "iqn.2003-01.org.linux-iscsi.host:web"
    }
  ]
}
"#;

#[test]
fn lio_disks_keep_their_names_and_initiators_their_maps() {
    let (config, secrets, report) = taken(Format::Lio, LIO);
    let volume = &config["volume"][0];
    assert_eq!(
        volume["naa"].as_str(),
        Some("naa.60014057f0b5e0a9a0b4a1e8a515e3c1")
    );
    assert_eq!(
        volume["serial"].as_str(),
        Some("7f0b5e0a-9a0b-4a1e-8a51-5e3c1a2b3c4d")
    );
    assert_eq!(volume["vendor"].as_str(), Some("LIO-ORG"));
    assert_eq!(volume["product"].as_str(), Some("web1"));
    assert_eq!(volume["write-through"].as_bool(), Some(true));
    assert_eq!(config["volume"][1]["backend"].as_str(), Some("block"));
    assert_eq!(config["volume"][1]["product"].as_str(), Some("IBLOCK"));
    let rule = &config["target"][0]["access"][0];
    assert_eq!(
        rule["initiators"][0].as_str(),
        Some("iqn.1993-08.org.debian:01:web1")
    );
    assert_eq!(rule["luns"][0]["lun"].as_integer(), Some(3));
    assert_eq!(rule["luns"][0]["volume"].as_str(), Some("db"));
    assert_eq!(rule["luns"][0]["read-only"].as_bool(), Some(true));
    assert_eq!(rule["accounts"][0]["user"].as_str(), Some("web"));
    assert_eq!(
        config["listen"]["iscsi"][0].as_str(),
        Some("192.0.2.7:3260")
    );
    assert_eq!(secrets[0].secret, "secret-of-twelve");
    assert!(!report.to_text().contains("secret-of-twelve"));
    // Brackets, and names of lists and objects, stand on lines of their own.
    let structure = |line: &String| {
        let line = line.trim_end().trim_end_matches(',');
        !line.ends_with(['{', '[']) && !["]", "}"].contains(&line.trim())
    };
    let silent: Vec<_> = unaccounted(LIO, &report, &[])
        .into_iter()
        .filter(structure)
        .collect();
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn lio_numbers_its_portal_groups_in_the_order_of_the_file() {
    let group = |enable: bool, addresses: &[&str]| {
        let portal = |ip: &&str| format!(r#"{{"ip_address": "{ip}", "port": 3260}}"#);
        let portals: Vec<String> = addresses.iter().map(portal).collect();
        let attributes =
            r#"{"generate_node_acls": 1, "authentication": 0, "demo_mode_write_protect": 0}"#;
        let portals = portals.join(",");
        format!(r#"{{"enable": {enable}, "attributes": {attributes}, "portals": [{portals}]}}"#)
    };
    let target = |fabric: &str, name: &str, groups: &[String]| {
        let groups = groups.join(",");
        format!(r#"{{"fabric": "{fabric}", "wwn": "{name}", "tpgs": [{groups}]}}"#)
    };
    let text = format!(
        r#"{{"storage_objects": [], "targets": [{},{},{},{}]}}"#,
        target("loopback", "naa.5001405", &[group(true, &[])]),
        target("iqn", "x", &[]),
        target(
            "iscsi",
            "iqn.2003-01.org.x:a",
            &[
                group(true, &["192.0.2.1"]),
                group(false, &["192.0.2.2"]),
                group(true, &["192.0.2.3", "192.0.2.4"])
            ]
        ),
        target(
            "iscsi",
            "iqn.2003-01.org.x:b",
            &[group(true, &["192.0.2.1"])]
        ),
    );
    let (text, _) = imported(Format::Lio, &text)
        .configuration
        .to_toml("secrets");
    let config: toml::Table = text.parse().unwrap();
    let targets = config["target"].as_array().unwrap();
    // The one of the other fabric was the first, and a group that is disabled has no number.
    assert_eq!(targets[0]["portal-groups"].as_array().unwrap().len(), 3);
    let ports = targets[0]["relative-port"].as_table().unwrap();
    let first_of_each = [("1", 2), ("2", 3)];
    let ports: Vec<(&str, i64)> = ports
        .iter()
        .map(|(tag, number)| (tag.as_str(), number.as_integer().unwrap()))
        .collect();
    assert_eq!(ports, first_of_each);
    assert_eq!(targets[1]["relative-port"].as_integer(), Some(4));
}

#[test]
fn scst_targets_keep_the_numbers_of_their_ports() {
    let target = |name: &str, keys: &str| format!("TARGET iqn.2026-11.x:{name} {{\n{keys}\n}}\n");
    let driver = |targets: &str| format!("TARGET_DRIVER iscsi {{\n{targets}}}\n");
    let portals = "allowed_portal 192.0.2.1\nallowed_portal 192.0.2.2\nrel_tgt_id 12";
    let text = driver(
        &(target("a", "rel_tgt_id 300") + &target("b", portals) + &target("c", "rel_tgt_id 0")),
    );
    let (config, _, report) = taken(Format::Scst, &text);
    let targets = config["target"].as_array().unwrap();
    assert_eq!(targets[0]["relative-port"].as_integer(), Some(300));
    assert_eq!(targets[1]["relative-port"]["1"].as_integer(), Some(12));
    assert!(targets[2].get("relative-port").is_none());
    assert!(
        report.to_text().contains("1 of 2 ports"),
        "{}",
        report.to_text()
    );
    for bad in ["65536", "x"] {
        refused(
            Format::Scst,
            &driver(&target("a", &format!("rel_tgt_id {bad}"))),
        );
    }
    let twice = driver(&(target("a", "rel_tgt_id 7") + &target("b", "rel_tgt_id 7")));
    let lines: Vec<u32> = refused(Format::Scst, &twice)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [6]);
}

/// Portal group tags and numbers of `relative-port`, which is a number or a table.
fn relative_ports(target: &toml::Value) -> Vec<(String, i64)> {
    match target.get("relative-port") {
        Some(toml::Value::Table(ports)) => ports
            .iter()
            .map(|(tag, number)| (tag.clone(), number.as_integer().unwrap()))
            .collect(),
        Some(number) => vec![(String::new(), number.as_integer().unwrap())],
        None => Vec::new(),
    }
}

fn ports(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    let port = |(tag, number): &(&str, i64)| ((*tag).to_owned(), *number);
    expected.iter().map(port).collect()
}

/// Where the settings of a line went that moved.
fn mapped_to(report: &Report, line: u32) -> Vec<&str> {
    let entries = report.entries.iter().filter(|entry| entry.line == line);
    let to = entries.filter_map(|entry| match &entry.verdict {
        Verdict::Mapped { to } => Some(to.as_str()),
        _ => None,
    });
    to.collect()
}

const SPDK_GROUPS: &str = r#"{"subsystems": [{"subsystem": "iscsi", "config": [
  {"method": "iscsi_create_portal_group", "params": {"tag": 30, "portals": [{"host": "127.0.0.1", "port": "3260"}]}},
  {"method": "iscsi_create_portal_group", "params": {"tag": 20, "portals": [{"host": "127.0.0.2", "port": "3260"}, {"host": "127.0.0.3", "port": "3260"}]}},
  {"method": "iscsi_create_portal_group", "params": {"tag": 10, "portals": [{"host": "127.0.0.4", "port": "3260"}]}},
  {"method": "iscsi_create_initiator_group", "params": {"tag": 1, "initiators": ["ANY"], "netmasks": ["ANY"]}},
  {"method": "iscsi_create_initiator_group", "params": {"tag": 2, "initiators": ["iqn.2026-11.x:h"], "netmasks": ["ANY"]}},
  {"method": "iscsi_create_target_node", "params": {"name": "a", "disable_chap": true, "luns": [], "pg_ig_maps": [
    {"pg_tag": 30, "ig_tag": 1},
    {"pg_tag": 30, "ig_tag": 2},
    {"pg_tag": 20, "ig_tag": 1},
    {"pg_tag": 10, "ig_tag": 1}]}},
  {"method": "iscsi_create_target_node", "params": {"name": "b", "disable_chap": true, "luns": [], "pg_ig_maps": [
    {"pg_tag": 10, "ig_tag": 1},
    {"pg_tag": 30, "ig_tag": 1}]}}
]}]}
"#;

#[test]
fn spdk_counts_the_portal_groups_of_a_target_from_0_which_is_no_number_of_a_port() {
    let (config, _, report) = taken(Format::Spdk, SPDK_GROUPS);
    let targets = config["target"].as_array().unwrap();
    // Of the group with two portals the first has the number.
    assert_eq!(relative_ports(&targets[0]), ports(&[("2", 1), ("4", 2)]));
    assert_eq!(relative_ports(&targets[1]), ports(&[]));
    assert!(mapped_to(&report, 10).contains(&"portal-groups, relative-port 1"));
    assert!(mapped_to(&report, 11).contains(&"portal-groups, relative-port 2"));
    for without in [8, 13, 14] {
        assert!(mapped_to(&report, without).contains(&"portal-groups"));
    }
    let told = |what: &str| report.notes.iter().any(|note| note.contains(what));
    assert!(told("0 is reserved"), "{:#?}", report.notes);
    assert!(told("2 of 4 ports"), "{:#?}", report.notes);
}

#[test]
fn istgt_numbers_the_portals_of_a_group_and_the_first_with_a_number_keeps_it() {
    let text = "\
[Global]
  NodeBase \"iqn.2007-09.jp.ne.peach.istgt\"
[PortalGroup1]
  Portal DA1 127.0.0.1:3260
  Portal DA2 127.0.0.2:3260
[PortalGroup2]
  Portal DB1 127.0.0.3:3260
  Portal DB2 127.0.0.4:3260
  Portal DB3 127.0.0.5:3260
[InitiatorGroup1]
  InitiatorName \"ALL\"
[LogicalUnit1]
  TargetName a
  Mapping PortalGroup1 InitiatorGroup1
  Mapping PortalGroup2 InitiatorGroup1
[LogicalUnit2]
  TargetName b
  Mapping PortalGroup1 InitiatorGroup1
";
    let (config, _, report) = taken(Format::Istgt, text);
    let targets = config["target"].as_array().unwrap();
    let first = ports(&[("1", 1), ("2", 2), ("5", 3)]);
    assert_eq!(relative_ports(&targets[0]), first);
    assert_eq!(relative_ports(&targets[1]), ports(&[]));
    let expected = "portal-groups, relative-port 1 and 2, and a rule";
    assert_eq!(mapped_to(&report, 14), [expected]);
    let expected = "portal-groups, relative-port 3, and a rule";
    assert_eq!(mapped_to(&report, 15), [expected]);
    assert_eq!(mapped_to(&report, 18), ["portal-groups and a rule"]);
    let note = |note: &String| note.contains("the first with a number keeps it");
    assert!(report.notes.iter().any(note), "{:#?}", report.notes);
}

#[test]
fn the_target_port_groups_of_lio_are_told_and_several_are_refused() {
    let (_, _, report) = taken(Format::Lio, LIO);
    let group = |entry: &&Entry| entry.setting.contains("tg_pt_gp_id");
    let entry = report.entries.iter().find(group).unwrap();
    let Verdict::Ignored { why } = &entry.verdict else {
        panic!("{entry:?}")
    };
    assert!(why.contains("one target port group"), "{why}");
    let group = r#"{ "name": "other", "tg_pt_gp_id": 1 }, { "name": "default_tg_pt_gp","#;
    let two = LIO.replacen("{\n          \"name\": \"default_tg_pt_gp\",", group, 1);
    let found = refused(Format::Lio, &two);
    assert!(!found.is_empty());
    for (_, why) in found {
        assert!(why.contains("several target port groups"), "{why}");
    }
}

#[test]
fn a_lio_target_that_admits_nobody_is_disabled() {
    let text = LIO.replace("\"node_acls\": [", "\"node_acls\": [], \"others\": [");
    let imported = imported(Format::Lio, &text);
    let (text, _) = imported.configuration.to_toml("secrets");
    assert!(text.contains("enabled = false"), "{text}");
    assert!(
        imported
            .report
            .refused()
            .any(|entry| entry.setting.contains("others"))
    );
}

#[test]
fn other_fabrics_and_backstores_of_lio_are_refused() {
    let text = r#"{"storage_objects": [{"plugin": "pscsi", "name": "t", "dev": "/dev/st0"}],
      "targets": [{"fabric": "tcm_fc", "wwn": "naa.1", "tpgs": []}]}"#;
    let lines: Vec<u32> = refused(Format::Lio, text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [1, 2]);
}

const NVMET: &str = r#"{
  "hosts": [
    { "nqn": "nqn.2014-08.org.nvmexpress:uuid:1" }
  ],
  "ports": [
    {
      "addr": {
        "adrfam": "ipv4",
        "traddr": "192.0.2.7",
        "treq": "not specified",
        "trsvcid": "4420",
        "trtype": "tcp"
      },
      "portid": 1,
      "referrals": [],
      "subsystems": [
        "nqn.2026-11.com.example:disks"
      ]
    }
  ],
  "subsystems": [
    {
      "allowed_hosts": [
        "nqn.2014-08.org.nvmexpress:uuid:1"
      ],
      "attr": {
        "allow_any_host": "0",
        "serial": "abc123"
      },
      "namespaces": [
        {
          "device": {
            "nguid": "00000000-0000-0000-0000-000000000000",
            "path": "/dev/vg/db",
            "uuid": "b53be81d-6f5c-4768-b3bd-203614d8cf20"
          },
          "enable": 1,
          "nsid": 3
        }
      ],
      "nqn": "nqn.2026-11.com.example:disks"
    }
  ]
}
"#;

#[test]
fn nvmet_namespaces_keep_number_and_uuid() {
    let (config, _, _) = taken(Format::Nvmet, NVMET);
    let volume = &config["volume"][0];
    assert_eq!(
        volume["uuid"].as_str(),
        Some("b53be81d-6f5c-4768-b3bd-203614d8cf20")
    );
    assert_eq!(volume["nguid"].as_str(), Some("none"));
    assert_eq!(volume["direct"].as_bool(), Some(true));
    let subsystem = &config["subsystem"][0];
    assert_eq!(subsystem["serial"].as_str(), Some("abc123"));
    assert_eq!(subsystem["namespaces"][0]["nsid"].as_integer(), Some(3));
    assert_eq!(
        subsystem["access"][0]["hosts"][0].as_str(),
        Some("nqn.2014-08.org.nvmexpress:uuid:1")
    );
    assert_eq!(config["listen"]["nvme"][0].as_str(), Some("192.0.2.7:4420"));
}

#[test]
fn an_open_subsystem_beyond_loopback_is_told() {
    let text = NVMET.replace("\"allow_any_host\": \"0\"", "\"allow_any_host\": \"1\"");
    let (config, _, report) = taken(Format::Nvmet, &text);
    assert_eq!(config["listen"]["allow-open"].as_bool(), Some(true));
    assert!(report.notes.iter().any(|note| note.contains("allow-open")));
}

#[test]
fn nvmet_ports_without_tcp_and_secrets_of_hosts_are_refused() {
    let text = NVMET
        .replace("\"trtype\": \"tcp\"", "\"trtype\": \"rdma\"")
        .replace("uuid:1\" }", "uuid:1\", \"dhchap_key\": \"open sesame\" }");
    let lines: Vec<u32> = refused(Format::Nvmet, &text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [3, 8, 9, 10, 11, 12]);
    assert!(
        !imported(Format::Nvmet, &text)
            .report
            .to_text()
            .contains("sesame")
    );
}

#[test]
fn hosts_of_nvmet_keep_their_secrets_each_in_a_rule_of_its_own() {
    let (key, ctrl) = ("DHHC-1:01:aG9zdA==:", "DHHC-1:01:Y3RybA==:");
    let dhchap = format!(
        "\"dhchap\": {{\"key\": \"{key}\", \"ctrl_key\": \"{ctrl}\", \"hash\": \"hmac(sha384)\", \"dhgroup\": \"null\"}}"
    );
    let second = "\"nqn.2014-08.org.nvmexpress:uuid:2\",";
    let text = NVMET
        .replace("uuid:1\" }", &format!("uuid:1\", {dhchap} }}"))
        .replace(
            "\"allowed_hosts\": [",
            &format!("\"allowed_hosts\": [ {second}"),
        )
        .replace(
            "00000000-0000-0000-0000-000000000000",
            "01234567-89ab-cdef-0123-456789abcdef",
        );
    let (config, secrets, report) = taken(Format::Nvmet, &text);
    assert_eq!(
        config["volume"][0]["nguid"].as_str(),
        Some("0123456789abcdef0123456789abcdef")
    );
    let rules = config["subsystem"][0]["access"].as_array().unwrap();
    let (own, shared) = (&rules[0], &rules[1]);
    assert_eq!(
        own["hosts"][0].as_str(),
        Some("nqn.2014-08.org.nvmexpress:uuid:1")
    );
    assert_eq!(own["dhchap-hashes"][0].as_str(), Some("sha384"));
    assert!(own.get("dhchap-groups").is_none());
    for (line, secret) in [
        ("dhchap-secret-file", key),
        ("dhchap-ctrl-secret-file", ctrl),
    ] {
        let path = own[line].as_str().unwrap();
        let file = secrets.iter().find(|file| path.ends_with(&file.name));
        assert_eq!(file.unwrap().secret, secret);
    }
    assert_eq!(
        shared["hosts"][0].as_str(),
        Some("nqn.2014-08.org.nvmexpress:uuid:2")
    );
    assert!(shared.get("dhchap-secret-file").is_none());
    assert!(!report.to_text().contains("DHHC"));
    // What the server would refuse, and what would get lost.
    let (same, open) = (
        text.replace(ctrl, key),
        text.replace("\"allow_any_host\": \"0\"", "\"allow_any_host\": \"1\""),
    );
    assert_eq!(refused(Format::Nvmet, &same).len(), 1);
    assert_eq!(refused(Format::Nvmet, &open).len(), 1, "lines");
}

const SPDK: &str = r#"{"subsystems": [
  {"subsystem": "bdev", "config": [
    {"method": "bdev_set_options", "params": {"bdev_io_pool_size": 65535}},
    {"method": "bdev_malloc_create", "params": {"num_blocks": 2048, "block_size": 512}},
    {"method": "bdev_aio_create", "params": {"name": "disk", "filename": "/dev/vg/d", "block_size": 4096}},
    {"method": "bdev_wait_for_examine"}
  ]},
  {"subsystem": "nvmf", "config": [
    {"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_queue_depth": 128}},
    {"method": "nvmf_create_subsystem", "params": {"nqn": "nqn.2026-11.x:s", "serial_number": "S1", "allow_any_host": false}},
    {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2026-11.x:s", "namespace": {"bdev_name": "Malloc0", "uuid": "b53be81d-6f5c-4768-b3bd-203614d8cf20"}}},
    {"method": "nvmf_subsystem_add_host", "params": {"nqn": "nqn.2026-11.x:s", "host": "nqn.2026-11.x:host"}},
    {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "nqn.2026-11.x:s", "listen_address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}}}
  ]},
  {"subsystem": "iscsi", "config": [
    {"method": "iscsi_create_portal_group", "params": {"tag": 7, "portals": [{"host": "127.0.0.1", "port": "3260"}]}},
    {"method": "iscsi_create_initiator_group", "params": {"tag": 2, "initiators": ["ANY"], "netmasks": ["ANY"]}},
    {"method": "iscsi_create_target_node", "params": {"name": "disk1", "luns": [{"bdev_name": "disk", "lun_id": 0}], "pg_ig_maps": [{"pg_tag": 7, "ig_tag": 2}], "disable_chap": true}}
  ]},
  {"subsystem": "vmd", "config": null}
]}
"#;

#[test]
fn the_calls_of_spdk_are_carried_out_in_order() {
    let (config, _, _) = taken(Format::Spdk, SPDK);
    let volumes = config["volume"].as_array().unwrap();
    assert_eq!(volumes[0]["name"].as_str(), Some("Malloc0"));
    assert_eq!(
        volumes[0]["uuid"].as_str(),
        Some("b53be81d-6f5c-4768-b3bd-203614d8cf20")
    );
    // Without one, SPDK makes the NGUID of the UUID.
    assert_eq!(
        volumes[0]["nguid"].as_str(),
        Some("b53be81d6f5c4768b3bd203614d8cf20")
    );
    assert_eq!(volumes[0]["size"].as_integer(), Some(1 << 20));
    assert_eq!(volumes[1]["block-size"].as_integer(), Some(4096));
    assert_eq!(
        config["subsystem"][0]["namespaces"][0]["nsid"].as_integer(),
        Some(1)
    );
    assert_eq!(
        config["subsystem"][0]["access"][0]["hosts"][0].as_str(),
        Some("nqn.2026-11.x:host")
    );
    assert_eq!(
        config["target"][0]["name"].as_str(),
        Some("iqn.2016-06.io.spdk:disk1")
    );
    assert_eq!(
        config["listen"]["iscsi"][0].as_str(),
        Some("127.0.0.1:3260")
    );
}

#[test]
fn what_is_not_known_of_a_call_of_spdk_is_refused_and_defaults_are_not() {
    let with = |namespace: &str, listener: &str| {
        SPDK.replace(
            "\"bdev_name\": \"Malloc0\"",
            &format!("\"bdev_name\": \"Malloc0\", {namespace}"),
        )
        .replace(
            "\"listen_address\": {",
            &format!("{listener}, \"listen_address\": {{"),
        )
    };
    let same = with(
        "\"no_auto_visible\": false",
        "\"ana_state\": \"optimized\", \"sock_impl\": \"posix\"",
    );
    taken(Format::Spdk, &same);
    for (namespace, listener, wanted) in [
        (
            "\"no_auto_visible\": true",
            "\"ana_state\": \"optimized\"",
            11,
        ),
        (
            "\"nsid\": 1, \"of_tomorrow\": 7",
            "\"secure_channel\": false",
            11,
        ),
        ("\"nsid\": 1", "\"ana_state\": \"inaccessible\"", 13),
    ] {
        let found = refused(Format::Spdk, &with(namespace, listener));
        let lines: Vec<u32> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [wanted], "{found:?}");
        assert!(!found[0].1.is_empty());
    }
}

#[test]
fn hosts_of_spdk_keep_the_files_of_their_keys() {
    let text = SPDK
        .replace(
            "{\"subsystem\": \"nvmf\"",
            "{\"subsystem\": \"keyring\", \"config\": [\
             {\"method\": \"keyring_file_add_key\", \"params\": {\"name\": \"k1\", \"path\": \"/etc/keys/one\"}}]},\
             {\"subsystem\": \"nvmf\"",
        )
        .replace(
            "\"host\": \"nqn.2026-11.x:host\"",
            "\"host\": \"nqn.2026-11.x:host\", \"psk\": \"/etc/keys/psk\", \"dhchap_key\": \"k1\"",
        )
        .replace("\"trsvcid\": \"4420\"}", "\"trsvcid\": \"4420\"}, \"secure_channel\": true")
        .replace(
            "203614d8cf20\"",
            "203614d8cf20\", \"nguid\": \"0123456789ABCDEF0123456789ABCDEF\", \"eui64\": \"0014050AAAABBBBB\"",
        );
    let (config, secrets, _) = taken(Format::Spdk, &text);
    let rule = &config["subsystem"][0]["access"][0];
    assert_eq!(rule["dhchap-secret-file"].as_str(), Some("/etc/keys/one"));
    assert_eq!(rule["tls-key-files"][0].as_str(), Some("/etc/keys/psk"));
    assert!(secrets.is_empty());
    assert_eq!(
        config["listen"]["nvme"][0].as_str(),
        Some("127.0.0.1:4420,tls=required")
    );
    let volume = &config["volume"][0];
    assert_eq!(
        volume["nguid"].as_str(),
        Some("0123456789abcdef0123456789abcdef")
    );
    assert_eq!(volume["eui64"].as_str(), Some("0014050aaaabbbbb"));
    let unknown = text.replace("\"dhchap_key\": \"k1\"", "\"dhchap_key\": \"k2\"");
    assert_eq!(refused(Format::Spdk, &unknown).len(), 1);
}

#[test]
fn block_devices_of_spdk_without_a_backend_are_refused_with_what_uses_them() {
    let text = SPDK.replace("bdev_aio_create", "bdev_lvol_create");
    let lines: Vec<u32> = refused(Format::Spdk, &text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [5, 18]);
}

const ISTGT: &str = "\
[Global]
  Comment \"Global section\"
  NodeBase \"iqn.2007-09.jp.ne.peach.istgt\"
  AuthFile /etc/istgt/auth.conf
  NopInInterval 20
  DiscoveryAuthMethod Auto
  DiscoveryAuthGroup None
[PortalGroup1]
  Portal DA1 192.0.2.7:3260
[InitiatorGroup1]
  InitiatorName \"iqn.1993-08.org.debian:01:web1\"
  Netmask ALL
[LogicalUnit1]
  TargetName disk1
  TargetAlias \"Data Disk1\"
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod CHAP
  AuthGroup AuthGroup1
  UnitType Disk
  UnitInquiry \"FreeBSD\" \"iSCSI Disk\" \"01234\" \"10000001\"
  LUN0 Storage /srv/disk1.img 64MB
  LUN1 Storage /dev/vg/two Auto
";

#[test]
fn istgt_units_have_rules_portals_and_accounts() {
    let options = Options {
        authentication: Some(source(
            "[AuthGroup1]\nAuth \"ann\" \"secret-of-twelve\" \"back\" \"another-of-twelve\"\n",
        )),
        ..Options::default()
    };
    let imported = import(Format::Istgt, &source(ISTGT), &options).unwrap();
    assert_eq!(
        imported.report.refused().count(),
        0,
        "{}",
        imported.report.to_text()
    );
    assert_eq!(
        unaccounted(ISTGT, &imported.report, &[]),
        Vec::<String>::new()
    );
    let (text, secrets) = imported.configuration.to_toml("secrets");
    let config: toml::Table = text.parse().unwrap();
    assert_eq!(config["volume"][0]["size"].as_integer(), Some(64 << 20));
    assert_eq!(config["volume"][0]["serial"].as_str(), Some("10000001"));
    assert_eq!(config["volume"][1]["serial"].as_str(), Some("10000001L1"));
    let target = &config["target"][0];
    assert_eq!(
        target["name"].as_str(),
        Some("iqn.2007-09.jp.ne.peach.istgt:disk1")
    );
    assert_eq!(target["mutual"]["user"].as_str(), Some("back"));
    assert_eq!(
        target["access"][0]["initiators"][0].as_str(),
        Some("iqn.1993-08.org.debian:01:web1")
    );
    assert_eq!(secrets.len(), 2);
    assert!(!imported.report.to_text().contains("of-twelve"));
}

#[test]
fn istgt_without_its_secrets_is_refused() {
    let found = refused(Format::Istgt, ISTGT);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("--auth"));
}

#[test]
fn formats_are_told_apart() {
    let samples = [
        (Format::Scst, SCST),
        (Format::Scst, SCST_OLD),
        (Format::Tgt, TGT),
        (Format::Lio, LIO),
        (Format::Nvmet, NVMET),
        (Format::Spdk, SPDK),
        (Format::Istgt, ISTGT),
    ];
    for (format, text) in samples {
        assert_eq!(Format::recognise(text), Some(format));
    }
    assert_eq!(Format::recognise("hello"), None);
    assert_eq!(Format::recognise("{}"), None);
}

#[test]
fn text_that_is_no_configuration_names_its_place() {
    let syntax = |format, text: &str| match import(format, &source(text), &Options::default()) {
        Err(ImportError::Syntax { line, .. }) => line,
        other => panic!("{other:?}"),
    };
    assert_eq!(syntax(Format::Scst, "HANDLER x {\n"), 1);
    assert_eq!(syntax(Format::Scst, "\n}\n"), 2);
    assert_eq!(syntax(Format::Tgt, "<target a>\n</other>\n"), 2);
    assert_eq!(syntax(Format::Tgt, "<target a>\n"), 1);
    assert_eq!(syntax(Format::Lio, "{\n\"a\": 1,\n\"a\": 2}\n"), 3);
    assert_eq!(syntax(Format::Lio, &"[".repeat(100_000)), 1);
    assert_eq!(syntax(Format::Istgt, "Key value\n"), 1);
    assert_eq!(syntax(Format::Istgt, "[Global\n"), 1);
}

/// Lines that make sense to some parser, in any order.
fn lines() -> impl Strategy<Value = String> {
    let samples = [SCST, SCST_OLD, TGT, LIO, NVMET, SPDK, ISTGT];
    let all: Vec<String> = samples
        .iter()
        .flat_map(|text| text.lines())
        .map(str::to_owned)
        .collect();
    proptest::collection::vec(proptest::sample::select(all), 0..60)
        .prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_makes_an_importer_panic(text in prop_oneof![lines(), "\\PC{0,400}", "[{}\\[\\]<>\"#\\\\a ,:\n]{0,200}"]) {
        for format in Format::ALL {
            if let Ok(imported) = import(format, &source(&text), &Options::default()) {
                let (text, _) = imported.configuration.to_toml("secrets");
                prop_assert!(text.parse::<toml::Table>().is_ok(), "{}", text);
            }
        }
        let _ = Format::recognise(&text);
    }
}
