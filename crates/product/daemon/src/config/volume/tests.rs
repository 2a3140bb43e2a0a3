use longshore_remote::RemoteSpec;

use super::*;
use proptest::prelude::*;

fn volume(argument: &str) -> VolumeSpec {
    let parsed: VolumeArgument = argument.parse().unwrap_or_else(|e| panic!("{e}"));
    parsed
        .settings
        .specification(&parsed.name)
        .expect("a backend is named")
}

fn refusal(argument: &str) -> String {
    argument.parse::<VolumeArgument>().unwrap_err().to_string()
}

#[test]
fn the_quick_start_volumes_read_as_meant() {
    let disk0 = volume("disk0,backend=file,path=/srv/disk0.img,size=10G");
    assert_eq!(disk0.name, "disk0");
    assert_eq!(disk0.backend, BackendName::FILE);
    assert_eq!(disk0.path, Some("/srv/disk0.img".into()));
    assert_eq!((disk0.size, disk0.block_size), (Some(10 << 30), 512));
    assert!(!disk0.read_only && !disk0.direct);

    let fast = volume("fast,backend=null,size=1T,block-size=4096");
    assert_eq!(fast.backend, BackendName::NULL);
    assert_eq!((fast.size, fast.block_size), (Some(1 << 40), 4096));
}

#[test]
fn limits_read_as_meant() {
    let limited = volume("d,backend=mem,size=1M,max-read-iops=500,max-bytes=10M,burst=2s");
    let limits = longshore_volume::RateLimits {
        read_iops: Some(500),
        bytes: Some(10 << 20),
        burst: Some(std::time::Duration::from_secs(2)),
        ..longshore_volume::RateLimits::default()
    };
    assert_eq!(limited.limits, limits);
    assert!(!volume("d,backend=mem,size=1M").limits.any());
}

#[test]
fn a_switch_alone_means_yes() {
    let disk = volume("d,backend=block,path=/dev/sdb,read-only,direct=yes");
    assert!(disk.read_only && disk.direct);
    assert!(!volume("d,backend=mem,size=1M,read-only=no").read_only);
}

#[test]
fn a_doubled_comma_is_part_of_the_value() {
    let volume = volume("d,backend=file,path=/srv/a,,b=c.img,serial=A,,1");
    assert_eq!(volume.path, Some("/srv/a,b=c.img".into()));
    assert_eq!(volume.serial.as_deref(), Some("A,1"));
}

#[test]
fn errors_point_at_the_part_at_fault() {
    assert_eq!(
        refusal("disk0,backend=fil,path=/x"),
        "`fil` is not a backend; did you mean `file`?\n  \
         disk0,backend=fil,path=/x\n                \
         ^^^"
    );
    assert_eq!(
        refusal("disk0,backend=file,pth=/x"),
        "unknown key `pth`; did you mean `path`?\n  \
         disk0,backend=file,pth=/x\n                     \
         ^^^"
    );
    assert_eq!(
        refusal("disk0,size=10X"),
        "`X` is not a unit of size; units are K, M, G, T and P (powers of 1024)\n  \
         disk0,size=10X\n             \
         ^^^"
    );
    assert_eq!(
        refusal("disk0,"),
        "a key is missing after the comma; add it, or remove the comma\n  \
         disk0,\n        \
         ^"
    );
}

#[test]
fn each_way_to_misspell_has_its_own_message() {
    for (argument, expected) in [
        ("", "is not a volume name"),
        ("my disk,backend=null", "is not a volume name"),
        ("-d,backend=null", "is not a volume name"),
        ("backend=null,size=1G", "is not a volume name"),
        ("d,backend", "`backend` needs a value"),
        ("d,size=", "`size` needs a value"),
        ("d,size=1G,size=2G", "`size` is given twice"),
        ("d,read-only=maybe", "neither yes nor no"),
        ("d,block-size=1024", "use 512 or 4096"),
        ("d,max-iops=0", "use 1 or more"),
        (
            "d,max-iops=many",
            "is not a number of operations per second",
        ),
        ("d,max-bytes=0", "admits no operation"),
        ("d,burst=2m", "use at most 60 seconds"),
        (
            "d,physical-block-size=3000",
            "a power of two from 512 to 64K",
        ),
        (
            "d,physical-block-size=128K",
            "a power of two from 512 to 64K",
        ),
        (
            "d,vendor=NINECHARS",
            "not a vendor; use 1 to 8 printable ASCII",
        ),
        ("d,product= x", "no space at either end"),
        ("d,serial= x ", "no space at either end"),
        ("d,naa=2001405aaaabbbbb", "it begins with 2"),
        ("d,naa=6001405aaaabbbbb", "type 6 has 32 hexadecimal digits"),
        ("d,write-through=perhaps", "neither yes nor no"),
        (
            "d,serial=12345678901234567890123456789012345678901234567890123456789012345",
            "1 to 64 printable",
        ),
        ("d,uuid=12", "is not a UUID"),
        ("d,inline-writes=yes", "use auto, always or never"),
        (
            "d,backend=rbd",
            "backend `rbd` is not available in this version",
        ),
        ("d,compression=zip", "use none, lz4 or zstd"),
        ("d,quota=much", "is not a quota"),
        ("d,reserve=all", "use none, full, or a size"),
        ("d,pool=/a+", "names no pool"),
        ("d,backend=nvmetcp", "did you mean `nvme-tcp`?"),
        (
            "d,url=http://h/x/0",
            "starts with neither iscsi:// nor nvme+tcp://",
        ),
        (
            "d,url=iscsi://h/iqn.2026-11.x:y",
            "number of the volume is missing",
        ),
        ("d,url=iscsi://h/iqn.2026-11.x:y/16384", "0 to 16383"),
        (
            "d,queues=0",
            "`0` is not a number of connections; use 1 to 64",
        ),
        (
            "d,depth=5000",
            "`5000` is not a number of commands; use 1 to 4096",
        ),
        ("d,give-up=soon", "`soon` is not a duration"),
        ("d,initiator-name=me", "`me` is not an iSCSI name"),
        ("d,host-nqn=me", "`me` is not an NVMe qualified name"),
        ("d,secretfile=x", "did you mean `secret-file`?"),
        ("d,queue=x", "did you mean `queues`?"),
    ] {
        let message = refusal(argument);
        assert!(message.contains(expected), "{argument}: {message}");
    }
}

#[test]
fn a_remote_volume_has_everything_the_initiator_wants_to_know() {
    let iscsi = volume(
        "r,backend=iscsi,url=iscsi://ann@h:3261/iqn.2026-11.x:y/3?data_digest=crc32c,\
         secret-file=/etc/s,initiator-name=iqn.2026-11.x:me,queues=2,depth=64,give-up=30s,\
         block-size=4096",
    );
    assert_eq!(iscsi.backend, longshore_remote::ISCSI);
    let remote = iscsi.options::<RemoteSpec>().unwrap();
    let url = remote.url.as_ref().expect("a URL").to_string();
    assert_eq!(
        url,
        "iscsi://ann@h:3261/iqn.2026-11.x:y/3?data_digest=crc32c"
    );
    assert_eq!(remote.secret_file, Some("/etc/s".into()));
    assert_eq!(
        remote.initiator_name.as_ref().map(|name| name.as_str()),
        Some("iqn.2026-11.x:me")
    );
    assert_eq!((remote.queues, remote.depth), (Some(2), Some(64)));
    assert_eq!(remote.give_up, Some(std::time::Duration::from_secs(30)));
    assert_eq!(remote.block_size, Some(4096));

    let nvme =
        volume("r,backend=nvme-tcp,url=nvme+tcp://h/nqn.2026-11.x:y/1,host-nqn=nqn.2026-11.x:me");
    assert_eq!(nvme.backend, longshore_remote::NVME_TCP);
    let remote = nvme.options::<RemoteSpec>().unwrap();
    assert!(remote.host_nqn.is_some() && remote.block_size.is_none());
}

#[test]
fn messages_never_repeat_passwords() {
    for argument in [
        "r,backend=iscsi,url=iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0,depht=1",
        "r,backend=iscsi,url=iscsi://ann%hush-hush@h/iqn.2026-11.x:y/none",
        "r,backend=iscsi,url=iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0?target_user=t&target_password=hush-hush&x=1",
        "r,url=iscsi://ann%hush-hush@",
        "r,url=iscsi://ann%hush-hush@/x/y/z",
        "r,size=1X,url=iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0",
    ] {
        let error = argument.parse::<VolumeArgument>().expect_err("refused");
        let texts = [error.to_string(), format!("{error:?}")];
        assert!(texts.iter().all(|text| !text.contains("hush")), "{texts:?}");
        assert!(texts[0].contains('^'), "{}", texts[0]);
    }
    let fine = "r,backend=iscsi,url=iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0";
    let parsed: VolumeArgument = fine.parse().unwrap();
    assert!(!format!("{parsed:?}").contains("hush"));
}

#[test]
fn marks_stand_under_the_part_at_fault_behind_a_hidden_password() {
    assert_eq!(
        refusal("r,url=iscsi://u%pw@h/iqn.2026-11.x:y/0,depht=1"),
        "unknown key `depht`; did you mean `depth`?\n  \
         r,url=iscsi://u%***@h/iqn.2026-11.x:y/0,depht=1\n                                          \
         ^^^^^"
    );
}

#[test]
fn a_volume_without_a_backend_is_none() {
    let parsed: VolumeArgument = "d,size=1G".parse().unwrap();
    assert!(parsed.settings.specification("d").is_none());
}

proptest! {
    #[test]
    fn any_argument_is_read_or_refused_with_a_marker_inside_it(argument in ".{0,60}") {
        if let Err(error) = argument.parse::<VolumeArgument>() {
            prop_assert!(error.start <= error.end && error.end <= argument.len());
            let _ = error.to_string();
        }
    }

    #[test]
    fn near_misses_are_answered_without_panic(
        parts in proptest::collection::vec(
            "(backend|path|size|block-size|read-only|direct|serial|uuid|inline-writes|)(=|)[a-z0-9,=é]{0,6}", 0..5),
    ) {
        let argument = format!("d,{}", parts.join(","));
        if let Ok(parsed) = argument.parse::<VolumeArgument>() {
            let _ = parsed.settings.specification(&parsed.name);
        }
    }
}

#[test]
fn a_serial_number_may_be_right_aligned() {
    let serial: UnitSerial = "      beaf11".parse().unwrap();
    assert_eq!(serial.0, "      beaf11");
    for refused in ["      ", &" ".repeat(64), &format!("{:>65}", "x")] {
        refused.parse::<UnitSerial>().unwrap_err();
    }
}
