//! The shard for a new connection.
//!
//! It is the one that received from the same queue of the network card before (SO_INCOMING_NAPI_ID), or that
//! runs on the core where the kernel receives the connection's packets (SO_INCOMING_CPU), unless others
//! have less to do. Of these it is the one on the core [nearest](super::nearness) to where the packets are received, which is often
//! none of the server's: the core of the network's interrupts is better left to the kernel ([`super::interrupts`]).
//!
//! What a shard has to do is the share of its time that it worked lately, with something for each
//! connection that came too lately to show in it; shards that are about equal are told apart by how many connections they
//! have.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;

use longshore_reactor::socket;

use super::load::{Load, WINDOW_MS};
use super::nearness::{Nearness, Surroundings};

/// After so long a new connection shows in the load of its shard.
const NEW_MS: u64 = 5 * WINDOW_MS;
/// Until then it counts for so many thousandths of the time.
const NEW_SHARE: u64 = 100;
/// Loads that differ by less are about equal.
const STEP: u64 = 250;
/// More queues than network cards have.
const QUEUES_MAX: usize = 4096;

/// Where the kernel receives a connection's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    core: Option<usize>,
    /// From this queue of a network card.
    queue: Option<u32>,
}

impl Incoming {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self {
            core: socket::incoming_core(stream),
            queue: socket::incoming_napi_id(stream),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// The core each shard is pinned to, if it is.
    cores: Vec<Option<Surroundings>>,
    /// The shard that receives from each queue.
    queues: HashMap<u32, usize>,
    /// When new connections came to which shards, oldest first.
    new: VecDeque<(u64, usize)>,
    /// How many these are, by shard.
    counts: Vec<u64>,
}

impl Arrivals {
    pub(crate) fn new(cores: Vec<Option<Surroundings>>) -> Self {
        Self {
            counts: vec![0; cores.len()],
            cores,
            queues: HashMap::new(),
            new: VecDeque::new(),
        }
    }

    /// The shard for a connection that came now. `loads`: `None` when it goes by number alone. `connections`:
    /// how many a shard has.
    pub(crate) fn place(
        &mut self,
        incoming: Incoming,
        loads: Option<&[Load]>,
        connections: impl Fn(usize) -> usize,
        now_ms: u64,
    ) -> usize {
        while let Some(&(at, shard)) = self.new.front()
            && at + NEW_MS <= now_ms
        {
            self.new.pop_front();
            self.counts[shard] -= 1;
        }
        let share = |shard: usize| {
            let new = NEW_SHARE * self.counts[shard];
            loads.map_or(0, |loads| loads[shard].share(now_ms) + new)
        };
        let shards = 0..self.cores.len();
        let about_least = shards.clone().map(share).min().unwrap_or(0) + STEP;
        let load = |shard: usize| (share(shard) >= about_least, connections(shard));
        let known = incoming
            .queue
            .and_then(|queue| self.queues.get(&queue).copied());
        let distance = |shard: usize| {
            let around = self.cores[shard].as_ref();
            let nearness = around.zip(incoming.core);
            let nearness = nearness.map_or(Nearness::Far, |(around, core)| around.nearness(core));
            (known != Some(shard), nearness)
        };
        let shard = shards.min_by_key(|shard| (load(*shard), distance(*shard)));
        let shard = shard.unwrap_or(0);
        if let (Some(queue), None) = (incoming.queue, known)
            && self.queues.len() < QUEUES_MAX
        {
            self.queues.insert(queue, shard);
        }
        if loads.is_some() {
            self.new.push_back((now_ms, shard));
            self.counts[shard] += 1;
        }
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::super::nearness::tests::{CHIPLETS, PAIRS, SILENT, SOCKETS, System, THREADS};
    use super::*;

    fn arrivals(shards: usize) -> Arrivals {
        on_cores(&SILENT, &(0..shards).collect::<Vec<_>>())
    }

    fn on_cores(system: &System, cores: &[usize]) -> Arrivals {
        let around = cores.iter().map(|core| Some(system.around(*core)));
        Arrivals::new(around.collect())
    }

    fn from_queue(queue: u32) -> Incoming {
        Incoming {
            core: None,
            queue: Some(queue),
        }
    }

    #[test]
    fn idle_shards_get_the_same_number() {
        let mut arrivals = arrivals(3);
        let loads = Load::of_shards(&[0; 3], 0);
        let mut counts = [0; 3];
        for _ in 0..30 {
            let shard = arrivals.place(Incoming::default(), Some(&loads), |s| counts[s], 0);
            counts[shard] += 1;
        }
        assert_eq!(counts, [10; 3]);
    }

    #[test]
    fn a_busy_shard_with_few_connections_gets_none() {
        let mut arrivals = arrivals(2);
        let loads = Load::of_shards(&[900, 100], 0);
        for _ in 0..2 {
            let shard = arrivals.place(Incoming::default(), Some(&loads), |s| [1, 50][s], 0);
            assert_eq!(shard, 1);
        }
    }

    #[test]
    fn a_crowd_that_comes_at_once_does_not_all_go_to_the_less_busy_shard() {
        let mut arrivals = arrivals(2);
        let loads = Load::of_shards(&[300, 0], 0);
        let mut counts = [0; 2];
        for _ in 0..64 {
            let shard = arrivals.place(Incoming::default(), Some(&loads), |s| counts[s], 0);
            counts[shard] += 1;
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }

    #[test]
    fn without_loads_the_number_decides() {
        let mut arrivals = arrivals(2);
        for _ in 0..100 {
            let shard = arrivals.place(Incoming::default(), None, |s| [7, 8][s], 0);
            assert_eq!(shard, 0);
        }
    }

    #[test]
    fn one_queue_goes_to_one_shard() {
        let mut arrivals = arrivals(4);
        let loads = Load::of_shards(&[0; 4], 0);
        let first = arrivals.place(from_queue(8193), Some(&loads), |_| 0, 0);
        let other = arrivals.place(
            from_queue(8194),
            Some(&loads),
            |s| usize::from(s == first),
            0,
        );
        assert_ne!(first, other);
        for queue in [8193, 8194] {
            let expected = if queue == 8193 { first } else { other };
            assert_eq!(
                arrivals.place(from_queue(queue), Some(&loads), |_| 3, 10_000),
                expected
            );
        }
    }

    #[test]
    fn the_core_that_receives_is_preferred_unless_it_has_more_to_do() {
        let mut arrivals = arrivals(2);
        let on_one = Incoming {
            core: Some(1),
            queue: None,
        };
        assert_eq!(
            arrivals.place(on_one, Some(&Load::of_shards(&[0, 0], 0)), |_| 4, 0),
            1
        );
        assert_eq!(
            arrivals.place(on_one, Some(&Load::of_shards(&[0, 0], 0)), |s| [4, 5][s], 0),
            0
        );
        assert_eq!(
            arrivals.place(on_one, Some(&Load::of_shards(&[0, 800], 0)), |_| 4, 0),
            0
        );
    }

    /// On which of the server's cores connections go, one after the other, that are received on another one.
    fn chosen(system: &System, cores: &[usize], received_on: usize) -> Vec<usize> {
        let mut arrivals = on_cores(system, cores);
        let incoming = Incoming {
            core: Some(received_on),
            queue: None,
        };
        let loads = Load::of_shards(&vec![0; cores.len()], 0);
        let mut counts = vec![0; cores.len()];
        let mut place = || {
            let shard = arrivals.place(incoming, Some(&loads), |s| counts[s], 0);
            counts[shard] += 1;
            cores[shard]
        };
        cores.iter().map(|_| place()).collect()
    }

    #[test]
    fn the_nearest_of_equals_is_taken() {
        assert_eq!(chosen(&PAIRS, &[0, 1, 2], 3), [2, 0, 1]);
        assert_eq!(chosen(&CHIPLETS, &[0, 1, 3], 2), [3, 0, 1]);
        // Its socket, the other thread of its core, the other socket.
        assert_eq!(
            chosen(&SOCKETS, &[0, 1, 2, 3, 4, 5, 7], 6),
            [3, 7, 2, 0, 1, 4, 5]
        );
        assert_eq!(chosen(&SOCKETS, &[0, 1, 3], 6), [3, 0, 1]);
        assert_eq!(chosen(&THREADS, &[1, 2, 3], 0), [2, 3, 1]);
        assert_eq!(chosen(&SILENT, &[0, 1, 2], 3), [0, 1, 2]);
    }

    #[test]
    fn the_neighbour_of_a_busy_core_comes_next() {
        let mut arrivals = on_cores(&PAIRS, &[0, 1, 2, 3]);
        let on_three = Incoming {
            core: Some(3),
            queue: None,
        };
        let loads = Load::of_shards(&[0, 0, 0, 900], 0);
        assert_eq!(arrivals.place(on_three, Some(&loads), |_| 0, 0), 2);
        let loads = Load::of_shards(&[0, 0, 900, 900], 0);
        assert_eq!(arrivals.place(on_three, Some(&loads), |_| 0, 0), 0);
    }

    #[test]
    fn what_is_near_does_not_outweigh_the_load() {
        let mut arrivals = on_cores(&PAIRS, &[0, 1, 2]);
        let on_three = Incoming {
            core: Some(3),
            queue: None,
        };
        let loads = Load::of_shards(&[0; 3], 0);
        assert_eq!(
            arrivals.place(on_three, Some(&loads), |s| [5, 4, 5][s], 0),
            1
        );
    }

    #[test]
    fn a_queue_whose_core_is_not_ours_goes_near_that_core_and_stays_there() {
        let mut arrivals = on_cores(&PAIRS, &[0, 1, 2]);
        let incoming = |core| Incoming {
            core: Some(core),
            queue: Some(8193),
        };
        let loads = Load::of_shards(&[0; 3], 0);
        assert_eq!(arrivals.place(incoming(3), Some(&loads), |_| 1, 0), 2);
        assert_eq!(arrivals.place(incoming(0), Some(&loads), |_| 1, 0), 2);
    }

    #[test]
    fn shards_without_a_core_are_as_good_as_each_other() {
        let mut arrivals = Arrivals::new(vec![None, None]);
        let on_one = Incoming {
            core: Some(1),
            queue: None,
        };
        assert_eq!(arrivals.place(on_one, None, |s| [1, 0][s], 0), 1);
        assert_eq!(arrivals.place(on_one, None, |_| 1, 0), 0);
    }
}
