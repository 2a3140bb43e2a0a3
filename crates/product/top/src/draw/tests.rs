//! What it looks like, at the sizes of usual terminals.

use std::collections::VecDeque;

use longshore_api::pool::{PoolSide, PoolState, PoolVolume, PoolWork};
use longshore_api::state::{Event, Session};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::app::{Key, Update};
use longshore_api::sample::{Connection, Durations, Memory, Sample, Shard, Stages, Times, Volume};

fn volume(name: &str, operations: u64) -> Volume {
    Volume {
        name: name.to_owned(),
        reads: operations,
        read_bytes: operations * 4096,
        writes: operations / 4,
        written_bytes: operations * 16384,
        errors: 0,
    }
}

fn sample(second: u64) -> Sample {
    let ns = second * 1_000_000_000;
    let mean = |ns| Durations {
        mean_ns: ns,
        sum_ns: ns * second * 187,
        p50_ns: ns,
        p99_ns: 3 * ns,
    };
    Sample {
        monotonic_ns: ns,
        time_ms: 1_795_471_090_000 + second * 1000,
        pid: 4711,
        uptime_ms: 7_384_000 + second * 1000,
        volumes: vec![
            volume("disk0", second * 48_000),
            volume("scratch", second * 120),
            volume("idle", 0),
        ],
        shards: (0..2)
            .map(|shard| Shard {
                shard,
                answered: true,
                turns: second * 9_000,
                operations_iscsi: second * 30_000,
                operations_nvme: second * 20_000,
                times: Times {
                    elapsed_ns: ns,
                    working_ns: ns / 10 * (6 + shard as u64),
                    polling_ns: ns / 10,
                    waiting_for_core_ns: 0,
                    asleep_ns: ns / 10 * (3 - shard as u64),
                },
                ..Shard::default()
            })
            .collect(),
        connections: vec![Connection {
            shard: 0,
            peer: "192.0.2.7:51234".to_owned(),
            protocol: "iscsi".to_owned(),
            operations: second * 60_000,
            received_bytes: second * 786_432_000,
            sent_bytes: second * 196_608_000,
            pending_bytes: 4096,
            ..Connection::default()
        }],
        stages: vec![Stages {
            volume: "disk0".to_owned(),
            protocol: "iscsi".to_owned(),
            direction: "read".to_owned(),
            bytes_up_to: 4096,
            operations: second * 187,
            parse: mean(2_000),
            data: mean(1_000),
            gate: mean(1_000),
            storage: mean(70_000),
            answer: mean(2_000),
            send: mean(4_000),
            total: mean(80_000),
        }],
        memory: Memory {
            budget_bytes: 1 << 30,
            used_bytes: 3 << 20,
            kept_bytes: 1 << 20,
        },
    }
}

fn session() -> Session {
    Session {
        id: "12".to_owned(),
        protocol: "iscsi".to_owned(),
        peer_name: "iqn.1993-08.org.debian:01:web1".to_owned(),
        addresses: vec!["192.0.2.7:51234".to_owned()],
        target: "iqn.2026-11.com.example:disks".to_owned(),
        connections: 1,
        since_ms: 0,
        volumes: vec!["disk0".to_owned(), "scratch".to_owned()],
    }
}

fn pool(second: u64) -> Pool {
    let side = |path: Option<&str>, state| PoolSide {
        mirror: 0,
        uuid: String::new(),
        path: path.map(str::to_owned),
        state,
        read_errors: 0,
        mended: 0,
    };
    Pool {
        name: "tank".to_owned(),
        uuid: Some("6c9e".to_owned()),
        state: PoolState::Open,
        drives: vec!["/dev/sdb".to_owned(), "/dev/sdc".to_owned()],
        mirrors: vec![
            side(Some("/dev/sdb"), PoolSideState::Current),
            side(Some("/dev/sdc"), PoolSideState::Filling),
        ],
        usage: Some(PoolUsage {
            size_bytes: 100 << 30,
            capacity_bytes: 95 << 30,
            used_bytes: 40 << 30,
            reserved_bytes: 10 << 30,
            host_bytes: second * (50 << 20),
            record_bytes: second * (60 << 20),
            map_bytes: 80 << 20,
            ..PoolUsage::default()
        }),
        volumes: vec![PoolVolume {
            name: "disk0".to_owned(),
            uuid: String::new(),
            size_bytes: 200 << 30,
            block_size: 512,
            compression: "lz4".to_owned(),
            quota_bytes: None,
            reserve_bytes: None,
            reserve_full: false,
            owned_bytes: 30 << 30,
            shared_bytes: 10 << 30,
            in_use: true,
            snapshots: Vec::new(),
        }],
        orphans: Vec::new(),
        work: Some(PoolWork {
            kind: PoolWorkKind::Rebuild,
            drive: Some("/dev/sdc".to_owned()),
            state: PoolWorkState::Running,
            error: None,
            done_bytes: 17 << 30,
            sum_bytes: 40 << 30,
            began_ms: 0,
            ended_ms: None,
            findings: Vec::new(),
            more_findings: 0,
        }),
    }
}

/// One of the file that is not open: nothing is known of it but its drives.
fn closed_pool() -> Pool {
    Pool {
        name: "attic".to_owned(),
        uuid: None,
        state: PoolState::Closed,
        mirrors: Vec::new(),
        usage: None,
        volumes: Vec::new(),
        work: None,
        ..pool(0)
    }
}

fn event(sequence: u64, topic: &str, message: &str) -> Event {
    Event {
        sequence,
        time_ms: 1_795_471_090_000 + sequence * 1000,
        monotonic_ns: 0,
        topic: topic.to_owned(),
        message: message.to_owned(),
        data: serde_json::Value::Null,
    }
}

fn app() -> App {
    let mut app = App::new("/run/longshore/longshore.sock".to_owned(), 1000);
    for second in [10, 11] {
        app.update(Update::Sample {
            sample: Box::new(sample(second)),
            sessions: vec![session()],
            pools: vec![pool(second), closed_pool()],
            events: vec![event(second, "session", "initiator logged in\u{1b}[2J")],
        });
    }
    let history: VecDeque<u64> = (0..60).map(|step| 30_000 + step % 20 * 1500).collect();
    app.history.insert("disk0".to_owned(), history);
    app
}

fn picture(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn every_page_fits_80_columns_and_24_lines() {
    let mut app = app();
    for view in View::ALL {
        app.press(Key::Char(view.key()));
        insta::assert_snapshot!(format!("{}_80x24", view.name()), picture(&app, 80, 24));
    }
}

#[test]
fn wide_and_small_terminals_show_what_fits() {
    let app = app();
    insta::assert_snapshot!("volumes_120x40", picture(&app, 120, 40));
    insta::assert_snapshot!("volumes_40x10", picture(&app, 40, 10));
    // Nothing panics where there is no room at all.
    for (width, height) in [(1, 1), (5, 3), (20, 2), (300, 4)] {
        let mut app = app.clone();
        for key in "vscgle?".chars() {
            app.press(Key::Char(key));
            picture(&app, width, height);
        }
    }
}

#[test]
fn windows_lie_over_the_page() {
    let mut app = app();
    app.press(Key::Enter);
    insta::assert_snapshot!("detail_80x24", picture(&app, 80, 24));
    app.press(Key::Escape);
    app.press(Key::Char('?'));
    insta::assert_snapshot!("help_80x24", picture(&app, 80, 24));
    app.press(Key::Escape);
    app.press(Key::Char('s'));
    app.press(Key::Char('x'));
    insta::assert_snapshot!("close_80x24", picture(&app, 80, 24));
}

#[test]
fn pools_say_what_needs_attention() {
    let mut app = app();
    app.press(Key::Char('l'));
    app.press(Key::Enter);
    insta::assert_snapshot!("pool_80x24", picture(&app, 80, 24));
    let mut stale = pool(12);
    stale.mirrors[1].state = PoolSideState::Stale;
    assert_eq!(attention(&stale), "1 side stale");
    stale.mirrors.clear();
    assert_eq!(attention(&stale), "rebuild 42 %");
    stale.work = None;
    assert_eq!(attention(&stale), "");
    app.pools.clear();
    assert!(picture(&app, 80, 24).contains("no pool open"));
}

#[test]
fn a_server_that_is_gone_is_said_to_be() {
    let mut app = app();
    app.update(Update::Gone(
        "no server answers at /run/longshore/longshore.sock".to_owned(),
    ));
    insta::assert_snapshot!("gone_80x24", picture(&app, 80, 24));
}

#[test]
fn numbers_have_three_digits_and_a_unit() {
    for (rate, text) in [
        (0.0, "0"),
        (999.0, "999"),
        (999.6, "1.00k"),
        (12_345.0, "12.3k"),
        (999_900.0, "1.00M"),
    ] {
        assert_eq!(count(rate), text);
    }
    assert_eq!(bytes(1536.0), "1.50 KiB");
    assert_eq!(bytes(100.0), "100 B");
    assert_eq!(micros(1_234), "1.2 µs");
    assert_eq!(micros(12_345_678), "12.3 ms");
    assert_eq!(uptime(93_784_000), "1 d 2:03");
}
