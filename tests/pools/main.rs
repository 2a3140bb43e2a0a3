//! Pools on the real server and by its verbs: volumes over both protocols, snapshots and growth while they are served,
//! and verbs with and without a server.

mod damage;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use longshore_tests::api::{VerbResult, verb};
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, SUBSYSTEM, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET, signal};
use serde_json::Value;

/// How long an orderly end may take on a machine that is busy with other tests.
const END_LIMIT: Duration = Duration::from_secs(60);

const BLOCK: usize = 512;

/// A pool, and verbs for it.
struct Scene {
    scratch: Scratch,
}

impl Scene {
    /// With the pool `tank` of two files.
    fn new() -> Self {
        let scene = Self {
            scratch: Scratch::new("pools"),
        };
        let (one, other) = (scene.path("a.img"), scene.path("b.img"));
        scene
            .verb(&["create", "tank", &one, &other, "--size", "96M"])
            .expect(0);
        scene
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// All drives of the pool, not in the order in which it was made.
    fn drives(&self) -> String {
        format!("{}+{}", self.path("b.img"), self.path("a.img"))
    }

    fn socket(&self) -> PathBuf {
        self.scratch.join("socket")
    }

    /// `longshore pool` with these arguments.
    fn verb(&self, arguments: &[&str]) -> VerbResult {
        VerbResult::of(verb(&self.socket(), &[&["pool"], arguments].concat()))
    }

    /// What the pool holds, as `show` tells.
    #[track_caller]
    fn show(&self, pool: &str) -> Value {
        let shown = self.verb(&["show", pool, "--output", "json"]);
        shown.expect(0).json()
    }

    fn write_file(&self, volumes: &str) {
        self.write_file_with(&["a.img", "b.img"], volumes);
    }

    fn write_file_with(&self, drives: &[&str], volumes: &str) {
        let text = format!("[[pool]]\nname = \"tank\"\ndrives = {drives:?}\n\n{volumes}");
        std::fs::write(self.scratch.join("longshore.toml"), text).unwrap();
    }

    /// A server with the file that was written last.
    fn serve(&self) -> Server {
        ServerBuilder::new()
            .iscsi()
            .nvme()
            .argument("--config")
            .argument(&self.path("longshore.toml"))
            .argument("--socket")
            .argument(&self.path("socket"))
            .argument("--state-dir")
            .argument(&self.path("state"))
            .start()
            .unwrap()
    }
}

const DISK0: &str = "[[volume]]\nname = \"disk0\"\nbackend = \"pool\"\npool = \"tank\"\nsize = \"16M\"\ncompression = \"lz4\"\n";

fn snapshot_volume(snapshot: &str) -> String {
    format!(
        "[[volume]]\nname = \"old\"\nbackend = \"pool\"\npool = \"tank\"\npool-volume = \"{snapshot}\"\nread-only = true\n"
    )
}

fn pattern(seed: u8) -> Vec<u8> {
    let bytes = (0u8..=255).cycle().take(8 * BLOCK);
    bytes.map(|byte| byte.wrapping_mul(31) ^ seed).collect()
}

#[track_caller]
fn write(initiator: &mut Initiator, lba: u64, data: &[u8], fua: bool) {
    let count = u32::try_from(data.len() / BLOCK).unwrap();
    let answer = initiator.command(0, &cdb::write_16(lba, count, fua), Data::Out(data));
    assert!(answer.unwrap().is_good());
}

#[track_caller]
fn read(initiator: &mut Initiator, lun: u8, lba: u64) -> Vec<u8> {
    let answer = initiator
        .command(lun, &cdb::read_16(lba, 8), Data::In(4096))
        .unwrap();
    assert!(answer.is_good(), "{answer:?}");
    answer.data
}

/// A verb that failed, and said this.
#[track_caller]
fn assert_refused(result: VerbResult, text: &str) {
    let told = result.expect(1).stderr;
    assert!(told.contains(text), "{told}");
}

/// Reads the file again, until the log says this. On a machine that is busy, an event loop may not tell its sessions in
/// time; then the change is refused.
#[track_caller]
fn reload(server: &Server, told: &str) {
    let refusals = || server.log().matches("try again in a moment").count();
    let mut before = refusals();
    server.reload().unwrap();
    for _ in 0..12_000 {
        if server.log().contains(told) {
            return;
        }
        if refusals() > before {
            before = refusals();
            server.reload().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{told} is missing in\n{}", server.log());
}

#[track_caller]
fn ends_well(server: Server) {
    let (status, log) = server.stop_and_read(END_LIMIT).unwrap();
    assert!(status.success(), "{log}");
}

#[test]
fn a_volume_of_a_pool_is_served_over_both_protocols_and_survives_a_kill() {
    let scene = Scene::new();
    let volume = format!(
        "disk0,backend=pool,pool={},size=16M,compression=lz4",
        scene.drives()
    );
    let serve = || {
        let server = ServerBuilder::new().volume(&volume).iscsi().nvme();
        server.start().unwrap()
    };
    let server = serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    write(&mut initiator, 8, &pattern(1), false);
    assert_eq!(
        host.read(blocks(8, 8)).unwrap().expect_success().data,
        pattern(1)
    );
    let written = host.write(blocks(1000, 8), &pattern(2)).unwrap();
    written.expect_success();
    assert_eq!(read(&mut initiator, 0, 1000), pattern(2));
    // Nobody has written there.
    assert_eq!(read(&mut initiator, 0, 4000), vec![0; 4096]);
    // What was acknowledged is with the system, whether it was flushed or not.
    server.kill().unwrap();

    let server = serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    assert_eq!(read(&mut initiator, 0, 8), pattern(1));
    assert_eq!(
        host.read(blocks(1000, 8)).unwrap().expect_success().data,
        pattern(2)
    );
    ends_well(server);
    let checked = scene.verb(&["check", &scene.drives(), "--data", "--output", "json"]);
    let report = checked.expect(0).json();
    assert_eq!(report["sound"], true, "{report}");
    assert!(report["data-bytes"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_snapshot_of_a_served_volume_keeps_what_it_was_made_of() {
    let scene = Scene::new();
    scene.write_file(DISK0);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    write(&mut initiator, 0, &pattern(1), false);
    // By the name of the pool, and by its drives: the server has them.
    scene
        .verb(&["snapshot", "create", "tank", "one", "disk0"])
        .expect(0);
    write(&mut initiator, 0, &pattern(2), false);
    let drives = scene.drives();
    scene
        .verb(&["snapshot", "create", &drives, "two", "disk0"])
        .expect(0);
    assert_refused(
        scene.verb(&["snapshot", "create", "tank", "two", "disk0"]),
        "exists already",
    );
    let shown = scene.show("tank");
    assert_eq!(shown["state"], "open");
    let snapshots = shown["volumes"][0]["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 2, "{shown}");
    assert_eq!(shown["volumes"][0]["in-use"], true);

    scene.write_file(&format!("{DISK0}{}", snapshot_volume("disk0@one")));
    reload(&server, "SIGHUP: add volume old");
    let mut other = Initiator::ready_at(server.portal(0), &Login::numbered(2), 1).unwrap();
    other.become_ready(0).unwrap();
    assert_eq!(read(&mut other, 1, 0), pattern(1));
    assert_eq!(read(&mut other, 0, 0), pattern(2));
    let refused = other.command(1, &cdb::write_16(0, 8, false), Data::Out(&pattern(3)));
    // DATA PROTECT, WRITE PROTECTED.
    assert_eq!(refused.unwrap().sense_code(), Some((7, 0x27, 0)));
    assert_refused(
        scene.verb(&["snapshot", "delete", "tank", "disk0@one"]),
        "in use",
    );
    scene
        .verb(&["snapshot", "clone", "tank", "disk0@one", "trial"])
        .expect(0);
    scene
        .verb(&["snapshot", "delete", "tank", "disk0@two"])
        .expect(0);
    assert_refused(
        scene.verb(&["snapshot", "rollback", "tank", "disk0@one"]),
        "in use",
    );
    // It is told of the unit that came.
    initiator.become_ready(0).unwrap();
    assert_eq!(read(&mut initiator, 0, 0), pattern(2));
    ends_well(server);

    // Without the server, the same verbs open the drives.
    scene
        .verb(&["snapshot", "rollback", &drives, "disk0@one"])
        .expect(0);
    scene.write_file(DISK0);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    assert_eq!(read(&mut initiator, 0, 0), pattern(1));
    ends_well(server);
}

/// Volumes that serve snapshots of the same name.
fn serving(snapshots: &[&str]) -> String {
    let volumes = snapshots.iter().map(|name| {
        format!(
            "[[volume]]\nname = \"{name}\"\nbackend = \"pool\"\npool = \"tank\"\n\
             pool-volume = \"disk0@{name}\"\nread-only = true\n"
        )
    });
    DISK0.to_owned() + &volumes.collect::<String>()
}

#[test]
fn a_backup_gets_only_what_changed_since_the_last_one() {
    let scene = Scene::new();
    scene.write_file(DISK0);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let backup = scene.path("backup.img");
    let copy = |arguments: &[&str]| {
        let all = [&["copy", "--output", "json", "--quiet"], arguments].concat();
        VerbResult::of(verb(&scene.socket(), &all))
    };
    let over_iscsi = |lun: u8| format!("iscsi://{}/{TARGET}/{lun}", server.portal(0));
    let over_nvme = |number: u8| format!("nvme+tcp://{}/{SUBSYSTEM}/{number}", server.nvme(0));
    let snapshot = |name: &str| {
        let made = scene.verb(&["snapshot", "create", "tank", name, "disk0"]);
        made.expect(0);
    };
    let serve = |names: &[&str]| {
        scene.write_file(&serving(names));
        let newest = names.last().expect("at least one");
        reload(&server, &format!("SIGHUP: add volume {newest}"));
    };

    for lba in [0, 8, 8192, 16384] {
        write(&mut initiator, lba, &pattern(1), false);
    }
    snapshot("one");
    serve(&["one"]);
    let since_one = ["--since", "tank/disk0@one"];
    copy(&[&over_iscsi(1), &backup, "--verify"]).expect(0);

    initiator.become_ready(0).unwrap();
    write(&mut initiator, 8, &pattern(2), false);
    write(&mut initiator, 30000, &pattern(2), false);
    // WRITE SAME (16) with UNMAP.
    let unmap = [0x93, 8, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 8, 0, 0];
    let unmapped = initiator.command(0, &unmap, Data::Out(&[0; BLOCK]));
    assert!(unmapped.unwrap().is_good());
    snapshot("two");
    write(&mut initiator, 0, &pattern(3), false);
    serve(&["one", "two"]);
    let diff = scene.verb(&[
        "snapshot",
        "diff",
        "tank",
        "disk0@two",
        "--since",
        "disk0@one",
        "--output",
        "json",
    ]);
    let diff = diff.expect(0).json();
    let offsets = diff["ranges"].as_array().unwrap().iter();
    let offsets: Vec<_> = offsets
        .map(|range| range["offset"].as_u64().unwrap() / 512)
        .collect();
    assert_eq!(offsets, [8, 16384, 30000], "{diff}");

    // There is nothing yet that changes could be made to.
    let fresh = scene.path("fresh.img");
    let missing = copy(&[&[&*over_iscsi(2), &fresh], &since_one[..]].concat());
    assert_refused(missing, "without --since");
    assert!(!std::path::Path::new(&fresh).exists());

    // One that is interrupted keeps others from the destination, until it has ended.
    let source = over_iscsi(2);
    let slow = [
        &["copy", "--quiet", "--rate", "16", "--block-size", "4K"][..],
        &[&*source, &backup],
        &since_one,
    ];
    let mut slow = verb(&scene.socket(), &slow.concat());
    let slow = slow.spawn().unwrap();
    let journal = PathBuf::from(format!("{backup}.copy-journal"));
    for _ in 0..12_000 {
        if journal.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(slow.id(), "INT").unwrap();
    assert_eq!(slow.wait_with_output().unwrap().status.code(), Some(130));
    let other = copy(&[&over_iscsi(1), &backup, "--since", "tank/disk0@two"]);
    assert_refused(other, "another copy to it has not ended");
    let resumed = copy(&[&[&*source, &backup, "--resume"], &since_one[..]].concat());
    resumed.expect(0);
    assert!(!journal.exists());

    let copied = copy(&[&[&*source, &backup, "--verify"], &since_one[..]].concat());
    let copied = copied.expect(0).json();
    assert_eq!(copied["data_bytes"], 8192, "{copied}");
    assert_eq!(copied["zero_bytes"], 4096, "{copied}");
    assert_eq!(copied["unchanged_bytes"], (16 << 20) - 3 * 4096, "{copied}");
    assert_eq!(copied["verified"], true, "{copied}");

    // The other protocol, and what is refused.
    snapshot("three");
    serve(&["one", "two", "three"]);
    let since_two = ["--since", "tank/disk0@two"];
    let copied = copy(&[&[&*over_nvme(4), &backup, "--verify"], &since_two[..]].concat());
    assert_eq!(copied.expect(0).json()["data_bytes"], 4096);
    let live = copy(&[&[&*over_iscsi(0), &backup], &since_two[..]].concat());
    assert_refused(live, "make a snapshot of it");
    let itself = copy(&[&over_iscsi(3), &backup, "--since", "tank/disk0@three"]);
    assert_refused(itself, "is the snapshot disk0@three itself");
    let unknown = copy(&[&over_iscsi(3), &backup, "--since", "tank/disk0@four"]);
    assert_refused(unknown, "no snapshot four");
    copy(&[&backup, "other.img", "--since", "tank/disk0@two"]).expect(2);
    // A copy of something older is found out.
    std::fs::write(&backup, vec![0; 16 << 20]).unwrap();
    let wrong = copy(&[&[&*over_iscsi(3), &backup, "--verify"], &since_two[..]].concat());
    assert_refused(wrong, "differs from its source");
    ends_well(server);

    let drives = scene.drives();
    let diff = scene.verb(&[
        "snapshot",
        "diff",
        &drives,
        "disk0@three",
        "--since",
        "disk0@two",
    ]);
    let told = diff.expect(0).stdout;
    assert!(
        told.contains("4 KiB of 16 MiB differ, in 1 range\n"),
        "{told}"
    );
}

#[test]
fn a_volume_grows_while_hosts_are_connected_and_does_not_shrink() {
    let scene = Scene::new();
    scene.write_file(DISK0);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    write(&mut initiator, 0, &pattern(1), false);
    scene.write_file(&DISK0.replace("16M", "32M"));
    reload(&server, "SIGHUP: change volume disk0");
    let mut last = 0;
    // The first command after the change tells of it: CAPACITY DATA HAS CHANGED.
    for _ in 0..2 {
        let answer = initiator
            .command(0, &cdb::read_capacity_16(), Data::In(32))
            .unwrap();
        if answer.is_good() {
            last = u64::from_be_bytes(answer.data[..8].try_into().unwrap());
        }
    }
    assert_eq!(last, (32 << 20) / 512 - 1);
    assert_eq!(host.namespace_size(1).unwrap(), (32 << 20) / 512);
    let behind = (24 << 20) / 512;
    write(&mut initiator, behind, &pattern(2), true);
    assert_eq!(read(&mut initiator, 0, behind), pattern(2));
    assert_eq!(read(&mut initiator, 0, 0), pattern(1));
    assert_refused(
        scene.verb(&["volume", "resize", "tank", "disk0", "64M"]),
        "longshore volume resize",
    );
    scene.write_file(DISK0);
    reload(&server, "cannot shrink");
    ends_well(server);
    let shown = scene.show(&scene.drives());
    assert_eq!(shown["volumes"][0]["size-bytes"], 32 << 20);
}

/// Writes of 1 MiB, each of another pattern.
#[track_caller]
fn fill(initiator: &mut Initiator, megabytes: u8) {
    for number in 0..megabytes {
        let data = pattern(number).repeat(256);
        write(initiator, u64::from(number) * 2048, &data, false);
    }
}

#[track_caller]
fn verify(initiator: &mut Initiator, megabytes: u8) {
    for number in 0..megabytes {
        let lba = u64::from(number) * 2048 + 1024;
        assert_eq!(read(initiator, 0, lba), pattern(number), "{number}");
    }
}

/// Takes the unit attention of a new size.
#[track_caller]
fn take_notice(initiator: &mut Initiator) {
    let told = initiator.command(0, &cdb::read_16(0, 8), Data::In(4096));
    assert!(!told.unwrap().is_good());
}

/// Reads until the unit has nothing to tell; what it told.
#[track_caller]
fn notices(initiator: &mut Initiator) -> Vec<(u8, u8)> {
    let mut told = Vec::new();
    loop {
        let answer = initiator.command(0, &cdb::read_16(0, 8), Data::In(4096));
        let answer = answer.unwrap();
        if answer.is_good() {
            return told;
        }
        let (_, asc, ascq) = answer.sense_code().unwrap();
        told.push((asc, ascq));
    }
}

#[test]
fn hosts_are_told_when_a_pool_becomes_full() {
    const THRESHOLD: (u8, u8) = (0x38, 0x07);
    let scene = Scene::new();
    // Larger than the room for data; what cannot be compressed fills it.
    let volume = DISK0.replace("lz4", "none").replace("16M", "512M");
    scene.write_file(&volume);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let mut other = Initiator::ready(server.portal(0), &Login::numbered(2)).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    let spare = |host: &mut Host| {
        let page = host.log_page(2, 0, 512).unwrap();
        (page[0] & 1, page[3])
    };
    assert_eq!(spare(&mut host), (0, 100));
    let capacity = scene.show("tank")["usage"]["capacity-bytes"]
        .as_u64()
        .unwrap();
    let wanted = |percent: u64| u8::try_from((capacity / 100 * percent) >> 20).unwrap() + 1;
    let mut fill_to = |from: u8, to: u8| {
        for megabyte in from..to {
            let data = pattern(megabyte).repeat(256);
            write_despite_notices(&mut initiator, u64::from(megabyte) * 2048, &data);
        }
    };
    fill_to(0, wanted(81));
    await_notice(&mut other, THRESHOLD);
    assert_eq!(notices(&mut other), [], "each is told once");
    let (warning, left) = spare(&mut host);
    assert!(warning == 0 && (15..20).contains(&left), "{left}");
    let [available, used] = shared_space(&mut other);
    assert!(used > wanted(80).into(), "{used} MiB");
    let all = u64::from(available) + u64::from(used);
    assert!(all.abs_diff(capacity >> 20) < 2, "{all} MiB of {capacity}");
    // As the maps grow, there is room for less data.
    let is_full = || {
        let usage = &scene.show("tank")["usage"];
        let bytes = |field: &str| usage[field].as_u64().unwrap();
        bytes("used-bytes") >= bytes("capacity-bytes") / 100 * 95
    };
    let mut megabyte = wanted(81);
    while !is_full() {
        fill_to(megabyte, megabyte + 1);
        megabyte += 1;
    }
    for _ in 0..600 {
        if spare(&mut host).0 == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    await_notice(&mut other, THRESHOLD);
    let (warning, left) = spare(&mut host);
    assert!(warning == 1 && left < 6, "{left}");
    ends_well(server);
}

/// What is available and used in MiB, by the log page of logical block provisioning.
fn shared_space(initiator: &mut Initiator) -> [u32; 2] {
    let log_sense = [0x4d, 0, 0x0c, 0, 0, 0, 0, 0, 64, 0];
    let answer = initiator.command(0, &log_sense, Data::In(64)).unwrap();
    let page = &answer.data;
    assert_eq!((page[0], page.len()), (0x8c, 28));
    let count = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
    [count(8), count(20)]
}

/// Reads every now and then until a unit attention comes.
#[track_caller]
fn await_notice(initiator: &mut Initiator, wanted: (u8, u8)) {
    for _ in 0..600 {
        let told = notices(initiator);
        if !told.is_empty() {
            assert_eq!(told, [wanted]);
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no unit attention in a minute");
}

/// Writes, and does so again after a unit attention.
#[track_caller]
fn write_despite_notices(initiator: &mut Initiator, lba: u64, data: &[u8]) {
    let blocks = u32::try_from(data.len() / BLOCK).unwrap();
    for _ in 0..4 {
        let command = cdb::write_16(lba, blocks, false);
        let answer = initiator.command(0, &command, Data::Out(data)).unwrap();
        if answer.is_good() {
            return;
        }
    }
    panic!("not written");
}

#[test]
fn drives_come_and_go_while_a_volume_is_served() {
    let scene = Scene::new();
    // What cannot be compressed stays as it is, so that the drives have something to move.
    let volume = DISK0.replace("lz4", "none");
    scene.write_file(&volume);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    fill(&mut initiator, 16);
    let path = |name: &str| scene.path(name);
    scene
        .verb(&["add", "tank", &path("c.img"), "--size", "128M"])
        .expect(0);
    let shown = scene.show("tank");
    assert_eq!(shown["drives"].as_array().unwrap().len(), 3, "{shown}");
    assert_refused(
        scene.verb(&["add", "tank", &path("c.img")]),
        "is a drive of pool tank already",
    );
    let removed = scene.verb(&["remove", "tank", &path("a.img"), "--output", "json"]);
    let shown = removed.expect(0).json();
    assert_eq!(shown["work"]["state"], "done", "{shown}");
    assert_eq!(shown["work"]["kind"], "remove-drive");
    let drives = [path("b.img"), path("c.img")];
    assert_eq!(shown["drives"], serde_json::json!(drives));
    verify(&mut initiator, 16);
    assert_refused(
        scene.verb(&["remove", "tank", &path("a.img")]),
        "is none of its drives",
    );

    // The file is told, and the volume stays as it is.
    scene.write_file_with(&["b.img", "c.img"], &volume.replace("16M", "20M"));
    reload(&server, "SIGHUP: change volume disk0: size");
    take_notice(&mut initiator);
    verify(&mut initiator, 16);
    ends_well(server);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    verify(&mut initiator, 16);
    ends_well(server);
    assert_refused(
        scene.verb(&["show", &format!("{}+{}", path("b.img"), path("a.img"))]),
        "holds no pool",
    );
}

/// A pool of two files that hold the same.
fn mirrored() -> Scene {
    let scene = Scene {
        scratch: Scratch::new("pools"),
    };
    let (one, other) = (scene.path("a.img"), scene.path("b.img"));
    scene
        .verb(&["create", "tank", &one, &other, "--size", "96M", "--mirror"])
        .expect(0);
    scene
}

/// States of the sides of a mirror, in their order.
fn side_states(shown: &Value) -> Vec<&str> {
    let sides = shown["mirrors"].as_array().unwrap();
    sides
        .iter()
        .map(|side| side["state"].as_str().unwrap())
        .collect()
}

#[test]
fn a_mirror_loses_a_side_and_gets_another_while_it_is_served() {
    let scene = mirrored();
    let path = |name: &str| scene.path(name);
    let volume = DISK0.replace("lz4", "none");
    scene.write_file(&volume);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    fill(&mut initiator, 12);
    assert_eq!(side_states(&scene.show("tank")), ["current", "current"]);
    assert_refused(
        scene.verb(&[
            "replace",
            "tank",
            &path("a.img"),
            &path("c.img"),
            "--size",
            "96M",
        ]),
        "has all data of its mirror",
    );
    assert_refused(
        scene.verb(&["add", "tank", &path("c.img"), "--size", "96M"]),
        "all its drives are mirrors",
    );
    // Everything behind the superblocks of one side is lost; the other one has it.
    let file = OpenOptions::new().write(true).open(path("a.img")).unwrap();
    for at in (2 << 20)..(90 << 20) {
        if at % (1 << 20) == 0 {
            file.write_all_at(&[0xa5; 1 << 20], at).unwrap();
        }
    }
    verify(&mut initiator, 12);
    let scrubbed = scene
        .verb(&["scrub", "tank", "--output", "json"])
        .expect(3)
        .json();
    assert_eq!(scrubbed["work"]["state"], "done", "{scrubbed}");
    scene.verb(&["scrub", "tank"]).expect(0);

    scene.verb(&["offline", "tank", &path("a.img")]).expect(0);
    assert_eq!(side_states(&scene.show("tank")), ["stale", "current"]);
    assert_refused(
        scene.verb(&["offline", "tank", &path("b.img")]),
        "is the only side of its mirror",
    );
    write(&mut initiator, 30_000, &pattern(99), true);
    let replaced = scene.verb(&[
        "replace",
        "tank",
        &path("a.img"),
        &path("c.img"),
        "--size",
        "96M",
        "--output",
        "json",
    ]);
    let shown = replaced.expect(0).json();
    assert_eq!(shown["work"]["kind"], "rebuild", "{shown}");
    assert_eq!(side_states(&shown), ["current", "current"], "{shown}");
    assert_eq!(shown["mirrors"][0]["path"], path("c.img"));
    verify(&mut initiator, 12);
    server.kill().unwrap();

    // The new side has everything, also alone; but that is to be said.
    scene.write_file_with(&["b.img", "c.img"], &volume);
    std::fs::remove_file(path("b.img")).unwrap();
    let list = format!("{}+{}", path("b.img"), path("c.img"));
    scene.verb(&["check", &list]).expect(3);
    assert_refused(scene.verb(&["volume", "delete", &list, "none"]), "b.img");
    scene.verb(&["offline", &list, &path("b.img")]).expect(0);
    // Also with several volumes, and when the file is read again.
    let other = DISK0.replace("disk0", "disk1");
    scene.write_file_with(&["b.img", "c.img"], &format!("{volume}\n{other}"));
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    verify(&mut initiator, 12);
    assert_eq!(read(&mut initiator, 0, 30_000), pattern(99));
    let larger = other.replace("16M", "20M");
    scene.write_file_with(&["b.img", "c.img"], &format!("{volume}\n{larger}"));
    reload(&server, "SIGHUP: change volume disk1: size");
    assert_refused(
        scene.verb(&["offline", "tank", &path("z.img")]),
        "is none of its drives",
    );
    let shown = scene
        .verb(&[
            "replace",
            "tank",
            &path("b.img"),
            "--size",
            "96M",
            "--output",
            "json",
        ])
        .expect(0)
        .json();
    assert_eq!(side_states(&shown), ["current", "current"], "{shown}");
    ends_well(server);
    scene.verb(&["check", &list, "--data"]).expect(0);
}

#[test]
fn a_drive_becomes_a_mirror_and_mirrors_are_added_and_removed() {
    let scene = Scene::new();
    let path = |name: &str| scene.path(name);
    scene.write_file(&DISK0.replace("lz4", "none"));
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    fill(&mut initiator, 8);
    for (drive, new) in [("a.img", "a2.img"), ("b.img", "b2.img")] {
        let shown = scene
            .verb(&[
                "attach",
                "tank",
                &path(drive),
                &path(new),
                "--size",
                "96M",
                "--output",
                "json",
            ])
            .expect(0)
            .json();
        assert_eq!(shown["work"]["state"], "done", "{shown}");
    }
    assert_refused(
        scene.verb(&[
            "attach",
            "tank",
            &path("a.img"),
            &path("x.img"),
            "--size",
            "96M",
        ]),
        "is part of a mirror already",
    );
    scene
        .verb(&[
            "add",
            "tank",
            &path("c.img"),
            "--mirror",
            &path("c2.img"),
            "--size",
            "96M",
        ])
        .expect(0);
    scene.verb(&["remove", "tank", &path("a2.img")]).expect(0);
    let shown = scene.show("tank");
    assert_eq!(side_states(&shown), ["current"; 4], "{shown}");
    verify(&mut initiator, 8);
    for gone in ["a.img", "a2.img"] {
        assert_refused(scene.verb(&["show", &path(gone)]), "holds no pool");
    }
    ends_well(server);
}

#[test]
fn a_list_of_drives_in_a_volume_may_follow_the_pool() {
    let scene = Scene::new();
    let volume = |drives: &[&str]| {
        let drives: Vec<String> = drives.iter().map(|name| scene.path(name)).collect();
        let drives = drives.join("+");
        format!(
            "[[volume]]\nname = \"disk0\"\nbackend = \"pool\"\npool = \"{drives}\"\nsize = \"16M\"\n"
        )
    };
    let write = |volume: String| {
        std::fs::write(scene.scratch.join("longshore.toml"), volume).unwrap();
    };
    write(volume(&["a.img", "b.img"]));
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    fill(&mut initiator, 4);
    scene
        .verb(&["add", "tank", &scene.path("c.img"), "--size", "64M"])
        .expect(0);
    write(volume(&["a.img", "b.img", "c.img"]).replace("16M", "24M"));
    reload(&server, "SIGHUP: change volume disk0: pool, size");
    take_notice(&mut initiator);
    verify(&mut initiator, 4);
    // Another pool is another volume.
    write(volume(&["d.img"]));
    reload(&server, "cannot change while it is served");
    verify(&mut initiator, 4);
    ends_well(server);
}

#[test]
fn a_scrub_of_a_served_pool_finds_damage_and_can_be_stopped() {
    let scene = Scene::new();
    scene.write_file(DISK0);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    // Nothing of it can be found in another.
    let noise: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|word| (word.wrapping_mul(0x9e37_79b9) ^ word >> 7).to_le_bytes())
        .collect();
    write(&mut initiator, 0, &noise, true);
    let scrubbed = scene.verb(&["scrub", "tank", "--output", "json"]);
    let shown = scrubbed.expect(0).json();
    assert_eq!(shown["work"]["state"], "done", "{shown}");
    assert_eq!(shown["work"]["findings"], serde_json::json!([]));
    let slow = scene.verb(&["scrub", "tank", "--rate", "1K", "--detach"]);
    slow.expect(0);
    assert_refused(scene.verb(&["scrub", "tank"]), "a scrub is under way");
    assert_refused(
        scene.verb(&["remove", "tank", &scene.path("a.img")]),
        "a scrub is under way",
    );
    scene.verb(&["stop", "tank"]).expect(0);
    for _ in 0..12_000 {
        if scene.show("tank")["work"]["state"] == "stopped" {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(scene.show("tank")["work"]["state"], "stopped");
    assert_refused(scene.verb(&["stop", "tank"]), "is under way");

    let wanted = &noise[8 * 4096..9 * 4096];
    let mut found = 0;
    for name in ["a.img", "b.img"] {
        let path = scene.scratch.join(name);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let places = (0..bytes.len() - wanted.len()).step_by(16);
        for place in places.filter(|at| bytes[*at..*at + wanted.len()] == *wanted) {
            file.write_all_at(&[!wanted[0]], place.try_into().unwrap())
                .unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    let damaged = scene.verb(&["scrub", "tank"]).expect(3).stdout;
    assert!(damaged.contains("disk0: offset 32768"), "{damaged}");
    assert!(damaged.contains("scrub: done, 1 finding "), "{damaged}");
    let (status, log) = server.stop_and_read(END_LIMIT).unwrap();
    assert!(status.success(), "{log}");
    assert!(log.contains("a scrub found damage"), "{log}");
    // Without a server it is done here.
    scene.verb(&["scrub", &scene.drives()]).expect(3);
    assert_refused(
        scene.verb(&["scrub", &scene.drives(), "--detach"]),
        "leave out --detach",
    );
}

#[test]
fn work_on_a_pool_that_is_not_served_tells_what_came_of_it() {
    let scene = Scene::new();
    scene.write_file("");
    let server = scene.serve();
    scene
        .verb(&["volume", "create", "tank", "db", "8M"])
        .expect(0);
    let scrubbed = scene.verb(&["scrub", "tank", "--output", "json"]);
    assert_eq!(scrubbed.expect(0).json()["work"]["state"], "done");
    let removed = scene.verb(&["remove", "tank", &scene.path("b.img"), "--output", "json"]);
    assert_eq!(removed.expect(0).json()["work"]["state"], "done");
    ends_well(server);
    let shown = scene.show(&scene.path("a.img"));
    assert_eq!(shown["volumes"][0]["name"], "db");
}

#[test]
fn a_pool_is_destroyed_only_when_nobody_needs_it() {
    let scene = Scene::new();
    scene.write_file(DISK0);
    let server = scene.serve();
    assert_refused(
        scene.verb(&["destroy", "tank", "--force"]),
        "stop exporting it first",
    );
    ends_well(server);
    let drives = &scene.drives();
    assert_refused(scene.verb(&["destroy", drives]), "1 volumes");
    let half = scene.path("a.img");
    assert_refused(scene.verb(&["destroy", &half]), "add --force");
    scene.verb(&["destroy", drives, "--force"]).expect(0);
    assert_refused(scene.verb(&["show", drives]), "holds no pool");

    let made = ["create", "tank", &half];
    scene.verb(&made).expect(0);
    // A server that does not use it ends it as well.
    scene.write_file_with(&["a.img"], "");
    let server = scene.serve();
    let destroyed = scene.verb(&["destroy", "tank", "--output", "json"]);
    assert_eq!(destroyed.expect(0).json()["state"], "destroyed");
    ends_well(server);
    assert_refused(scene.verb(&["show", &half]), "holds no pool");
    // One of two drives that are left of a pool.
    let both = ["create", "tank", &half, &scene.path("b.img")];
    scene.verb(&both).expect(0);
    std::fs::remove_file(scene.path("b.img")).unwrap();
    scene.verb(&["destroy", &half, "--force"]).expect(0);
    assert_refused(scene.verb(&["show", &half]), "holds no pool");
}

#[test]
fn compression_quota_and_reserve_change_while_hosts_are_connected() {
    let scene = Scene::new();
    let plain = DISK0.replace("compression = \"lz4\"\n", "");
    scene.write_file(&plain);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let settings = |scene: &Scene| {
        let volume = &scene.show("tank")["volumes"][0];
        let bytes = |key: &str| volume[key].as_u64();
        let compression = volume["compression"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (compression, bytes("quota-bytes"), bytes("reserve-bytes"))
    };
    let owned = |scene: &Scene| scene.show("tank")["volumes"][0]["owned-bytes"].as_u64();
    write(&mut initiator, 0, &pattern(1), false);
    assert_eq!(settings(&scene), ("none".to_owned(), None, None));
    assert_eq!(owned(&scene), Some(4096));
    // By the file.
    scene.write_file(&format!(
        "{plain}compression = \"zstd\"\nquota = \"20M\"\nreserve = \"full\"\n"
    ));
    reload(&server, "SIGHUP: change volume disk0");
    let full = Some(16 << 20);
    assert_eq!(settings(&scene), ("zstd".to_owned(), Some(20 << 20), full));
    write(&mut initiator, 8, &pattern(2), false);
    let both = owned(&scene).unwrap();
    assert!((4097..4096 + 1024).contains(&both), "{both}");
    assert_eq!(read(&mut initiator, 0, 0), pattern(1));
    assert_eq!(read(&mut initiator, 0, 8), pattern(2));
    // What cannot be reserved is refused, and nothing of the change is done.
    scene.write_file(&format!(
        "{plain}compression = \"lz4\"\nreserve = \"full\"\n{}",
        "[[volume]]\nname = \"big\"\nbackend = \"pool\"\npool = \"tank\"\nsize = \"1G\"\nreserve = \"full\"\n"
    ));
    reload(&server, "cannot be reserved");
    assert_eq!(settings(&scene).0, "zstd");
    // By the verb.
    scene
        .verb(&[
            "volume",
            "set",
            "tank",
            "disk0",
            "--compression",
            "lz4",
            "--quota",
            "none",
            "--reserve",
            "4M",
        ])
        .expect(0);
    assert_eq!(settings(&scene), ("lz4".to_owned(), None, Some(4 << 20)));
    scene
        .verb(&["volume", "set", "tank", "disk0", "--reserve", "16M"])
        .expect(0);
    assert_refused(
        scene.verb(&["volume", "create", "tank", "big", "1G", "--reserve", "full"]),
        "cannot be reserved",
    );
    scene.verb(&["volume", "set", "tank", "disk0"]).expect(2);
    write(&mut initiator, 16, &pattern(3), true);
    ends_well(server);

    let drives = scene.drives();
    let checked = scene.verb(&["check", &drives, "--data"]);
    checked.expect(0);
    scene
        .verb(&["volume", "set", &drives, "disk0", "--compression", "none"])
        .expect(0);
    let text = scene.verb(&["show", &drives]).expect(0).stdout;
    assert!(
        text.contains("RESERVED") && text.contains("16 MiB"),
        "{text}"
    );
    scene.write_file(&plain);
    let server = scene.serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    for (lba, seed) in [(0, 1), (8, 2), (16, 3)] {
        assert_eq!(read(&mut initiator, 0, lba), pattern(seed));
    }
    assert_eq!(settings(&scene).0, "none");
    ends_well(server);
}

#[test]
fn verbs_without_a_server_open_the_drives_themselves() {
    let scene = Scene::new();
    let drives = &scene.drives();
    let create = ["volume", "create", drives, "db", "1G", "--quota", "40M"];
    scene.verb(&create).expect(0);
    scene.verb(&create).expect(1);
    scene
        .verb(&["volume", "resize", drives, "db", "2G"])
        .expect(0);
    let shrink = ["volume", "resize", drives, "db", "1G"];
    assert_refused(scene.verb(&shrink), "--shrink");
    scene.verb(&[&shrink[..], &["--shrink"]].concat()).expect(0);
    scene
        .verb(&["volume", "create", drives, "log", "1G"])
        .expect(0);
    let group = ["snapshot", "create", drives, "monday", "db", "log"];
    scene.verb(&group).expect(0);
    scene
        .verb(&["snapshot", "clone", drives, "db@monday", "copy"])
        .expect(0);
    scene.verb(&["volume", "delete", drives, "log"]).expect(0);
    let shown = scene.show(drives);
    let names: Vec<&str> = shown["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["copy", "db"]);
    assert_eq!(shown["volumes"][1]["quota-bytes"], 40 << 20);
    assert_eq!(shown["orphans"][0]["volume"], "log");
    let text = scene.verb(&["show", drives]).expect(0).stdout;
    assert!(
        text.contains("db@monday") && text.contains("40 MiB"),
        "{text}"
    );

    scene.write_file("");
    let file = scene.path("longshore.toml");
    let listed = scene.verb(&["list", "--config", &file, "--output", "json"]);
    assert_eq!(listed.expect(0).json()["items"][0]["name"], "tank");
    scene.verb(&["show", "tank", "--config", &file]).expect(0);
    scene.verb(&["show", "tonk", "--config", &file]).expect(1);
    assert_refused(
        scene.verb(&["show", &scene.path("a.img")]),
        "name all of them",
    );
    assert_refused(
        scene.verb(&["create", "other", &scene.path("a.img")]),
        "--force",
    );
    assert_refused(scene.verb(&["show", "tank"]), "--config");
}

#[test]
fn a_pool_that_another_process_has_open_is_refused_with_what_was_tried() {
    let scene = Scene::new();
    let volume = format!("disk0,backend=pool,pool={},size=16M", scene.drives());
    let server = ServerBuilder::new()
        .volume(&volume)
        .iscsi()
        .argument("--socket")
        .argument("none")
        .start()
        .unwrap();
    let refused = scene.verb(&["volume", "create", &scene.drives(), "db", "1M"]);
    let told = refused.expect(1).stderr;
    assert!(told.contains("in use by process"), "{told}");
    assert!(
        told.contains("no server that has it open answers"),
        "{told}"
    );
    assert_refused(scene.verb(&["check", &scene.drives()]), "in use");
    ends_well(server);
}
