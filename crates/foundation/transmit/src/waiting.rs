//! How a shard waits, as its connections and statistics see it.

/// How a shard waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitingState {
    /// What a wake-up costs, from readiness to running, in nanoseconds. 0: not measured.
    pub wake_up_ns: u64,
    /// For how long it polls before it sleeps, in nanoseconds.
    pub window_ns: u64,
    /// How often it was tried which way to wait is best.
    pub trials: u64,
    /// It is being tried.
    pub is_trying: bool,
    /// How often the outcome was another than before.
    pub changes: u32,
}
