//! The experiment of Adaptive Nagle (P-090 … P-104): reads per second by queue depth, under each transmit
//! policy, on loopback and over a wire of 1 Gb/s.
//!
//! Five servers run at a time, one for each policy and a second one under Nagle's, all on one processor and asleep but
//! for the one that has the load. What the two alike differ by is what chance makes of such a comparison.

pub mod model;
mod setup;
mod study;

use std::fmt::Write;

use anyhow::{Result, bail};
use longshore_bench::chart::{Axis, Chart, Line, Panel, Scale, draw, thousands};
use longshore_tests::server::Server;

use super::Plan;
use super::load::by_turns;
use super::network::{BITS_PER_SECOND, Network, Wire};
use crate::bench::load::Report;
use crate::bench::point::bytes;
use crate::bench::rounds::Figure;
use setup::{PORT, conditions, network, run_load, server};

/// What counts as even with the best, in the middle of the rounds.
const AT_THE_TOP: f64 = 0.97;

/// The policies, in the order of the paper; ours is the last.
const POLICIES: [&str; 4] = ["nodelay", "nagle", "adaptive-nagle", "auto"];
const NAGLE: usize = 1;
const OURS: usize = 3;
/// The second server under Nagle's algorithm.
const CONTROL: usize = POLICIES.len();

const SIZES: &[u32] = &[512, 1024, 1536, 2048, 4096];
const DEPTHS: &[u32] = &[
    1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256,
];
const WIRES: &[Wire] = &[Wire::Loopback, Wire::Veth(1500), Wire::Veth(9000)];

/// A point under all policies.
struct Point {
    depth: u32,
    iops: [Figure; 4],
    cpu_us: [f64; 4],
    /// Ours by the best of the others in the same round.
    ratio: Figure,
    /// The second server under Nagle's algorithm by the first.
    control: Figure,
}

/// All depths of a size.
struct Curve {
    size: u32,
    points: Vec<Point>,
}

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let selection = &plan.selection;
    let wires: Vec<Wire> = WIRES
        .iter()
        .copied()
        .filter(|wire| selection.wire.as_ref().is_none_or(|it| *it == wire.name()))
        .collect();
    if wires.is_empty() {
        bail!("--network is loopback, mtu-1500 or mtu-9000");
    }
    let wires = if plan.quick { &wires[..1] } else { &wires[..] };
    let mut points = 0;
    for wire in wires {
        points += match selection.study {
            true => study::run(plan, *wire)?,
            false => measure(plan, *wire)?,
        };
    }
    Ok(points)
}

fn measure(plan: &Plan, wire: Wire) -> Result<usize> {
    let network = network(wire)?;
    let servers = servers(plan, &network)?;
    let sizes: Vec<u32> = match (plan.selection.size, plan.quick) {
        (Some(size), _) => vec![size],
        (None, true) => vec![512],
        (None, false) => SIZES.to_vec(),
    };
    let mut curves = Vec::new();
    for size in sizes {
        curves.push(curve(plan, &network, &servers, size)?);
    }
    let mut text = plan.conditions()?;
    let _ = writeln!(text, "{}", conditions(wire));
    text += &table(&curves, wire);
    if plan.selection.size.is_none() && !plan.quick {
        let file = format!("adaptive-nagle-{}.svg", wire.name());
        let chart = Chart {
            title: format!("Random reads over iSCSI, {}", heading(wire)),
            panels: curves.iter().map(panel).collect(),
            ..Chart::default()
        };
        draw(&plan.plot(&file)?, &chart)?;
        let _ = writeln!(
            text,
            "\n![reads per second by queue depth, {}](figures/{file})",
            heading(wire)
        );
        plan.publish(&format!("transmit policies, {}", wire.name()), &text)?;
    } else {
        println!("\n{text}");
    }
    drop(servers);
    Ok(curves.iter().map(|curve| curve.points.len()).sum())
}

/// A server for each policy, and the second one under Nagle's algorithm.
fn servers(plan: &Plan, network: &Network) -> Result<Vec<Server>> {
    let policies = POLICIES.iter().chain([&POLICIES[NAGLE]]);
    let ports = policies.zip(PORT..);
    ports
        .map(|(policy, port)| server(plan, network, &[policy], port))
        .collect()
}

/// All depths of a size, under all policies.
fn curve(plan: &Plan, network: &Network, servers: &[Server], size: u32) -> Result<Curve> {
    let depths = if plan.quick { &[1, 32][..] } else { DEPTHS };
    let mut points = Vec::new();
    for depth in depths {
        let load = format!("--rw randread --bs {size} --iodepth {depth}");
        let all = by_turns(plan, servers.len(), |way| {
            run_load(plan, network, &servers[way], &load)
        })?;
        let point = Point::new(*depth, &all)?;
        println!("{}", point.in_one_line(size));
        points.push(point);
    }
    Ok(Curve { size, points })
}

/// The best of the others: the highest median. The best of each round would be the luckiest of three.
fn best(figures: &[Figure]) -> usize {
    let others = 0..OURS;
    others
        .max_by(|a, b| figures[*a].median.total_cmp(&figures[*b].median))
        .expect("there are others")
}

impl Point {
    fn new(depth: u32, all: &[Vec<Report>]) -> Result<Self> {
        let of = |place: &str, way: usize| -> Result<Vec<f64>> {
            all[way].iter().map(|report| report.number(place)).collect()
        };
        let iops = (0..all.len())
            .map(|way| of("/iops", way))
            .collect::<Result<Vec<_>>>()?;
        let mut cpu_us = [0.0; 4];
        for (way, cpu_us) in cpu_us.iter_mut().enumerate() {
            *cpu_us = Figure::of(of("/server_cpu_us_per_op", way)?).median;
        }
        let figures: Vec<Figure> = iops.iter().cloned().map(Figure::of).collect();
        let ratio = |one: usize, other: usize| {
            let rounds = iops[one].iter().zip(&iops[other]);
            Figure::of(rounds.map(|(one, other)| one / other).collect())
        };
        Ok(Self {
            depth,
            iops: std::array::from_fn(|way| figures[way]),
            cpu_us,
            ratio: ratio(OURS, best(&figures)),
            control: ratio(CONTROL, NAGLE),
        })
    }

    /// For watching a run.
    fn in_one_line(&self, size: u32) -> String {
        let mut line = format!("{:>7} QD {:3}", bytes(size), self.depth);
        for (way, policy) in POLICIES.iter().enumerate() {
            let _ = write!(
                line,
                "  {policy} {:>8.0} @ {:>5.2} µs",
                self.iops[way].median, self.cpu_us[way]
            );
        }
        let _ = write!(line, "  {:.2}", self.ratio.median);
        if !is_at_the_top(&self.ratio) {
            line += " BELOW";
        }
        line
    }
}

/// Whether one is at or above another: in some round it was, and in the middle of them it was hardly below.
fn is_at_the_top(ratio: &Figure) -> bool {
    ratio.largest >= 1.0 && ratio.median >= AT_THE_TOP
}

/// How the ratios of all points do: the least and its depth, the one in the middle, and how many points are below.
fn ratios(points: &[Point], ratio: impl Fn(&Point) -> Figure) -> String {
    let least = points
        .iter()
        .min_by(|a, b| ratio(a).median.total_cmp(&ratio(b).median))
        .expect("there are points");
    let medians = points.iter().map(|point| ratio(point).median).collect();
    let below = points.iter().filter(|point| !is_at_the_top(&ratio(point)));
    format!(
        " {:.2}, at {} | {:.2} | {} of {} |",
        ratio(least).median,
        least.depth,
        Figure::of(medians).median,
        below.count(),
        points.len()
    )
}

fn heading(wire: Wire) -> String {
    match wire {
        Wire::Loopback => "loopback".to_owned(),
        Wire::Veth(mtu) => format!("veth at 1 Gb/s, MTU {mtu}"),
    }
}

/// The part of the wire that so many reads per second take, with all headers: 48 bytes of Data-In, 52 of IP and TCP
/// in each packet, 38 of Ethernet around it (Models B.2).
fn share_of_wire(wire: Wire, size: u32, iops: f64) -> Option<f64> {
    let Wire::Veth(mtu) = wire else {
        return None;
    };
    let mtu = f64::from(mtu);
    let bytes = f64::from(size + 48) * (mtu + 38.0) / (mtu - 52.0);
    Some(iops * bytes * 8.0 / BITS_PER_SECOND)
}

/// For each size: the peaks, where Nagle overtakes, and how ours does.
fn table(curves: &[Curve], wire: Wire) -> String {
    let mut text = "| size | peak IOPS, nodelay | nagle | adaptive-nagle | auto | of the wire | nagle ahead of nodelay from QD | \
         CPU µs/op at QD 64, nodelay | nagle | adaptive-nagle | auto | auto / best of the others: least, at QD | median | \
         below it | nagle again / nagle: least, at QD | median | below it | worst spread |\n"
        .to_owned();
    text += &format!("|{}\n", "---|".repeat(18));
    for curve in curves {
        let points = &curve.points;
        let peak = |way: usize| {
            let medians = points.iter().map(|point| point.iops[way].median);
            medians.fold(0.0, f64::max)
        };
        let _ = write!(text, "| {} |", bytes(curve.size));
        for way in 0..POLICIES.len() {
            let _ = write!(text, " {:.0} |", peak(way));
        }
        match share_of_wire(wire, curve.size, peak(OURS)) {
            Some(share) => text += &format!(" {:.0} % |", share * 100.0),
            None => text += " – |",
        }
        match curve.crossover() {
            Some(depth) => text += &format!(" {depth} |"),
            None => text += " never |",
        }
        let deep = points.iter().find(|point| point.depth >= 64);
        for way in 0..POLICIES.len() {
            match deep {
                Some(point) => text += &format!(" {:.2} |", point.cpu_us[way]),
                None => text += " |",
            }
        }
        text += &ratios(points, |point| point.ratio);
        text += &ratios(points, |point| point.control);
        let spreads = points
            .iter()
            .flat_map(|point| point.iops.iter().map(Figure::spread));
        let _ = writeln!(text, " {:.0} % |", spreads.fold(0.0, f64::max) * 100.0);
    }
    text
}

impl Curve {
    /// The depth from which on Nagle is ahead of TCP_NODELAY at all further depths.
    fn crossover(&self) -> Option<u32> {
        let ahead = |point: &&Point| point.iops[1].median > point.iops[0].median;
        let last = self.points.iter().rev().take_while(ahead).last();
        last.map(|point| point.depth)
    }
}

fn panel(curve: &Curve) -> Panel {
    let lines = POLICIES.iter().enumerate().map(|(way, policy)| Line {
        name: (*policy).to_owned(),
        colour: way,
        points: curve
            .points
            .iter()
            .map(|point| (f64::from(point.depth), point.iops[way].median))
            .collect(),
        ..Line::default()
    });
    Panel {
        x: Axis {
            name: "queue depth".into(),
            scale: Scale::Doubling,
            label: |depth| format!("{depth:.0}"),
        },
        y: Axis {
            name: format!("reads of {} per second", bytes(curve.size)).into(),
            scale: Scale::Linear,
            label: thousands,
        },
        right: None,
        lines: lines.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(median: f64) -> Figure {
        Figure::of(vec![median * 0.95, median, median * 1.05])
    }

    fn point(depth: u32, iops: [f64; 4]) -> Point {
        Point {
            depth,
            iops: iops.map(figure),
            cpu_us: [1.0; 4],
            ratio: figure(iops[OURS] / iops[..OURS].iter().copied().fold(0.0, f64::max)),
            control: figure(1.0),
        }
    }

    #[test]
    fn nagle_overtakes_where_it_stays_ahead() {
        let mut curve = Curve {
            size: 512,
            points: vec![
                point(1, [10.0, 11.0, 10.0, 12.0]),
                point(2, [20.0, 10.0, 20.0, 20.0]),
                point(4, [20.0, 25.0, 20.0, 30.0]),
                point(8, [20.0, 30.0, 30.0, 40.0]),
            ],
        };
        assert_eq!(curve.crossover(), Some(4));
        curve.points.push(point(16, [20.0, 19.0, 19.0, 20.0]));
        assert_eq!(curve.crossover(), None);
    }

    #[test]
    fn at_the_top_in_one_round_and_hardly_below_in_the_middle() {
        assert!(is_at_the_top(&point(1, [100.0, 90.0, 90.0, 100.0]).ratio));
        assert!(is_at_the_top(&point(1, [100.0, 90.0, 90.0, 98.0]).ratio));
        // Some round was above, but the middle is not.
        assert!(!is_at_the_top(&point(1, [100.0, 90.0, 90.0, 96.0]).ratio));
        // The middle is hardly below, but no round reached it.
        let mut below = point(1, [100.0, 90.0, 90.0, 98.0]);
        below.ratio.largest = 0.99;
        assert!(!is_at_the_top(&below.ratio));
    }

    /// Models B.2: 221,004 reads of 512 B fill 1 Gb/s in packets of 9000 bytes.
    #[test]
    fn the_share_of_the_wire_is_that_of_the_model() {
        let share = share_of_wire(Wire::Veth(9000), 512, 221_004.0).unwrap();
        assert!((share - 1.0).abs() < 0.002, "{share}");
        assert_eq!(share_of_wire(Wire::Loopback, 512, 1.0), None);
    }

    #[test]
    fn the_table_tells_peaks_and_the_worst_ratio() {
        let curves = [Curve {
            size: 1536,
            points: vec![
                point(1, [10.0, 5.0, 10.0, 10.0]),
                point(64, [20.0, 40.0, 30.0, 80.0]),
            ],
        }];
        let table = table(&curves, Wire::Loopback);
        let last = table.lines().last().unwrap();
        assert!(
            last.starts_with("| 1.5 KiB | 20 | 40 | 30 | 80 | – | 64 | 1.00 |"),
            "{last}"
        );
        assert!(last.contains("| 1.00, at 1 | 2.00 | 0 of 2 |"), "{last}");
    }
}
