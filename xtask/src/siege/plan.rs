//! Which faults befall the server, in which order: a function of the seed.

use std::time::Duration;

use longshore_tests::random::Random;

/// The shortest phase that is worth a start of the server.
const SHORTEST: Duration = Duration::from_secs(4);

/// The longest: many changes find more than long ones.
const LONGEST: Duration = Duration::from_secs(20);

/// For the start of the server and the look at all blocks, beside each phase.
const BETWEEN: Duration = Duration::from_millis(1500);

/// What befalls the server in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing, to compare with.
    Calm,
    Garbage,
    MadSessions,
    Flood,
    StalledLogins,
    NeverMove,
    Flips,
    Cuts,
    Stalls,
    Kills,
    Restarts,
    Pauses,
    FullDisk,
    SlowDisk,
    Descriptors,
    Memory,
    Clock,
    /// Several of the others at a time.
    Storm,
}

impl Fault {
    pub const ALL: [Self; 18] = [
        Self::Calm,
        Self::Garbage,
        Self::MadSessions,
        Self::Flood,
        Self::StalledLogins,
        Self::NeverMove,
        Self::Flips,
        Self::Cuts,
        Self::Stalls,
        Self::Kills,
        Self::Restarts,
        Self::Pauses,
        Self::FullDisk,
        Self::SlowDisk,
        Self::Descriptors,
        Self::Memory,
        Self::Clock,
        Self::Storm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Garbage => "garbage",
            Self::MadSessions => "mad-sessions",
            Self::Flood => "flood",
            Self::StalledLogins => "stalled-logins",
            Self::NeverMove => "never-move",
            Self::Flips => "flips",
            Self::Cuts => "cuts",
            Self::Stalls => "stalls",
            Self::Kills => "kills",
            Self::Restarts => "restarts",
            Self::Pauses => "pauses",
            Self::FullDisk => "full-disk",
            Self::SlowDisk => "slow-disk",
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
            Self::Clock => "clock",
            Self::Storm => "storm",
        }
    }

    /// Whether hosts come through relays.
    pub fn needs_network(self) -> bool {
        matches!(self, Self::Flips | Self::Cuts | Self::Stalls | Self::Storm)
    }
}

/// The event loop's engines.
pub const ENGINES: [&str; 2] = ["io_uring", "epoll"];

/// A phase of the campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub fault: Fault,
    pub engine: &'static str,
    pub length: Duration,
    /// For everything random in it.
    pub seed: u64,
}

/// The phases of a campaign of this length: each fault on each engine, shuffled, as often as there is time for. In a short
/// one, as many as there is time for.
pub fn steps(faults: &[Fault], length: Duration, seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let pairs: Vec<(Fault, &'static str)> = faults
        .iter()
        .flat_map(|fault| ENGINES.map(|engine| (*fault, engine)))
        .collect();
    let count = u32::try_from(pairs.len().max(1)).expect("faults are few");
    let share = (length / count).saturating_sub(BETWEEN);
    let phase = share.clamp(SHORTEST, LONGEST);
    let number = length.as_millis() / (phase + BETWEEN).as_millis();
    let mut steps = Vec::new();
    let mut cycle = Vec::new();
    for _ in 0..number.max(1) {
        if cycle.is_empty() {
            cycle = shuffled(pairs.clone(), &mut random);
        }
        let Some((fault, engine)) = cycle.pop() else {
            break;
        };
        steps.push(Step {
            fault,
            engine,
            length: phase,
            seed: random.next(),
        });
    }
    steps
}

fn shuffled<T>(mut items: Vec<T>, random: &mut Random) -> Vec<T> {
    for last in (1..items.len()).rev() {
        let bound = u64::try_from(last + 1).expect("lists are short");
        items.swap(
            last,
            usize::try_from(random.below(bound)).expect("an index"),
        );
    }
    items
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_in_the_same_order_and_another_gives_others() {
        let plan = |seed| steps(&Fault::ALL, Duration::from_secs(600), seed);
        assert_eq!(plan(1), plan(1));
        let order = |seed| plan(seed).iter().map(|it| it.fault).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn with_time_enough_each_fault_befalls_each_engine() {
        let plan = steps(&Fault::ALL, Duration::from_secs(300), 7);
        let pairs: BTreeSet<_> = plan.iter().map(|it| (it.fault, it.engine)).collect();
        assert_eq!(pairs.len(), 2 * Fault::ALL.len());
    }

    #[test]
    fn a_minute_is_a_minute_and_phases_are_never_too_short() {
        for (faults, minutes) in [
            (&Fault::ALL[..], 1),
            (&Fault::ALL[..4], 1),
            (&Fault::ALL[..], 60),
        ] {
            let length = Duration::from_secs(minutes * 60);
            let plan = steps(faults, length, 3);
            let all: Duration = plan.iter().map(|it| it.length + BETWEEN).sum();
            assert!(all <= length, "{all:?}");
            assert!(all * 10 >= length * 8, "{all:?}");
            assert!(plan.iter().all(|it| it.length >= SHORTEST));
        }
    }
}
