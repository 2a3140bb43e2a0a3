//! Two portals to one volume, one of which dies.

use std::time::{Duration, Instant};

use longshore_initiator::volume::{PathCondition, PathPolicy, block_on};
use longshore_reactor::Buffer;
use longshore_tests::process::assert_takes_less;
use longshore_tests::proxy::{self, How, Proxy};

use super::load::Load;
use super::{PROTOCOLS, Protocol, Restartable, file_server, open, options, until};

/// A server behind two proxies.
fn two_portals(protocol: Protocol) -> (Restartable, [Proxy; 2]) {
    let server = Restartable::start(protocol);
    let kind = match protocol {
        Protocol::Iscsi => proxy::Protocol::Iscsi,
        Protocol::Nvme => proxy::Protocol::NvmeTcp,
    };
    let proxies = [(); 2].map(|()| Proxy::start(server.address, kind).unwrap());
    (server, proxies)
}

#[test]
fn a_portal_that_dies_under_load_is_left_for_the_other_and_taken_again() {
    for protocol in PROTOCOLS {
        for how in [How::Close, How::Reset] {
            let (_server, proxies) = two_portals(protocol);
            let url = protocol.url(&[proxies[0].address(), proxies[1].address()]);
            let volume = open(&url, &options());
            until("both paths are up", || {
                volume.state().paths.iter().all(|path| path.queues > 0)
            });
            let load = Load::new(4);
            load.run(&volume, |load| {
                for _ in 0..2 {
                    load.wait_for(50);
                    proxies[0].refuse(true);
                    proxies[0].break_all(how);
                    until("the other is taken", || volume.state().paths[1].in_use);
                    load.wait_for(50);
                    proxies[0].refuse(false);
                    until("the first is taken again", || {
                        volume.state().paths[0].in_use
                    });
                }
                load.wait_for(50);
            });
            let counters = volume.state().counters;
            assert_eq!(counters.failovers, 4, "{protocol:?} {how:?} {counters:?}");
            assert!(
                load.slowest() < Duration::from_secs(10),
                "{protocol:?} {how:?}: {:?}",
                load.slowest()
            );
            volume.close();
        }
    }
}

#[test]
fn a_portal_that_falls_silent_is_left_for_the_other() {
    for protocol in PROTOCOLS {
        let (_server, proxies) = two_portals(protocol);
        let url = protocol.url(&[proxies[0].address(), proxies[1].address()]);
        let mut options = options();
        options.timeouts.request = Duration::from_millis(300);
        let volume = open(&url, &options);
        until("both paths are up", || {
            volume.state().paths.iter().all(|path| path.queues > 0)
        });
        let load = Load::new(3);
        load.run(&volume, |load| {
            load.wait_for(50);
            proxies[0].refuse(true);
            proxies[0].break_all(How::Silence);
            until("the other is taken", || volume.state().paths[1].in_use);
            load.wait_for(50);
        });
        assert_eq!(volume.state().paths[0].condition, PathCondition::Down);
        volume.close();
    }
}

#[test]
fn work_is_spread_over_paths_and_goes_on_with_those_that_are_left() {
    for protocol in PROTOCOLS {
        let (_server, proxies) = two_portals(protocol);
        let url = protocol.url(&[proxies[0].address(), proxies[1].address()]);
        let mut options = options();
        options.volume.policy = PathPolicy::Spread;
        let volume = open(&url, &options);
        until("both paths are in use", || {
            volume.state().paths.iter().all(|path| path.in_use)
        });
        let load = Load::new(4);
        load.run(&volume, |load| {
            for round in 0..4 {
                load.wait_for(50);
                proxies[round % 2].break_all(How::Reset);
                until("it was lost and is back", || {
                    let state = volume.state();
                    state.counters.losses == round as u64 + 1
                        && state.counters.reconnects == round as u64 + 1
                        && state.paths.iter().all(|path| path.in_use)
                });
            }
            load.wait_for(50);
        });
        assert_eq!(volume.state().counters.reconnects, 4);
        volume.close();
    }
}

#[test]
fn a_portal_of_another_volume_is_no_path() {
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let stranger = file_server(&server.scratch.join("other.img"));
        let (stranger, portal) = match protocol {
            Protocol::Iscsi => {
                let stranger = stranger.iscsi().start().unwrap();
                let portal = stranger.portal(0);
                (stranger, portal)
            }
            Protocol::Nvme => {
                let stranger = stranger.nvme().start().unwrap();
                let portal = stranger.nvme(0);
                (stranger, portal)
            }
        };
        let volume = open(&protocol.url(&[server.address, portal]), &options());
        until("it is refused", || {
            volume.state().paths[1].condition == PathCondition::Refused
        });
        assert_takes_less(Duration::from_secs(1), || {
            let begun = Instant::now();
            let written = block_on(volume.write(0, Buffer::allocate(4096), false)).0;
            assert_eq!(written, Ok(()));
            begun.elapsed()
        });
        volume.close();
        drop(stranger);
    }
}
