//! What a server has done between two looks at its statistics.

use longshore_model::probe::{ServerFacts, StageFacts};

use crate::options::ServerView;

/// Looks at the statistics, and gives up at the first failure.
pub(crate) struct Statistics {
    view: Option<Box<dyn ServerView>>,
    /// Why there are none any more.
    failure: Option<String>,
}

impl Statistics {
    pub(crate) fn new(view: Option<Box<dyn ServerView>>) -> Self {
        Self {
            view,
            failure: None,
        }
    }

    pub(crate) fn read(&mut self) -> Option<ServerFacts> {
        match self.view.as_mut()?.read() {
            Ok(facts) => Some(facts),
            Err(failure) => {
                self.view = None;
                self.failure = Some(failure);
                None
            }
        }
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// Means of what came between, from means since the start.
#[must_use]
pub fn since(before: &ServerFacts, after: &ServerFacts) -> ServerFacts {
    let operations = after.operations.saturating_sub(before.operations);
    let per_operation = |of: fn(&ServerFacts) -> f64| {
        between(
            (of(before), before.operations),
            (of(after), after.operations),
        )
    };
    ServerFacts {
        operations,
        working_us_per_op: per_operation(|facts| facts.working_us_per_op),
        user_us_per_op: per_operation(|facts| facts.user_us_per_op),
        waiting_for_core: between(
            (before.waiting_for_core, before.observed_us),
            (after.waiting_for_core, after.observed_us),
        ),
        observed_us: after.observed_us.saturating_sub(before.observed_us),
        sleeps: after.sleeps.saturating_sub(before.sleeps),
        stages: after
            .stages
            .iter()
            .map(|stage| stage_since(&before.stages, stage))
            .filter(|stage| stage.operations > 0)
            .collect(),
        ..after.clone()
    }
}

fn stage_since(before: &[StageFacts], after: &StageFacts) -> StageFacts {
    let is_same = |stage: &&StageFacts| {
        (stage.direction, stage.bytes_up_to) == (after.direction, after.bytes_up_to)
    };
    let before = before.iter().find(is_same).cloned().unwrap_or_default();
    let mut stage = after.clone();
    stage.operations = after.operations.saturating_sub(before.operations);
    let means = before.mean_us.into_iter().zip(after.mean_us);
    for (mean, (earlier, later)) in stage.mean_us.iter_mut().zip(means) {
        *mean = between((earlier, before.operations), (later, after.operations));
    }
    stage
}

/// The mean of what was added to a mean of so many.
fn between(before: (f64, u64), after: (f64, u64)) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations are counted far below 2^52"
    )]
    let sum = |(mean, count): (f64, u64)| mean * count as f64;
    let added = after.1.saturating_sub(before.1);
    if added == 0 {
        return 0.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations are counted far below 2^52"
    )]
    let mean = (sum(after) - sum(before)) / added as f64;
    mean.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(operations: u64, working: f64, stage: f64) -> ServerFacts {
        ServerFacts {
            operations,
            working_us_per_op: working,
            stages: vec![StageFacts {
                operations,
                bytes_up_to: 4096,
                mean_us: [stage; 6],
                ..StageFacts::default()
            }],
            ..ServerFacts::default()
        }
    }

    #[test]
    fn means_of_what_came_between_are_not_those_since_the_start() {
        let since = since(&facts(100, 4.0, 1.0), &facts(300, 8.0, 3.0));
        assert_eq!(since.operations, 200);
        // 300 * 8 - 100 * 4 are 2000 in 200 operations.
        assert!((since.working_us_per_op - 10.0).abs() < 1e-9);
        assert!((since.stages[0].mean_us[5] - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_server_that_lacked_a_processor_only_lately_lacks_it() {
        let of = |waiting_for_core, observed_us| ServerFacts {
            waiting_for_core,
            observed_us,
            ..ServerFacts::default()
        };
        // Nine days without waiting, and then ten seconds of which half were waited for.
        let days = 9 * 86_400_000_000;
        let lately = days + 10_000_000;
        let share = 5_000_000.0 / 777_610_000_000.0;
        let since = since(&of(0.0, days), &of(share, lately));
        assert_eq!(since.observed_us, 10_000_000);
        assert!((since.waiting_for_core - 0.5).abs() < 0.01, "{since:?}");
    }

    #[test]
    fn a_server_that_has_done_nothing_or_was_started_anew_has_no_means() {
        let same = since(&facts(100, 4.0, 1.0), &facts(100, 4.0, 1.0));
        assert_eq!((same.operations, same.stages.len()), (0, 0));
        assert!(same.working_us_per_op.abs() < 1e-9);
        let anew = since(&facts(100, 4.0, 1.0), &facts(3, 4.0, 1.0));
        assert_eq!(anew.operations, 0);
    }

    #[test]
    fn statistics_that_fail_once_are_not_asked_again() {
        struct Failing(u32);
        impl ServerView for Failing {
            fn read(&mut self) -> Result<ServerFacts, String> {
                assert_eq!(self.0, 0, "asked again");
                self.0 += 1;
                Err("gone".to_owned())
            }
        }
        let mut statistics = Statistics::new(Some(Box::new(Failing(0))));
        assert_eq!((statistics.read(), statistics.read()), (None, None));
        assert_eq!(statistics.failure(), Some("gone"));
    }
}
