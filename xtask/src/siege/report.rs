//! What a campaign found, as text and as JSON, and the verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use longshore_bench::latency;
use longshore_bench::latency::Recorder;
use serde_json::{Value, json};

use super::ledger::{Wrong, WrongKind};
use super::plan::Step;
use super::plant::Plant;
use super::tally::{Deeds, Tally};
use crate::counts::Counts;

/// Wrong blocks that are shown of each phase.
const SHOWN: usize = 8;

/// What a host saw in a phase, under its name.
#[derive(Debug)]
pub struct HostReport {
    pub name: &'static str,
    pub tally: Tally,
}

/// A phase that has ended.
#[derive(Debug)]
pub struct Phase {
    pub step: Step,
    pub hosts: Vec<HostReport>,
    pub deeds: Deeds,
    /// Starts of the server, but for the first.
    pub restarts: u64,
    /// Blocks that were looked at beside the hosts' reads.
    pub checked: u64,
    pub wrong: Vec<Wrong>,
    pub crashes: Vec<String>,
    /// Why the server did not serve everything when the fault was over.
    pub unserved: Option<String>,
    /// Why the fault could not be made here.
    pub skipped: Option<String>,
}

/// Figures of one or several phases.
#[derive(Debug, Default, Clone, PartialEq)]
struct Figures {
    phases: u64,
    operations: u64,
    bytes: u64,
    attached: u64,
    not_attached: u64,
    lost_connections: u64,
    unanswered: u64,
    failures: u64,
    stuck: u64,
    restarts: u64,
    checked: u64,
    lost: u64,
    changed: u64,
    crashes: u64,
    unserved: u64,
    outage_ms: u64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
}

impl Phase {
    /// One that could not run.
    pub fn skipped(step: Step, why: String) -> Self {
        Self {
            step,
            hosts: Vec::new(),
            deeds: Deeds::default(),
            restarts: 0,
            checked: 0,
            wrong: Vec::new(),
            crashes: Vec::new(),
            unserved: None,
            skipped: Some(why),
        }
    }

    /// Whether it found what was planted.
    pub fn shows(&self, plant: Plant) -> bool {
        let figures = figures(&[self]);
        match plant {
            Plant::ChangedBlock => figures.changed > 0,
            Plant::LostWrite => figures.lost > 0,
            Plant::Crash => figures.crashes > 0,
        }
    }

    /// What it counts as.
    pub fn counts(&self) -> Counts {
        if self.skipped.is_some() {
            Counts::SKIPPED
        } else if figures(&[self]).is_sound() {
            Counts::PASSED
        } else {
            Counts::FAILED
        }
    }

    /// A line, and more where something is wrong.
    pub fn text(&self) -> String {
        let name = format!("{} on {}", self.step.fault.name(), self.step.engine);
        if let Some(why) = &self.skipped {
            return format!("SKIPPED siege {name}: {why}");
        }
        let figures = figures(&[self]);
        let word = if figures.is_sound() { "ok  " } else { "FAIL" };
        let mut text = format!("{word} siege {name}: {}", figures.line());
        let deeds: Vec<_> = self
            .deeds
            .0
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if !deeds.is_empty() {
            let _ = write!(text, "; {}", deeds.join(", "));
        }
        for wrong in self.wrong.iter().take(SHOWN) {
            let _ = write!(text, "\n     {wrong}");
        }
        for crash in &self.crashes {
            let _ = write!(text, "\n     crash: {crash}");
        }
        if let Some(why) = &self.unserved {
            let _ = write!(text, "\n     not served: {why}");
        }
        text
    }

    fn json(&self) -> Value {
        let hosts: Vec<Value> = self
            .hosts
            .iter()
            .map(|host| {
                let mut value = figures_of(&[&host.tally]).json();
                value["name"] = json!(host.name);
                value["errors"] = json!(host.tally.errors);
                value
            })
            .collect();
        let mut value = figures(&[self]).json();
        value["fault"] = json!(self.step.fault.name());
        value["engine"] = json!(self.step.engine);
        value["seconds"] = json!(self.step.length.as_secs_f64());
        value["hosts"] = json!(hosts);
        value["deeds"] = json!(self.deeds.0);
        let wrong: Vec<_> = self
            .wrong
            .iter()
            .take(SHOWN)
            .map(ToString::to_string)
            .collect();
        value["wrong"] = json!(wrong);
        value["crash_logs"] = json!(self.crashes);
        value["not_served"] = json!(self.unserved);
        value["skipped"] = json!(self.skipped);
        value
    }
}

impl Figures {
    /// Nothing lost, nothing changed, no crash, and everything served.
    fn is_sound(&self) -> bool {
        self.lost + self.changed + self.crashes + self.unserved + self.stuck == 0
    }

    fn line(&self) -> String {
        format!(
            "{} operations, p50 {}, p99 {}, p99.9 {}, longest outage {} ms; {} connections lost, {} refused, {} \
             operations failed; {} restarts; {} blocks checked, {} lost, {} changed; {} crashes",
            self.operations,
            time(self.p50_us),
            time(self.p99_us),
            time(self.p999_us),
            self.outage_ms,
            self.lost_connections,
            self.not_attached,
            self.failures,
            self.restarts,
            self.checked,
            self.lost,
            self.changed,
            self.crashes
        )
    }

    fn json(&self) -> Value {
        json!({
            "phases": self.phases, "operations": self.operations, "bytes": self.bytes,
            "attached": self.attached, "not_attached": self.not_attached,
            "lost_connections": self.lost_connections, "unanswered": self.unanswered,
            "failures": self.failures, "stuck": self.stuck, "restarts": self.restarts,
            "checked": self.checked, "lost": self.lost, "changed": self.changed,
            "crashes": self.crashes, "unserved": self.unserved, "outage_ms": self.outage_ms,
            "p50_us": self.p50_us, "p99_us": self.p99_us, "p999_us": self.p999_us,
        })
    }
}

fn figures_of(tallies: &[&Tally]) -> Figures {
    let mut figures = Figures::default();
    let mut all = latency::empty();
    for tally in tallies {
        figures.operations += tally.operations();
        figures.bytes += tally.bytes;
        figures.attached += tally.attached;
        figures.not_attached += tally.not_attached;
        figures.lost_connections += tally.lost_connections;
        figures.unanswered += tally.unanswered;
        figures.failures += tally.failures;
        figures.stuck += tally.stuck;
        let outage = u64::try_from(tally.outage.as_millis()).unwrap_or(u64::MAX);
        figures.outage_ms = figures.outage_ms.max(outage);
        latency::add(&mut all, &Recorder::finish(tally.latency.clone()));
    }
    let quantile = |quantile| all.value_at_quantile(quantile) / 1000;
    [figures.p50_us, figures.p99_us, figures.p999_us] = [0.5, 0.99, 0.999].map(quantile);
    figures
}

fn figures(phases: &[&Phase]) -> Figures {
    let tallies: Vec<&Tally> = phases
        .iter()
        .flat_map(|phase| &phase.hosts)
        .map(|host| &host.tally)
        .collect();
    let mut figures = figures_of(&tallies);
    let count = |wrong: &[Wrong], kind| {
        let count = wrong.iter().filter(|it| it.kind == kind).count();
        u64::try_from(count).expect("lengths fit 64 bits")
    };
    for phase in phases {
        figures.phases += u64::from(phase.skipped.is_none());
        figures.restarts += phase.restarts;
        figures.checked += phase.checked;
        figures.lost += count(&phase.wrong, WrongKind::Lost);
        figures.changed += count(&phase.wrong, WrongKind::Changed);
        figures.crashes += u64::try_from(phase.crashes.len()).expect("lengths fit 64 bits");
        figures.unserved += u64::from(phase.unserved.is_some());
    }
    figures
}

/// 850 µs, 12.3 ms.
fn time(us: u64) -> String {
    if us < 1000 {
        return format!("{us} µs");
    }
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

/// The table at the end: a row for each fault on each engine, and the sums.
pub fn text(phases: &[Phase], seed: u64) -> String {
    let mut rows: BTreeMap<_, Vec<&Phase>> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| phase.skipped.is_none()) {
        rows.entry((phase.step.fault, phase.step.engine))
            .or_default()
            .push(phase);
    }
    let mut text = format!(
        "seed {seed}\n\n| fault | engine | phases | operations | p50 | p99 | p99.9 | longest outage | connections lost | \
         refused | failed operations | restarts | blocks checked | lost | changed | crashes |\n|{}\n",
        "---|".repeat(16)
    );
    for ((fault, engine), phases) in &rows {
        row(&mut text, fault.name(), engine, &figures(phases));
    }
    let all: Vec<&Phase> = phases.iter().collect();
    row(&mut text, "all", "", &figures(&all));
    let mut deeds = Deeds::default();
    for phase in phases {
        deeds.join(&phase.deeds);
    }
    for (what, count) in &deeds.0 {
        let _ = writeln!(text, "{count} {what}");
    }
    text
}

fn row(text: &mut String, fault: &str, engine: &str, figures: &Figures) {
    let _ = writeln!(
        text,
        "| {fault} | {engine} | {} | {} | {} | {} | {} | {} ms | {} | {} | {} | {} | {} | {} | {} | {} |",
        figures.phases,
        figures.operations,
        time(figures.p50_us),
        time(figures.p99_us),
        time(figures.p999_us),
        figures.outage_ms,
        figures.lost_connections,
        figures.not_attached,
        figures.failures,
        figures.restarts,
        figures.checked,
        figures.lost,
        figures.changed,
        figures.crashes
    );
}

/// All phases, and their sums.
pub fn json(phases: &[Phase], seed: u64) -> Value {
    let all: Vec<&Phase> = phases.iter().collect();
    json!({
        "version": 1,
        "seed": seed,
        "sound": figures(&all).is_sound(),
        "all": figures(&all).json(),
        "phases": phases.iter().map(Phase::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::plan::Fault;
    use super::super::stamp::{Content, Found};
    use super::*;

    fn phase() -> Phase {
        let mut tally = Tally {
            reads: 1000,
            ..Tally::default()
        };
        for us in 1..=1000 {
            tally.latency.record(us * 1000);
        }
        Phase {
            hosts: vec![HostReport {
                name: "iSCSI",
                tally,
            }],
            checked: 100,
            skipped: None,
            ..Phase::skipped(
                Step {
                    fault: Fault::Kills,
                    engine: "epoll",
                    length: Duration::from_secs(4),
                    seed: 1,
                },
                String::new(),
            )
        }
    }

    fn wrong(kind: WrongKind) -> Wrong {
        Wrong {
            block: 7,
            kind,
            expected: Content::Write(3),
            found: Found::Damaged,
        }
    }

    #[test]
    fn nothing_wrong_passes_with_its_figures() {
        let phase = phase();
        assert_eq!(phase.counts(), Counts::PASSED);
        let document = json(&[phase], 5);
        assert_eq!(document["sound"], true);
        let hosts = &document["phases"][0]["hosts"][0];
        assert_eq!(hosts["operations"], 1000);
        assert!((499..=501).contains(&hosts["p50_us"].as_u64().unwrap()));
        assert!((989..=992).contains(&hosts["p99_us"].as_u64().unwrap()));
    }

    #[test]
    fn each_kind_of_finding_fails_a_phase_and_the_campaign() {
        let spoil: [fn(&mut Phase); 5] = [
            |it| it.wrong.push(wrong(WrongKind::Lost)),
            |it| it.wrong.push(wrong(WrongKind::Changed)),
            |it| it.crashes.push("ended by signal 11 unasked".to_owned()),
            |it| it.unserved = Some("no answer".to_owned()),
            |it| it.hosts[0].tally.stuck = 1,
        ];
        for spoil in spoil {
            let mut bad = phase();
            spoil(&mut bad);
            assert_eq!(bad.counts(), Counts::FAILED, "{}", bad.text());
            assert!(bad.text().starts_with("FAIL"));
            assert_eq!(json(&[phase(), bad], 5)["sound"], false);
        }
    }

    #[test]
    fn the_table_adds_phases_of_a_fault_up() {
        let text = text(&[phase(), phase()], 9);
        let row = text.lines().find(|line| line.contains("| kills | epoll |"));
        assert!(
            row.unwrap().starts_with("| kills | epoll | 2 | 2000 |"),
            "{text}"
        );
    }
}
