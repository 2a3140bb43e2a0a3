//! Connections that break, fall silent or cannot be had, under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Data, Operation};
use longshore_initiator::options::QueueMaps;
use longshore_initiator::volume::{PathCondition, PathPolicy, RemoteVolume};
use longshore_tests::proxy::{How, Proxy};

use crate::Fact;
use crate::load::{Load, Model, Remote, extent, one};
use crate::peer::Peer;

pub const FACTS: &[Fact] = &[
    Fact::of_all("connections_that_break_are_rebuilt_under_load", breaks),
    Fact::of_all("silence_is_noticed_and_overcome", silence),
    Fact::of_all("a_dead_portal_leaves_its_work_to_the_other", failover),
    Fact::of_all(
        "work_spread_over_two_portals_survives_both_breaking",
        spread,
    ),
    Fact::of_all("a_volume_without_any_path_fails_in_time", gives_up),
];

fn proxy(peer: &Peer, portal: usize) -> Proxy {
    Proxy::start(peer.portals[portal], peer.proxy_protocol()).expect("a proxy listens")
}

/// Runs a load while `disturb` is called again and again, until it has been often enough.
fn under(
    remote: &mut Remote,
    model: &mut Model,
    load: &Load,
    times: u32,
    pause: Duration,
    disturb: impl Fn(u32) + Send,
) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = &done;
        let disturber = scope.spawn(move || {
            for time in 0..times {
                // Time for some work between two disturbances; how much it is does not matter.
                std::thread::sleep(pause);
                disturb(time);
            }
            ended.store(true, Ordering::SeqCst);
        });
        let mut load = load.clone();
        while !done.load(Ordering::SeqCst) && !disturber.is_finished() {
            load.seed += 1;
            load.run_on(remote, model);
        }
    });
}

fn breaks(peer: &Peer) {
    let proxy = proxy(peer, 0);
    let mut options = peer.options();
    options.queues = QueueMaps::plain(2);
    options.volume.resubmissions = 100;
    let mut remote = Remote::open(&peer.url_at(proxy.address()), &options);
    let mut load = Load::new(peer, 200, 16);
    load.blocks_max = 100;
    let mut model = Model::new(load.region.clone());
    let pause = Duration::from_millis(if peer.maker.is_slow() { 400 } else { 150 });
    let volume = remote.volume.clone();
    under(&mut remote, &mut model, &load, 8, pause, |time| {
        // What is not rebuilt yet cannot break again.
        let begin = Instant::now();
        while volume.state().counters.reconnects < u64::from(time)
            && begin.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        proxy.break_all(if time % 2 == 0 {
            How::Reset
        } else {
            How::Close
        });
    });
    drop(volume);
    model.verify(&mut remote);
    let state = remote.volume.state();
    assert!(state.counters.reconnects >= 4, "{state:?}");
    remote.close();
}

fn silence(peer: &Peer) {
    let proxy = proxy(peer, 0);
    let mut options = peer.options();
    options.timeouts.keep_alive = Duration::from_millis(500);
    options.timeouts.request = Duration::from_secs(3);
    options.nvme.keep_alive = Duration::from_secs(1);
    let mut remote = Remote::open(&peer.url_at(proxy.address()), &options);
    let load = Load::new(peer, 200, 8);
    let mut model = Model::new(load.region.clone());
    load.run_on(&mut remote, &mut model);
    let begin = Instant::now();
    proxy.break_all(How::Silence);
    load.run_on(&mut remote, &mut model);
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    model.verify(&mut remote);
    let counters = remote.volume.state().counters;
    assert!(counters.losses >= 1, "{counters:?}");
    remote.close();
}

/// Waits until the path with this number is so.
fn wait_for(remote: &Remote, path: usize, condition: PathCondition) {
    let begin = Instant::now();
    while remote.volume.state().paths[path].condition != condition {
        let state = remote.volume.state();
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{path} {condition}: {state:#?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn failover(peer: &Peer) {
    let proxies = [proxy(peer, 0), proxy(peer, 1)];
    let options = peer.options();
    let url = peer.url_over([proxies[0].address(), proxies[1].address()]);
    let mut remote = Remote::open(&url, &options);
    let volume = remote.volume.clone();
    wait_for(&remote, 1, PathCondition::Usable);
    let mut load = Load::new(peer, 200, 16);
    load.blocks_max = 100;
    let mut model = Model::new(load.region.clone());
    under(
        &mut remote,
        &mut model,
        &load,
        4,
        Duration::from_millis(300),
        |time| {
            // The first dies, comes back, and the second dies.
            let dead = usize::from(time >= 2);
            proxies[dead].refuse(time % 2 == 0);
            if time % 2 == 0 {
                proxies[dead].break_all(How::Reset);
            } else if dead == 0 {
                // What is left when the second dies.
                let begin = Instant::now();
                while volume.state().paths[0].condition != PathCondition::Usable
                    && begin.elapsed() < Duration::from_secs(20)
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        },
    );
    model.verify(&mut remote);
    for path in 0..2 {
        wait_for(&remote, path, PathCondition::Usable);
    }
    let state = remote.volume.state();
    assert!(
        state.counters.failovers >= 1 && state.counters.losses >= 2,
        "{state:?}"
    );
    remote.close();
}

fn spread(peer: &Peer) {
    let proxies = [proxy(peer, 0), proxy(peer, 1)];
    let mut options = peer.options();
    options.volume.policy = PathPolicy::Spread;
    options.volume.resubmissions = 100;
    let url = peer.url_over([proxies[0].address(), proxies[1].address()]);
    let mut remote = Remote::open(&url, &options);
    wait_for(&remote, 1, PathCondition::Usable);
    let mut load = Load::new(peer, 200, 16);
    load.blocks_max = 100;
    let mut model = Model::new(load.region.clone());
    under(
        &mut remote,
        &mut model,
        &load,
        4,
        Duration::from_millis(300),
        |time| {
            proxies[usize::from(time % 2 == 0)].break_all(How::Close);
        },
    );
    model.verify(&mut remote);
    remote.close();
}

fn gives_up(peer: &Peer) {
    let proxy = proxy(peer, 0);
    let mut options = peer.options();
    options.timeouts.give_up = Duration::from_millis(700);
    let mut remote =
        Remote::over(RemoteVolume::open(&peer.url_at(proxy.address()), &options).unwrap());
    proxy.refuse(true);
    proxy.break_all(How::Reset);
    let begin = Instant::now();
    let operation = Operation::Read {
        extent: extent(0, 8),
    };
    let (result, data) = one(
        &mut remote,
        operation,
        Data::buffer(longshore_reactor::Buffer::allocate(4096)),
    );
    assert!(
        matches!(result, Err(Failure::ConnectionLost(_))),
        "{result:?}"
    );
    assert!(data.into_buffer().is_some(), "the memory comes back");
    let after = begin.elapsed();
    assert!(
        after > Duration::from_millis(300) && after < Duration::from_secs(4),
        "{after:?}"
    );
    remote.close();
}
