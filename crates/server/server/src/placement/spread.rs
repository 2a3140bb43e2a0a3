//! The decision to make large reads and writes of files on other cores, for a connection with more work than one core
//! can do.
//!
//! A connection belongs to one shard. What weighs most of a large operation is the copying of its bytes between the page cache
//! and its buffer; that needs nothing of the connection, so it can go to a core whose shard has little to do
//! ([`longshore_reactor::Engine::hand_over`]), and the connection's own core has more time left for the network.
//! Each handing over costs a change of threads, and whether the other core is free of others, peers on this machine
//! among them, cannot be known. So it is tried, and goes on only if more bytes get through:
//!
//! ```text
//!            saturated for some windows, nothing can be moved,
//!            operations are large, another shard is idle
//!      Kept ────────────────────────────────────────────────► Trial ── more gets through ──► HandedOver
//!       ▲ ▲                                                     │                                │
//!       │ └── for longer each time ── no more gets through ─────┘                                │
//!       └────────────── little to do, no idle shard, or time for another look ───────────────────┘
//! ```
//!
//! It is decided in the windows of 100 ms in which a shard that is awake looks at its load, by what these know:
//! nothing of this needs a timer, and an operation pays one comparison for it.

use crate::config;

use super::load::{Load, WHOLE};

/// Operations of fewer bytes stay: handing one over costs some microseconds, and these are copied in as many.
pub(crate) const LENGTH_MIN: usize = 64 << 10;
/// A shard that works for so many thousandths of its time has more to do than it can.
const SATURATED: u64 = 900;
/// One that works less, all of its large operations being made elsewhere, would do with one core.
const LITTLE: u64 = 300;
/// Another one that works no more than this has time for the operations of others.
const IDLE_MOST: u64 = 300;
/// And goes on having it up to this.
const FREE_MOST: u64 = 600;
/// Bytes that operations move in the mean, where some are large.
const MEAN_MIN: u64 = 16 << 10;
/// So many windows a shard has to be saturated, and so many compare what gets through before and after.
const WINDOWS: u32 = 3;
/// Windows with little to do after which operations stay again.
const QUIET_WINDOWS: u32 = 10;
/// So much more, in percent, has to get through.
const GAIN_PERCENT: u64 = 5;
/// Nothing can be moved: for so long that is taken to be so.
const STUCK_MS: u64 = 1500;
/// Time until the next trial after one that did not pay; then twice as long, and so on.
const REST_MS: u64 = 5_000;
const REST_MOST_MS: u64 = 320_000;
/// After so long it is tried anew whether it still pays.
const AGAIN_MS: u64 = 60_000;

/// What a shard did until the end of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub now_ms: u64,
    /// For so many thousandths of it the shard worked.
    pub share: u64,
    /// Operations since the shard started.
    pub operations: u64,
    /// Bytes received and sent since then.
    pub bytes: u64,
}

/// What is to be done after a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Large reads and writes go to these cores from now on.
    HandOver(Vec<usize>),
    Keep,
}

/// See the module documentation. Belongs to a shard.
#[derive(Debug)]
pub(crate) struct Spread {
    mode: config::Spread,
    state: State,
    cores: Vec<usize>,
    /// The end of the last window.
    last: Window,
    /// Until when nothing can be moved.
    stuck_until_ms: u64,
    /// No trial before that.
    rest_until_ms: u64,
    /// How long the next rest is.
    rest_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is handed over. `busy`: what the saturated windows brought that are just behind.
    Kept { busy: Rate },
    /// It is seen what is gained.
    Trial {
        before: Rate,
        after: Rate,
        /// The first window is part one and part the other.
        begun: bool,
    },
    /// Operations go to other cores, which pays.
    HandedOver { quiet: u32, until_ms: u64 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    windows: u32,
    bytes: u64,
    elapsed_ms: u64,
}

impl Rate {
    fn add(&mut self, bytes: u64, elapsed_ms: u64) {
        self.windows += 1;
        self.bytes += bytes;
        self.elapsed_ms += elapsed_ms;
    }

    /// Whether it is more than another one by so many percent.
    fn exceeds(&self, other: &Self, percent: u64) -> bool {
        let product = |bytes: u64, elapsed_ms: u64| u128::from(bytes) * u128::from(elapsed_ms);
        product(self.bytes, other.elapsed_ms) * 100
            >= product(other.bytes, self.elapsed_ms) * u128::from(100 + percent)
    }
}

impl State {
    const KEPT: Self = Self::Kept {
        busy: Rate {
            windows: 0,
            bytes: 0,
            elapsed_ms: 0,
        },
    };
}

impl Spread {
    pub(crate) const fn new(mode: config::Spread) -> Self {
        Self {
            mode,
            state: State::KEPT,
            cores: Vec::new(),
            last: Window {
                now_ms: 0,
                share: 0,
                operations: 0,
                bytes: 0,
            },
            stuck_until_ms: 0,
            rest_until_ms: 0,
            rest_ms: REST_MS,
        }
    }

    /// The shard has more to do than another one, and no connection that could go there.
    pub(crate) const fn nothing_moves(&mut self, now_ms: u64) {
        self.stuck_until_ms = now_ms + STUCK_MS;
    }

    /// What is to be done after a window. `idle_cores`: those of other shards that work for no more than so many
    /// thousandths of their time.
    pub(crate) fn look(
        &mut self,
        window: Window,
        idle_cores: impl Fn(u64) -> Vec<usize>,
    ) -> Change {
        let last = std::mem::replace(&mut self.last, window);
        match self.mode {
            config::Spread::Off => return Change::None,
            config::Spread::Always if self.state == State::KEPT => {
                let until_ms = u64::MAX;
                self.state = State::HandedOver { quiet: 0, until_ms };
                return Change::HandOver(idle_cores(WHOLE));
            }
            config::Spread::Always => return Change::None,
            config::Spread::Auto => {}
        }
        let bytes = window.bytes.saturating_sub(last.bytes);
        let operations = window.operations.saturating_sub(last.operations);
        let elapsed_ms = window.now_ms.saturating_sub(last.now_ms);
        match self.state {
            State::Kept { mut busy } => {
                let is_wanted = window.share >= SATURATED
                    && window.now_ms < self.stuck_until_ms
                    && window.now_ms >= self.rest_until_ms
                    && bytes / operations.max(1) >= MEAN_MIN;
                if !is_wanted {
                    self.state = State::KEPT;
                    return Change::None;
                }
                busy.add(bytes, elapsed_ms);
                self.state = State::Kept { busy };
                if busy.windows < WINDOWS {
                    return Change::None;
                }
                self.cores = idle_cores(IDLE_MOST);
                if self.cores.is_empty() {
                    self.state = State::KEPT;
                    return Change::None;
                }
                self.state = State::Trial {
                    before: busy,
                    after: Rate::default(),
                    begun: false,
                };
                Change::HandOver(self.cores.clone())
            }
            State::Trial {
                before,
                mut after,
                begun,
            } => {
                if begun {
                    after.add(bytes, elapsed_ms);
                }
                self.state = State::Trial {
                    before,
                    after,
                    begun: true,
                };
                if after.windows < WINDOWS {
                    return Change::None;
                }
                if after.exceeds(&before, GAIN_PERCENT) {
                    self.rest_ms = REST_MS;
                    self.state = State::HandedOver {
                        quiet: 0,
                        until_ms: window.now_ms + AGAIN_MS,
                    };
                    return Change::None;
                }
                self.rest_until_ms = window.now_ms + self.rest_ms;
                self.rest_ms = (2 * self.rest_ms).min(REST_MOST_MS);
                self.keep()
            }
            State::HandedOver { quiet, until_ms } => {
                let quiet = if window.share < LITTLE { quiet + 1 } else { 0 };
                let cores = idle_cores(FREE_MOST);
                if quiet >= QUIET_WINDOWS || cores.is_empty() || window.now_ms >= until_ms {
                    return self.keep();
                }
                self.state = State::HandedOver { quiet, until_ms };
                if cores == self.cores {
                    return Change::None;
                }
                self.cores = cores;
                Change::HandOver(self.cores.clone())
            }
        }
    }

    fn keep(&mut self) -> Change {
        self.state = State::KEPT;
        Change::Keep
    }
}

/// The cores of other shards that work for no more than `most` thousandths of their time.
pub(crate) fn cores_of_others(shard: usize, loads: &[Load], most: u64, now_ms: u64) -> Vec<usize> {
    let own = loads[shard].core();
    let others = loads.iter().enumerate();
    let others = others.filter(|(other, load)| *other != shard && load.share(now_ms) <= most);
    let cores = others.filter_map(|(_, load)| load.core());
    cores.filter(|core| Some(*core) != own).collect()
}

#[cfg(test)]
mod tests {
    use super::super::load::WINDOW_MS;
    use super::*;

    /// A shard in front of one that has nothing to do.
    struct Scene {
        spread: Spread,
        window: Window,
        /// The other one works for so many thousandths of its time.
        other: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self {
                spread: Spread::new(config::Spread::Auto),
                window: Window::default(),
                other: 0,
            }
        }

        /// A window in which the shard works so much, and moves so many operations of 64 KiB; nothing can be moved.
        fn window(&mut self, share: u64, operations: u64) -> Change {
            self.window.now_ms += WINDOW_MS;
            self.window.share = share;
            self.window.operations += operations;
            self.window.bytes += operations << 16;
            self.spread.nothing_moves(self.window.now_ms);
            let other = self.other;
            let idle = |most: u64| if other <= most { vec![1] } else { Vec::new() };
            self.spread.look(self.window, idle)
        }

        /// Windows until something changes.
        fn until_change(&mut self, share: u64, operations: u64) -> (u32, Change) {
            for windows in 1..10_000 {
                let change = self.window(share, operations);
                if change != Change::None {
                    return (windows, change);
                }
            }
            (u32::MAX, Change::None)
        }

        /// A trial that has paid is behind.
        fn handed_over() -> Self {
            let mut scene = Self::new();
            assert_eq!(
                scene.until_change(1000, 100),
                (WINDOWS, Change::HandOver(vec![1]))
            );
            for _ in 0..=WINDOWS {
                assert_eq!(scene.window(700, 130), Change::None);
            }
            assert!(matches!(scene.spread.state, State::HandedOver { .. }));
            scene
        }
    }

    #[test]
    fn operations_go_elsewhere_as_long_as_more_gets_through() {
        let mut scene = Scene::handed_over();
        let (windows, change) = scene.until_change(700, 130);
        assert_eq!(change, Change::Keep);
        assert!(u64::from(windows) * WINDOW_MS >= AGAIN_MS - WINDOW_MS);
        assert_eq!(
            scene.until_change(1000, 100),
            (WINDOWS, Change::HandOver(vec![1]))
        );
    }

    #[test]
    fn a_trial_that_brings_nothing_ends_and_the_next_one_comes_later_each_time() {
        let mut scene = Scene::new();
        let mut rests = Vec::new();
        for _ in 0..9 {
            let (rest, change) = scene.until_change(1000, 100);
            assert_eq!(change, Change::HandOver(vec![1]));
            rests.push(rest);
            let trial = (WINDOWS + 1, Change::Keep);
            assert_eq!(scene.until_change(900, 102), trial);
        }
        assert_eq!(rests[0], WINDOWS);
        assert!(rests[1..8].is_sorted_by(|one, next| 2 * one - 2 * WINDOWS <= *next));
        assert!(u64::from(rests[8]) * WINDOW_MS <= REST_MOST_MS + 10 * WINDOW_MS);
    }

    #[test]
    fn a_shard_that_is_not_saturated_all_the_time_keeps_its_operations() {
        let mut scene = Scene::new();
        for _ in 0..100 {
            assert_eq!(scene.window(1000, 100), Change::None);
            assert_eq!(scene.window(1000, 100), Change::None);
            assert_eq!(scene.window(800, 100), Change::None);
        }
    }

    #[test]
    fn small_operations_stay() {
        let mut scene = Scene::new();
        for _ in 0..20 {
            scene.window.operations += 2000;
            assert_eq!(scene.window(1000, 100), Change::None);
        }
    }

    #[test]
    fn nothing_goes_to_shards_that_work() {
        let mut scene = Scene::new();
        scene.other = IDLE_MOST + 1;
        assert_eq!(scene.until_change(1000, 100).1, Change::None);
        let mut scene = Scene::handed_over();
        scene.other = FREE_MOST;
        assert_eq!(scene.window(700, 130), Change::None);
        scene.other = FREE_MOST + 1;
        assert_eq!(scene.window(700, 130), Change::Keep);
    }

    #[test]
    fn connections_that_can_move_do_that_instead() {
        let mut spread = Spread::new(config::Spread::Auto);
        for window in 1..100 {
            let window = Window {
                now_ms: window * WINDOW_MS,
                share: 1000,
                operations: window * 100,
                bytes: (window * 100) << 16,
            };
            assert_eq!(spread.look(window, |_| vec![1]), Change::None);
        }
    }

    #[test]
    fn a_shard_with_little_to_do_takes_its_operations_back() {
        let mut scene = Scene::handed_over();
        assert_eq!(
            scene.until_change(LITTLE - 1, 10),
            (QUIET_WINDOWS, Change::Keep)
        );
    }

    #[test]
    fn it_is_never_done_or_always_where_that_was_asked_for() {
        let mut scene = Scene::new();
        scene.spread = Spread::new(config::Spread::Off);
        assert_eq!(scene.until_change(1000, 100).1, Change::None);
        scene.spread = Spread::new(config::Spread::Always);
        assert_eq!(scene.window(10, 1), Change::HandOver(vec![1]));
        assert_eq!(scene.until_change(10, 1).1, Change::None);
    }

    #[test]
    fn the_cores_of_others_are_those_where_shards_are_pinned() {
        let loads = Load::of_shards(&[1000, 100, 50, 900, 0], 100);
        for (load, core) in loads.iter().zip([0, 4, 5, 6]) {
            load.pin(core);
        }
        assert_eq!(cores_of_others(0, &loads, 500, 100), [4, 5]);
        assert_eq!(cores_of_others(1, &loads, 1000, 100), [0, 5, 6]);
        let same = Load::of_shards(&[1000, 0], 100);
        same.iter().for_each(|load| load.pin(3));
        assert!(cores_of_others(0, &same, 500, 100).is_empty());
    }
}
