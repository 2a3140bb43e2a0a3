//! What metrics, health and samples show: collected at most once a second, for all who ask.
//!
//! Asking wakes every event loop. Many readers cost no more than one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_api::object::{Object, ObjectKind};
use longshore_api::plane::ControlPlane;
use longshore_api::state::{Health, Status};
use longshore_server::Statistics;
use tokio::sync::Mutex;

use crate::call_pool::CallPool;
use crate::clock;
use crate::process::Process;

/// Tells what the server has done; `true`: with what the kernel knows of each connection.
pub type Measure = dyn Fn(bool) -> Statistics + Send + Sync;

/// So long an answer is given again.
const LIFETIME: Duration = Duration::from_millis(990);
/// And one with the kernel's view of connections, which measurements ask for before and after a load.
const DETAILED_LIFETIME: Duration = Duration::from_millis(20);

/// So long those who ask wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// All of one moment.
#[derive(Debug)]
pub(crate) struct Collected {
    pub time_ms: u64,
    pub monotonic_ns: u64,
    pub statistics: Statistics,
    pub status: Status,
    pub volumes: Vec<Object>,
    pub pools: Vec<longshore_api::pool::Pool>,
    pub sessions: Vec<longshore_api::state::Session>,
    pub process: Process,
}

/// An event loop that did not answer in time is not alive.
fn add_silent(health: &mut Health, statistics: &Statistics) {
    for shard in statistics.shards.iter().filter(|it| !it.answered) {
        health.alive = false;
        health.ready = false;
        let reason = format!("event loop {} does not answer", shard.shard);
        health.reasons.push(reason);
    }
}

/// See the module documentation.
pub(crate) struct Collection {
    plane: Arc<dyn ControlPlane>,
    statistics: Arc<Measure>,
    pool: CallPool,
    latest: Mutex<Option<(Instant, Arc<Collected>)>>,
    detailed: Mutex<Option<(Instant, Arc<Collected>)>>,
}

impl Collection {
    pub(crate) fn new(
        plane: Arc<dyn ControlPlane>,
        statistics: Arc<Measure>,
        pool: CallPool,
    ) -> Self {
        Self {
            plane,
            statistics,
            pool,
            latest: Mutex::new(None),
            detailed: Mutex::new(None),
        }
    }

    /// What was collected within the last second. `None`: the server is ending, or does not answer.
    pub(crate) async fn get(&self) -> Option<Arc<Collected>> {
        let got = tokio::time::timeout(PATIENCE, self.collect(&self.latest, LIFETIME, false)).await;
        got.ok().flatten()
    }

    /// The same with what the kernel knows of each connection, and of this moment.
    pub(crate) async fn get_detailed(&self) -> Option<Arc<Collected>> {
        let collect = self.collect(&self.detailed, DETAILED_LIFETIME, true);
        tokio::time::timeout(PATIENCE, collect).await.ok().flatten()
    }

    async fn collect(
        &self,
        latest: &Mutex<Option<(Instant, Arc<Collected>)>>,
        lifetime: Duration,
        tcp: bool,
    ) -> Option<Arc<Collected>> {
        // Those who come meanwhile wait here and share the answer.
        let mut latest = latest.lock().await;
        if let Some((at, collected)) = &*latest
            && at.elapsed() < lifetime
        {
            return Some(Arc::clone(collected));
        }
        let begun = Instant::now();
        let (plane, statistics) = (Arc::clone(&self.plane), Arc::clone(&self.statistics));
        let collect = move || {
            let statistics = statistics(tcp);
            let mut status = plane.status();
            add_silent(&mut status.health, &statistics);
            Collected {
                time_ms: clock::now_ms(),
                monotonic_ns: clock::monotonic_ns(),
                statistics,
                status,
                volumes: plane.objects(ObjectKind::Volume),
                pools: plane.pools(),
                sessions: plane.sessions(),
                process: Process::read(),
            }
        };
        let collected = Arc::new(self.pool.run(collect).await.ok()?);
        *latest = Some((begun, Arc::clone(&collected)));
        Some(collected)
    }
}
