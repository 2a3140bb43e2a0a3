//! Sanitizing a volume, as initiators and hosts see it.

use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::Command;
use longshore_nvme::host::commands;
use longshore_nvme::opcode::admin;
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const CRYPTOGRAPHIC_ERASE: u8 = 0x03;
const EXIT_FAILURE_MODE: u8 = 0x1f;
const IMMEDIATE: u8 = 0x80;
const UNRESTRICTED_EXIT: u8 = 0x20;

const IN_PROGRESS: Option<(u8, u8, u8)> = Some((0x02, 0x04, 0x1b));
const FAILED: Option<(u8, u8, u8)> = Some((0x03, 0x31, 0x03));
const INVALID_FIELD_IN_CDB: Option<(u8, u8, u8)> = Some((0x05, 0x24, 0));
const INVALID_FIELD_IN_LIST: Option<(u8, u8, u8)> = Some((0x05, 0x26, 0));

/// So large that no test sees the end of it.
const ENDLESS: &str = "endless,backend=null,size=4096T,uuid=f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

const OTHER: &str = "other,backend=mem,size=1M";

fn serve(scratch: &Scratch, volumes: &[&str]) -> Server {
    let builder = ServerBuilder::new()
        .iscsi()
        .nvme()
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string());
    let builder = volumes
        .iter()
        .fold(builder, |builder, volume| builder.volume(volume));
    builder.start().unwrap()
}

fn initiator(server: &Server) -> Initiator {
    Initiator::log_in(server.portal(0), &Login::numbered(1)).unwrap()
}

fn ready(server: &Server) -> Initiator {
    Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap()
}

fn host(server: &Server) -> Host {
    Host::connect(server.nvme(0), &HostOptions::default()).unwrap()
}

fn sanitize(scsi: &mut Initiator, lun: u8, action: u8, list: &[u8]) -> Answer {
    let [high, low] = u16::try_from(list.len()).unwrap().to_be_bytes();
    let cdb = [0x48, action, 0, 0, 0, 0, 0, high, low, 0];
    let data = if list.is_empty() {
        Data::None
    } else {
        Data::Out(list)
    };
    scsi.command(lun, &cdb, data).unwrap()
}

/// The parameter list of an overwrite.
fn overwrite(passes: u8, inverts: bool, pattern: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(pattern.len()).unwrap().to_be_bytes();
    let flags = passes | if inverts { 0x80 } else { 0 };
    [&[flags, 0, high, low], pattern].concat()
}

fn test_unit_ready(scsi: &mut Initiator) -> Answer {
    scsi.command(0, &[0; 6], Data::None).unwrap()
}

/// Until what has happened to the unit is told.
fn sense_after_attentions(scsi: &mut Initiator) -> Option<(u8, u8, u8)> {
    loop {
        let sense = test_unit_ready(scsi).sense_code();
        if sense.is_none_or(|(key, ..)| key != 0x06) {
            return sense;
        }
    }
}

fn read(scsi: &mut Initiator, lun: u8, lba: u64) -> Vec<u8> {
    let answer = scsi.command(lun, &cdb::read_16(lba, 1), Data::In(512));
    let answer = answer.unwrap();
    assert!(answer.is_good(), "{answer:?}");
    answer.data
}

fn nvme_sanitize(dword_10: u32, pattern: u32) -> Command {
    let mut command = Command::new(admin::SANITIZE, NamespaceId(0));
    command.entry.set_dword(10, dword_10);
    command.entry.set_dword(11, pattern);
    command
}

/// SPROG and SSTAT of the Sanitize Status log page.
fn status(host: &mut Host) -> (u16, u16) {
    let page = host.log_page(0x81, 0, 512).unwrap();
    let number = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    (number(0), number(2))
}

#[test]
fn what_is_sanitized_over_one_protocol_is_gone_for_both() {
    let scratch = Scratch::new("sanitize");
    let file = format!(
        "file,backend=file,path={},size=8M",
        scratch.join("disk").display()
    );
    for volume in [file.as_str(), "memory,backend=mem,size=8M"] {
        let server = serve(&scratch, &[volume]);
        let (mut scsi, mut nvme) = (ready(&server), host(&server));
        assert_eq!(status(&mut nvme), (u16::MAX, 0));
        let last = (8 << 11) - 1;
        for lba in [0, last] {
            let write = cdb::write_16(lba, 1, false);
            let written = scsi.command(0, &write, Data::Out(&[7; 512])).unwrap();
            assert!(written.is_good());
        }
        let list = overwrite(2, true, &[0x0f, 0x12, 0x34]);
        assert!(sanitize(&mut scsi, 0, OVERWRITE, &list).is_good());
        // The second pass wrote the complement, from the start of each block.
        let expected: Vec<u8> = [0xf0, 0xed, 0xcb].into_iter().cycle().take(512).collect();
        for lba in [0, last] {
            assert_eq!(read(&mut scsi, 0, lba), expected);
            let found = nvme.read(blocks(lba, 1)).unwrap().expect_success();
            assert_eq!(found.data, expected);
        }
        assert_eq!(status(&mut nvme), (u16::MAX, 1 | 2 << 3));
        assert!(sanitize(&mut scsi, 0, BLOCK_ERASE, &[]).is_good());
        for lba in [0, last] {
            assert_eq!(read(&mut scsi, 0, lba), [0; 512]);
        }
        // GET LBA STATUS: one deallocated range over everything.
        let mut get = [0; 16];
        (get[0], get[1], get[13]) = (0x9e, 0x12, 24);
        let state = scsi.command(0, &get, Data::In(24)).unwrap().data;
        assert_eq!(
            (state[16..20].to_vec(), state[20]),
            (vec![0, 0, 0x40, 0], 1)
        );
        drop((scsi, nvme));
        server.kill().unwrap();
    }
}

#[test]
fn a_host_sanitizes_its_subsystem_and_hears_of_the_end() {
    let scratch = Scratch::new("sanitize");
    let server = serve(
        &scratch,
        &["a,backend=mem,size=4M", "b,backend=mem,size=4M"],
    );
    let (mut scsi, mut nvme) = (ready(&server), host(&server));
    let capabilities = nvme.identify(0x01, 0).unwrap();
    assert_eq!(capabilities[328] & 0b111, 0b110, "SANICAP");
    let waiting = nvme
        .admin
        .start(&commands::async_event_request(), &[])
        .unwrap();
    // Overwrite, one pass, no deallocation.
    let begin = nvme_sanitize(3 | 1 << 4 | 1 << 9, 0x4433_2211);
    nvme.admin(&begin, &[]).unwrap().expect_success();
    let event = nvme.admin.wait(waiting).unwrap().expect_success();
    assert_eq!(event.result & 0xff_ff07, 0x81_0106);
    assert_eq!(status(&mut nvme), (u16::MAX, 1 | 1 << 3));
    for lun in [0, 1] {
        scsi.become_ready(lun).unwrap();
        assert_eq!(read(&mut scsi, lun, 100)[..4], [0x11, 0x22, 0x33, 0x44]);
    }
    let erase = nvme_sanitize(4, 0);
    let refused = nvme.admin(&erase, &[]).unwrap();
    assert_eq!(refused.code(), Status::INVALID_FIELD, "cryptographic erase");
}

#[test]
fn while_it_runs_only_questions_are_answered_and_a_restart_does_not_end_it() {
    let scratch = Scratch::new("sanitize");
    let server = serve(&scratch, &[ENDLESS, OTHER]);
    let mut scsi = ready(&server);
    let list = overwrite(1, false, &[0; 4]);
    let begun = sanitize(&mut scsi, 0, OVERWRITE | IMMEDIATE, &list);
    assert!(begun.is_good(), "{begun:?}");
    // The end of the session does not end it.
    drop(scsi);
    let mut running = Some(server);
    for _ in 0..2 {
        let server = running.take();
        let server = server.unwrap_or_else(|| serve(&scratch, &[ENDLESS, OTHER]));
        let mut scsi = initiator(&server);
        assert_eq!(sense_after_attentions(&mut scsi), IN_PROGRESS);
        let request_sense = [0x03, 0, 0, 0, 252, 0];
        let sense = scsi.command(0, &request_sense, Data::In(252)).unwrap().data;
        assert_eq!((sense[2], sense[12], sense[13]), (0x02, 0x04, 0x1b));
        assert_eq!(sense[15] & 0x80, 0x80, "with its progress");
        let read = scsi.command(0, &cdb::read_16(0, 1), Data::In(512)).unwrap();
        assert_eq!(read.sense_code(), IN_PROGRESS);
        let again = sanitize(&mut scsi, 0, BLOCK_ERASE, &[]);
        assert_eq!(again.sense_code(), IN_PROGRESS);
        let inquiry = scsi.command(0, &[0x12, 0, 0, 0, 96, 0], Data::In(96));
        assert!(inquiry.unwrap().is_good());
        let mut nvme = host(&server);
        let read = nvme.read(blocks(0, 1)).unwrap();
        assert_eq!(read.code(), Status::SANITIZE_IN_PROGRESS);
        let (progress, state) = status(&mut nvme);
        assert!(progress < u16::MAX && state & 7 == 2, "{progress} {state}");
        // Another volume is no concern of it.
        scsi.become_ready(1).unwrap();
        assert_eq!(self::read(&mut scsi, 1, 0), [0; 512]);
        server.kill().unwrap();
    }
}

#[test]
fn a_failure_keeps_everybody_out_until_it_is_left_as_agreed() {
    let scratch = Scratch::new("sanitize");
    let full = "full,backend=file,path=/dev/full,size=1M,uuid=f81d4fae-7dec-11d0-a765-00a0c91e6bf7";
    let server = serve(&scratch, &[full]);
    let mut scsi = ready(&server);
    let list = overwrite(1, false, &[0xaa]);
    assert_eq!(
        sanitize(&mut scsi, 0, OVERWRITE, &list).sense_code(),
        FAILED
    );
    assert_eq!(test_unit_ready(&mut scsi).sense_code(), FAILED);
    assert_eq!(
        sanitize(&mut scsi, 0, EXIT_FAILURE_MODE, &[]).sense_code(),
        FAILED,
        "that was not agreed on"
    );
    server.kill().unwrap();
    let server = serve(&scratch, &[full]);
    let mut scsi = initiator(&server);
    assert_eq!(sense_after_attentions(&mut scsi), FAILED, "after a restart");
    let mut nvme = host(&server);
    let read = nvme.read(blocks(0, 1)).unwrap();
    assert_eq!(read.code(), Status::SANITIZE_FAILED);
    assert_eq!(status(&mut nvme).1 & 7, 3);
    let unrestricted = OVERWRITE | UNRESTRICTED_EXIT;
    assert_eq!(
        sanitize(&mut scsi, 0, unrestricted, &list).sense_code(),
        FAILED
    );
    // Exit failure mode over the other protocol.
    let exit = nvme_sanitize(1, 0);
    nvme.admin(&exit, &[]).unwrap().expect_success();
    assert!(test_unit_ready(&mut scsi).is_good());
}

#[test]
fn what_cannot_be_carried_out_is_refused_before_anything_is_lost() {
    let scratch = Scratch::new("sanitize");
    let server = serve(&scratch, &["memory,backend=mem,size=1M"]);
    let mut scsi = ready(&server);
    let write = cdb::write_16(0, 1, false);
    assert!(
        scsi.command(0, &write, Data::Out(&[7; 512]))
            .unwrap()
            .is_good()
    );
    for (action, list, expected) in [
        (CRYPTOGRAPHIC_ERASE, vec![], INVALID_FIELD_IN_CDB),
        (0x07, vec![], INVALID_FIELD_IN_CDB),
        (BLOCK_ERASE, vec![0; 8], INVALID_FIELD_IN_CDB),
        (EXIT_FAILURE_MODE, vec![0; 8], INVALID_FIELD_IN_CDB),
        (OVERWRITE, vec![1, 0, 0, 1], INVALID_FIELD_IN_CDB),
        (
            OVERWRITE,
            overwrite(1, false, &[0; 513]),
            INVALID_FIELD_IN_CDB,
        ),
        (OVERWRITE, overwrite(0, false, &[1]), INVALID_FIELD_IN_LIST),
        (OVERWRITE, vec![1, 0, 0, 9, 1, 2], INVALID_FIELD_IN_LIST),
        (OVERWRITE, vec![0x21, 0, 0, 1, 1], INVALID_FIELD_IN_LIST),
    ] {
        let answer = sanitize(&mut scsi, 0, action, &list);
        assert_eq!(answer.sense_code(), expected, "{action:#x} {list:?}");
    }
    assert!(sanitize(&mut scsi, 0, EXIT_FAILURE_MODE, &[]).is_good());
    assert_eq!(read(&mut scsi, 0, 0), [7; 512]);
}

#[test]
fn a_host_that_does_not_see_the_whole_subsystem_may_not_sanitize_it() {
    let scratch = Scratch::new("sanitize");
    let rule = |host: u8, map: &str| {
        format!(
            "[[subsystem.access]]\nhosts = [\"nqn.2026-11.local.longshore:tests-{host}\"]\n{map}\n"
        )
    };
    let nqn = HostOptions::default().subsystem;
    let config = format!(
        "[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"1M\"\n\
         [[volume]]\nname = \"b\"\nbackend = \"mem\"\nsize = \"1M\"\n\
         [[subsystem]]\nnqn = \"{nqn}\"\n{}{}{}",
        rule(1, ""),
        rule(2, "namespaces = [{ nsid = 1, volume = \"a\" }]"),
        rule(3, "read-only = true"),
    );
    let server = ServerBuilder::new()
        .nvme()
        .config(&config)
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string())
        .start()
        .unwrap();
    let connect = |number| Host::connect(server.nvme(0), &HostOptions::numbered(number)).unwrap();
    let mut all = connect(1);
    all.write(blocks(0, 1), &[7; 512]).unwrap().expect_success();
    for (number, expected) in [
        (2, Status::ACCESS_DENIED),
        (3, Status::NAMESPACE_WRITE_PROTECTED),
    ] {
        let erase = connect(number).admin(&nvme_sanitize(2, 0), &[]).unwrap();
        assert_eq!(erase.code(), expected);
    }
    let kept = all.read(blocks(0, 1)).unwrap().expect_success();
    assert_eq!(kept.data, [7; 512]);
}
