//! Predictions: presets with published results, files written by hand, changes, pictures.

use std::fs;

use serde_json::Value;

use crate::support::Desk;

const PRESETS: [&str; 5] = [
    "guerri-wireless",
    "guerri-wired-hdd",
    "guerri-wired-ssd",
    "scst-10ms",
    "butterfield-2017",
];

fn predict(desk: &Desk, words: &str) -> Value {
    let words: Vec<&str> = words.split_whitespace().collect();
    let all = [&["predict"], &words[..], &["--output", "json"]].concat();
    desk.run(&all).good().json()
}

/// The only point of a prediction, in `prediction` or `changed`.
fn point<'a>(json: &'a Value, sweep: &str) -> &'a Value {
    let points = json[sweep]["points"].as_array().expect("points");
    assert_eq!(points.len(), 1, "{json}");
    &points[0]
}

fn latency_ms(point: &Value) -> f64 {
    point["latency_us"]["value"].as_f64().expect("a number") / 1e3
}

#[test]
fn presets_give_the_published_times_and_what_if_those_of_the_advice() {
    let desk = Desk::new();
    for (preset, one, many) in [
        ("guerri-wireless", 70.14, 49.14),
        ("guerri-wired-hdd", 33.28, 31.74),
        ("guerri-wired-ssd", 28.68, 27.14),
        ("scst-10ms", 106.0, 35.5),
    ] {
        let words = format!("--preset {preset} --bs 2m --what-if max-outstanding-r2t=16");
        let json = predict(&desk, &words);
        let times = ["prediction", "changed"].map(|sweep| latency_ms(point(&json, sweep)));
        for (found, published) in times.into_iter().zip([one, many]) {
            assert!((found - published).abs() < 0.005, "{preset}: {found}");
        }
        let gain = &json["differences"][0]["iops_percent"]["value"];
        let expected = 100.0 * (times[0] / times[1] - 1.0);
        assert!((gain.as_f64().unwrap() - expected).abs() < 1e-6, "{json}");
        assert_eq!(json["differences"][0]["is_certain"], true);
    }
}

#[test]
fn every_preset_predicts_with_intervals_and_names_its_limits() {
    let desk = Desk::new();
    for preset in PRESETS {
        let json = predict(&desk, &format!("--preset {preset} --iodepth 1..64"));
        for point in json["prediction"]["points"].as_array().unwrap() {
            let of = |figure: &str, which: &str| point[figure][which].as_f64().unwrap();
            for figure in ["iops", "bytes_per_second", "latency_us"] {
                let [low, value, high] = ["low", "value", "high"].map(|which| of(figure, which));
                let slack = value * 1e-9;
                assert!(
                    low <= value + slack && value <= high + slack,
                    "{preset}: {point}"
                );
                assert!(low > 0.0, "{preset}: {point}");
            }
            assert!(point["limiting"]["element"].is_string(), "{point}");
            assert!(point["next"]["distance_percent"].as_f64().unwrap() >= 0.0);
        }
        let text = desk.run(&["predict", "--preset", preset]).good().stdout;
        assert!(
            text.contains("limited by") && text.contains("One operation alone"),
            "{text}"
        );
    }
}

#[test]
fn the_parts_of_a_preset_are_a_file_that_predicts_the_same() {
    let desk = Desk::new();
    for preset in PRESETS {
        let parts = desk.run(&["predict", "--preset", preset, "--parts"]).good();
        fs::write(desk.path("my.toml"), parts.stdout).expect("write a file");
        let own = predict(&desk, &desk.path("my.toml"));
        let published = predict(&desk, &format!("--preset {preset}"));
        let figures = |json: &Value| -> Vec<f64> {
            let points = json["prediction"]["points"].as_array().unwrap();
            points
                .iter()
                .map(|point| point["iops"]["low"].as_f64().unwrap())
                .collect()
        };
        for (one, other) in figures(&own).into_iter().zip(figures(&published)) {
            assert!((one - other).abs() <= one * 1e-9, "{preset}: {one} {other}");
        }
    }
}

#[test]
fn a_file_by_hand_is_predicted_and_its_mistakes_have_a_place() {
    let desk = Desk::new();
    let path = desk.path("my.toml");
    let right = "title = \"the server in the cellar\"\n[network]\nrate = \"1 Gbit/s\"\none-way-latency = { value = \
                 \"110 us\", plus-minus = \"20%\", measured = \"ping\" }\n";
    fs::write(&path, right).expect("write a file");
    let json = predict(&desk, &format!("{path} --bs 64k --iodepth 32"));
    assert_eq!(json["title"], "the server in the cellar");
    assert_eq!(
        point(&json, "prediction")["limiting"]["element"],
        "response-wire"
    );
    let parts = json["parts"].as_array().unwrap();
    let latency = parts
        .iter()
        .find(|part| part["name"] == "one-way-latency")
        .unwrap();
    assert_eq!(latency["source"], "measured");

    fs::write(&path, right.replace("rate", "rat")).expect("write a file");
    let ran = desk.run(&["predict", &path]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let expected = format!("{path}:3:1: unknown parameter `rat`; did you mean `rate`?");
    assert!(ran.stderr.contains(&expected), "{ran:?}");
}

#[test]
fn a_change_that_the_uncertainties_hide_is_said_to_be_hidden() {
    let desk = Desk::new();
    let told = |change: &str| {
        let words = format!("--preset guerri-wireless --bs 2m --what-if {change}");
        let json = predict(&desk, &words);
        let words: Vec<&str> = words.split_whitespace().collect();
        let text = desk.run(&[&["predict"], &words[..]].concat()).good().stdout;
        let is_hidden = text.contains("cannot be told from the uncertainties");
        assert_eq!(json["differences"][0]["is_certain"], !is_hidden, "{text}");
        !is_hidden
    };
    assert!(told("max-outstanding-r2t=16"));
    assert!(told("one-way-latency=0.2ms"));
    assert!(!told("one-way-latency=1.4ms±0.3ms"));
}

#[test]
fn pictures_are_drawn_by_depth_or_by_size() {
    let desk = Desk::new();
    for (words, axis) in [
        ("--preset butterfield-2017", "queue depth"),
        (
            "--preset guerri-wireless --what-if rate=1Gbit/s",
            "block size in bytes",
        ),
    ] {
        let svg = desk.path("sweep.svg");
        predict(&desk, &format!("{words} --plot {svg}"));
        let picture = desk.text("sweep.svg");
        for part in [axis, "operations per second", "latency in µs"] {
            assert!(picture.contains(part), "{words}: {part}");
        }
    }
    let png = desk.path("sweep.png");
    predict(
        &desk,
        &format!("--preset scst-10ms --iodepth 1..8 --plot {png}"),
    );
    assert!(desk.bytes("sweep.png").starts_with(b"\x89PNG"));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_write() {
    let desk = Desk::new();
    for (words, expected) in [
        ("--what-if max-outstanding-r2t", "write KEY=VALUE"),
        (
            "--what-if max-outstanding-rt=2",
            "did you mean `max-outstanding-r2t`?",
        ),
        ("--what-if clock=fast", "write for example 2.4GHz"),
        ("--bs 0", "at least one byte"),
        ("--bs soon", "is not a size"),
        ("--iodepth 0", "depth"),
        ("--plot x.gif", ".svg or .png"),
        ("--bs 2m --plot x.svg", "at least two depths or sizes"),
        ("x.toml", "cannot be used with"),
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let ran = desk.run(&[&["predict", "--preset", "guerri-wireless"], &words[..]].concat());
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
    }
}
