//! The figures of published work, row by row, and how far the model is from what was measured.

use longshore_model::accounting::{Account, outstanding};
use longshore_model::bounds::{LimitKind, knee, limits, throughput_time_us};
use longshore_model::link::{full_send_buffer_depth, net_reply_us, wire_factor};
use longshore_model::operation::{Element, Operation};
use longshore_model::parameter::{Parts, Source};
use longshore_model::prediction::sweep;
use longshore_model::presets::preset;

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    let distance = (found - expected).abs();
    assert!(
        distance <= tolerance,
        "{found} is not {expected} within {tolerance}"
    );
}

fn with(name: &str, changes: &[(&str, &str)]) -> Parts {
    let mut parts = preset(name).unwrap().parts;
    for (key, value) in changes {
        let source = Source::Given("a test".to_owned());
        parts.change(key, value, source).unwrap();
    }
    parts
}

/// Milliseconds of one operation that is alone.
fn ms(parts: &Parts, size: f64) -> f64 {
    Operation::new(parts, size, 1.0).alone_us() / 1e3
}

/// A row of Guerri's table: preset, R2Ts, published milliseconds, what the formula gives, measured MiB/s, error in
/// percent.
type GuerriRow = (&'static str, &'static str, f64, f64, f64, f64);

const GUERRI: [GuerriRow; 6] = [
    ("guerri-wireless", "1", 70.14, 70.14, 31.0, 8.02),
    ("guerri-wired-hdd", "1", 34.67, 33.28, 62.0, 3.07),
    ("guerri-wired-ssd", "1", 30.07, 28.68, 72.0, 3.15),
    ("guerri-wireless", "16", 49.14, 49.14, 42.0, 3.10),
    ("guerri-wired-hdd", "16", 31.74, 31.74, 70.0, 9.98),
    ("guerri-wired-ssd", "16", 27.14, 27.14, 82.0, 10.13),
];

#[test]
fn the_six_rows_of_guerri_follow_from_the_formula() {
    for (name, r2ts, _, formula, measured, error) in GUERRI {
        let time = ms(&with(name, &[("max-outstanding-r2t", r2ts)]), 2.0 * MIB);
        near(time, formula, 0.005);
        let mib_per_second = 2.0 * 1000.0 / time;
        near(100.0 * (measured - mib_per_second) / measured, error, 0.02);
    }
}

#[test]
fn two_rows_of_guerri_are_high_by_one_latency_of_the_wrong_network() {
    // 18 latencies: one of them was left at the 1.5 ms of the wireless network.
    let slip = 1.5 - 0.11;
    for (name, r2ts, published, formula, ..) in GUERRI {
        let is_slip = name != "guerri-wireless" && r2ts == "1";
        let expected = if is_slip { formula + slip } else { formula };
        near(published, expected, 0.005);
    }
}

#[test]
fn the_rows_of_guerri_are_the_published_sums() {
    for (name, one_way, data, storage) in [
        ("guerri-wireless", 1.5, 0.87, 7.3),
        ("guerri-wired-hdd", 0.11, 0.5, 7.3),
        ("guerri-wired-ssd", 0.11, 0.5, 2.7),
    ] {
        let one = ms(&with(name, &[]), 2.0 * MIB);
        near(one, 18.0 * one_way + 32.0 * data + storage + 8.0, 1e-6);
        let many = ms(&with(name, &[("max-outstanding-r2t", "8")]), 2.0 * MIB);
        near(many, 4.0 * one_way + 32.0 * data + storage + 8.0, 1e-6);
        let operation = Operation::new(&with(name, &[]), 2.0 * MIB, 1.0);
        assert_eq!(operation.r2ts, 8);
        near(
            operation.contribution(Element::R2ts),
            16.0 * one_way * 1e3,
            1e-6,
        );
    }
}

#[test]
fn two_outstanding_r2ts_are_enough_on_both_networks_of_guerri() {
    for (name, _, _, formula, ..) in &GUERRI[3..] {
        for (r2ts, is_enough) in [("1", false), ("2", true), ("16", true)] {
            let time = ms(&with(name, &[("max-outstanding-r2t", r2ts)]), 2.0 * MIB);
            assert_eq!((time - formula).abs() < 0.005, is_enough, "{name} {r2ts}");
        }
        let operation = Operation::new(&with(name, &[]), 2.0 * MIB, 1.0);
        assert_eq!(operation.enough_r2ts, Some(2));
    }
}

#[test]
fn the_other_block_sizes_of_guerri_are_three_to_nine_percent_low() {
    // Local latency is a second divided by local IOPS of the disk. Only the row of 2 MiB was used for the model.
    let local = "64k=486.6us,128k=924.2us,256k=1831.5us,512k=3663us,1M=7352.9us,2M=14925.4us";
    let parts = with("guerri-wireless", &[("storage-times", local)]);
    for (kib, predicted, measured) in [
        (64.0, 14.3, 15.5),
        (128.0, 14.4, 15.1),
        (256.0, 21.9, 22.6),
        (512.0, 25.3, 27.5),
        (1024.0, 27.3, 30.1),
        (2048.0, 28.4, 31.0),
    ] {
        let found = kib / KIB * 1000.0 / ms(&parts, kib * KIB);
        near(found, predicted, 0.06);
        let error = 100.0 * (measured - found) / measured;
        assert!((2.9..9.5).contains(&error), "{kib} KiB: {error} %");
    }
}

#[test]
fn the_rows_of_scst_follow_from_an_early_r2t() {
    let time = |changes: &[(&str, &str)]| ms(&with("scst-10ms", changes), 2.0 * MIB);
    near(time(&[]), 106.0, 1e-6);
    near(time(&[("max-outstanding-r2t", "16")]), 35.5, 1e-6);
    for (r2ts, late, early) in [
        ("1", 106.0, 105.5),
        ("2", 60.0, 59.5),
        ("4", 40.0, 39.5),
        ("6", 36.0, 35.5),
    ] {
        near(
            time(&[("max-outstanding-r2t", r2ts), ("early-r2t", "never")]),
            late,
            1e-6,
        );
        near(
            time(&[("max-outstanding-r2t", r2ts), ("early-r2t", "always")]),
            early,
            1e-6,
        );
    }
    let operation = Operation::new(&with("scst-10ms", &[]), 2.0 * MIB, 1.0);
    assert_eq!(operation.enough_r2ts, Some(6));
}

/// Size, net_reply and observed throughput time in µs, peak IOPS, and percent of the network.
const BUTTERFIELD: [(f64, f64, f64, f64, f64); 10] = [
    (512.0, 4.52, 9.94, 100_565.0, 45.5),
    (1024.0, 8.66, 10.55, 93_271.0, 80.8),
    (1536.0, 12.80, 12.78, 77_053.0, 98.6),
    (2048.0, 16.94, 16.90, 58_505.0, 99.1),
    (3072.0, 25.21, 25.63, 39_015.0, 98.4),
    (4096.0, 33.48, 33.81, 29_577.0, 99.0),
    (16384.0, 132.77, 132.56, 7_544.0, 100.2),
    (65536.0, 529.92, 528.84, 1_891.0, 100.2),
    (262_144.0, 2118.51, 2114.00, 473.0, 100.2),
    (1_048_576.0, 8472.88, 8456.26, 118.0, 100.0),
];

#[test]
fn the_ten_rows_of_butterfield_follow_from_the_wire_factor() {
    near(wire_factor(9000.0), 1.01006, 1e-5);
    for (size, net_reply, observed, peak, of_network) in BUTTERFIELD {
        let found = net_reply_us(size, 1.01, 1e9);
        near(found, net_reply, 0.005);
        near(peak * found / 1e4, of_network, 0.06);
        // 1 KiB and 1.5 KiB come from another run than the table of peaks.
        near(1e6 / peak, observed, observed * 0.022);
        // Those that the network bounds. The wire factor is a little high: 1.008 would meet the largest sizes.
        if size > 1024.0 {
            near(
                throughput_time_us(found, 9.94, 1.0),
                observed,
                observed * 0.021,
            );
        }
    }
}

#[test]
fn below_two_kib_the_processor_bounds_the_reads_of_butterfield() {
    // Microseconds of processor time, under adaptive-nagle and under nodelay.
    for (size, adaptive, nodelay) in [
        (512.0, Some(9.94), 15.89),
        (1024.0, Some(10.55), 16.08),
        (1536.0, None, 16.48),
        (2048.0, None, 17.47),
    ] {
        let net_reply = net_reply_us(size, 1.01, 1e9);
        let bound = |cpu| throughput_time_us(net_reply, cpu, 1.0);
        near(bound(nodelay), nodelay, 1e-9);
        match adaptive {
            Some(cpu) => near(bound(cpu), cpu, 1e-9),
            None => near(bound(9.94), net_reply, 1e-9),
        }
    }
}

#[test]
fn three_constants_of_the_processor_meet_the_points_that_were_kept_back_within_nine_percent() {
    let peak = |size: f64, changes: &[(&str, &str)]| {
        let parts = with("butterfield-2017", changes);
        limits(&Operation::new(&parts, size, 256.0), 1e6)[0].iops
    };
    let nodelay = ("transmit", "nodelay");
    // These three gave the constants.
    near(peak(512.0, &[]), 100_565.0, 800.0);
    near(peak(512.0, &[nodelay]), 62_935.0, 200.0);
    near(peak(2048.0, &[nodelay]), 57_247.0, 200.0);
    // These did not.
    near(peak(1024.0, &[nodelay]), 60_390.0, 60_390.0 * 0.03);
    near(peak(1024.0, &[]), 93_271.0, 93_271.0 * 0.03);
    near(peak(1536.0, &[nodelay]), 60_676.0, 60_676.0 * 0.03);
    let slow = ("clock", "1.6GHz");
    let slow_nodelay = peak(2048.0, &[nodelay, slow]);
    near(slow_nodelay, 38_160.0, 200.0);
    near(slow_nodelay, 40_500.0, 40_500.0 * 0.06);
    near(peak(2048.0, &[slow]), 57_800.0, 57_800.0 * 0.095);
}

#[test]
fn the_writer_thread_works_from_the_published_depths_on() {
    for (send_buffer, depths) in [
        (1_677_721.0, [25.6, 6.4, 1.6]),
        (16_777_216.0, [255.8, 64.0, 16.0]),
    ] {
        for (size, depth) in [64.0 * KIB, 256.0 * KIB, MIB].into_iter().zip(depths) {
            near(full_send_buffer_depth(send_buffer, size), depth, 0.05);
        }
    }
}

#[test]
fn large_reads_saturate_the_network_at_the_published_depths() {
    let parts = with("butterfield-2017", &[]);
    for (size, depth, too_few) in [(4 << 10, 16, 4), (16 << 10, 5, 1), (64 << 10, 2, 1)] {
        let points = sweep(&parts, &[size], &[too_few, depth]).points;
        for (point, is_saturated) in points.iter().zip([false, true]) {
            let limit = point.limiting;
            let is_wire =
                limit.kind == LimitKind::Capacity && limit.element == Element::ResponseWire;
            assert_eq!(is_wire, is_saturated, "{size} {}", point.depth);
        }
    }
    // The knee of 512 B under nodelay is where the paper has it: there the latencies were chosen.
    let nodelay = with("butterfield-2017", &[("transmit", "nodelay")]);
    let knee = knee(&Operation::new(&nodelay, 512.0, 16.0));
    assert!((14.0..16.5).contains(&knee), "{knee}");
}

/// Shares in percent: idle, driver, SCSI, copy and checksum, network card, TCP/IP, virtual memory.
type FujitaRow = (&'static str, [f64; 7]);

const FUJITA_WRITE: [FujitaRow; 6] = [
    ("none 1500", [66.81, 1.52, 1.90, 3.76, 2.12, 12.16, 4.21]),
    ("none 9000", [79.85, 1.34, 1.25, 3.40, 0.96, 3.72, 2.98]),
    (
        "checksum 1500",
        [68.35, 1.53, 1.86, 2.93, 2.27, 11.75, 4.11],
    ),
    ("checksum 9000", [79.23, 1.41, 1.42, 2.41, 1.07, 4.39, 3.16]),
    (
        "zero-copy 1500",
        [71.86, 1.32, 1.17, 0.27, 2.60, 11.48, 3.67],
    ),
    (
        "zero-copy 9000",
        [83.32, 1.30, 1.23, 0.27, 1.06, 3.82, 2.71],
    ),
];

const FUJITA_READ: [FujitaRow; 5] = [
    ("none 1500", [64.84, 2.01, 1.44, 6.78, 2.28, 9.84, 4.54]),
    ("none 9000", [74.77, 1.99, 1.49, 6.65, 1.92, 3.36, 3.22]),
    ("checksum 1500", [69.08, 1.93, 1.25, 3.81, 2.14, 9.75, 4.28]),
    ("checksum 9000", [78.74, 1.79, 1.19, 3.77, 1.93, 2.92, 3.08]),
    (
        "zero-copy 9000",
        [79.89, 2.12, 1.29, 0.16, 2.18, 4.79, 4.89],
    ),
];

fn account(row: [f64; 7]) -> Account<'static> {
    let names = ["driver", "scsi", "copy", "card", "tcp/ip", "memory"];
    Account {
        idle: row[0],
        parts: names.into_iter().zip(row[1..].iter().copied()).collect(),
    }
}

#[test]
fn shares_of_fujita_say_that_tcp_ip_is_the_part_to_improve() {
    let zero_copy = account(FUJITA_WRITE[4].1);
    near(
        zero_copy.of_busy("driver") + zero_copy.of_busy("scsi"),
        8.85,
        0.005,
    );
    near(zero_copy.of_busy("tcp/ip"), 40.80, 0.005);
    // The table leaves some time out.
    for (name, row) in FUJITA_WRITE.into_iter().chain(FUJITA_READ) {
        let unlisted = account(row).unlisted();
        assert!((4.6..8.4).contains(&unlisted), "{name}: {unlisted}");
    }
    // Copying once less saves what the column of copies says: an eighth of the busy time.
    let copying = account(FUJITA_WRITE[0].1);
    near(copying.saving("copy", 0.0), 11.33, 0.005);
}

#[test]
fn one_idle_share_of_fujita_is_a_slip_of_a_digit() {
    // The text has 21.1 % busy for zero-copy reads at MTU 9000, the table 79.89 % idle.
    near(account(FUJITA_READ[4].1).busy(), 20.11, 1e-9);
    near(100.0 - 78.89, 21.11, 1e-9);
}

#[test]
fn the_mixed_load_of_sdc_2020_had_about_32_reads_under_way_and_not_16() {
    near(outstanding(80_400.0, 396.0), 31.8, 0.05);
    near(outstanding(171_000.0, 181.5), 31.0, 0.05);
}
