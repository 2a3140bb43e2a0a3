//! What a run measures.

use std::path::PathBuf;

use super::point::Point;

/// What the command line asks for.
#[derive(Clone)]
pub struct Plan {
    /// A few points for a moment, to see that everything works.
    pub quick: bool,
    /// Keep the tables in `docs/benchmarks`.
    pub update: bool,
    pub engine: String,
    /// Part of the names of the points to measure.
    pub only: Option<String>,
    pub rounds: u64,
    pub seconds: String,
    /// What makes the load: this server's program.
    pub client: PathBuf,
}

impl Plan {
    /// Those of the points that were asked for.
    pub fn chosen(&self, points: Vec<Point>) -> Vec<Point> {
        let is_chosen = |point: &Point| self.is_chosen(&point.name());
        points.into_iter().filter(is_chosen).collect()
    }

    /// Whether something of this name was asked for.
    pub fn is_chosen(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}
