//! The simulation of the performance model beside the measured curves, and what it says of the best threshold of
//! `adaptive-nagle` (P-113 … P-116).
//!
//! Three values are read off the measurement: the latency of one read, and the processor time of a read and of a send. All
//! else follows: knees, crossovers, and which policy is ahead.

use std::fmt::Write;

use anyhow::{Context, Result};
use longshore_bench::chart::{Chart, Line, Panel, draw};
use longshore_model::parameter::{Parts, Source};
use longshore_model::simulation::{Length, simulate};

use super::super::Plan;
use super::super::network::Wire;
use super::setup::network;
use super::{Curve, DEPTHS, NAGLE, POLICIES, curve, heading, panel, servers};

const SECTION: &str = "transmit policies, simulated";

const SIZE: u32 = 512;
const LENGTH: Length = Length {
    operations: 4000,
    seed: 1,
};

const THRESHOLDS: [u32; 7] = [8, 32, 64, 96, 128, 256, 1024];

/// What is changed of the set-up that was read off, one thing at a time.
const CHANGES: [(&str, &[(&str, &str)]); 6] = [
    ("none", &[]),
    ("a way of 50 µs", &[("one-way-latency", "50 us")]),
    ("half the clock", &[("clock", "0.5 GHz")]),
    ("twice the clock", &[("clock", "2 GHz")]),
    ("10 Gbit/s", &[("rate", "10 Gbit/s")]),
    ("a send costs nothing", &[("server-cpu-per-send", "0 us")]),
];

/// What a measurement shows of the machine, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ReadOff {
    alone: f64,
    operation: f64,
    send: f64,
}

/// Measures, simulates and shows both; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let wires = [Wire::Veth(9000), Wire::Veth(1500)];
    let wires = if plan.quick { &wires[..1] } else { &wires[..] };
    let mut text = plan.conditions()?;
    let mut panels = Vec::new();
    let mut points = 0;
    for wire in wires {
        let network = network(*wire)?;
        let servers = servers(plan, &network)?;
        let measured = curve(plan, &network, &servers, SIZE)?;
        drop(servers);
        let read_off = ReadOff::of(&measured).context("a curve without points")?;
        let simulated = simulated(&parts(*wire, read_off, &[])?, &depths(&measured))?;
        points += measured.points.len();
        text += &table(*wire, read_off, &measured, &simulated);
        panels.push(both(&measured, &simulated));
        if *wire == Wire::Veth(9000) {
            text += &thresholds(*wire, read_off, plan.quick)?;
        }
    }
    if plan.quick {
        println!("\n{text}");
        return Ok(points);
    }
    let file = "adaptive-nagle-simulated.svg";
    let chart = Chart {
        title: "Random reads of 512 B over iSCSI at 1 Gb/s".to_owned(),
        dashed: Some(("measured", "simulated")),
        panels,
        ..Chart::default()
    };
    draw(&plan.plot(file)?, &chart)?;
    let _ = writeln!(
        text,
        "\n![measured and simulated reads per second](figures/{file})"
    );
    plan.publish(SECTION, &text)?;
    Ok(points)
}

impl ReadOff {
    fn of(curve: &Curve) -> Option<Self> {
        let (first, last) = (curve.points.first()?, curve.points.last()?);
        let operation = last.cpu_us.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Self {
            alone: 1e6 / first.iops[0].median * f64::from(first.depth),
            operation,
            send: (last.cpu_us[0] - operation).max(0.0),
        })
    }
}

fn depths(curve: &Curve) -> Vec<u32> {
    curve.points.iter().map(|point| point.depth).collect()
}

/// The set-up, with changes of it.
fn parts(wire: Wire, read_off: ReadOff, changes: &[(&str, &str)]) -> Result<Parts> {
    let Wire::Veth(mtu) = wire else {
        anyhow::bail!("there is no wire to simulate");
    };
    // The client has the processor time of the server; what is left of a read that is alone wakes both up.
    let ReadOff {
        alone,
        operation,
        send,
    } = read_off;
    let wire_us = 5.0;
    let wake_up = ((alone - 2.0 * (operation + send) - wire_us) / 2.0).max(0.5);
    let values = [
        ("rate", "1 Gbit/s".to_owned()),
        ("mtu", mtu.to_string()),
        ("server-cpu-per-op", format!("{operation} us")),
        ("server-cpu-per-send", format!("{send} us")),
        ("client-cpu-per-op", format!("{operation} us")),
        ("client-cpu-per-send", format!("{send} us")),
        ("client-send", "batch".to_owned()),
        ("server-wake-up", format!("{wake_up} us")),
        ("client-wake-up", format!("{wake_up} us")),
    ];
    let changes = changes
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    let mut parts = Parts::default();
    for (name, value) in values.into_iter().chain(changes) {
        parts.change(name, &value, Source::Measured("this figure".to_owned()))?;
    }
    Ok(parts)
}

/// Operations a second under each policy, depth by depth.
fn simulated(parts: &Parts, depths: &[u32]) -> Result<Vec<[f64; 4]>> {
    let all = depths.iter().map(|depth| {
        let mut iops = [0.0; 4];
        for (iops, policy) in iops.iter_mut().zip(POLICIES) {
            *iops = under(parts, policy, *depth)?;
        }
        Ok(iops)
    });
    all.collect()
}

fn under(parts: &Parts, policy: &str, depth: u32) -> Result<f64> {
    let mut parts = parts.clone();
    let source = Source::Given("this figure".to_owned());
    parts.change("transmit", policy, source)?;
    let depth = u16::try_from(depth).context("a depth")?;
    Ok(simulate(&parts, SIZE.into(), depth, LENGTH).iops)
}

/// The depth from which one policy stays ahead of another.
fn crossover(depths: &[u32], ahead: impl Fn(usize) -> bool) -> String {
    let last = (0..depths.len()).rev().take_while(|at| ahead(*at)).last();
    last.map_or("never".to_owned(), |at| depths[at].to_string())
}

/// The depth from which a policy has 95 % of its peak.
fn knee(depths: &[u32], iops: &[f64]) -> u32 {
    let peak = iops.iter().copied().fold(0.0, f64::max);
    let first = iops.iter().position(|iops| *iops >= 0.95 * peak);
    first.map_or(0, |at| depths[at])
}

fn table(wire: Wire, read_off: ReadOff, curve: &Curve, simulated: &[[f64; 4]]) -> String {
    let depths = depths(curve);
    let measured: Vec<[f64; 4]> = curve
        .points
        .iter()
        .map(|point| point.iops.map(|figure| figure.median))
        .collect();
    let ReadOff {
        alone,
        operation,
        send,
    } = read_off;
    let mut text = format!(
        "**{}**. Read off: {alone:.1} µs for a read that is alone, {operation:.2} µs of the server's processor for a read, \
         {send:.2} µs for a send.\n\n| | measured | simulated |\n|---|---|---|\n",
        heading(wire)
    );
    let sides = [&measured[..], simulated];
    let mut row = |name: &str, of: &dyn Fn(&[[f64; 4]]) -> String| {
        let [one, other] = sides.map(of);
        let _ = writeln!(text, "| {name} | {one} | {other} |");
    };
    for (way, policy) in POLICIES.iter().enumerate() {
        let of = |all: &[[f64; 4]]| all.iter().map(|iops| iops[way]).collect::<Vec<_>>();
        row(&format!("peak of {policy}, /s"), &|all| {
            format!("{:.0}", of(all).into_iter().fold(0.0, f64::max))
        });
        row(&format!("{policy}: 95 % of it from depth"), &|all| {
            knee(&depths, &of(all)).to_string()
        });
    }
    row("nagle ahead of nodelay from depth", &|all| {
        crossover(&depths, |at| all[at][NAGLE] > all[at][0])
    });
    let leader = |iops: &[f64; 4]| (0..4).max_by(|a, b| iops[*a].total_cmp(&iops[*b]));
    let same = measured.iter().zip(simulated);
    let same = same
        .filter(|(one, other)| leader(one) == leader(other))
        .count();
    let _ = writeln!(
        text,
        "\nThe same policy is the fastest at {same} of {} depths.\n",
        depths.len()
    );
    text
}

/// Throughput under each threshold, by that of the better one of nodelay and nagle at each depth.
fn thresholds(wire: Wire, read_off: ReadOff, is_quick: bool) -> Result<String> {
    let mut text = "Simulated throughput of `adaptive-nagle` by threshold, divided by the better one of `nodelay` and `nagle`; mean \
         over depths:\n\n| change |"
        .to_owned();
    for threshold in THRESHOLDS {
        let _ = write!(text, " {threshold} |");
    }
    let _ = writeln!(text, " best |\n|{}", "---|".repeat(THRESHOLDS.len() + 2));
    let depths = if is_quick { &DEPTHS[..2] } else { DEPTHS };
    let changes = if is_quick {
        &CHANGES[..1]
    } else {
        &CHANGES[..]
    };
    for (name, changes) in changes {
        let parts = parts(wire, read_off, changes)?;
        let better = depths.iter().map(|depth| {
            let others = [
                under(&parts, "nodelay", *depth)?,
                under(&parts, "nagle", *depth)?,
            ];
            Ok(others[0].max(others[1]))
        });
        let better = better.collect::<Result<Vec<f64>>>()?;
        let mut means = Vec::new();
        for threshold in THRESHOLDS {
            let mut parts = parts.clone();
            let source = Source::Given("this figure".to_owned());
            parts.change("nagle-threshold", &threshold.to_string(), source)?;
            let mut sum = 0.0;
            for (depth, better) in depths.iter().zip(&better) {
                sum += under(&parts, "adaptive-nagle", *depth)? / better;
            }
            means.push(sum / better.len() as f64);
        }
        let most = means.iter().copied().fold(0.0, f64::max);
        let _ = write!(text, "| {name} |");
        for mean in &means {
            let _ = write!(text, " {mean:.3} |");
        }
        // What half a percent does not tell apart is as good.
        let best = THRESHOLDS.iter().zip(&means);
        let best = best.filter(|(_, mean)| **mean >= most - 0.005);
        let names: Vec<String> = best.map(|(threshold, _)| threshold.to_string()).collect();
        let _ = writeln!(text, " {} |", names.join(", "));
    }
    text.push('\n');
    Ok(text)
}

/// Measured curves, and simulated ones dashed.
fn both(measured: &Curve, simulated: &[[f64; 4]]) -> Panel {
    let mut panel = panel(measured);
    let dashed = POLICIES.iter().enumerate().map(|(way, policy)| Line {
        name: (*policy).to_owned(),
        colour: way,
        dashed: true,
        points: measured
            .points
            .iter()
            .zip(simulated)
            .map(|(point, iops)| (f64::from(point.depth), iops[way]))
            .collect(),
        ..Line::default()
    });
    panel.lines.extend(dashed);
    panel
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_OFF: ReadOff = ReadOff {
        alone: 30.0,
        operation: 0.5,
        send: 4.5,
    };

    #[test]
    fn the_simulation_of_what_was_read_off_has_its_latency_and_peak() {
        let parts = parts(Wire::Veth(9000), READ_OFF, &[]).unwrap();
        let all = simulated(&parts, &[1, 64]).unwrap();
        let alone = 1e6 / all[0][0];
        assert!((25.0..35.0).contains(&alone), "{alone}");
        // A read and its send take 5 µs of the server's processor.
        assert!((180e3..205e3).contains(&all[1][0]), "{:?}", all[1]);
        assert!(all[1][NAGLE] > all[1][0], "{:?}", all[1]);
    }

    #[test]
    fn knees_and_crossovers_are_depths() {
        let depths = [1, 2, 4, 8];
        assert_eq!(knee(&depths, &[10.0, 20.0, 39.0, 40.0]), 4);
        assert_eq!(crossover(&depths, |at| at > 1), "4");
        assert_eq!(crossover(&depths, |_| false), "never");
    }

    #[test]
    fn every_change_is_one_that_the_model_knows() {
        for (name, changes) in CHANGES {
            assert!(parts(Wire::Veth(1500), READ_OFF, changes).is_ok(), "{name}");
        }
    }
}
