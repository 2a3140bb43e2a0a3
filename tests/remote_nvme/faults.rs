//! Controllers that answer wrongly, late, or not at all.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use longshore_initiator::attach::{self, Attachment};
use longshore_initiator::error::{Error, Failure, Lost};
use longshore_initiator::info::{AccessState, Notice};
use longshore_initiator::nvme::discover;
use longshore_initiator::operation::{Data, Operation, Reply};
use longshore_initiator::options::Options;
use longshore_initiator::url::HostPort;
use longshore_nvme::opcode::{admin, fabrics, io};
use longshore_nvme::pdu::{Digests, FatalError, FatalErrorStatus, IcResp, TermReq, Terminator};
use longshore_nvme::status::Status;

use crate::fake::{Answer, Arrived, Fake};
use crate::{LIMIT, buffer, extent, negotiated, room, run};

pub const NQN: &str = "nqn.2026-11.local:fake";

pub fn options() -> Options {
    let mut options = Options::default();
    options.timeouts.login = Duration::from_secs(5);
    options.nvme.keep_alive = Duration::from_secs(3);
    options
}

/// For those who wait for a login that runs out of time.
fn impatient() -> Options {
    let mut options = options();
    options.timeouts.login = Duration::from_millis(700);
    options
}

/// For those who wait for keep-alives.
fn lively() -> Options {
    let mut options = options();
    options.nvme.keep_alive = Duration::from_millis(400);
    options
}

fn try_attach(address: SocketAddr, options: &Options) -> Result<Attachment, Error> {
    let url = format!("nvme+tcp://{address}/{NQN}/1").parse().unwrap();
    attach::attach(&url, options)
}

fn attach(address: SocketAddr) -> Attachment {
    try_attach(address, &options()).unwrap()
}

/// The text of the error with which attaching fails.
pub fn refusal(script: impl FnMut(&Arrived) -> Option<Answer> + Send + 'static) -> String {
    refusal_with(&options(), script)
}

/// The same where the attempt is to run out of time.
fn silence(script: impl FnMut(&Arrived) -> Option<Answer> + Send + 'static) -> String {
    refusal_with(&impatient(), script)
}

fn refusal_with(
    options: &Options,
    script: impl FnMut(&Arrived) -> Option<Answer> + Send + 'static,
) -> String {
    let began = Instant::now();
    let error = try_attach(Fake::new(script).start(), options).unwrap_err();
    assert!(began.elapsed() < LIMIT, "{error}");
    error.to_string()
}

pub fn contains(text: &str, part: &str) {
    assert!(text.contains(part), "{text}");
}

/// News until there are some, or the end.
fn news(attachment: &mut Attachment) -> Result<Vec<Notice>, Lost> {
    let until = Instant::now() + LIMIT;
    loop {
        let news = attachment.control.drive(Instant::now())?;
        if !news.is_empty() {
            return Ok(news);
        }
        assert!(Instant::now() < until, "nothing happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_honest_controller_is_attached() {
    let mut attachment = attach(Fake::new(|_| None).start());
    assert_eq!(attachment.info.serial, "FAKE");
    assert_eq!(negotiated(&attachment, "VS"), "1.4.0");
    let operation = Operation::Read {
        extent: extent(0, 8),
    };
    let (result, _) = run(&mut attachment.queues[0], operation, room(4096));
    assert_eq!(result, Ok(Reply::Done));
    assert!(attachment.control.close());
}

#[test]
fn writes_and_unmaps_go_by_r2t_where_capsules_hold_no_data() {
    let fake = Fake::new(|arrived| {
        assert!(arrived.queue == 0 || arrived.data.is_empty() || arrived.is_fabrics(1));
        None
    });
    let mut attachment = attach(fake.without_in_capsule_data().start());
    assert_eq!(negotiated(&attachment, "In-capsule data"), "0 bytes");
    let queue = &mut attachment.queues[0];
    for blocks in [1, 8, 100] {
        let operation = Operation::Write {
            extent: extent(0, blocks),
            fua: false,
        };
        let data = vec![5; usize::try_from(blocks * 512).unwrap()];
        assert_eq!(run(queue, operation, buffer(&data)).0, Ok(Reply::Done));
    }
    let unmap = Operation::Unmap {
        extent: extent(0, 8),
    };
    assert_eq!(run(queue, unmap, Data::None).0, Ok(Reply::Done));
}

#[test]
fn silence_after_the_tcp_connection_is_a_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = try_attach(listener.local_addr().unwrap(), &impatient())
        .unwrap_err()
        .to_string();
    contains(&text, "no answer to initialization");
}

#[test]
fn silence_at_any_step_is_a_time_out() {
    contains(
        &silence(|a| a.is_fabrics(fabrics::CONNECT).then_some(Answer::Nothing)),
        "Connect",
    );
    contains(
        &silence(|a| a.is_identify(1).then_some(Answer::Nothing)),
        "Identify Controller",
    );
    contains(
        &silence(|a| a.is_identify(0).then_some(Answer::Nothing)),
        "Identify Namespace",
    );
    let io_connect = |a: &Arrived| {
        let is_io = a.is_fabrics(fabrics::CONNECT) && a.entry.dword(10) >> 16 > 0;
        is_io.then_some(Answer::Nothing)
    };
    contains(&silence(io_connect), "Connect of an I/O queue");
}

#[test]
fn an_icresp_that_no_controller_may_send_is_refused() {
    let good = IcResp {
        pfv: 0,
        cpda: 0,
        digests: Digests::default(),
        max_h2c_data: 8192,
    };
    let data = Digests {
        header: false,
        data: true,
    };
    for bad in [
        IcResp { pfv: 1, ..good },
        IcResp { cpda: 32, ..good },
        IcResp {
            max_h2c_data: 0,
            ..good
        },
        IcResp {
            digests: data,
            ..good
        },
    ] {
        let address = Fake::new(|_| None).response(bad).start();
        let text = try_attach(address, &options()).unwrap_err().to_string();
        contains(&text, "broke a rule");
    }
}

#[test]
fn a_controller_that_terminates_is_quoted() {
    let text = refusal(|arrived| {
        arrived.is_identify(1).then(|| {
            let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
            let by = Terminator::Controller;
            Answer::Raw(TermReq { by, error }.encode(0).to_vec())
        })
    });
    contains(&text, "PDU sequence error");
    contains(&text, "Identify Controller");
}

#[test]
fn a_controller_that_hangs_up_is_lost() {
    let text = refusal(|a| a.is_identify(1).then_some(Answer::HangUp));
    contains(&text, "closed the connection");
}

#[test]
fn authentication_that_is_asked_for_is_named() {
    let connect = |a: &Arrived| a.is_fabrics(fabrics::CONNECT);
    let text = refusal(move |a| connect(a).then(|| Answer::success(1 | 1 << 17)));
    contains(&text, "DH-HMAC-CHAP");
    let required = Status::AUTHENTICATION_REQUIRED;
    let text = refusal(move |a| connect(a).then_some(Answer::End(required, 0)));
    contains(&text, "DH-HMAC-CHAP");
}

#[test]
fn a_host_that_is_not_allowed_is_told_what_to_do() {
    let invalid = Status::CONNECT_INVALID_HOST.do_not_retry();
    let text = refusal(move |a| {
        a.is_fabrics(fabrics::CONNECT)
            .then_some(Answer::End(invalid, 0))
    });
    contains(&text, "add its host NQN");
}

#[test]
fn a_controller_that_fails_while_it_becomes_ready_is_not_waited_for() {
    let status = |value| {
        move |a: &Arrived| {
            let is_status = a.is_fabrics(fabrics::PROPERTY_GET) && a.entry.dword(11) == 0x1c;
            is_status.then(|| Answer::success(value))
        }
    };
    contains(&refusal(status(2)), "CSTS.CFS");
    contains(&silence(status(0)), "no answer to becoming ready");
}

#[test]
fn a_controller_that_fails_later_is_lost() {
    let beats = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&beats);
    let fake = Fake::new(move |arrived| {
        if arrived.is_admin(admin::KEEP_ALIVE) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        let is_status =
            arrived.is_fabrics(fabrics::PROPERTY_GET) && arrived.entry.dword(11) == 0x1c;
        (is_status && seen.load(Ordering::Relaxed) > 1).then(|| Answer::success(3))
    });
    let mut attachment = attach(fake.start());
    contains(&news(&mut attachment).unwrap_err().to_string(), "CSTS.CFS");
    assert!(beats.load(Ordering::Relaxed) >= 2);
}

#[test]
fn a_keep_alive_without_an_answer_is_silence() {
    let fake = Fake::new(|a| a.is_admin(admin::KEEP_ALIVE).then_some(Answer::Nothing));
    let mut attachment = try_attach(fake.start(), &lively()).unwrap();
    assert_eq!(news(&mut attachment), Err(Lost::Silent));
}

#[test]
fn a_controller_without_keep_alive_is_not_sent_any() {
    let fake = Fake::new(|arrived| {
        assert!(!arrived.is_admin(admin::KEEP_ALIVE), "KAS is 0");
        arrived.is_identify(1).then(|| {
            let mut page = vec![0; 4096];
            page[1792] = 4;
            Answer::Data(page)
        })
    });
    let mut attachment = try_attach(fake.start(), &lively()).unwrap();
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        assert_eq!(attachment.control.drive(Instant::now()), Ok(Vec::new()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn answers_of_the_wrong_length_are_refused() {
    for cns in [0, 1] {
        let text = refusal(move |a| a.is_identify(cns).then(|| Answer::Short(vec![0; 512])));
        contains(&text, "512 bytes came instead of 4096");
    }
}

#[test]
fn namespaces_that_cannot_be_used_are_refused() {
    let page = |fields: &'static [(usize, u8)]| {
        move |a: &Arrived| {
            a.is_identify(0).then(|| {
                let mut page = vec![0; 4096];
                page[0] = 100;
                for (at, value) in fields {
                    page[*at] = *value;
                }
                Answer::Data(page)
            })
        }
    };
    contains(&refusal(page(&[(130, 9), (128, 8)])), "8 bytes of metadata");
    contains(&refusal(page(&[(130, 3)])), "2^3 bytes");
    contains(&refusal(page(&[(130, 40)])), "2^40 bytes");
    let zoned = |a: &Arrived| a.is_identify(3).then(|| Answer::Data(vec![4, 1, 0, 0, 2]));
    contains(&refusal(zoned), "Zoned Namespace");
}

#[test]
fn a_read_that_brings_too_little_has_failed() {
    let fake = Fake::new(|arrived| {
        let is_read = arrived.queue > 0 && arrived.entry.opcode() == io::READ;
        is_read.then(|| Answer::Short(vec![1; 512]))
    });
    let mut attachment = attach(fake.start());
    let operation = Operation::Read {
        extent: extent(0, 2),
    };
    let (result, _) = run(&mut attachment.queues[0], operation, room(1024));
    let expected = Failure::ShortTransfer {
        expected: 1024,
        moved: 512,
    };
    assert_eq!(result, Err(expected));
}

#[test]
fn a_write_that_succeeds_without_its_data_has_failed() {
    let fake = Fake::new(|arrived| {
        let is_write = arrived.queue > 0 && arrived.entry.opcode() == io::WRITE;
        is_write.then(|| Answer::success(0))
    });
    let mut attachment = attach(fake.without_in_capsule_data().start());
    let operation = Operation::Write {
        extent: extent(0, 1),
        fua: false,
    };
    let (result, _) = run(&mut attachment.queues[0], operation, room(512));
    let expected = Failure::ShortTransfer {
        expected: 512,
        moved: 0,
    };
    assert_eq!(result, Err(expected));
}

/// A discovery log page.
fn discovery_log(generation: u64, claimed: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut log = vec![0; 1024];
    log[..8].copy_from_slice(&generation.to_le_bytes());
    log[8..16].copy_from_slice(&claimed.to_le_bytes());
    log.extend(entries.concat());
    log
}

fn entry(kind: u8, subsystem: &str, address: SocketAddr) -> Vec<u8> {
    let mut entry = vec![0; 1024];
    entry[..3].copy_from_slice(&[3, 1, kind]);
    let mut put = |at: usize, text: &str| {
        entry[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(32, &address.port().to_string());
    put(256, subsystem);
    put(512, &address.ip().to_string());
    entry
}

/// A discovery controller whose log page comes from `log`, anew for each command.
fn discovery(mut log: impl FnMut() -> Vec<u8> + Send + 'static) -> HostPort {
    let fake = Fake::new(move |arrived| {
        arrived.is_log_page(0x70).then(|| {
            let offset = usize::try_from(arrived.entry.qword(12)).unwrap();
            let log = log();
            Answer::Data(log.get(offset..).unwrap_or_default().to_vec())
        })
    });
    HostPort::from(fake.start())
}

#[test]
fn a_discovery_log_without_end_is_refused() {
    let portal = discovery(|| discovery_log(1, u64::MAX, &[]));
    let text = discover(&portal, &options()).unwrap_err().to_string();
    contains(&text, "at most 4096");
}

#[test]
fn a_discovery_log_that_comes_slowly_is_not_waited_for_to_its_end() {
    let somewhere = "192.0.2.1:4420".parse().unwrap();
    let log = discovery_log(1, 4096, &vec![entry(2, NQN, somewhere); 4096]);
    let portal = discovery(move || {
        std::thread::sleep(Duration::from_millis(20));
        log.clone()
    });
    let began = Instant::now();
    let text = discover(&portal, &impatient()).unwrap_err().to_string();
    contains(&text, "no answer to discovery");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_discovery_log_that_never_stands_still_is_given_up() {
    let mut generation = 0;
    let portal = discovery(move || {
        generation += 1;
        let somewhere = "192.0.2.1:4420".parse().unwrap();
        discovery_log(generation, 1, &[entry(2, NQN, somewhere)])
    });
    let text = discover(&portal, &options()).unwrap_err().to_string();
    contains(&text, "has changed 10 times");
}

#[test]
fn a_discovery_log_that_changes_once_is_read_anew() {
    let mut reads = 0;
    let portal = discovery(move || {
        reads += 1;
        // The header, the first entries, and the header again, which tells of a change.
        let (generation, name) = if reads < 3 {
            (1, "nqn.old")
        } else {
            (2, "nqn.new")
        };
        let somewhere = "192.0.2.1:4420".parse().unwrap();
        let entries = vec![entry(2, name, somewhere); 9];
        discovery_log(generation, 9, &entries)
    });
    let entries = discover(&portal, &options()).unwrap();
    assert_eq!(entries.len(), 9);
    assert!(entries.iter().all(|entry| entry.subsystem == "nqn.new"));
}

#[test]
fn referrals_are_followed_once_each() {
    let one = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = one.local_addr().unwrap();
    drop(one);
    let second = discovery(move || {
        let somewhere = "192.0.2.2:4420".parse().unwrap();
        // Back to itself by another name is not found out, but asked once.
        discovery_log(1, 1, &[entry(2, "nqn.second", somewhere)])
    });
    let second: SocketAddr = second.to_string().parse().unwrap();
    let first = discovery(move || {
        let somewhere = "192.0.2.1:4420".parse().unwrap();
        let entries = [
            entry(1, "nqn.2014-08.org.nvmexpress.discovery", second),
            entry(1, "nqn.2014-08.org.nvmexpress.discovery", second),
            entry(1, "nqn.2014-08.org.nvmexpress.discovery", closed),
            entry(2, "nqn.first", somewhere),
        ];
        discovery_log(1, 4, &entries)
    });
    let entries = discover(&first, &options()).unwrap();
    let found = |name: &str| {
        entries
            .iter()
            .filter(|entry| entry.subsystem == name)
            .count()
    };
    assert_eq!((found("nqn.first"), found("nqn.second")), (1, 1));
}

/// A controller with ANA: `states` are read one after the other, the last one stays. Its first event request is
/// answered at once, by a change.
fn with_ana(states: &'static [u8]) -> SocketAddr {
    let (mut reads, mut is_told) = (0, false);
    let fake = Fake::new(move |arrived| {
        let mut page = vec![0; 4096];
        if arrived.is_identify(1) {
            page[76] = 1 << 3;
            page[92..96].copy_from_slice(&(1_u32 << 11).to_le_bytes());
            page[261] = 1 << 2;
            page[348] = 1;
            page[1792] = 4;
        } else if arrived.is_identify(0) {
            page[0] = 100;
            page[92] = 1;
            page[130] = 9;
        } else if arrived.is_log_page(0x0c) {
            page[8] = 1;
            page[16] = 1;
            page[32] = states[reads.min(states.len() - 1)];
            reads += 1;
        } else if arrived.is_admin(admin::ASYNC_EVENT_REQUEST) && !is_told {
            is_told = true;
            return Some(Answer::success(0x000c_0302));
        } else {
            return None;
        }
        Some(Answer::Data(page))
    });
    fake.start()
}

#[test]
fn the_state_of_a_path_is_told_from_the_start() {
    for (states, text) in [
        (&[1], "optimized"),
        (&[2], "non-optimized"),
        (&[3], "inaccessible"),
        (&[4], "persistent loss"),
        (&[15], "change"),
    ] {
        let attachment = attach(with_ana(states));
        assert_eq!(negotiated(&attachment, "ANA state"), text);
    }
}

#[test]
fn a_path_that_changes_its_state_is_news() {
    let mut attachment = attach(with_ana(&[1, 3]));
    let expected = Notice::AccessChanged(AccessState::Inaccessible);
    assert_eq!(news(&mut attachment), Ok(vec![expected]));
}

#[test]
fn a_path_that_opens_without_a_word_is_news_all_the_same() {
    // Read when attaching, for the event, and then by itself.
    let mut attachment = attach(with_ana(&[3, 3, 3, 1]));
    assert!(!attachment.control.access().is_usable());
    let expected = Notice::AccessChanged(AccessState::Optimized);
    assert_eq!(news(&mut attachment), Ok(vec![expected]));
}

#[test]
fn a_controller_that_keeps_its_access_states_to_itself_is_usable() {
    let fake = Fake::new(|arrived| {
        if arrived.is_log_page(0x0c) {
            return Some(Answer::End(Status::INVALID_LOG_PAGE.do_not_retry(), 0));
        }
        let mut page = vec![0; 4096];
        if arrived.is_identify(1) {
            page[76] = 1 << 3;
        } else if arrived.is_identify(0) {
            page[0] = 100;
            page[92] = 1;
            page[130] = 9;
        } else {
            return None;
        }
        Some(Answer::Data(page))
    });
    assert!(attach(fake.start()).control.access().is_usable());
}

#[test]
fn events_without_end_are_not_listened_to() {
    let fake = Fake::new(|arrived| {
        let is_request = arrived.is_admin(admin::ASYNC_EVENT_REQUEST);
        is_request.then(|| Answer::success(0x0002_0001))
    });
    let mut attachment = attach(fake.start());
    let until = Instant::now() + LIMIT;
    let lost = loop {
        if let Err(lost) = attachment.control.drive(Instant::now()) {
            break lost;
        }
        assert!(Instant::now() < until);
    };
    contains(&lost.to_string(), "without end");
}

#[test]
fn a_namespace_that_goes_away_is_news() {
    let asked = AtomicU32::new(0);
    let fake = Fake::new(move |arrived| {
        if arrived.is_admin(admin::ASYNC_EVENT_REQUEST) && asked.load(Ordering::Relaxed) == 1 {
            asked.store(2, Ordering::Relaxed);
            return Some(Answer::success(0x0004_0002));
        }
        if arrived.is_log_page(4) {
            return Some(Answer::Data(vec![1, 0, 0, 0]));
        }
        if arrived.is_identify(0) {
            return match asked.fetch_add(1, Ordering::Relaxed) {
                0 => None,
                _ => Some(Answer::Data(Vec::new())),
            };
        }
        None
    });
    let mut attachment = attach(fake.start());
    let expected = Notice::AccessChanged(AccessState::PersistentLoss);
    assert_eq!(news(&mut attachment), Ok(vec![expected]));
}
