//! `longshore explain` and `longshore advise`, and what `predict` makes of a probe.

use std::time::{Duration, Instant};

use longshore_model::probe::{Probe, Role};
use serde_json::Value;

use crate::support::{Desk, builder, serve, unit};

const ELEMENTS: [&str; 8] = [
    "client application",
    "client send",
    "request wire",
    "server receive",
    "server application",
    "server send",
    "response wire",
    "client receive",
];

/// The document of a probe of both directions, made on an idle machine: what is concluded from it is always the same.
fn document(desk: &Desk) -> String {
    let path = desk.path("probe.json");
    std::fs::write(&path, include_str!("probe.json")).unwrap();
    path
}

#[test]
fn a_volume_is_probed_fitted_and_explained() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=8M"]);
    let saved = desk.path("probe.json");
    let url = unit(&server, 0);
    let words = [
        "probe", &url, "--time", "3s", "--write", "0+4m", "--save", &saved,
    ];
    let text = desk.run(&words).good().stdout;
    for expected in [
        "PARTS OF READS",
        "PARTS OF WRITES",
        "kept back are predicted",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = desk.run(&["explain", &saved]).good().stdout;
    for element in ELEMENTS {
        assert!(text.contains(element), "{element}: {text}");
    }
    assert!(text.contains("read of 4 KiB, depth 1: "), "{text}");
    let advice = desk.run(&["advise", &saved]).good().stdout;
    assert!(advice.contains("of what the limit allows"), "{advice}");
}

#[test]
fn a_probe_is_explained_in_eight_elements_that_add_up() {
    let desk = Desk::new();
    let saved = document(&desk);
    let (picture, page) = (desk.path("pipeline.svg"), desk.path("report.html"));
    let words = ["explain", &saved, "--plot", &picture, "--report", &page];
    let text = desk.run(&words).good().stdout;
    for element in ELEMENTS {
        assert!(text.contains(element), "{element}: {text}");
    }
    for expected in [
        "read of 4 KiB, depth 1: ",
        "write of 4 KiB, depth 1: ",
        "the knee",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(desk.text("pipeline.svg").starts_with("<svg"));
    let page = desk.text("report.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg"));
    assert!(!page.contains("<script") && page.contains("kept back"));
    let words = ["explain", &saved, "--bs", "64k", "--output", "json"];
    let json = desk.run(&words).good().json();
    let pipelines = json["pipelines"].as_array().unwrap();
    assert!(pipelines.len() >= 2, "{json}");
    for pipeline in pipelines {
        let segments = pipeline["segments"].as_array().unwrap();
        assert_eq!(segments.len(), ELEMENTS.len());
        let number = |value: &Value| value.as_f64().unwrap();
        let sum: f64 = segments
            .iter()
            .flat_map(|it| ["queue_us", "latency_us", "work_us"].map(|name| number(&it[name])))
            .sum();
        let whole = number(&pipeline["round_trip_us"]["value"]);
        assert!((sum / whole - 1.0).abs() < 1e-3, "{pipeline}");
        assert_eq!(pipeline["size_bytes"], 65536);
    }
}

#[test]
fn advice_is_ranked_and_comes_with_gain_cost_risk_and_a_check() {
    let desk = Desk::new();
    let saved = document(&desk);
    let words = ["advise", &saved, "--iodepth", "1", "--output", "json"];
    let json = desk.run(&words).good().json();
    assert_eq!(json["version"], 1);
    let items = json["items"].as_array().unwrap();
    // One operation at a time over loopback: more of them at once is always something.
    let depth = items.iter().find(|item| item["id"] == "depth");
    let depth = depth.unwrap_or_else(|| panic!("{json}"));
    assert_eq!(depth["place"], "workload");
    let gains: Vec<f64> = items
        .iter()
        .map(|item| item["gain_percent"]["value"].as_f64().unwrap())
        .collect();
    assert!(gains.is_sorted_by(|one, other| one >= other), "{gains:?}");
    let threshold = json["threshold_percent"].as_f64().unwrap();
    for item in items {
        assert!(
            item["gain_percent"]["low"].as_f64().unwrap() > 0.0,
            "{item}"
        );
        assert!(item["gain_percent"]["value"].as_f64().unwrap() >= threshold);
        for field in ["what", "cost", "risk", "check"] {
            assert!(!item[field].as_str().unwrap().is_empty(), "{item}");
        }
    }
    let page = desk.path("advice.html");
    let text = desk
        .run(&["advise", &saved, "--iodepth", "1", "--report", &page])
        .good()
        .stdout;
    assert!(text.contains("of what the limit allows"), "{text}");
    assert!(desk.text("advice.html").contains("Advice for reads"));
}

#[test]
fn a_change_that_was_made_is_held_against_its_prediction() {
    let desk = Desk::new();
    let saved = document(&desk);
    // Afterwards small writes need no R2Ts, and large ones are twice as fast.
    let mut before = Probe::parse(desk.text("probe.json").as_bytes()).unwrap();
    before.fitted = None;
    before.fitted_writes = None;
    let mut after = before.clone();
    before
        .negotiated
        .insert("FirstBurstLength".into(), "512".into());
    before
        .negotiated
        .insert("MaxBurstLength".into(), "32768".into());
    before
        .negotiated
        .insert("MaxOutstandingR2T".into(), "1".into());
    before.transfer = None;
    after
        .negotiated
        .insert("FirstBurstLength".into(), "262144".into());
    after
        .negotiated
        .insert("MaxBurstLength".into(), "262144".into());
    after.transfer = None;
    for point in after.points.iter_mut().filter(|it| it.role == Role::Fit) {
        point.iops.value *= 2.0;
        point.latency_us.value /= 2.0;
    }
    let (old, new) = (desk.path("old.json"), desk.path("new.json"));
    std::fs::write(&old, before.to_json()).unwrap();
    std::fs::write(&new, after.to_json()).unwrap();
    let words = ["advise", &new, "--rw", "write", "--check", &old];
    let json = desk
        .run(&[&words[..], &["--output", "json"]].concat())
        .good()
        .json();
    let checked = json["checked"].as_array().unwrap();
    let of_burst = checked.iter().find(|check| check["id"] == "first-burst");
    let of_burst = of_burst.unwrap_or_else(|| panic!("{json}"));
    assert_eq!(of_burst["is_followed"], true, "{of_burst}");
    let achieved = of_burst["achieved_percent"].as_f64().unwrap();
    assert!((achieved - 100.0).abs() < 1.0, "{of_burst}");
    let text = desk.run(&words).good().stdout;
    assert!(text.contains("predicted"), "{text}");
    let image = desk.path("image");
    desk.image("image", 4096);
    let wrong = desk.run(&["advise", &saved, "--check", &image]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stderr.contains("--save"), "{wrong:?}");
}

#[test]
fn a_probe_is_predicted_like_a_set_up() {
    let desk = Desk::new();
    let saved = document(&desk);
    for rw in ["read", "write"] {
        let words = [
            "predict", &saved, "--rw", rw, "--bs", "4k", "--output", "json",
        ];
        let json = desk.run(&words).good().json();
        let points = json["prediction"]["points"].as_array().unwrap();
        assert!(points.len() >= 8, "{json}");
        for point in points {
            assert!(point["iops"]["low"].as_f64().unwrap() > 0.0, "{point}");
        }
    }
    let parts = desk.run(&["predict", &saved, "--parts"]).good().stdout;
    assert!(parts.contains("measured = \"fitted: "), "{parts}");
    let file = desk.path("parts.toml");
    std::fs::write(&file, parts).unwrap();
    desk.run(&["predict", &file]).good();
}

#[test]
fn what_a_running_server_tells_adds_up_to_what_its_client_sees() {
    let desk = Desk::new();
    let socket = desk.path("control");
    let server = builder()
        .volume("a,backend=mem,size=8M,delay=200ms")
        .iscsi()
        .argument("--socket")
        .argument(&socket)
        .argument("--sample")
        .argument("1")
        .start()
        .expect("start a server");
    let url = unit(&server, 0);
    // So slow that a busy machine adds little.
    let words = [
        "bench",
        &url,
        "--bs",
        "4k",
        "--rw",
        "randread",
        "--iodepth",
        "8",
        "--time",
        "10s",
        "--output",
        "json",
    ];
    let (client, explained) = std::thread::scope(|scope| {
        let client = scope.spawn(|| desk.run(&words).good().json());
        let words = [
            "explain",
            "--server",
            &socket,
            "--interval",
            "2s",
            "--output",
            "json",
        ];
        let until = Instant::now() + Duration::from_secs(60);
        let explained = loop {
            let explained = desk.run(&words);
            if explained.status.success() {
                break explained.json();
            }
            assert!(Instant::now() < until, "{explained:?}");
        };
        (client.join().expect("the client ends"), explained)
    });
    let of_client = client["latency_ns"]["mean"].as_f64();
    let of_client = of_client.unwrap_or_else(|| panic!("{client}")) / 1e3;
    let pipeline = &explained["pipelines"][0];
    assert_eq!(pipeline["direction"], "read", "{explained}");
    let of_server = pipeline["round_trip_us"]["value"].as_f64().unwrap();
    assert!(
        (of_server / of_client - 1.0).abs() < 0.1,
        "{of_server} {of_client}"
    );
    let idle = ["explain", "--server", &socket, "--interval", "100ms"];
    let idle = desk.run(&idle);
    assert_eq!(idle.status.code(), Some(1));
    assert!(idle.stderr.contains("--interval"), "{idle:?}");
}
