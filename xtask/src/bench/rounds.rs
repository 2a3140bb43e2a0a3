//! One comparison: the load goes to one side and the other by turns.

use anyhow::{Context, Result};

use super::Plan;
use super::bounds::SPAN;
use super::load::{Report, bench, words};
use super::point::Point;

/// One side of a comparison: a volume of a running server.
pub struct Side {
    /// What tables call it.
    pub name: &'static str,
    pub url: String,
    /// Process identifier of the server under test.
    pub pid: u32,
}

/// What one run of the load generator saw.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub iops: f64,
    pub cpu_us: f64,
    /// What of it the server spent in the kernel; nothing where a run was too short for the kernel to tell.
    pub system_us: Option<f64>,
    pub p99_us: f64,
}

/// The median of some rounds, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    pub median: f64,
    pub smallest: f64,
    pub largest: f64,
}

/// A point with what all rounds gave, of both sides.
pub struct Row {
    pub point: Point,
    /// Of each round: the first side, the second.
    rounds: Vec<[Sample; 2]>,
}

impl Figure {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            smallest: values[0],
            largest: values[values.len() - 1],
        }
    }

    /// (largest − smallest) / median.
    pub fn spread(&self) -> f64 {
        (self.largest - self.smallest) / self.median
    }
}

/// Measures a point on both sides.
pub fn measure(plan: &Plan, point: Point, sides: [&Side; 2]) -> Result<Row> {
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        let load = |side: usize| sample(plan, point, sides[side]);
        // Who is second finds the machine as the first has left it, so they change places.
        rounds.push(if round % 2 == 0 {
            let first = load(0)?;
            [first, load(1)?]
        } else {
            let second = load(1)?;
            [load(0)?, second]
        });
    }
    let row = Row { point, rounds };
    println!("{}", row.in_one_line(sides));
    Ok(row)
}

fn sample(plan: &Plan, point: Point, side: &Side) -> Result<Sample> {
    let options = format!("--time {}s --server-pid {}", plan.seconds, side.pid);
    let report = load(plan, point, &side.url, &options)
        .with_context(|| format!("{} on {}", point.name(), side.name))?;
    Ok(Sample {
        iops: report.number("/iops")?,
        cpu_us: report.number("/server_cpu_us_per_op")?,
        system_us: report.number("/server_system_us_per_op").ok(),
        p99_us: report.number("/latency_ns/p99")? / 1e3,
    })
}

/// Runs the load of a point: random places, unless `options` say otherwise.
pub fn load(plan: &Plan, point: Point, url: &str, options: &str) -> Result<Report> {
    let order = if options.contains("--rw ") {
        String::new()
    } else {
        format!("--rw rand{}", point.operation)
    };
    let digest = if point.data_digest {
        "--data-digest crc32c"
    } else {
        ""
    };
    // Without flow control of NVMe submission queues reads end with their data.
    let all = format!(
        "--bs {} --iodepth {} --span {SPAN} --flow-control off {digest} {order} {options}",
        point.size, point.depth
    );
    bench(&plan.client, url, &words(&all))
}

impl Row {
    /// One figure of one side.
    pub fn figure(&self, side: usize, value: fn(&Sample) -> f64) -> Figure {
        let of_side = self.rounds.iter().map(|round| value(&round[side]));
        Figure::of(of_side.collect())
    }

    /// Second side / first side, round by round: what both had in common falls out.
    pub fn ratio(&self, value: fn(&Sample) -> f64) -> Figure {
        let ratio = |[first, second]: &[Sample; 2]| value(second) / value(first);
        Figure::of(self.rounds.iter().map(ratio).collect())
    }

    /// The largest spread of IOPS and processor time of both sides.
    pub fn worst_spread(&self) -> f64 {
        let values: [fn(&Sample) -> f64; 2] = [|s| s.iops, |s| s.cpu_us];
        let spreads = values
            .iter()
            .flat_map(|&value| [0, 1].map(|side| self.figure(side, value).spread()));
        spreads.fold(0.0, f64::max)
    }

    /// Processor time of one side in the program and in the kernel: means of the rounds that tell, as the kernel tells
    /// the parts of a short run in few steps.
    pub fn parts(&self, side: usize) -> Option<[f64; 2]> {
        let parts = self.rounds.iter().filter_map(|round| {
            let Sample {
                cpu_us, system_us, ..
            } = round[side];
            system_us.map(|system_us| [cpu_us - system_us, system_us])
        });
        let parts: Vec<[f64; 2]> = parts.collect();
        let mean = |part: usize| {
            let sum: f64 = parts.iter().map(|parts| parts[part]).sum();
            sum / parts.len() as f64
        };
        (!parts.is_empty()).then(|| [mean(0), mean(1)])
    }

    /// For watching a run.
    fn in_one_line(&self, sides: [&Side; 2]) -> String {
        let mut line = format!("{:30}", self.point.name());
        for (side, Side { name, .. }) in sides.iter().enumerate() {
            let iops = self.figure(side, |s| s.iops).median;
            let cpu_us = self.figure(side, |s| s.cpu_us).median;
            line += &format!(" {name} {iops:>8.0} @ {cpu_us:>7.2} µs  ");
        }
        line
    }
}

/// IOPS, processor time and latency of both sides, by medians.
pub fn side_by_side(rows: &[Row], first: &str, second: &str) -> String {
    let mut table = format!(
        "| volume | operation | QD | IOPS, {first} | {second} | ratio | CPU µs/op, {first} | {second} \
         | {second}/{first} | p99 µs, {first} | {second} | spread |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let both = |value| [0, 1].map(|side| row.figure(side, value).median);
        let iops = both(|s| s.iops);
        let cpu_us = both(|s| s.cpu_us);
        let p99_us = both(|s| s.p99_us);
        table += &format!(
            "{} {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} % |\n",
            row.point.cells(),
            iops[0],
            iops[1],
            iops[0] / iops[1],
            cpu_us[0],
            cpu_us[1],
            cpu_us[1] / cpu_us[0],
            p99_us[0],
            p99_us[1],
            row.worst_spread() * 100.0
        );
    }
    table
}

/// Where both sides spend their processor time, and what cycles that is of a processor with so many MHz.
pub fn user_and_kernel(rows: &[Row], mhz: Option<f64>, first: &str, second: &str) -> String {
    let mut table = format!(
        "| volume | operation | QD | {first}, µs/op in the server | in the kernel | kernel's share | cycles \
         | {second}, in the server | in the kernel | kernel's share | cycles |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        table += &row.point.cells();
        for side in [0, 1] {
            let Some([user, kernel]) = row.parts(side) else {
                table += " – | – | – | – |";
                continue;
            };
            let all = user + kernel;
            let share = kernel / all * 100.0;
            let cycles = mhz.map_or("–".to_owned(), |mhz| format!("{:.0}", all * mhz));
            table += &format!(" {user:.2} | {kernel:.2} | {share:.0} % | {cycles} |");
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::point;

    fn row(iops: &[(f64, f64)]) -> Row {
        let sample = |iops| Sample {
            iops,
            cpu_us: 1.0,
            system_us: Some(0.75),
            p99_us: 9.0,
        };
        Row {
            point: point::protocols(true)[0],
            rounds: iops.iter().map(|&(a, b)| [sample(a), sample(b)]).collect(),
        }
    }

    #[test]
    fn what_hits_both_sides_of_a_round_leaves_the_ratio_alone() {
        let row = row(&[(100.0, 200.0), (50.0, 100.0), (80.0, 160.0)]);
        let two = Figure {
            median: 2.0,
            smallest: 2.0,
            largest: 2.0,
        };
        assert_eq!(row.ratio(|s| s.iops), two);
        assert!((row.worst_spread() - 0.625).abs() < 1e-9);
    }

    #[test]
    fn tables_show_medians_of_both_sides() {
        let table = side_by_side(&[row(&[(300.0, 100.0)])], "NVMe", "iSCSI");
        let last = table.lines().last().unwrap();
        assert_eq!(
            last,
            "| null | read 4 KiB | 32 | 300 | 100 | 3.00 | 1.00 | 1.00 | 1.0 | 9 | 9 | 0 % |"
        );
    }

    #[test]
    fn parts_of_processor_time_are_means_and_add_up() {
        let mut row = row(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]);
        row.rounds[1][0].system_us = Some(0.25);
        row.rounds[2][0].system_us = None;
        let table = user_and_kernel(&[row], Some(2000.0), "NVMe", "iSCSI");
        let last = table.lines().last().unwrap();
        assert_eq!(
            last,
            "| null | read 4 KiB | 32 | 0.50 | 0.50 | 50 % | 2000 | 0.25 | 0.75 | 75 % | 2000 |"
        );
    }

    #[test]
    fn runs_that_are_too_short_to_tell_leave_cells_empty() {
        let mut row = row(&[(1.0, 1.0)]);
        row.rounds[0][1].system_us = None;
        let table = user_and_kernel(&[row], None, "NVMe", "iSCSI");
        let last = table.lines().last().unwrap();
        assert_eq!(
            last,
            "| null | read 4 KiB | 32 | 0.25 | 0.75 | 75 % | – | – | – | – | – |"
        );
    }
}
