//! Predictions of loads that were kept back where processors limit: over loopback, beside the spread of repeated
//! measurements of the same loads.

use std::fmt::Write;

use anyhow::Result;
use longshore_model::probe::{Direction, PointError, Probe};

use super::super::Plan;
use super::draw::SetUp;
use super::limits::{both, held};
use super::rig::{Net, Served};
use super::table::{cells, progress, summary};
use crate::bench::point::Protocol;

const SECTION: &str = "netlab, loopback";

/// Probes of each server.
const PROBES: usize = 5;
const SECONDS: f64 = 20.0;
const SECONDS_QUICK: f64 = 2.0;

/// Measures both protocols; how many probes there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let (count, seconds) = if plan.quick {
        (1, SECONDS_QUICK)
    } else {
        (PROBES, SECONDS)
    };
    let protocols = [("iSCSI", Protocol::Iscsi), ("NVMe/TCP", Protocol::Nvme)];
    let bar = progress("netlab, loopback", count * protocols.len());
    let mut text = plan.machine()?;
    let _ = writeln!(
        text,
        "- {count} probes of {seconds} s each; server on processor 0, client on processor 1\n\n\
         | | error at loads kept back, %: median | nine tenths within | worst | a load differs between probes, %: median | \
         nine tenths within | worst |\n|{}",
        "---|".repeat(7)
    );
    for (name, protocol) in protocols {
        let net = Net::loopback()?;
        let served = Served::start(plan, &net, &SetUp::plain(protocol), 0, 256)?;
        let mut probes = Vec::new();
        for _ in 0..count {
            bar.set_message(name);
            probes.push(served.probe(plan, seconds, true, true)?);
            bar.inc(1);
        }
        for (what, direction) in [("reads", Direction::Read), ("writes", Direction::Write)] {
            let all = probes.iter().flat_map(|probe| held(probe, direction));
            let errors: Vec<PointError> = all.collect();
            let _ = writeln!(
                text,
                "| {name}, {what} |{}{}",
                cells(summary(both(&errors))),
                cells(summary(differences(&probes, direction)))
            );
        }
    }
    bar.finish_and_clear();
    if plan.quick {
        println!("\n{text}");
    } else {
        plan.publish(SECTION, &text)?;
    }
    Ok(count * protocols.len())
}

/// How far the loads that were kept back are from the mean of all probes, in percent.
fn differences(probes: &[Probe], direction: Direction) -> Vec<f64> {
    let Some(first) = probes.first().filter(|_| probes.len() > 1) else {
        return Vec::new();
    };
    let places = held(first, direction).into_iter().map(|error| error.point);
    let of_place = |place: usize| {
        let values = probes.iter().filter_map(|probe| probe.points.get(place));
        let values: Vec<f64> = values.map(|point| point.iops.value).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values
            .into_iter()
            .map(move |value| 100.0 * (value / mean - 1.0))
    };
    places.flat_map(of_place).collect()
}
