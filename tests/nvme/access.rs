//! Which hosts get in, and what they see.

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, discover};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET};

use crate::{blocks, connect_by, volumes};

const OPEN: &str = "nqn.2026-11.local.longshore:open";
const CLOSED: &str = "nqn.2026-11.local.longshore:closed";

/// `open` lets everybody see the first volume; `closed` lets host 1 see both, host 2 the second for
/// reading, and nobody else anything.
const RULES: &str = r#"
[[subsystem]]
nqn = "nqn.2026-11.local.longshore:open"
namespaces = [{ nsid = 1, volume = "memory" }]

[[subsystem]]
nqn = "nqn.2026-11.local.longshore:closed"

[[subsystem.access]]
hosts = ["nqn.2026-11.local.longshore:tests-1"]

[[subsystem.access]]
hosts = ["nqn.2026-11.local.longshore:tests-2"]
namespaces = [{ nsid = 2, volume = "nothing" }]
read-only = true
"#;

fn serve() -> Server {
    let builder: ServerBuilder = volumes();
    builder.nvme().config(RULES).start().unwrap()
}

fn options(number: u8, subsystem: &str) -> HostOptions {
    HostOptions {
        subsystem: subsystem.to_owned(),
        ..HostOptions::numbered(number)
    }
}

#[test]
fn a_host_that_is_not_named_is_refused() {
    let server = serve();
    let (_, answer) = options(3, CLOSED)
        .try_connect(server.nvme(0), 0, 0xffff)
        .unwrap();
    assert_eq!(answer.code(), Status::CONNECT_INVALID_HOST);
    Host::connect(server.nvme(0), &options(3, OPEN)).unwrap();
}

#[test]
fn each_host_sees_its_namespaces() {
    let server = serve();
    let mut one = connect_by(&server, &options(1, CLOSED));
    assert_eq!(one.active_namespaces().unwrap(), [1, 2]);
    let mut two = connect_by(&server, &options(2, CLOSED));
    assert_eq!(two.active_namespaces().unwrap(), [2]);
    let answer = two.read(blocks(0, 1)).unwrap();
    assert_eq!(answer.code(), Status::INVALID_FIELD, "an inactive NSID");
    assert_eq!(two.identify(0x00, 1).unwrap(), vec![0; 4096]);
}

#[test]
fn a_namespace_for_reading_is_write_protected() {
    let server = serve();
    let at = Blocks {
        namespace: NamespaceId(2),
        lba: Lba(0),
        count: 1,
        block_bytes: 4096,
    };
    let mut one = connect_by(&server, &options(1, CLOSED));
    one.write(at, &[1; 4096]).unwrap().expect_success();
    let mut two = connect_by(&server, &options(2, CLOSED));
    two.read(at).unwrap().expect_success();
    for command in [commands::write(at, 0), commands::write_zeroes(at, 0)] {
        let answer = two.io(&command, &[1; 4096]).unwrap();
        assert_eq!(answer.code(), Status::NAMESPACE_WRITE_PROTECTED);
    }
    let identify = two.identify(0x00, 2).unwrap();
    assert_eq!(identify[99] & 1, 1, "NSATTR");
}

#[test]
fn discovery_tells_a_host_only_of_what_it_may_use() {
    let server = serve();
    for (number, expected) in [(1, 2), (2, 2), (3, 1)] {
        let (_, entries) = discover(server.nvme(0), &HostOptions::numbered(number)).unwrap();
        let names: Vec<_> = entries.iter().map(|entry| &entry.subsystem).collect();
        assert_eq!(names.len(), expected, "{names:?}");
        assert!(names.iter().any(|name| *name == OPEN));
    }
}

#[test]
fn a_volume_that_is_read_only_is_write_protected_for_everybody() {
    let scratch = Scratch::new("nvme-read-only");
    let disk = scratch.join("disk0.img");
    std::fs::write(&disk, vec![6; 1 << 20]).unwrap();
    let server = ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},read-only",
            disk.display()
        ))
        .nvme()
        .start()
        .unwrap();
    let mut host = connect_by(&server, &HostOptions::default());
    let read = host.read(blocks(0, 1)).unwrap().expect_success();
    assert_eq!(read.data, [6; 512]);
    let answer = host.write(blocks(0, 1), &[7; 512]).unwrap();
    assert_eq!(answer.code(), Status::NAMESPACE_WRITE_PROTECTED);
    let identify = host.identify(0x00, 1).unwrap();
    assert_eq!(identify[99] & 1, 1, "NSATTR");
}

#[test]
fn patterns_of_names_let_initiators_and_hosts_in_unless_an_exception_stands_in_front() {
    let volume = "[[volume]]\nname = \"v\"\nbackend = \"mem\"\nsize = \"1M\"\n";
    let target = format!(
        "[[target]]\nname = \"{TARGET}\"\n\
         [[target.access]]\ninitiators = [\"iqn.2026-11.com.example:web1\"]\nread-only = true\n\
         [[target.access]]\ninitiators = [\"iqn.2026-11.com.EXAMPLE:web?\"]\n"
    );
    let subsystem = HostOptions::default().subsystem;
    let subsystem = format!(
        "[[subsystem]]\nnqn = \"{subsystem}\"\n\
         [[subsystem.access]]\nhosts = [\"nqn.2026-11.com.example:db*\"]\n"
    );
    let server = ServerBuilder::new()
        .iscsi()
        .nvme()
        .config(&format!("{volume}{target}{subsystem}"))
        .start()
        .unwrap();
    let log_in = |name: &str| {
        let login = Login {
            initiator: format!("iqn.2026-11.com.example:{name}"),
            ..Login::numbered(1)
        };
        Initiator::ready(server.portal(0), &login)
    };
    let write = |scsi: &mut Initiator| {
        let write = cdb::write_16(0, 1, false);
        let answer = scsi.command(0, &write, Data::Out(&[1; 512])).unwrap();
        answer.is_good()
    };
    assert!(write(&mut log_in("web2").unwrap()));
    assert!(write(&mut log_in("WEB3").unwrap()), "names have no case");
    assert!(!write(&mut log_in("web1").unwrap()), "the exception");
    assert!(log_in("web12").is_err(), "one character, no more");

    let connect = |name: &str| {
        let options = HostOptions {
            host: format!("nqn.2026-11.com.example:{name}"),
            ..HostOptions::default()
        };
        Host::connect(server.nvme(0), &options)
    };
    assert!(connect("db").is_ok() && connect("db-7").is_ok());
    assert!(connect("web").is_err());
}
