//! Asymmetric namespace access (NVMe base 2.0 §8.1): a controller says how good its path is, and that
//! changes under load. The namespace in ANA group 2 of nvmet, over both ports.

use std::time::{Duration, Instant};

use longshore_initiator::volume::PathCondition;

use crate::Fact;
use crate::load::{Load, Model, Remote};
use crate::peer::{Maker, Peer};

pub const FACTS: &[Fact] = &[
    Fact::of(has_groups, "work_follows_the_states_of_ana", follows_states),
    Fact::of(has_groups, "work_waits_while_no_path_is_accessible", waits),
];

/// NSID of the namespace in group 2.
const NAMESPACE: u32 = 3;

fn has_groups(peer: &Peer) -> bool {
    peer.maker == Maker::Nvmet && peer.control.is_some()
}

/// Sets the state of the group at one port; back to `optimized` when it goes away.
struct State<'a> {
    peer: &'a Peer,
}

impl State<'_> {
    fn set(&self, port: usize, state: &str) {
        self.peer.command(&format!("ana {} {state}", port + 1));
    }
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            (0..2).for_each(|port| self.set(port, "optimized"));
        }
    }
}

fn open(peer: &Peer) -> (Remote, Load, Model) {
    let url = format!(
        "nvme+tcp://{}/{}/{NAMESPACE}?portal={}",
        peer.portals[0], peer.target, peer.portals[1]
    );
    let remote = Remote::open(&url.parse().expect("a URL"), &peer.options());
    let mut load = Load::new(peer, 60, 8);
    load.blocks_max = 40;
    let model = Model::new(load.region.clone());
    (remote, load, model)
}

fn wait_for(remote: &Remote, path: usize, condition: PathCondition, in_use: bool) {
    let begin = Instant::now();
    loop {
        let state = remote.volume.state();
        let now = &state.paths[path];
        if now.condition == condition && now.in_use == in_use {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "path {path} {condition}, in use {in_use}: {state:#?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn follows_states(peer: &Peer) {
    let group = State { peer };
    (0..2).for_each(|port| group.set(port, "optimized"));
    let (mut remote, mut load, mut model) = open(peer);
    wait_for(&remote, 1, PathCondition::Usable, false);
    let mut step = |remote: &mut Remote| {
        load.seed += 1;
        load.run_on(remote, &mut model);
    };
    step(&mut remote);
    group.set(0, "inaccessible");
    step(&mut remote);
    wait_for(&remote, 0, PathCondition::Inaccessible, false);
    wait_for(&remote, 1, PathCondition::Usable, true);
    step(&mut remote);
    group.set(0, "non-optimized");
    wait_for(&remote, 0, PathCondition::NonOptimized, false);
    step(&mut remote);
    // The better path goes, a slower one is left.
    group.set(1, "inaccessible");
    step(&mut remote);
    wait_for(&remote, 0, PathCondition::NonOptimized, true);
    group.set(1, "optimized");
    wait_for(&remote, 1, PathCondition::Usable, true);
    step(&mut remote);
    group.set(0, "optimized");
    // Back to the first of the best.
    wait_for(&remote, 0, PathCondition::Usable, true);
    step(&mut remote);
    // Once more, in the middle of work.
    std::thread::scope(|scope| {
        let switching = scope.spawn(|| {
            for state in ["inaccessible", "optimized", "non-optimized", "optimized"] {
                std::thread::sleep(Duration::from_millis(150));
                group.set(0, state);
            }
        });
        while !switching.is_finished() {
            step(&mut remote);
        }
    });
    model.verify(&mut remote);
    remote.close();
}

fn waits(peer: &Peer) {
    let group = State { peer };
    let (mut remote, load, mut model) = open(peer);
    load.run_on(&mut remote, &mut model);
    for state in ["inaccessible", "change"] {
        (0..2).for_each(|port| group.set(port, state));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                group.set(1, "optimized");
            });
            load.run_on(&mut remote, &mut model);
        });
        let after = begin.elapsed();
        assert!(after > Duration::from_millis(600), "{state}: {after:?}");
        (0..2).for_each(|port| group.set(port, "optimized"));
    }
    model.verify(&mut remote);
    remote.close();
}
