//! `longshore probe`.

use crate::support::{Desk, builder, namespace, serve, unit, wait_for};

#[test]
fn a_probe_is_printed_saved_and_read_again() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=8M"]);
    let saved = desk.path("probe.json");
    for url in [unit(&server, 0), namespace(&server, 0)] {
        let text = desk
            .run(&["probe", &url, "--time", "1s", "--save", &saved])
            .good()
            .stdout;
        for expected in [
            &*url,
            "8m in blocks of 512",
            "handshake",
            "round trip every 2 ms",
            "one place",
            "kept back",
            "R2Ts not measured",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let again = desk.run(&["probe", &saved]).good().stdout;
        assert_eq!(again, text);
        let json = desk
            .run(&["probe", &saved, "--output", "json"])
            .good()
            .json();
        assert_eq!(json["version"], 1);
        assert_eq!(json["subject"]["make"], "longshore");
        assert_eq!(json["subject"]["name"], *url);
    }
}

#[test]
fn a_named_server_tells_of_itself_and_another_one_is_found_out() {
    let desk = Desk::new();
    let socket = desk.path("control");
    let own = builder()
        .volume("a,backend=mem,size=8M")
        .iscsi()
        .argument("--socket")
        .argument(&socket)
        .start()
        .expect("start a server");
    let other = serve(&["a,backend=mem,size=8M"]);
    let probe = |url: &str| {
        let words = [
            "probe", url, "--time", "2s", "--server", &socket, "--output", "json",
        ];
        desk.run(&words).good().json()
    };
    let json = probe(&unit(&own, 0));
    let server = &json["server"];
    assert!(server["operations"].as_u64().unwrap() > 100, "{server}");
    assert!(server["working_us_per_op"].as_f64().unwrap() > 0.0);
    assert!(!server["stages"].as_array().unwrap().is_empty(), "{server}");
    assert!(server["tcp"][0]["rtt_us"].as_u64().unwrap() > 0, "{server}");
    let points = json["points"].as_array().unwrap();
    assert!(
        points
            .iter()
            .any(|point| point["server_cpu_us"]["value"].as_f64() > Some(0.0))
    );
    let json = probe(&unit(&other, 0));
    assert!(json["server"].is_null(), "{json}");
    assert!(
        json["remarks"].to_string().contains("has done nothing"),
        "{json}"
    );
}

#[test]
fn a_signal_ends_a_probe_without_a_result() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=8M"]);
    let saved = desk.path("probe.json");
    let mut running = desk.start(&["probe", &unit(&server, 0), "--save", &saved]);
    // The file is made when the command line is understood, and the handlers are there soon after.
    wait_for("the file", || desk.scratch.join("probe.json").exists());
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal("INT");
    assert_eq!(running.end().code(), Some(130), "{}", desk.text("stderr"));
    assert_eq!(desk.text("stdout"), "");
    assert!(!desk.scratch.join("probe.json").exists());
}
