//! What the tunables of Adaptive Nagle do (P-092, P-099 … P-102, P-114, P-125), and what many sessions (P-118) and
//! writes (P-119) change.

use std::fmt::Write;

use anyhow::Result;

use super::super::Plan;
use super::super::load::{by_turns, figure};
use super::super::network::Wire;
use super::setup::{PORT, conditions, network, run_load, server};

/// A table: one load at several depths, under several settings.
struct Study {
    what: &'static str,
    /// Options of `longshore bench`, but for the depth.
    load: &'static str,
    depths: &'static [u32],
    settings: &'static [Setting],
}

/// Its name and what follows `--transmit`.
type Setting = (&'static str, &'static [&'static str]);

const NODELAY: Setting = ("nodelay", &["nodelay"]);
const NAGLE: Setting = ("nagle", &["nagle"]);
const AUTO: Setting = ("auto", &["auto"]);
const DEFAULT: Setting = ("96", &["adaptive-nagle"]);
const LOW: Setting = ("32", &["adaptive-nagle", "--nagle-threshold", "32"]);

const TUNABLES: &[Setting] = &[
    NODELAY,
    LOW,
    ("64", &["adaptive-nagle", "--nagle-threshold", "64"]),
    DEFAULT,
    ("256", &["adaptive-nagle", "--nagle-threshold", "256"]),
    ("1024", &["adaptive-nagle", "--nagle-threshold", "1024"]),
    ("96, margin 10", &["adaptive-nagle", "--nagle-margin", "10"]),
    (
        "96, corrected",
        &["adaptive-nagle", "--nagle-cycles", "corrected"],
    ),
    NAGLE,
];
const POLICIES: &[Setting] = &[NODELAY, LOW, DEFAULT, NAGLE, AUTO];

const STUDIES: &[Study] = &[
    Study {
        what: "Thresholds, reads of 512 B",
        load: "--rw randread --bs 512",
        depths: &[1, 8, 16, 24, 32, 40, 48, 64, 96, 128],
        settings: TUNABLES,
    },
    Study {
        what: "Thresholds, reads of 1.5 KiB",
        load: "--rw randread --bs 1536",
        depths: &[1, 8, 16, 24, 32, 40, 48, 64, 96, 128],
        settings: TUNABLES,
    },
    Study {
        what: "Eight sessions, reads of 512 B; depth of each",
        load: "--rw randread --bs 512 --sessions 8",
        depths: &[1, 2, 4, 8, 16, 32],
        settings: POLICIES,
    },
    Study {
        what: "Writes of 4 KiB",
        load: "--rw randwrite --bs 4096",
        depths: &[1, 4, 16, 32, 64, 128],
        settings: POLICIES,
    },
];

/// Measures and shows all of them on one network; how many points there were.
pub fn run(plan: &Plan, wire: Wire) -> Result<usize> {
    let network = network(wire)?;
    let mut text = plan.conditions()?;
    let _ = writeln!(text, "{}", conditions(wire));
    text +=
        "Operations per second; numbers are thresholds of `adaptive-nagle`, its margin is 40.\n";
    let mut points = 0;
    let studies = if plan.quick { &STUDIES[..1] } else { STUDIES };
    for study in studies {
        let servers = study
            .settings
            .iter()
            .zip(PORT..)
            .map(|((_, policy), port)| server(plan, &network, policy, port))
            .collect::<Result<Vec<_>>>()?;
        let depths = if plan.quick {
            &study.depths[..1]
        } else {
            study.depths
        };
        let mut rows = Vec::new();
        for depth in depths {
            let load = format!("{} --iodepth {depth}", study.load);
            let all = by_turns(plan, servers.len(), |way| {
                run_load(plan, &network, &servers[way], &load)
            })?;
            let mut medians = Vec::new();
            for reports in &all {
                medians.push(figure(reports, "/iops")?.median);
            }
            println!("{}, QD {depth}: {medians:.0?}", study.what);
            rows.push((*depth, medians));
        }
        points += rows.len();
        text += &table(study, &rows);
    }
    match plan.quick {
        true => println!("\n{text}"),
        false => plan.publish(
            &format!("tunables of adaptive-nagle, {}", wire.name()),
            &text,
        )?,
    }
    Ok(points)
}

/// A row for each depth, the best of it in bold face.
fn table(study: &Study, rows: &[(u32, Vec<f64>)]) -> String {
    let mut text = format!("\n**{}**\n\n| QD |", study.what);
    for (name, _) in study.settings {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|{}", "---|".repeat(study.settings.len() + 1));
    for (depth, medians) in rows {
        let best = medians.iter().copied().fold(0.0, f64::max);
        let _ = write!(text, "| {depth} |");
        for median in medians {
            let mark = if *median < best { "" } else { "**" };
            let _ = write!(text, " {mark}{median:.0}{mark} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_setting_of_a_depth_stands_out() {
        let study = Study {
            what: "Reads",
            load: "",
            depths: &[1],
            settings: &[NODELAY, NAGLE],
        };
        let text = table(&study, &[(1, vec![20.0, 10.0]), (64, vec![100.0, 200.4])]);
        assert_eq!(
            text,
            "\n**Reads**\n\n| QD | nodelay | nagle |\n|---|---|---|\n\
             | 1 | **20** | 10 |\n| 64 | 100 | **200** |\n"
        );
    }
}
