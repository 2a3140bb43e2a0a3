//! A change: other values of some parts, and how to make it.

use serde::{Deserialize, Serialize};

use crate::identify::FitError;
use crate::parameter::{Key, Parts, Quantity, Source};
use crate::probe::{Direction, Probe};

/// What is to be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    pub direction: Direction,
    pub size_bytes: u64,
    pub depth: u16,
    /// Operations follow one another on the volume.
    #[serde(default)]
    pub in_order: bool,
    /// A load of others on the same volume, at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// A load beside the one that is to be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    pub direction: Direction,
    pub size_bytes: u64,
    pub depth: u16,
}

/// Who makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Actor {
    Server,
    Initiator,
    Host,
    Workload,
}

impl Actor {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Initiator => "initiator",
            Self::Host => "host",
            Self::Workload => "workload",
        }
    }
}

/// What a gain is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gains {
    /// The gain counts in operations a second.
    Operations,
    /// Bytes a second, where operations get larger.
    Bytes,
}

/// A row of the table: a change that makes sense, before it is known what it gains.
pub(super) struct Change {
    pub id: &'static str,
    pub place: Actor,
    pub what: String,
    pub how: Vec<String>,
    pub after: Parts,
    pub changes: Vec<(String, String)>,
    /// The load with the change.
    pub size_bytes: u64,
    pub depth: u16,
    pub gains: Gains,
    /// Predicted by simulation, as formulas know no second load.
    pub is_simulated: bool,
    pub cost: &'static str,
    pub risk: &'static str,
    pub check: &'static str,
}

/// What changes are looked for in.
pub(super) struct Case<'a> {
    pub probe: &'a Probe,
    pub parts: &'a Parts,
    pub goal: &'a Goal,
}

/// What is left of a wake-up where a thread polls, in microseconds.
pub(super) const POLLED_US: f64 = 1.0;

impl Case<'_> {
    /// A change of some parts, to be completed with how it is made. Its values are exact, since they are what is to be
    /// done.
    pub fn change(
        &self,
        id: &'static str,
        place: Actor,
        values: &[(Key, f64)],
    ) -> Result<Change, FitError> {
        let mut after = self.parts.clone();
        let mut changes = Vec::new();
        for (key, value) in values {
            let definition = key.definition();
            let quantity = Quantity {
                value: *value,
                uncertainty: 0.0,
                source: Source::Given("advice".to_owned()),
            };
            after.set(*key, quantity)?;
            let shown = definition.unit.show(*value).to_string();
            changes.push((definition.name.to_owned(), shown));
        }
        Ok(Change {
            id,
            place,
            what: String::new(),
            how: Vec::new(),
            after,
            changes,
            size_bytes: self.goal.size_bytes,
            depth: self.goal.depth,
            gains: Gains::Operations,
            is_simulated: false,
            cost: "",
            risk: "",
            check: "",
        })
    }

    /// Whether both ends are on one machine.
    pub fn is_loopback(&self) -> bool {
        let portal = self.probe.subject.portal.as_deref();
        portal.is_some_and(|portal| portal.starts_with("127.") || portal.starts_with("[::1]"))
    }

    pub fn is_write(&self) -> bool {
        self.goal.direction == Direction::Write
    }

    /// A setting of a host that is a number: `client.rx-usecs`, `server.net.ipv4.tcp_autocorking`.
    pub fn setting(&self, name: &str) -> Option<f64> {
        let (side, name) = name.split_once('.')?;
        let settings = match side {
            "client" => &self.probe.client.settings,
            _ => &self.probe.server.as_ref()?.settings,
        };
        let value: f64 = settings.get(name)?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    }
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations.
pub(super) fn float(bytes: u64) -> f64 {
    bytes as f64
}
