//! Whether the limit of a drawn set-up is named, and how far off predictions are at loads that were kept back.

use std::fmt::Write;

use anyhow::{Result, bail};
use longshore_model::identify;
use longshore_model::operation::Element;
use longshore_model::probe::{Direction, PointError, Probe};
use longshore_model::random::Random;
use longshore_model::verdict::{Verdict, verdict};

use super::super::Plan;
use super::draw::{Device, KINDS, Kind, Link, Load, SetUp};
use super::rig::{Net, Served};
use super::share::NO_SHARES;
use super::table::{cells, progress, say, summary};
use crate::bench::point::Protocol;
use crate::counts::Skipped;

const SECTION: &str = "netlab, limits";

/// Set-ups of a whole run.
const COUNT: usize = 102;

/// How long a probe takes.
const SECONDS: f64 = 15.0;
/// The same in a small run.
const SECONDS_QUICK: f64 = 6.0;

/// Errors that are listed, in percent.
const LARGE: f64 = 10.0;

/// How a limit was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Right,
    /// One of two that are called level.
    Level,
    /// Among those that may limit.
    NotTold,
    Wrong,
}

struct Row {
    kind: Kind,
    set_up: SetUp,
    named: Named,
    verdict: String,
    held: Vec<PointError>,
}

/// Measures all set-ups; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let mut random = Random::new(plan.netlab.seed());
    let set_ups: Vec<(Kind, SetUp)> = if plan.quick {
        plain()
    } else {
        let count = plan.netlab.count.unwrap_or(COUNT);
        let drawn = (0..count).map(|number| SetUp::draw(&mut random, number));
        drawn.collect::<Result<_>>()?
    };
    let seconds = if plan.quick { SECONDS_QUICK } else { SECONDS };
    let bar = progress("netlab", set_ups.len());
    let mut rows = Vec::new();
    for (kind, set_up) in set_ups {
        bar.set_message(set_up.to_string());
        bar.inc(1);
        match measure(plan, kind, set_up, seconds) {
            Ok(row) => {
                say(&bar, &row.line());
                rows.push(row);
            }
            Err(error) if is_no_share(&error) => say(&bar, &format!("left out: {error}")),
            Err(error) => return Err(error),
        }
    }
    bar.finish_and_clear();
    if plan.quick {
        // Each of these limits is a hundred times as slow as all else: a busy machine does not hide it.
        if let Some(wrong) = rows.iter().find(|row| row.named == Named::Wrong) {
            bail!("{}: named {}", wrong.set_up, wrong.verdict);
        }
        return Ok(rows.len());
    }
    let mut text = plan.machine()?;
    let _ = writeln!(
        text,
        "- {} set-ups, seed {}, a probe of {SECONDS} s each; server on processor 0, client on processor 1\n",
        rows.len(),
        plan.netlab.seed()
    );
    text += &table(&rows);
    plan.publish(SECTION, &text)?;
    Ok(rows.len())
}

/// Containers may not take processors away from others.
fn is_no_share(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Skipped(reason)) if reason == NO_SHARES)
}

fn measure(plan: &Plan, kind: Kind, set_up: SetUp, seconds: f64) -> Result<Row> {
    let net = Net::new(&set_up.link)?;
    let served = Served::start(plan, &net, &set_up, 0, 256)?;
    let Load {
        direction,
        size,
        depth,
    } = set_up.load;
    let writes = direction == Direction::Write;
    let probe = served.probe(plan, seconds, writes, kind == Kind::Processor)?;
    let parts = identify::parts(&probe, direction)?.parts;
    let verdict = verdict(&parts, size.into(), depth);
    let truth = set_up.truth()?;
    Ok(Row {
        kind,
        named: judge(&verdict, &truth),
        verdict: in_words(&verdict),
        held: held(&probe, direction),
        set_up,
    })
}

/// Errors at loads that were kept back.
pub(super) fn held(probe: &Probe, direction: Direction) -> Vec<PointError> {
    let fitted = match direction {
        Direction::Read => &probe.fitted,
        Direction::Write => &probe.fitted_writes,
    };
    fitted
        .as_ref()
        .map(|it| it.held.clone())
        .unwrap_or_default()
}

/// Errors of operations a second and of mean latency.
pub(super) fn both(errors: &[PointError]) -> impl Iterator<Item = f64> {
    errors
        .iter()
        .flat_map(|it| [it.iops_percent, it.latency_percent])
}

/// Holds a verdict against the elements that limit, with those that are level.
fn judge(verdict: &Verdict, truth: &[Element]) -> Named {
    match verdict {
        Verdict::Limit(limit) if truth.contains(&limit.element) => Named::Right,
        Verdict::Level(one, other)
            if truth.contains(&one.element) && truth.contains(&other.element) =>
        {
            Named::Right
        }
        Verdict::Level(one, other)
            if truth.contains(&one.element) || truth.contains(&other.element) =>
        {
            Named::Level
        }
        Verdict::CannotTell(elements) if elements.iter().any(|it| truth.contains(it)) => {
            Named::NotTold
        }
        _ => Named::Wrong,
    }
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Limit(limit) => limit.name(),
        Verdict::Level(one, other) => format!("{} and {}, level", one.name(), other.name()),
        Verdict::CannotTell(elements) => {
            let names: Vec<&str> = elements.iter().map(|it| it.name()).collect();
            format!("one of {}", names.join(", "))
        }
    }
}

impl Named {
    fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Level => "level",
            Self::NotTold => "not told",
            Self::Wrong => "WRONG",
        }
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Iscsi => "iSCSI",
        Protocol::Nvme => "NVMe/TCP",
    }
}

impl Row {
    fn line(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {} |{}",
            protocol(self.set_up.protocol),
            self.kind.name(),
            self.set_up,
            self.verdict,
            self.named.name(),
            cells(summary(both(&self.held)))
        )
    }

    fn is_noticed(&self) -> bool {
        let worst = summary(both(&self.held)).map_or(0.0, |it| it[2]);
        self.named >= Named::Level || self.kind.is_judged() && worst > LARGE
    }
}

/// Counts by kind, errors, and what went wrong.
fn table(rows: &[Row]) -> String {
    let mut text = "| limit in truth | set-ups | right | level | not told | wrong | error at loads kept back, %: median | \
         nine tenths within | worst |\n"
        .to_owned();
    text += &format!("|{}\n", "---|".repeat(9));
    let line = |text: &mut String, name: &str, rows: &[&Row]| {
        let count = |named| rows.iter().filter(|row| row.named == named).count();
        let errors = summary(rows.iter().flat_map(|row| both(&row.held)));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |{}",
            rows.len(),
            count(Named::Right),
            count(Named::Level),
            count(Named::NotTold),
            count(Named::Wrong),
            cells(errors)
        );
    };
    for kind in KINDS {
        let own: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        if !own.is_empty() {
            line(&mut text, kind.name(), &own);
        }
    }
    let judged: Vec<&Row> = rows.iter().filter(|row| row.kind.is_judged()).collect();
    line(&mut text, "**rate, delay or device**", &judged);
    line(&mut text, "**all**", &rows.iter().collect::<Vec<_>>());
    text += "\nSet-ups whose limit was not named right, or with an error beyond 10 %:\n\n\
             | protocol | limit | set-up | named | | median, % | nine tenths, % | worst, % |\n";
    text += &format!("|{}\n", "---|".repeat(8));
    for row in rows.iter().filter(|row| row.is_noticed()) {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

/// Set-ups of a small run, each with one limit far beyond all others.
fn plain() -> Vec<(Kind, SetUp)> {
    let fast = SetUp::plain(Protocol::Iscsi).link;
    let set_up = |protocol, link, delay_us, size| {
        let base = SetUp::plain(protocol);
        SetUp {
            link,
            device: Device { delay_us, rate: 0 },
            load: Load { size, ..base.load },
            ..base
        }
    };
    let slow = Link {
        rate: 10,
        burst: 8 << 10,
        ..fast
    };
    let far = Link {
        delay_us: 20_000,
        ..fast
    };
    vec![
        (Kind::Link, set_up(Protocol::Iscsi, slow, 0, 64 << 10)),
        (Kind::Way, set_up(Protocol::Nvme, far, 0, 4096)),
        (
            Kind::DeviceTime,
            set_up(Protocol::Iscsi, fast, 40_000, 4096),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_model::bounds::{Limit, LimitKind};

    fn limit(element: Element) -> Limit {
        Limit {
            element,
            kind: LimitKind::Capacity,
            iops: 1.0,
        }
    }

    #[test]
    fn what_is_not_told_is_not_right_and_a_limit_that_is_none_is_wrong() {
        use Element::{Distance, ResponseWire, Storage};
        let truth = [Storage, Distance];
        let of = |verdict| judge(&verdict, &truth);
        assert_eq!(of(Verdict::Limit(limit(Distance))), Named::Right);
        assert_eq!(of(Verdict::Limit(limit(ResponseWire))), Named::Wrong);
        let level = |other| Verdict::Level(limit(Storage), limit(other));
        assert_eq!(of(level(Distance)), Named::Right);
        assert_eq!(of(level(ResponseWire)), Named::Level);
        let told = |other| Verdict::CannotTell(vec![ResponseWire, other]);
        assert_eq!(of(told(Storage)), Named::NotTold);
        assert_eq!(of(told(Element::ServerProcessor)), Named::Wrong);
    }

    #[test]
    fn plain_set_ups_have_the_limit_that_they_are_named_for() {
        for (kind, set_up) in plain() {
            let truth = set_up.truth().unwrap();
            assert_eq!(truth.len(), 1, "{} {truth:?}", kind.name());
        }
    }

    #[test]
    fn the_table_counts_by_kind_and_lists_what_is_wrong() {
        let row = |named, error| {
            let (kind, set_up) = plain().remove(0);
            let held = vec![PointError {
                iops_percent: error,
                latency_percent: -error,
                ..PointError::default()
            }];
            let verdict = "storage".to_owned();
            Row {
                kind,
                set_up,
                named,
                verdict,
                held,
            }
        };
        let text = table(&[
            row(Named::Right, 1.0),
            row(Named::Wrong, 2.0),
            row(Named::Right, 12.0),
        ]);
        assert!(
            text.contains("| rate of the link | 3 | 2 | 0 | 0 | 1 | 2.0 | 12.0 | 12.0 |"),
            "{text}"
        );
        assert_eq!(text.matches("10 Mbit/s").count(), 2, "{text}");
    }
}
