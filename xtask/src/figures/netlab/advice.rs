//! Advice that is followed: the predicted gain beside the one that is measured.
//!
//! A set-up is drawn in which a setting is small. It is probed, and the change is made as advised. Servers with the
//! setting as it was and as advised run side by side, and the load goes to both by turns.

use std::fmt::Write;

use anyhow::{Context, Result};
use longshore_model::advice::{Goal, Item, advise};
use longshore_model::parameter::{Key, Parts, Source};
use longshore_model::probe::Direction;
use longshore_model::random::Random;

use super::super::Plan;
use super::super::load::by_turns;
use super::draw::{Device, Link, Load, Rules, SetUp, between, one_of};
use super::rig::{Net, Served};
use super::table::{progress, say, summary};
use crate::bench::point::Protocol;
use crate::bench::rounds::Figure;

const SECTION: &str = "netlab, advice";

/// Set-ups of each kind of advice.
const EACH: usize = 6;
const SECONDS: f64 = 20.0;
/// The load, each round.
const LOAD_SECONDS: f64 = 2.0;

/// Advice whose change can be made here.
const IDS: [&str; 5] = [
    "outstanding-r2ts",
    "first-burst",
    "max-burst",
    "in-capsule-data",
    "depth",
];

struct Row {
    id: &'static str,
    set_up: SetUp,
    predicted: [f64; 3],
    achieved: f64,
    spread: f64,
}

/// Measures all set-ups; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let mut random = Random::named(plan.netlab.seed(), SECTION);
    let (each, seconds) = if plan.quick {
        (1, 4.0)
    } else {
        (EACH, SECONDS)
    };
    let ids = if plan.quick { &IDS[..1] } else { &IDS[..] };
    let bar = progress("netlab, advice", each * ids.len());
    let plan = &plan.lasting(if plan.quick { 0.5 } else { LOAD_SECONDS });
    let mut rows = Vec::new();
    let mut without = Vec::new();
    for number in 0..each {
        for id in ids {
            let set_up = draw(&mut random, id);
            bar.set_message(format!("{id}: {set_up}"));
            match measure(plan, id, &set_up, seconds)? {
                Some(row) => {
                    say(&bar, &row.line());
                    rows.push(row);
                }
                None => without.push(format!("{id}: {set_up}")),
            }
            bar.inc(1);
        }
        bar.set_prefix(format!("netlab, advice {}", number + 2));
    }
    bar.finish_and_clear();
    let mut text = plan.machine()?;
    let _ = writeln!(
        text,
        "- seed {}; probes of {seconds} s, {} rounds of {} s by turns\n\n\
         | advice | set-up | predicted gain, % | nine tenths | achieved, % | spread, % | difference, points |\n|{}",
        plan.netlab.seed(),
        plan.rounds,
        plan.seconds,
        "---|".repeat(7)
    );
    for row in &rows {
        let _ = writeln!(text, "{}", row.line());
    }
    let near = rows
        .iter()
        .filter(|row| row.difference().abs() <= 10.0)
        .count();
    let sign = rows
        .iter()
        .filter(|row| row.predicted[1] * row.achieved > 0.0)
        .count();
    let _ = writeln!(
        text,
        "\nWithin 10 points: {near} of {}; sign right: {sign}.",
        rows.len()
    );
    if let Some([median, _, worst]) = summary(rows.iter().map(Row::difference)) {
        let _ = writeln!(
            text,
            "Median difference {median:.1} points, worst {worst:.1}."
        );
    }
    for set_up in without {
        let _ = writeln!(text, "No such advice for {set_up}.");
    }
    if plan.quick {
        println!("\n{text}");
    } else {
        plan.publish(SECTION, &text)?;
    }
    Ok(rows.len())
}

fn draw(random: &mut Random, id: &str) -> SetUp {
    let nvme = id == "in-capsule-data" || id == "depth" && random.bits() % 2 == 1;
    let base = SetUp::plain(if nvme {
        Protocol::Nvme
    } else {
        Protocol::Iscsi
    });
    let (direction, size) = match id {
        "depth" => (Direction::Read, 4 << 10),
        "in-capsule-data" => (Direction::Write, one_of(random, &[16 << 10, 64 << 10])),
        _ => (Direction::Write, one_of(random, &[512 << 10, 1 << 20])),
    };
    SetUp {
        link: Link {
            rate: between(random, 100.0, 600.0),
            delay_us: between(random, 500.0, 6000.0),
            mtu: 9000,
            burst: 32 << 10,
            ..base.link
        },
        device: Device {
            delay_us: one_of(random, &[0, 500]),
            rate: 0,
        },
        rules: Rules {
            max_burst: if id == "max-burst" {
                64 << 10
            } else {
                one_of(random, &[64 << 10, 128 << 10])
            },
            ..base.rules
        },
        load: Load {
            direction,
            size,
            depth: 1,
        },
        ..base
    }
}

/// None: there is no such advice.
fn measure(plan: &Plan, id: &'static str, set_up: &SetUp, seconds: f64) -> Result<Option<Row>> {
    let net = Net::new(&set_up.link)?;
    let before = Served::start(plan, &net, set_up, 0, 256)?;
    let writes = set_up.load.direction == Direction::Write;
    let probe = before.probe(plan, seconds, writes, false)?;
    let goal = Goal {
        direction: set_up.load.direction,
        size_bytes: set_up.load.size.into(),
        depth: set_up.load.depth,
        in_order: false,
        beside: None,
    };
    let advice = advise(&probe, &goal)?;
    let Some(item) = advice.items.into_iter().find(|it| it.id == id) else {
        return Ok(None);
    };
    let changed = follow(set_up, &item)?;
    let after = Served::start(plan, &net, &changed, 1, 256)?;
    let sides = [(&before, set_up), (&after, &changed)];
    let mut all = by_turns(plan, sides.len(), |side| {
        let (served, set_up) = sides[side];
        let options = format!(
            "{} --time {}s --warmup 200ms",
            set_up.load.options(),
            plan.seconds
        );
        served.bench(plan, &options)?.number("/iops")
    })?;
    let (fast, slow) = (all.pop(), all.pop());
    let [slow, fast] = [slow, fast].map(|all| Figure::of(all.unwrap_or_default()));
    let gain = item.gain_percent;
    Ok(Some(Row {
        id,
        set_up: set_up.clone(),
        predicted: [gain.low, gain.value, gain.high],
        achieved: 100.0 * (fast.median / slow.median - 1.0),
        spread: 100.0 * slow.spread().hypot(fast.spread()),
    }))
}

/// The set-up with the changes of a piece of advice.
fn follow(set_up: &SetUp, item: &Item) -> Result<SetUp> {
    let mut changed = set_up.clone();
    for (name, value) in &item.changes {
        if name == "depth" {
            changed.load.depth = value.parse().context("a depth")?;
            continue;
        }
        let mut parts = Parts::default();
        parts.change(name, value, Source::Given("advice".to_owned()))?;
        let number = |key| -> Result<u32> {
            let text = format!("{:.0}", parts.get(key));
            text.parse().with_context(|| format!("{name} = {value}"))
        };
        let rules = &mut changed.rules;
        match name.as_str() {
            "max-outstanding-r2t" => rules.outstanding = number(Key::MaxOutstandingR2t)?,
            "first-burst" => rules.first_burst = number(Key::FirstBurst)?,
            "max-burst" => rules.max_burst = number(Key::MaxBurst)?,
            "in-capsule-data" => rules.in_capsule = number(Key::InCapsule)?,
            // It is so by default.
            "initial-r2t" => {}
            other => anyhow::bail!("no way to set {other}"),
        }
    }
    Ok(changed)
}

impl Row {
    fn difference(&self) -> f64 {
        self.predicted[1] - self.achieved
    }

    fn line(&self) -> String {
        let [low, value, high] = self.predicted;
        format!(
            "| {} | {} | {value:+.0} | {low:+.0} to {high:+.0} | {:+.0} | {:.0} | {:+.1} |",
            self.id,
            self.set_up,
            self.achieved,
            self.spread,
            self.difference()
        )
    }
}
