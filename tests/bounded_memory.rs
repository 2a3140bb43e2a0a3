//! A server within the memory limits of its control group or process: it plans with less from the
//! start, and answers its peers where an allocation fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::Command;
use longshore_nvme::host::commands;
use longshore_nvme::opcode::admin;
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use longshore_tests::skip::skip;

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// SCSI status TASK SET FULL (SAM-5 §5.3).
const TASK_SET_FULL: u8 = 0x28;
/// Peers of each kind.
const PEERS: u8 = 24;

/// A file of 16 MiB.
fn builder(scratch: &Scratch) -> ServerBuilder {
    let path = scratch.join("disk");
    fs::write(&path, vec![7; 16 << 20]).unwrap();
    ServerBuilder::new()
        .volume(&format!("disk0,backend=file,path={}", path.display()))
        .iscsi()
        .nvme()
        .reports_to(scratch)
}

/// Peers that neither receive their reads nor finish their writes, and well-behaved ones, which are all
/// answered.
fn load(server: &Server) {
    let read = commands::read(blocks(0, 2048));
    let write = commands::write(blocks(0, 2048), 0);
    let mut greedy = Vec::new();
    for number in 0..PEERS {
        let options = HostOptions::numbered(number).queues(2);
        let mut host = Host::connect(server.nvme(0), &options).unwrap();
        let [reader, writer] = &mut host.queues[..] else {
            panic!("two queues");
        };
        for _ in 0..16 {
            reader.start(&read, &[]).unwrap();
            // Their data is never sent.
            writer.start(&write, &vec![7; 1 << 20]).unwrap();
        }
        greedy.push(host);
    }
    for number in 0..PEERS {
        let login = Login {
            initiator: format!("iqn.2026-11.local.longshore:modest-{number}"),
            ..Login::default()
        };
        let mut initiator = Initiator::ready(server.portal(0), &login).unwrap();
        let answer = initiator.command(0, &cdb::read_16(0, 512), Data::In(512 * 512));
        assert!(answer.unwrap().is_good());
        let data = vec![7; 256 << 10];
        let cdb = cdb::write_16(0, 512, false);
        let answer = initiator.command(0, &cdb, Data::Out(&data)).unwrap();
        assert!(answer.is_good() || answer.status == TASK_SET_FULL);
    }
}

/// The line about payload memory, and the bytes in it.
fn payload_memory(server: &Server) -> (String, u64) {
    server.wait_for_log("payload memory");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("payload memory"));
    let line = line.unwrap_or_else(|| panic!("no line in {log}"));
    let bytes = line
        .split([' ', '='])
        .skip_while(|word| *word != "memory" || word.is_empty())
        .find_map(|word| word.parse().ok());
    (line.to_owned(), bytes.unwrap_or_else(|| panic!("{line}")))
}

#[test]
fn a_bounded_address_space_is_shared_out_and_never_used_up() {
    for mib in [120, 200, 400] {
        let scratch = Scratch::new("bounded-as");
        let bytes = mib * MIB;
        let mut server = builder(&scratch)
            .below(&["prlimit", &format!("--as={bytes}")])
            .start()
            .unwrap();
        let (line, payload) = payload_memory(&server);
        assert!(line.contains("RLIMIT_AS") && line.contains(&bytes.to_string()));
        assert!(payload >= 8 * MIB && payload < bytes / 2, "{line}");
        load(&server);
        assert_eq!(server.ended().unwrap(), None, "{}", server.log());
        println!("{line}: {}", report::of(&server, &scratch)["memory"]);
    }
}

#[test]
fn what_is_asked_for_is_cut_to_what_there_is() {
    for limit in ["--as", "--data"] {
        let scratch = Scratch::new("bounded-asked");
        let bytes = 160 * MIB;
        let mut server = builder(&scratch)
            .below(&["prlimit", &format!("{limit}={bytes}")])
            .config("[limits]\nmemory = \"4G\"\n")
            .start()
            .unwrap();
        let (line, payload) = payload_memory(&server);
        assert!(line.contains("WARN") && payload < bytes, "{line}");
        load(&server);
        assert_eq!(server.ended().unwrap(), None, "{}", server.log());
    }
}

#[test]
fn memory_that_the_system_does_not_give_is_an_answer_to_the_peer() {
    const BLOCKS: u32 = 16 << 10;
    let scratch = Scratch::new("bounded-late");
    let mut server = builder(&scratch).start().unwrap();
    let portal = server.portal(0);
    let mut initiator = Initiator::ready(portal, &Login::default()).unwrap();
    let options = HostOptions::numbered(1);
    let mut host = Host::connect(server.nvme(0), &options).unwrap();
    let data = vec![7; BLOCKS as usize * 512];
    let pid = server.pid();
    // Room for small allocations, and not for 8 MiB.
    limit_address_space(pid, &(address_space(pid) + 6 * MIB).to_string());
    let answer = initiator.command(0, &cdb::write_16(0, BLOCKS, false), Data::Out(&data));
    assert_eq!(answer.unwrap().status, TASK_SET_FULL);
    let answer = host.write(blocks(0, BLOCKS), &data).unwrap();
    assert_eq!(answer.code(), Status::COMMAND_INTERRUPTED);
    // A log page and a reservation report may have any length: the rest are zeros.
    let page = commands::get_log_page(0x01, NamespaceId::BROADCAST, 0, BLOCKS * 512);
    let answer = host.admin(&page, &[]).unwrap();
    assert_eq!(answer.code(), Status::COMMAND_INTERRUPTED);
    // A read waits, and others do not notice.
    let slot = host.queues[0].start(&commands::read(blocks(0, BLOCKS)), &[]);
    let slot = slot.unwrap();
    let answer = initiator.command(0, &cdb::read_16(0, 256), Data::In(256 * 512));
    assert!(answer.unwrap().is_good());
    limit_address_space(pid, "unlimited");
    let answer = host.queues[0].wait_for(slot, LIMIT).unwrap().unwrap();
    assert_eq!(answer.expect_success().data, data);
    let answer = host.admin(&page, &[]).unwrap().expect_success();
    assert_eq!(answer.data.len(), data.len());
    assert!(answer.data[64 << 10..].iter().all(|byte| *byte == 0));
    let answer = initiator.command(0, &cdb::write_16(0, BLOCKS, false), Data::Out(&data));
    assert!(answer.unwrap().is_good());
    assert_eq!(server.ended().unwrap(), None);
    server.wait_for_log("less memory than `limits.memory` allows");
}

#[test]
fn small_allocations_go_on_where_payload_has_used_up_the_address_space() {
    for spare in [0, 2, 8] {
        squeeze(spare * MIB);
    }
}

/// Leaves a server so much address space beyond what it has, and has peers use that up.
fn squeeze(spare: u64) {
    let scratch = Scratch::new("bounded-small");
    // In a bounded address space there is one heap, which has to grow for what follows.
    let bounded = (4096 * MIB).to_string();
    let mut server = builder(&scratch)
        .below(&["prlimit", &format!("--as={bounded}:unlimited")])
        .start()
        .unwrap();
    let mut hosts: Vec<_> = (0..PEERS)
        .map(|number| {
            let options = HostOptions::numbered(number).queues(2);
            Host::connect(server.nvme(0), &options).unwrap()
        })
        .collect();
    let pid = server.pid();
    limit_address_space(pid, &(address_space_at_rest(pid) + spare).to_string());
    // Nothing of it is received.
    let read = commands::read(blocks(0, 2048));
    for queue in hosts.iter_mut().flat_map(|host| &mut host.queues) {
        for _ in 0..48 {
            // One that takes nothing may be closed to make room.
            if queue.start(&read, &[]).is_err() {
                break;
            }
        }
    }
    // Each newcomer takes small memory: a connection, a session, names, tables. Those that find none are closed.
    let newcomers: Vec<_> = (0..100)
        .map(|number| {
            let login = Login {
                initiator: format!("iqn.2026-11.local.longshore:small-{number}"),
                ..Login::default()
            };
            Initiator::ready(server.portal(0), &login)
        })
        .collect();
    assert_eq!(server.ended().unwrap(), None, "{}", server.log());
    let (accepted, closed): (Vec<_>, Vec<_>) = newcomers.into_iter().partition(Result::is_ok);
    println!("{spare}: {} of 100 newcomers accepted", accepted.len());
    drop((accepted, closed, hosts));
    limit_address_space(pid, &bounded);
    let data = vec![3; 1 << 20];
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(200)).unwrap();
    let answer = host.write(blocks(2048, 2048), &data).unwrap();
    assert_eq!(answer.code(), Status::SUCCESS);
    let answer = host.queues[0].run(&commands::read(blocks(2048, 2048)), &[]);
    assert_eq!(answer.unwrap().expect_success().data, data);
    assert_eq!(server.ended().unwrap(), None, "{}", server.log());
}

/// Bytes of the server's address space.
fn address_space(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: Option<u64> = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap() * 1024
}

#[test]
fn a_sanitize_operation_does_not_begin_without_memory() {
    const INSUFFICIENT_RESOURCES: (u8, u8, u8) = (0x0b, 0x55, 0x03);
    let scratch = Scratch::new("bounded-sanitize");
    let mut server = builder(&scratch)
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string())
        .start()
        .unwrap();
    let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    // SANITIZE with OVERWRITE, one pass of one byte.
    let (cdb, list) = ([0x48, 1, 0, 0, 0, 0, 0, 0, 5, 0], [1, 0, 0, 1, 9]);
    let mut command = Command::new(admin::SANITIZE, NamespaceId(0));
    command.entry.set_dword(10, 0x13);
    let read = |initiator: &mut Initiator| {
        let answer = initiator.command(0, &cdb::read_16(0, 1), Data::In(512));
        answer.unwrap().data
    };
    let pid = server.pid();
    // Room for small allocations, and not for the megabyte that is written at a time.
    limit_address_space(pid, &(address_space_at_rest(pid) + MIB / 2).to_string());
    let answer = initiator.command(0, &cdb, Data::Out(&list)).unwrap();
    assert_eq!(answer.sense_code(), Some(INSUFFICIENT_RESOURCES));
    let answer = host.admin(&command, &[]).unwrap();
    assert_eq!(answer.code(), Status::COMMAND_INTERRUPTED);
    // Nothing has begun.
    assert_eq!(read(&mut initiator), [7; 512]);
    limit_address_space(pid, "unlimited");
    let answer = initiator.command(0, &cdb, Data::Out(&list)).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    assert_eq!(read(&mut initiator), [9; 512]);
    assert_eq!(server.ended().unwrap(), None);
}

/// The address space once it has been the same for a while: threads may still be starting.
fn address_space_at_rest(pid: u32) -> u64 {
    let mut last = address_space(pid);
    let mut same = 0;
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = address_space(pid);
        same = if now == last { same + 1 } else { 0 };
        if same == 10 {
            break;
        }
        last = now;
    }
    last
}

fn limit_address_space(pid: u32, bytes: &str) {
    let status = process::Command::new("prlimit")
        .args([
            "--pid",
            &pid.to_string(),
            &format!("--as={bytes}:unlimited"),
        ])
        .status()
        .unwrap();
    assert!(status.success(), "prlimit");
}

/// A control group of our own, below the one that we are in; removed when this value goes away.
struct Group(PathBuf);

impl Group {
    /// `Err`: why there can be none.
    fn new(bytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let one = groups.lines().find_map(|line| line.split_once(":memory:"));
        let two = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let (parent, file) = match (one, two) {
            (Some((_, path)), _) => (
                format!("/sys/fs/cgroup/memory{path}"),
                "memory.limit_in_bytes",
            ),
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            (None, None) => return Err("there are no control groups".to_owned()),
        };
        let folder = Path::new(&parent).join(format!("longshore-test-{}", process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self(folder);
        let limited = fs::write(group.0.join(file), bytes.to_string());
        limited.map_err(|error| format!("{file}: {error}"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to see that the last process is gone.
        let deadline = Instant::now() + LIMIT;
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_control_group_with_little_memory_is_not_used_up() {
    let bytes = 300 * MIB;
    let group = match Group::new(bytes) {
        Ok(group) => group,
        Err(reason) => {
            skip(format!("no control group can be made: {reason}"));
            return;
        }
    };
    let scratch = Scratch::new("bounded-group");
    let enter = format!(
        "echo $$ > {}/cgroup.procs && exec \"$@\"",
        group.0.display()
    );
    let mut server = builder(&scratch)
        .below(&["sh", "-c", &enter, "sh"])
        .start()
        .unwrap();
    let (line, payload) = payload_memory(&server);
    assert!(line.contains("control group") && line.contains(&bytes.to_string()));
    assert!(payload >= 32 * MIB && payload < bytes / 2, "{line}");
    load(&server);
    assert_eq!(server.ended().unwrap(), None, "{}", server.log());
    println!("{line}: {}", report::of(&server, &scratch)["memory"]);
    server.stop(LIMIT).unwrap();
}
