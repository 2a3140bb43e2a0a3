//! Commands against the model, and hostile text.

use std::collections::BTreeMap;

use longshore_api::object::{Keys, ObjectKind, Owner};
use proptest::prelude::*;

use crate::change::{Change, Wanted};
use crate::errno::{EBADSLT, EBUSY, EEXIST, EINVAL, ENOENT, EOPNOTSUPP, Refusal};
use crate::map::CopyMap;
use crate::node::{Directory, File, Node};
use crate::state::{Connection, Device, Nagle, PathKind, Served, Session, State, Tuned, cpu_mask};
use crate::write::{COMMAND_MAX, write};

/// Objects that changes are carried out on, as the server would.
#[derive(Default)]
struct World {
    devices: BTreeMap<String, Keys>,
    targets: BTreeMap<String, Keys>,
    settings: BTreeMap<&'static str, u64>,
    tuned: BTreeMap<Tuned, String>,
    copies: CopyMap,
    described: BTreeMap<String, Keys>,
}

impl World {
    fn state(&self) -> State {
        let devices = self.devices.iter().map(|(name, keys)| {
            let size = keys.get("size").and_then(serde_json::Value::as_u64);
            let device = Device {
                owner: Owner::Api,
                keys: keys.clone(),
                size_bytes: size.unwrap_or(1 << 20),
                serial: "0123".to_owned(),
            };
            (name.clone(), device)
        });
        let targets = self.targets.iter();
        let targets = targets.map(|(name, keys)| (name.clone(), Owner::Api, keys.clone()));
        let session = Session {
            id: "7".to_owned(),
            initiator: "iqn.2026-11.com.example:host1".to_owned(),
            target: TARGET.to_owned(),
            connections: vec![Connection {
                address: "192.0.2.1:5000".to_owned(),
                reads: 10,
                reads_in_nagle: 4,
                ..Connection::default()
            }],
            group: None,
        };
        let mut state = State::new(devices.collect(), targets, vec![session]);
        state.settings.clone_from(&self.settings);
        state.tuned.clone_from(&self.tuned);
        state.copies.clone_from(&self.copies);
        state.copies.follow(self.devices.keys());
        let described = |name: &str| self.described.get(name).cloned().unwrap_or_default();
        state.discovery = described("discovery");
        state.transmit = described("transmit");
        let shown = |key: &str, default: u32| match state.transmit.get(key) {
            Some(value) => value.to_string(),
            None => default.to_string(),
        };
        state.nagle = Nagle {
            threshold: shown("nagle-threshold", 96),
            margin: shown("nagle-margin", 40).parse().unwrap(),
        };
        state
    }

    fn find(&self, path: &str) -> Option<Node> {
        find(&self.state(), path)
    }

    fn read(&self, path: &str) -> String {
        match self.find(path) {
            Some(Node::File(file)) => file.text(&self.state()),
            Some(Node::Link(link)) => link.text(&self.state()).unwrap(),
            other => panic!("{path}: {other:?}"),
        }
    }

    fn names(&self, path: &str) -> Vec<String> {
        match self.find(path) {
            Some(Node::Directory(directory)) => directory.names(&self.state()),
            other => panic!("{path}: {other:?}"),
        }
    }

    fn wanted(&self, path: &str, text: &str) -> Result<Wanted, Refusal> {
        let Some(Node::File(file)) = self.find(path) else {
            panic!("{path} is no file");
        };
        write(&self.state(), &file, text.as_bytes())
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), i32> {
        let wanted = self.wanted(path, text).map_err(|refusal| refusal.errno)?;
        if let Change::Setting { name, value } = wanted.change {
            self.settings.insert(name, value);
        } else if let Change::Tune { what, value } = wanted.change {
            match value {
                Some(value) => drop(self.tuned.insert(what, value)),
                None => drop(self.tuned.remove(&what)),
            }
        } else if let Change::Copies(map) = wanted.change {
            self.copies = map;
        } else if let Change::Reopen { id, keys } = wanted.change {
            self.devices.insert(id.name, keys);
        } else if let Change::Objects { objects, .. } = wanted.change {
            for (id, keys) in objects {
                let kind = match id.kind {
                    ObjectKind::Volume => &mut self.devices,
                    ObjectKind::Setting => &mut self.described,
                    _ => &mut self.targets,
                };
                match keys {
                    Some(keys) => drop(kind.insert(id.name, keys)),
                    None => drop(kind.remove(&id.name)),
                }
            }
        }
        Ok(())
    }
}

fn find(state: &State, path: &str) -> Option<Node> {
    let mut node = Node::Directory(Directory::Root);
    for name in path.split('/') {
        let Node::Directory(directory) = &node else {
            return None;
        };
        node = directory.child(state, name)?;
    }
    Some(node)
}

const TARGET: &str = "iqn.2026-11.com.example:a";

fn small_world() -> World {
    let mut world = World::default();
    world
        .write(
            "sys/handlers/vdisk_nullio/mgmt",
            "add_device disk0 size_mb=8;",
        )
        .unwrap();
    world
        .write("sys/targets/iscsi/mgmt", &format!("add_target {TARGET} "))
        .unwrap();
    let luns = format!("sys/targets/iscsi/{TARGET}/luns/mgmt");
    world.write(&luns, "add disk0 0").unwrap();
    world
}

#[test]
fn a_device_is_a_volume_with_links_both_ways() {
    let world = small_world();
    assert_eq!(
        world.read("sys/handlers/vdisk_nullio/disk0"),
        "../../devices/disk0"
    );
    assert_eq!(
        world.read("sys/devices/disk0/handler"),
        "../../handlers/vdisk_nullio"
    );
    assert_eq!(world.read("sys/devices/disk0/size"), "8388608\n[key]\n");
    assert_eq!(
        world.read("sys/devices/disk0/exported/export0"),
        format!("../../../targets/iscsi/{TARGET}/luns/0")
    );
    assert_eq!(
        world.read(&format!("sys/targets/iscsi/{TARGET}/luns/0/device")),
        "../../../../../devices/disk0"
    );
}

#[test]
fn errors_are_numbers_of_the_kernel() {
    let mut world = small_world();
    let null = "sys/handlers/vdisk_nullio/mgmt";
    let file = "sys/handlers/vdisk_fileio/mgmt";
    let driver = "sys/targets/iscsi/mgmt";
    let luns = &format!("sys/targets/iscsi/{TARGET}/luns/mgmt");
    for (path, command, errno) in [
        (null, "add_device disk0 ", EEXIST),
        (null, "add_device disk1 nonsense=1;", EINVAL),
        (null, "add_device disk1 size_mb", EINVAL),
        (null, "add_device disk1 blocksize=1024;", EINVAL),
        (file, "add_device disk1 ", EINVAL),
        (file, "add_device disk1 filename=/a;nv_cache=1;", EINVAL),
        (null, "del_device disk0", EBUSY),
        (null, "del_device disk9", ENOENT),
        ("sys/devices/disk0/usn", "its-serial", EBUSY),
        (null, "open_device disk9", EINVAL),
        ("sys/handlers/vcdrom/mgmt", "add_device cd ", EOPNOTSUPP),
        (driver, "add_target iqn.2026-11.com.example:a ", EEXIST),
        (driver, "del_target iqn.2026-11.com.example:b", ENOENT),
        (driver, "add_attribute IncomingUser a", EINVAL),
        (driver, "add_attribute allowed_portal 1", EINVAL),
        (driver, "del_attribute IncomingUser a", ENOENT),
        (luns, "add disk0 0", EEXIST),
        (luns, "add disk0 1", EEXIST),
        (luns, "add disk9 1", EINVAL),
        (luns, "add disk0 16384", EINVAL),
        (luns, "del 5", ENOENT),
        ("sys/last_sysfs_mgmt_res", "0", crate::errno::EROFS),
    ] {
        assert_eq!(world.write(path, command), Err(errno), "{command}");
    }
    assert_eq!(
        world.write(null, &"x".repeat(COMMAND_MAX)),
        Err(crate::errno::E2BIG)
    );
}

#[test]
fn settings_that_tune_scst_are_kept_and_have_no_effect() {
    let mut world = small_world();
    for (name, default, written, shown) in [
        ("threads", "1", "8", "8"),
        ("max_tasklet_cmd", "10", "9999", "9999"),
        ("poll_us", "0", "0x10", "16"),
        ("setup_id", "0x0", "0x1234", "0x1234"),
        ("force_global_sgv_pool", "0", "1\n", "1"),
    ] {
        let path = format!("sys/{name}");
        assert_eq!(world.read(&path), format!("{default}\n"));
        let wanted = world.wanted(&path, written).unwrap();
        assert!(wanted.ignored[0].contains(name), "{wanted:?}");
        world.write(&path, written).unwrap();
        assert_eq!(world.read(&path), format!("{shown}\n[key]\n"));
        world.write(&path, default).unwrap();
        assert_eq!(world.read(&path), format!("{default}\n"));
        for bad in ["", ".", "-1", "1x", "0x100000000"] {
            assert_eq!(world.write(&path, bad), Err(EINVAL), "{name} {bad}");
        }
    }
    assert_eq!(world.write("sys/threads", "0"), Err(EINVAL));
}

#[test]
fn settings_that_would_do_something_have_one_value() {
    let mut world = small_world();
    for (name, text, expected) in [
        ("measure_latency", "0", Ok(())),
        ("measure_latency", "0x0", Ok(())),
        ("measure_latency", "1", Err(EOPNOTSUPP)),
        ("measure_latency", "", Err(EINVAL)),
        // Commands are not held back, so all are let go.
        ("suspend", "-1", Ok(())),
        ("suspend", "0", Err(EOPNOTSUPP)),
        ("suspend", "10", Err(EOPNOTSUPP)),
    ] {
        let path = format!("sys/{name}");
        assert_eq!(world.write(&path, text), expected, "{name} {text}");
    }
}

#[test]
fn what_is_at_a_path_decides_whether_a_device_is_a_file() {
    let look_at = |path: &str| match path {
        "/dev/shm/disk" | "/srv/disk" => Some(PathKind::File),
        "/dev/sdb" | "/srv/link" => Some(PathKind::BlockDevice),
        _ => None,
    };
    let mut state = small_world().state();
    state.look_at = Some(look_at);
    let Some(Node::File(file)) = find(&state, "sys/handlers/vdisk_fileio/mgmt") else {
        panic!("no handler");
    };
    for (path, backend) in [
        ("/dev/shm/disk", "file"),
        ("/srv/disk", "file"),
        ("/dev/sdb", "block"),
        ("/srv/link", "block"),
        ("/dev/zero", "file"),
        ("/dev/not-there", "block"),
        ("/srv/not-there", "file"),
    ] {
        let command = format!("add_device disk1 filename={path};");
        let wanted = write(&state, &file, command.as_bytes()).unwrap();
        let Change::Objects { objects, .. } = wanted.change else {
            panic!("{wanted:?}");
        };
        assert_eq!(objects[0].1.as_ref().unwrap()["backend"], backend, "{path}");
    }
}

#[test]
fn logical_unit_numbers_are_written_as_the_kernel_reads_them() {
    let mut world = small_world();
    let luns = format!("sys/targets/iscsi/{TARGET}/luns");
    let null = "sys/handlers/vdisk_nullio/mgmt";
    world.write(null, "add_device disk1 ").unwrap();
    world
        .write(&format!("{luns}/mgmt"), "add disk1 0x10")
        .unwrap();
    assert_eq!(world.names(&luns), ["mgmt", "0", "16"]);
    world.write(&format!("{luns}/mgmt"), "del 020").unwrap();
    assert_eq!(world.names(&luns), ["mgmt", "0"]);
}

#[test]
fn targets_and_initiators_are_found_by_any_spelling_of_their_names() {
    let mut world = small_world();
    let driver = "sys/targets/iscsi/mgmt";
    let upper = TARGET.to_uppercase();
    let target = format!("sys/targets/iscsi/{upper}");
    world.write(&format!("{target}/enabled"), "1").unwrap();
    assert_eq!(
        world.read(&format!("sys/targets/iscsi/{TARGET}/enabled")),
        "1\n"
    );
    assert_eq!(
        world.write(driver, &format!("add_target {upper} ")),
        Err(EEXIST)
    );
    world
        .write(&format!("{target}/ini_groups/mgmt"), "create g")
        .unwrap();
    let initiators = format!("{target}/ini_groups/g/initiators");
    let mgmt = format!("{initiators}/mgmt");
    let name = "iqn.2026-11.com.example:HOST1";
    world.write(&mgmt, &format!("add {name}")).unwrap();
    let lower = name.to_lowercase();
    assert_eq!(world.write(&mgmt, &format!("add {lower}")), Err(EEXIST));
    assert_eq!(world.names(&initiators), ["mgmt", name]);
    assert_eq!(
        world.read(&format!("{initiators}/{lower}")),
        format!("{lower}\n")
    );
    world.write(&mgmt, &format!("del {lower}")).unwrap();
    assert_eq!(world.names(&initiators), ["mgmt"]);
    world.write(driver, &format!("del_target {upper}")).unwrap();
    assert!(world.targets.is_empty());
}

#[test]
fn a_group_is_a_rule_and_the_rest_has_the_map_of_the_target() {
    let mut world = small_world();
    let groups = format!("sys/targets/iscsi/{TARGET}/ini_groups");
    world
        .write("sys/handlers/vdisk_nullio/mgmt", "add_device disk1 ")
        .unwrap();
    world
        .write(&format!("{groups}/mgmt"), "create hosts")
        .unwrap();
    let initiators = format!("{groups}/hosts/initiators/mgmt");
    world
        .write(&initiators, "add iqn.2026-11.com.example:*")
        .unwrap();
    world
        .write(&initiators, "add iqn.2026-11.com.example:host1")
        .unwrap();
    world
        .write(
            &format!("{groups}/hosts/luns/mgmt"),
            "add disk1 0 read_only=1;",
        )
        .unwrap();
    let expected = serde_json::json!([
        {
            "name": "hosts",
            "initiators": ["iqn.2026-11.com.example:host1", "iqn.2026-11.com.example:*"],
            "luns": [{"lun": 0, "volume": "disk1", "read-only": true}],
        },
        {"name": "Default", "initiators": ["*"]},
    ]);
    assert_eq!(world.targets[TARGET]["access"], expected);
    assert_eq!(world.names(&groups), ["mgmt", "hosts"]);
    assert_eq!(
        world.read(&format!(
            "sys/targets/iscsi/{TARGET}/sessions/iqn.2026-11.com.example:host1/luns"
        )),
        "../../ini_groups/hosts/luns"
    );
    world
        .write(&format!("sys/targets/iscsi/{TARGET}/luns/mgmt"), "clear")
        .unwrap();
    let last = world.targets[TARGET]["access"][1].clone();
    assert_eq!(
        last,
        serde_json::json!({"name": "Default", "initiators": []})
    );
    assert_eq!(
        world.write(&format!("{groups}/hosts/initiators/mgmt"), "add !iqn.a"),
        Err(EINVAL)
    );
}

#[test]
fn accounts_are_numbered_attributes_that_only_the_owner_reads() {
    let mut world = small_world();
    let driver = "sys/targets/iscsi/mgmt";
    let target = format!("sys/targets/iscsi/{TARGET}");
    for command in [
        "IncomingUser one secret-of-one",
        "IncomingUser two secret-of-two",
    ] {
        world
            .write(driver, &format!("add_target_attribute {TARGET} {command}"))
            .unwrap();
    }
    assert_eq!(
        world.read(&format!("{target}/IncomingUser1")),
        "two secret-of-two\n[key]\n"
    );
    let Some(Node::File(file)) = world.find(&format!("{target}/IncomingUser")) else {
        panic!("no account");
    };
    assert_eq!(file.mode(&world.state()), 0o600);
    world
        .write(
            driver,
            &format!("del_target_attribute {TARGET} IncomingUser one"),
        )
        .unwrap();
    assert_eq!(
        world.read(&format!("{target}/IncomingUser")),
        "two secret-of-two\n[key]\n"
    );
    assert!(world.find(&format!("{target}/IncomingUser1")).is_none());
}

#[test]
fn the_rule_for_the_rest_keeps_what_else_it_says() {
    let rule = serde_json::json!({
        "name": "Default",
        "initiators": ["*"],
        "accounts": [{"user": "web1", "secret-file": "/etc/longshore/web1"}],
        "read-only": true,
    });
    let mut world = with_access(&serde_json::json!([rule]));
    let luns = format!("sys/targets/iscsi/{TARGET}/luns/mgmt");
    world.write(&luns, "clear").unwrap();
    let mut closed = rule.clone();
    closed["initiators"] = serde_json::json!([]);
    assert_eq!(world.targets[TARGET]["access"], serde_json::json!([closed]));
    world.write(&luns, "add disk0 0").unwrap();
    assert_eq!(world.targets[TARGET]["access"], serde_json::json!([rule]));
}

#[test]
fn a_group_that_names_all_initiators_takes_them_from_the_rest() {
    let mut world = small_world();
    let groups = format!("sys/targets/iscsi/{TARGET}/ini_groups");
    world
        .write(&format!("{groups}/mgmt"), "create all")
        .unwrap();
    world
        .write(&format!("{groups}/all/initiators/mgmt"), "add *")
        .unwrap();
    let expected = serde_json::json!([
        {"name": "all", "initiators": ["*"], "luns": []},
        {"name": "Default", "initiators": []},
    ]);
    assert_eq!(world.targets[TARGET]["access"], expected);
}

#[test]
fn a_secret_in_a_file_never_becomes_the_name_of_the_file() {
    let mut world = small_world();
    let account = serde_json::json!({"user": "web1", "secret-file": "/etc/longshore/web1"});
    for (key, value) in [
        ("accounts", serde_json::json!([account])),
        ("mutual", account.clone()),
    ] {
        let target = world.targets.get_mut(TARGET).unwrap();
        target.insert(key.to_owned(), value);
    }
    let before = world.targets[TARGET].clone();
    for attribute in ["IncomingUser", "OutgoingUser"] {
        let path = format!("sys/targets/iscsi/{TARGET}/{attribute}");
        let shown = world.read(&path);
        let shown = shown.lines().next().unwrap();
        assert_eq!(shown, "web1 (/etc/longshore/web1)");
        assert_eq!(world.write(&path, shown), Ok(()));
        assert_eq!(world.write(&path, "web1 (/etc/other)"), Err(EINVAL));
        assert_eq!(world.targets[TARGET], before);
        let other = "iqn.2026-11.com.example:b";
        let command = format!("add_target {other} {attribute}={shown}");
        assert_eq!(world.write("sys/targets/iscsi/mgmt", &command), Err(EINVAL));
    }
}

#[test]
fn attributes_carry_a_key_where_they_differ_from_the_default() {
    let mut world = small_world();
    let path = format!("sys/targets/iscsi/{TARGET}/MaxOutstandingR2T");
    assert_eq!(world.read(&path), "8\n");
    world.write(&path, "20").unwrap();
    assert_eq!(world.read(&path), "20\n[key]\n");
    world.write(&path, "8").unwrap();
    assert_eq!(world.read(&path), "8\n");
    let enabled = format!("sys/targets/iscsi/{TARGET}/enabled");
    assert_eq!(world.read(&enabled), "0\n");
    world.write(&enabled, "1").unwrap();
    assert_eq!(world.read(&enabled), "1\n");
}

#[test]
fn attributes_without_effect_are_kept_and_shown() {
    let mut world = small_world();
    let target = format!("sys/targets/iscsi/{TARGET}");
    for (name, written) in [
        ("QueuedCommands", "64"),
        ("NopInInterval", "7"),
        ("NopInTimeout", "9"),
        ("RspTimeout", "30"),
        ("MaxXmitDataSegmentLength", "65536"),
        ("aen_disabled", "1"),
        ("io_grouping_type", "never"),
        ("addr_method", "FLAT"),
        ("comment", "for the web"),
    ] {
        let path = format!("{target}/{name}");
        let default = world.read(&path);
        let wanted = world.wanted(&path, written).unwrap();
        assert!(wanted.ignored[0].contains(name), "{wanted:?}");
        world.write(&path, written).unwrap();
        assert_eq!(world.read(&path), format!("{written}\n[key]\n"));
        // The second `scstadmin -config` changes nothing.
        let again = world.wanted(&path, written).unwrap();
        assert_eq!(again, Change::Nothing.into());
        world.write(&path, default.trim_end()).unwrap();
        assert_eq!(world.read(&path), default);
    }
    let bad = [
        ("QueuedCommands", "many"),
        ("io_grouping_type", "some"),
        ("addr_method", "ROUND"),
        ("aen_disabled", "2"),
        ("cpu_mask", "xyz"),
    ];
    for (name, value) in bad {
        assert_eq!(world.write(&format!("{target}/{name}"), value), Err(EINVAL));
    }
    let [hides, unsafe_here] = [("black_hole", "1"), ("per_portal_acl", "1")];
    for (name, value) in [hides, unsafe_here] {
        let path = format!("{target}/{name}");
        assert_eq!(world.write(&path, value), Err(EOPNOTSUPP), "{name}");
    }
}

#[test]
fn attributes_of_groups_without_effect_are_kept_and_shown() {
    let mut world = small_world();
    let target = format!("sys/targets/iscsi/{TARGET}");
    world
        .write(&format!("{target}/ini_groups/mgmt"), "create g")
        .unwrap();
    let mask = world.read(&format!("{target}/cpu_mask"));
    for holder in [target.clone(), format!("{target}/ini_groups/g")] {
        let path = format!("{holder}/cpu_mask");
        assert_eq!(world.read(&path), mask);
        assert_eq!(world.write(&path, &mask), Ok(()));
        assert_eq!(world.write(&path, "8000"), Ok(()));
        assert_eq!(world.read(&path), "8000\n[key]\n");
    }
    // A group's value is its own.
    world
        .write(&format!("{target}/ini_groups/g/cpu_mask"), "4000")
        .unwrap();
    assert_eq!(world.read(&format!("{target}/cpu_mask")), "8000\n[key]\n");
    let black_hole = format!("{target}/ini_groups/g/black_hole");
    assert_eq!(world.write(&black_hole, "0"), Ok(()));
    assert_eq!(world.write(&black_hole, "1"), Err(EOPNOTSUPP));
}

#[test]
fn masks_of_cores_are_written_as_linux_does() {
    for (cores, mask) in [
        (1, "1"),
        (4, "f"),
        (6, "3f"),
        (32, "ffffffff"),
        (33, "1,ffffffff"),
        (72, "ff,ffffffff,ffffffff"),
    ] {
        assert_eq!(cpu_mask(cores), mask);
    }
}

#[test]
fn active_commands_of_a_session_are_those_of_its_connections() {
    let connection = |active| Connection {
        address: format!("192.0.2.1:{active}"),
        active,
        ..Connection::default()
    };
    let session = Session {
        initiator: "iqn.2026-11.com.example:host1".to_owned(),
        target: TARGET.to_owned(),
        connections: vec![connection(3), connection(4)],
        ..Session::default()
    };
    let target = (TARGET.to_owned(), Owner::Api, Keys::new());
    let state = State::new(BTreeMap::new(), [target], vec![session]);
    let path = format!(
        "sys/targets/iscsi/{TARGET}/sessions/iqn.2026-11.com.example:host1/active_commands"
    );
    let Some(Node::File(file)) = find(&state, &path) else {
        panic!("{path}");
    };
    assert_eq!(file.text(&state), "7\n");
}

#[test]
fn a_thousand_luns_are_listed_in_as_many_look_ups_for_each_as_one() {
    // Operations of the tree, as the kernel asks for them: each name is looked up, and each file read, once.
    let look_ups = |luns: usize| {
        let device = |number: usize| {
            let device = Device {
                owner: Owner::Api,
                keys: Keys::new(),
                size_bytes: 1 << 20,
                serial: number.to_string(),
            };
            (format!("disk{number}"), device)
        };
        let map =
            (0..luns).map(|lun| serde_json::json!({"lun": lun, "volume": format!("disk{lun}")}));
        let keys = Keys::from_iter([("luns".to_owned(), map.collect())]);
        let target = (TARGET.to_owned(), Owner::Api, keys);
        let state = State::new((0..luns).map(device).collect(), [target], Vec::new());
        walk(&state, &Directory::Sys, 0)
    };
    let (few, many) = (look_ups(10), look_ups(1000));
    let each = (many - few) / 990;
    assert_eq!(few + 990 * each, many);
    assert!(each < 40, "{each} names for each LUN and its device");
}

#[test]
fn the_relative_port_of_a_target_is_shown_set_and_told_from_that_of_others() {
    let mut world = small_world();
    let other = "iqn.2026-11.com.example:b";
    world
        .write("sys/targets/iscsi/mgmt", &format!("add_target {other} "))
        .unwrap();
    let path = |target: &str| format!("sys/targets/iscsi/{target}/rel_tgt_id");
    let (own, other) = (path(TARGET), path(other));
    assert_eq!(world.read(&own), "0\n");
    world.write(&own, "300").unwrap();
    assert_eq!(world.read(&own), "300\n[key]\n");
    assert_eq!(world.targets[TARGET]["relative-port"], 300);
    assert_eq!(world.write(&other, "300"), Err(EBADSLT));
    for bad in ["65536", "x", "-1", "0x10000"] {
        assert_eq!(world.write(&own, bad), Err(EINVAL), "{bad}");
    }
    world.write(&other, "0x10").unwrap();
    assert_eq!(world.read(&other), "16\n[key]\n");
    // 0: the server gives it a number again.
    world.write(&own, "0").unwrap();
    assert!(!world.targets[TARGET].contains_key("relative-port"));

    let mut state = world.state();
    let served = Served {
        id: 7,
        relative_port: 12,
    };
    state.serve(TARGET, served);
    let read = |state: &State, path: &str| match find(state, path) {
        Some(Node::File(file)) => file.text(state),
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(read(&state, &own), "12\n");
    assert_eq!(read(&state, &own.replace("rel_tgt_id", "tid")), "7\n");
    // The number that the server gave a target is its own, too.
    let Some(Node::File(file)) = find(&state, &other) else {
        panic!("{other}");
    };
    let refused = write(&state, &file, b"12").unwrap_err();
    assert_eq!(refused.errno, EBADSLT, "{refused:?}");
    // So is that of a target that nobody has described, which the trees do not show.
    let served = Served {
        id: 8,
        relative_port: 13,
    };
    state.serve("iqn.2026-11.local.longshore:default", served);
    let refused = write(&state, &file, b"13").unwrap_err();
    assert_eq!(refused.errno, EBADSLT, "{refused:?}");
}

#[test]
fn the_old_tree_opens_the_devices_of_the_paper() {
    let mut world = World::default();
    let vdisk = "proc/scsi_tgt/vdisk/vdisk";
    for command in [
        "open disk_NULLIO /dev/zero 512 NULLIO\n\0",
        "open disk_ZERO /dev/zero 512\n\0",
        "open disk_BZERO /dev/zero 512 BLOCKIO\n\0",
        "set_t10_dev_id disk_NULLIO N000\n\0",
        "set_t10_dev_id disk_ZERO Z000\n\0",
        "set_t10_dev_id disk_BZERO BZ000\n\0",
    ] {
        world.write(vdisk, command).unwrap();
    }
    let table = world.read(vdisk);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[1],
        ["disk_BZERO", "1048576", "512", "BIO", "/dev/zero", "BZ000"]
    );
    assert_eq!(
        rows[2],
        ["disk_NULLIO", "2621440", "512", "NIO", "/dev/zero", "N000"]
    );
    assert_eq!(
        rows[3],
        ["disk_ZERO", "1048576", "512", "/dev/zero", "Z000"]
    );
    world
        .write(
            "proc/scsi_tgt/groups/Default/devices",
            "add disk_ZERO 0 \n\0",
        )
        .unwrap();
    assert!(
        world
            .read("proc/scsi_tgt/groups/Default/devices")
            .contains("disk_ZERO")
    );
    world
        .write("proc/scsi_tgt/scsi_tgt", "add_group hosts\n")
        .unwrap();
    world
        .write("proc/scsi_tgt/groups/hosts/names", "add iqn.*\n\0")
        .unwrap();
    assert_eq!(world.read("proc/scsi_tgt/groups/hosts/names"), "iqn.*\n");
    assert_eq!(world.targets.len(), 1);
    world
        .write("proc/scsi_tgt/scsi_tgt", "rename_group hosts others\n")
        .unwrap();
    world
        .write("proc/scsi_tgt/scsi_tgt", "del_group others\n")
        .unwrap();
    assert_eq!(world.names("proc/scsi_tgt/groups"), ["Default"]);
}

#[test]
fn counts_of_sessions_begin_where_the_last_reading_ended() {
    let world = small_world();
    let table = crate::procfs::session_table(&world.state(), |_| (0, 6, 3));
    assert!(table.contains("reads:4 nagle:25.0%"), "{table}");
}

/// Every name that a directory shows is found in it, down to the leaves.
fn walk(state: &State, directory: &Directory, depth: usize) -> usize {
    assert!(depth < 12);
    let mut nodes = 0;
    for name in directory.names(state) {
        let node = directory.child(state, &name);
        let node = node.unwrap_or_else(|| panic!("{directory:?} has no {name}"));
        nodes += 1;
        match node {
            Node::Directory(inner) => nodes += walk(state, &inner, depth + 1),
            Node::File(file) => assert!(file.text(state).len() < 64 * 1024),
            Node::Link(link) => assert!(link.text(state).is_some()),
        }
    }
    nodes
}

#[test]
fn every_name_is_found() {
    assert!(walk(&small_world().state(), &Directory::Root, 0) > 100);
}

const PATHS: [&str; 13] = [
    "sys/handlers/vdisk_nullio/mgmt",
    "sys/handlers/vdisk_fileio/mgmt",
    "sys/handlers/vdisk_blockio/mgmt",
    "sys/targets/iscsi/mgmt",
    "sys/targets/iscsi/iqn.2026-11.com.example:a/luns/mgmt",
    "sys/targets/iscsi/iqn.2026-11.com.example:a/ini_groups/mgmt",
    "sys/targets/iscsi/iqn.2026-11.com.example:a/ini_groups/g/initiators/mgmt",
    "sys/targets/iscsi/iqn.2026-11.com.example:a/ini_groups/g/luns/mgmt",
    "sys/targets/iscsi/iqn.2026-11.com.example:a/enabled",
    "sys/devices/disk0/usn",
    "proc/scsi_tgt/vdisk/vdisk",
    "proc/scsi_tgt/groups/Default/devices",
    "sys/threads",
];

fn commands() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("add_device"),
        Just("del_device"),
        Just("add_target"),
        Just("del_target"),
        Just("add"),
        Just("del"),
        Just("replace"),
        Just("clear"),
        Just("create"),
        Just("move"),
        Just("open"),
        Just("close"),
        Just("add_target_attribute"),
        Just("IncomingUser"),
        Just("disk0"),
        Just("disk1"),
        Just("g"),
        Just("h"),
        Just("0"),
        Just("1"),
        Just("*"),
        Just("iqn.2026-11.com.example:a"),
        Just("filename=/srv/a;"),
        Just("read_only=1;"),
        Just("é"),
    ];
    prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "))
}

/// Rules as the API takes them.
fn access() -> impl Strategy<Value = serde_json::Value> {
    let initiators = prop::collection::vec(
        prop_oneof![Just("*"), Just("iqn.a:*"), Just("iqn.a:b"), Just("iqn.c")],
        0..3,
    );
    let name = prop_oneof![
        Just(None),
        Just(Some("Default")),
        Just(Some("g")),
        Just(Some("h"))
    ];
    let luns = prop_oneof![
        Just(None),
        Just(Some(serde_json::json!([]))),
        Just(Some(
            serde_json::json!([{"lun": 3, "volume": "disk0", "read-only": false}])
        )),
    ];
    let rule = (name, initiators, luns, any::<bool>(), any::<bool>()).prop_map(
        |(name, initiators, luns, read_only, accounts)| {
            let mut rule = serde_json::json!({"initiators": initiators});
            if let Some(name) = name {
                rule["name"] = name.into();
            }
            if let Some(luns) = luns {
                rule["luns"] = luns;
            }
            if read_only {
                rule["read-only"] = true.into();
            }
            if accounts {
                rule["accounts"] =
                    serde_json::json!([{"user": "web1", "secret-file": "/etc/web1"}]);
            }
            rule
        },
    );
    prop_oneof![
        Just(serde_json::Value::Null),
        prop::collection::vec(rule, 0..4).prop_map(serde_json::Value::from),
    ]
}

/// Whether a target lets in initiators that no rule names.
fn is_open(target: &Keys) -> bool {
    let rules = target.get("access").and_then(serde_json::Value::as_array);
    let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
        return true;
    };
    let mut names = rules
        .iter()
        .flat_map(|rule| rule["initiators"].as_array().unwrap());
    names.any(|name| name == "*")
}

fn with_access(access: &serde_json::Value) -> World {
    let mut world = small_world();
    let target = world.targets.get_mut(TARGET).unwrap();
    match access {
        serde_json::Value::Null => drop(target.remove("access")),
        access => drop(target.insert("access".to_owned(), access.clone())),
    }
    world
}

proptest! {
    #[test]
    fn attributes_leave_rules_as_they_were_written(access in access()) {
        let mut world = with_access(&access);
        let before = world.targets[TARGET].clone();
        for (attribute, value) in [("alias", "a"), ("enabled", "1"), ("MaxBurstLength", "65536")] {
            world.write(&format!("sys/targets/iscsi/{TARGET}/{attribute}"), value).unwrap();
        }
        let account = format!("add_target_attribute {TARGET} IncomingUser one secret-of-one");
        world.write("sys/targets/iscsi/mgmt", &account).unwrap();
        for key in ["access", "luns"] {
            prop_assert_eq!(world.targets[TARGET].get(key), before.get(key));
        }
    }

    #[test]
    fn groups_and_further_luns_open_no_target(access in access()) {
        let mut world = with_access(&access);
        let was_open = is_open(&world.targets[TARGET]);
        let target = format!("sys/targets/iscsi/{TARGET}");
        world.write("sys/handlers/vdisk_nullio/mgmt", "add_device disk1 ").unwrap();
        world.write(&format!("{target}/luns/mgmt"), "add disk1 1").unwrap();
        for (verb, group) in [("create", "other"), ("del", "other"), ("del", "g"), ("del", "h")] {
            let _ = world.write(&format!("{target}/ini_groups/mgmt"), &format!("{verb} {group}"));
            prop_assert!(was_open || !is_open(&world.targets[TARGET]), "{verb} {group}");
        }
        for place in 1..=4 {
            let _ = world.write(&format!("{target}/ini_groups/mgmt"), &format!("del rule{place}"));
            prop_assert!(was_open || !is_open(&world.targets[TARGET]), "del rule{place}");
        }
    }

    #[test]
    fn any_commands_leave_a_tree_whose_names_are_found(
        writes in prop::collection::vec((0..PATHS.len(), commands()), 0..40)
    ) {
        let mut world = small_world();
        world.write(PATHS[5], "create g").unwrap();
        for (path, command) in writes {
            if world.find(PATHS[path]).is_some() {
                let _ = world.write(PATHS[path], &command);
            }
        }
        walk(&world.state(), &Directory::Root, 0);
    }

    #[test]
    fn any_bytes_are_answered(path in 0..PATHS.len(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let world = small_world();
        if let Some(Node::File(file)) = world.find(PATHS[path])
            && let Err(refusal) = write(&world.state(), &file, &bytes)
        {
            prop_assert!(refusal.errno > 0 && !refusal.text.is_empty());
        }
    }

    #[test]
    fn any_name_is_looked_up(name in "\\PC{0,40}") {
        let state = small_world().state();
        for path in ["sys", "sys/devices", "sys/targets/iscsi", "sys/devices/disk0", "proc/scsi_tgt/groups"] {
            if let Some(Node::Directory(directory)) = find(&state, path) {
                let _ = directory.child(&state, &name);
            }
        }
    }
}

#[test]
fn file_of_a_group_that_is_gone_is_no_more() {
    let mut world = small_world();
    let groups = format!("sys/targets/iscsi/{TARGET}/ini_groups/mgmt");
    world.write(&groups, "create g").unwrap();
    let file = File::InitiatorsManagement(TARGET.into(), "g".into());
    assert!(Node::File(file.clone()).exists(&world.state()));
    world.write(&groups, "del g").unwrap();
    assert!(!Node::File(file.clone()).exists(&world.state()));
    assert_eq!(
        write(&world.state(), &file, b"add iqn.a").map_err(|it| it.errno),
        Err(ENOENT)
    );
}

const COPIES: &str = "sys/targets/copy_manager/copy_manager_tgt";

fn copied(world: &World) -> Vec<(String, String)> {
    let mut numbers = world.names(&format!("{COPIES}/luns"));
    numbers.retain(|name| name != "mgmt");
    let device = |lun: String| {
        let link = world.read(&format!("{COPIES}/luns/{lun}/device"));
        let device = link.strip_prefix("../../../../../devices/").unwrap();
        (lun, device.to_owned())
    };
    numbers.into_iter().map(device).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(lun, device): &(&str, &str)| ((*lun).to_owned(), (*device).to_owned());
    expected.iter().map(own).collect()
}

#[test]
fn the_copy_manager_has_all_devices_by_name_until_a_command_says_otherwise() {
    let mut world = small_world();
    let null = "sys/handlers/vdisk_nullio/mgmt";
    assert_eq!(copied(&world), pairs(&[("0", "disk0")]));
    world.write(null, "add_device another size_mb=8;").unwrap();
    assert_eq!(copied(&world), pairs(&[("0", "another"), ("1", "disk0")]));

    let mgmt = &format!("{COPIES}/luns/mgmt");
    assert_eq!(world.write(mgmt, "add disk0 0"), Err(EEXIST));
    assert_eq!(world.write(mgmt, "add nothing 7"), Err(EINVAL));
    assert_eq!(world.write(mgmt, "add disk0 70000"), Err(EINVAL));
    assert_eq!(world.write(mgmt, "del 9"), Err(ENOENT));
    assert_eq!(world.write(mgmt, "move 9"), Err(EINVAL));
    world.write(mgmt, "add disk0 8").unwrap();
    let all = pairs(&[("0", "another"), ("1", "disk0"), ("8", "disk0")]);
    assert_eq!(copied(&world), all, "a number that was there stays");
    world.write(mgmt, "del 1").unwrap();
    assert_eq!(copied(&world), pairs(&[("0", "another"), ("8", "disk0")]));
    world.write(null, "add_device a size_mb=8;").unwrap();
    let all = pairs(&[("0", "another"), ("1", "a"), ("8", "disk0")]);
    assert_eq!(copied(&world), all);
    world.write(mgmt, "del 0").unwrap();
    assert_eq!(copied(&world), pairs(&[("1", "a"), ("8", "disk0")]));
    world.write(mgmt, "replace another 1").unwrap();
    assert_eq!(copied(&world), pairs(&[("1", "another"), ("8", "disk0")]));
    world.write(mgmt, "clear").unwrap();
    assert_eq!(copied(&world), []);
    // A device that only the copy manager maps is not in use.
    world.write(null, "del_device another").unwrap();
    world.write(null, "del_device a").unwrap();
    let luns = format!("sys/targets/iscsi/{TARGET}/luns/mgmt");
    world.write(&luns, "clear").unwrap();
    world.write(null, "del_device disk0").unwrap();
    world.write(null, "add_device disk1 size_mb=8;").unwrap();
    assert_eq!(copied(&world), pairs(&[("0", "disk1")]));
}

#[test]
fn attributes_of_the_copy_manager_are_kept_and_shown() {
    let mut world = small_world();
    let port = &format!("{COPIES}/rel_tgt_id");
    assert_eq!(world.read(port), "0\n");
    world.write(port, "1").unwrap();
    assert_eq!(world.read(port), "1\n[key]\n");
    world.write(port, "0").unwrap();
    assert_eq!(world.read(port), "0\n");
    let copying = "sys/targets/copy_manager/allow_not_connected_copy";
    assert_eq!(world.read(copying), "0\n");
    world.write(copying, "0").unwrap();
    for (path, value, expected) in [
        (copying, "1", EOPNOTSUPP),
        (port, "70000", EINVAL),
        (&format!("{COPIES}/addr_method"), "NONE", EINVAL),
        (&format!("{COPIES}/black_hole"), "1", EOPNOTSUPP),
        (&format!("{COPIES}/ini_groups/mgmt"), "create g", EOPNOTSUPP),
    ] {
        assert_eq!(world.write(path, value), Err(expected), "{path} {value}");
    }
    assert_eq!(
        world.names("sys/targets"),
        ["copy_manager".to_owned(), "iscsi".to_owned()]
    );
    assert!(world.names(&format!("{COPIES}/sessions")).is_empty());
    assert!(world.find(&format!("{COPIES}/enabled")).is_none());
}

#[test]
fn accounts_of_the_driver_are_those_of_discovery() {
    let mut world = small_world();
    let driver = "sys/targets/iscsi";
    let mgmt = &format!("{driver}/mgmt");
    for user in ["bar 12CharSecret", "joe 12charsecret"] {
        let command = format!("add_attribute IncomingUser {user}");
        world.write(mgmt, &command).unwrap();
    }
    assert_eq!(
        world.write(mgmt, "add_attribute IncomingUser joe another"),
        Err(EEXIST)
    );
    let second = &format!("{driver}/IncomingUser1");
    assert_eq!(world.read(second), "joe 12charsecret\n[key]\n");
    let Some(Node::File(file)) = world.find(second) else {
        panic!("no account");
    };
    assert_eq!(file.mode(&world.state()), 0o600);
    world.write(second, "joe changed-secret").unwrap();
    let accounts = &world.described["discovery"]["accounts"];
    assert_eq!(accounts[1]["secret"], "changed-secret");
    world
        .write(mgmt, "del_attribute IncomingUser joe changed-secret")
        .unwrap();
    world.write(mgmt, "del_attribute IncomingUser bar").unwrap();
    assert!(world.described.is_empty());
    assert!(world.find(&format!("{driver}/IncomingUser")).is_none());
}

#[test]
fn threshold_and_margin_are_set_in_both_trees() {
    let mut world = small_world();
    let (new, old) = ("sys/targets/iscsi", "proc/scsi_tgt/iscsi");
    assert_eq!(world.read(&format!("{new}/nagle_threshold")), "96\n");
    world
        .write(&format!("{new}/nagle_threshold"), "32\n")
        .unwrap();
    world.write(&format!("{old}/nagle_margin"), "5\n").unwrap();
    assert_eq!(world.read(&format!("{old}/nagle_threshold")), "32\n");
    assert_eq!(world.read(&format!("{new}/nagle_margin")), "5\n[key]\n");
    let threshold = &format!("{new}/nagle_threshold");
    for value in ["-1", "many", "5000000000", ""] {
        assert_eq!(world.write(threshold, value), Err(EINVAL), "{value}");
    }
    assert_eq!(
        world.write(&format!("{new}/nagle_margin"), "infinite"),
        Err(EINVAL)
    );
    world.write(threshold, "infinite").unwrap();
    assert_eq!(
        world.described["transmit"]["nagle-threshold"],
        serde_json::json!("infinite")
    );
}
