//! Results that were never measured.

use super::*;
use crate::compare::Side;
use crate::medium::Way;
use crate::result::{ErrorCount, JobResult, Transport, VerifyResult};
use crate::verify::{Fault, FaultKind};

const LATENCY: Latency = Latency {
    mean: 31_500.0,
    min: 9_000,
    p50: 30_000,
    p90: 40_000,
    p99: 50_000,
    p99_9: 60_000,
    p99_99: 70_000,
    max: 80_000,
};

/// A point whose figures are round.
pub fn point(rw: &str, bs: &str, iodepth: u32) -> PointResult {
    PointResult {
        rw: rw.to_owned(),
        bs: bs.to_owned(),
        iodepth,
        sessions: 1,
        threads: 1,
        elapsed_s: 2.0,
        operations: 200_000,
        iops: 100_000.0,
        bytes_per_second: 409_600_000.0,
        latency_ns: Some(LATENCY),
        service_latency_ns: None,
        client_cpu_us_per_op: Some(1.25),
        server_cpu_us_per_op: Some(2.5),
        server_user_us_per_op: Some(1.0),
        server_system_us_per_op: Some(1.5),
        read: None,
        write: None,
        jobs: Vec::new(),
        behind: None,
        verify: None,
        errors: Vec::new(),
        unanswered: 0,
        lost: None,
        interrupted: false,
        transport: Transport::default(),
    }
}

fn place(url: &str) -> TestedVolume {
    TestedVolume {
        url: url.to_owned(),
        protocol: Way::Iscsi,
        portal: Some("192.0.2.7:3260".to_owned()),
        volume_bytes: 1 << 30,
        block_size: 512,
        negotiated: [("HeaderDigest".to_owned(), "None".to_owned())].into(),
    }
}

fn report(points: Vec<PointResult>) -> Report {
    let points = points.into_iter().map(|result| Measured {
        place: place("iscsi://192.0.2.7/iqn.2026-11.local:a/0"),
        result,
    });
    Report {
        points: points.collect(),
        is_sweep: false,
        seed: 1,
    }
}

fn direction() -> DirectionResult {
    DirectionResult {
        operations: 100_000,
        iops: 50_000.0,
        bytes_per_second: 204_800_000.0,
        latency_ns: Some(LATENCY),
        service_latency_ns: None,
    }
}

#[test]
fn one_point_has_its_figures_at_the_top_of_the_document() {
    let json: serde_json::Value =
        serde_json::from_str(&report(vec![point("randread", "4k", 32)]).json()).unwrap();
    assert_eq!(json["iops"], 100_000.0);
    assert_eq!(json["bytes_per_second"], 409_600_000.0);
    for (key, value) in [
        ("p50", 30_000),
        ("p99", 50_000),
        ("p99_9", 60_000),
        ("max", 80_000),
    ] {
        assert_eq!(json["latency_ns"][key], value, "{key}");
    }
    assert_eq!(json["latency_ns"]["mean"], 31_500.0);
    assert_eq!(json["client_cpu_us_per_op"], 1.25);
    assert_eq!(json["server_cpu_us_per_op"], 2.5);
    assert_eq!(json["server_user_us_per_op"], 1.0);
    assert_eq!(json["server_system_us_per_op"], 1.5);
    assert_eq!(json["version"], 1);
    assert_eq!(json["protocol"], "iscsi");
    assert!(json.get("points").is_none());
}

#[test]
fn a_sweep_has_an_array_of_points_even_of_one() {
    let sweep = Report {
        is_sweep: true,
        ..report(vec![point("randread", "4k", 32)])
    };
    let json: serde_json::Value = serde_json::from_str(&sweep.json()).unwrap();
    assert_eq!(json["points"][0]["iops"], 100_000.0);
    assert_eq!(json["points"][0]["iodepth"], 32);
    assert!(json.get("iops").is_none());
}

#[test]
fn every_csv_line_has_as_many_fields_as_the_head() {
    let mixed = PointResult {
        read: Some(direction()),
        write: Some(direction()),
        ..point("randrw", "4k/60:64k/40", 1)
    };
    let csv = report(vec![mixed, point("randread", "512", 8)]).csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    for line in &lines {
        assert_eq!(line.split(',').count(), CSV_HEAD.len(), "{line}");
    }
    assert!(lines[2].contains(",read,"));
    assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
}

#[test]
fn the_text_shows_parts_below_the_whole() {
    let mut jobs = point("randread+write", "4k+1m", 48);
    jobs.jobs = vec![JobResult {
        name: "readers".to_owned(),
        rw: "randread".to_owned(),
        bs: "4k".to_owned(),
        iodepth: 1,
        numjobs: 16,
        total: direction(),
        read: None,
        write: None,
    }];
    let text = report(vec![jobs]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].contains("1 session over 1 thread, 2.0 s"),
        "{text}"
    );
    assert!(lines[3].contains("IOPS   MB/s  mean µs"), "{text}");
    assert!(
        lines[4].contains("100000  409.6     31.5  30.0  50.0"),
        "{text}"
    );
    assert!(
        lines[5].starts_with("randread        4k     1      readers   50000"),
        "{text}"
    );
}

#[test]
fn what_went_wrong_is_told_line_by_line() {
    let fault = Fault {
        kind: FaultKind::Lost,
        lba: 7,
        expected: "generation 2".to_owned(),
        found: "generation 1".to_owned(),
    };
    let bad = PointResult {
        verify: Some(VerifyResult {
            faults: 3,
            first_faults: vec![fault],
            ..VerifyResult::default()
        }),
        errors: vec![ErrorCount {
            error: "write: no space".to_owned(),
            count: 2,
        }],
        lost: Some("the server closed the connection".to_owned()),
        unanswered: 4,
        ..point("randwrite", "4k", 4)
    };
    assert!(!bad.is_good());
    assert_eq!(
        problems(&bad),
        [
            "lost write at block 7: expected generation 2, found generation 1",
            "and 2 more blocks",
            "write: no space (2 times)",
            "the connection was lost: the server closed the connection; 200000 operations \
             were measured, 4 were in progress",
        ]
    );
    assert!(report(vec![bad]).text().contains("were NOT all read back"));
    assert!(point("read", "4k", 1).is_good());
}

#[test]
fn a_comparison_shows_both_and_the_ratio() {
    let rounds = |iops| {
        vec![PointResult {
            iops,
            ..point("randread", "4k", 32)
        }]
    };
    let (ours, theirs) = (rounds(300_000.0), rounds(100_000.0));
    let side = |url: &str, rounds: &Vec<PointResult>, ratio| Side {
        place: place(url),
        figures: Figures::of(rounds),
        ratio,
        rounds: rounds.clone(),
    };
    let comparison = [Comparison {
        rw: "randread".to_owned(),
        bs: "4k".to_owned(),
        iodepth: 32,
        sides: vec![
            side("iscsi://a/x/0", &ours, None),
            side(
                "iscsi://b/x/0",
                &theirs,
                Some(Figures::ratio(&ours, &theirs)),
            ),
        ],
    }];
    let text = text_of_comparisons(&comparison);
    assert!(text.contains("1 / 2  3.00 (3.00 – 3.00)"), "{text}");
    let csv = csv_of_comparisons(&comparison);
    let fields = |line: &str| line.split(',').count();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
    let json: serde_json::Value =
        serde_json::from_str(&json_of_comparisons(&comparison, 1)).unwrap();
    assert_eq!(
        json["points"][0]["sides"][1]["ratio"]["iops"]["median"],
        3.0
    );
}
