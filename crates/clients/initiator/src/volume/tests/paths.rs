//! Several paths: failover, failback, access states, and old writes that must not come after new ones.

use super::fake::Behaviour;
use super::*;
use crate::info::{AccessState, Notice};
use crate::volume::{PathCondition, PathPolicy};

/// A volume over that many paths, all of them up.
fn open_paths(fake: &Fake, settings: Settings) -> RemoteVolume {
    let volume = open_with(fake, settings);
    all_up(&volume);
    volume
}

fn all_up(volume: &RemoteVolume) {
    until("all paths are up", || {
        let paths = volume.state().paths;
        paths.iter().all(|path| path.queues > 0)
    });
}

/// The portals that the last operations reached.
fn portals(fake: &Fake) -> Vec<usize> {
    fake.world()
        .executed
        .iter()
        .map(|(portal, _)| *portal)
        .collect()
}

#[test]
fn operations_in_flight_go_over_to_another_path_at_once_and_come_back_with_the_first() {
    let fake = Fake::new(2);
    let volume = open_paths(&fake, settings());
    fake.behaviours([Behaviour::Hold, Behaviour::Hold]);
    let held = [
        submit(&volume, read(0, 1), 0),
        submit(&volume, write(1, 1), 9),
    ];
    fake.take_away(0);
    assert_eq!(held[0].result(), Ok(()));
    assert_eq!(held[1].result(), Ok(()));
    assert_eq!(portals(&fake), [1, 1]);
    let state = volume.state();
    assert_eq!(state.counters.failovers, 1);
    assert_eq!(state.paths[0].condition, PathCondition::Down);
    assert!(state.paths[1].in_use);
    fake.bring_back(0);
    until("it fails back", || volume.state().paths[0].in_use);
    assert_eq!(run(&volume, read(0, 1), 0), Ok(()));
    assert_eq!(portals(&fake).last(), Some(&0));
    volume.close();
}

#[test]
fn the_first_portal_need_not_be_up_to_begin_with() {
    let fake = Fake::new(2);
    fake.world().portals[0].up = false;
    let volume = open(&fake);
    assert_eq!(run(&volume, read(0, 1), 0), Ok(()));
    assert_eq!(portals(&fake), [1]);
    fake.bring_back(0);
    until("it is found later", || volume.state().paths[0].in_use);
    volume.close();
}

#[test]
fn no_portal_is_an_error_that_names_all() {
    let fake = Fake::new(2);
    for portal in &mut fake.world().portals {
        portal.up = false;
    }
    let error = RemoteVolume::over(fake.dialer(), settings()).unwrap_err();
    assert!(error.to_string().contains("none of 2 portals"), "{error}");
}

#[test]
fn access_states_are_followed() {
    let fake = Fake::new(2);
    let volume = open_paths(&fake, settings());
    fake.tell(0, Notice::AccessChanged(AccessState::NonOptimized));
    until("the better path is taken", || {
        volume.state().paths[1].in_use
    });
    assert_eq!(
        volume.state().paths[0].condition,
        PathCondition::NonOptimized
    );
    fake.tell(1, Notice::AccessChanged(AccessState::Inaccessible));
    until("the only one is taken", || volume.state().paths[0].in_use);
    fake.tell(0, Notice::AccessChanged(AccessState::Change));
    until("there is none", || !volume.state().paths[0].in_use);
    let waits = submit(&volume, read(0, 1), 0);
    assert_eq!(volume.state().parked, 1);
    fake.tell(1, Notice::AccessChanged(AccessState::Optimized));
    assert_eq!(waits.result(), Ok(()));
    assert_eq!(portals(&fake), [1]);
    volume.close();
}

#[test]
fn an_operation_that_a_path_cannot_do_goes_to_another() {
    let fake = Fake::new(2);
    let volume = open_paths(&fake, settings());
    let inaccessible = Failure::Scsi {
        status: 0x02,
        sense: Some(crate::error::Sense {
            key: 2,
            asc: 4,
            ascq: 0xb,
            information: None,
        }),
    };
    fake.foretell(move |portal, _| match portal {
        0 => Behaviour::Fail(inaccessible.clone()),
        _ => Behaviour::Answer,
    });
    assert_eq!(run(&volume, write(0, 1), 1), Ok(()));
    assert_eq!(portals(&fake), [1]);
    until("others do not even try", || {
        // The suspicion may have passed before anybody looked.
        volume.state().paths[1].in_use || {
            run(&volume, write(0, 1), 1).unwrap();
            false
        }
    });
    fake.foretell(|_, _| Behaviour::Answer);
    until("it is tried again after a while", || {
        volume.state().paths[0].in_use
    });
    volume.close();
}

#[test]
fn a_path_to_another_volume_is_refused_and_the_other_one_used() {
    let fake = Fake::new(2);
    fake.world().portals[1].serial = Some("another");
    let volume = open(&fake);
    until("it is refused", || {
        volume.state().paths[1].condition == PathCondition::Refused
    });
    let error = volume.state().paths[1].last_error.clone().unwrap();
    assert!(
        error.contains("naa another") && error.contains("naa ours"),
        "{error}"
    );
    assert_eq!(run(&volume, write(0, 1), 1), Ok(()));
    assert_eq!(portals(&fake), [0]);
    volume.close();
}

#[test]
fn equally_good_paths_share_the_work_when_asked_to() {
    let fake = Fake::new(3);
    fake.world().portals[2].access = AccessState::NonOptimized;
    let mut settings = settings();
    settings.volume.policy = PathPolicy::Spread;
    let volume = open_paths(&fake, settings);
    fake.foretell(|_, _| Behaviour::Hold);
    let collector = Collector::new();
    for tag in 0..60 {
        volume.submit(read(0, 1), data_for(&read(0, 1), 0), collector.clone(), tag);
    }
    fake.foretell(|_, _| Behaviour::Answer);
    until("all have completed", || {
        fake.release();
        collector.count() == 60
    });
    let portals = portals(&fake);
    for portal in [0, 1] {
        assert!(
            portals.iter().filter(|p| **p == portal).count() > 10,
            "{portals:?}"
        );
    }
    assert!(!portals.contains(&2));
    volume.close();
}

/// A write that the server keeps from a lost connection, and executes when it would do harm.
fn stale_write(fake: &Fake, volume: &RemoteVolume) -> Arc<Collector> {
    let mut is_cut = false;
    fake.foretell(move |portal, operation| match (portal, operation) {
        (0, Operation::Write { .. }) if !std::mem::replace(&mut is_cut, true) => {
            Behaviour::CutAndLate
        }
        _ => Behaviour::Answer,
    });
    let stale = submit(volume, write(0, 1), 1);
    until("the path is lost", || volume.state().counters.losses == 1);
    fake.foretell(|_, _| Behaviour::Answer);
    stale
}

#[test]
fn a_write_in_doubt_waits_before_it_goes_over_another_path_but_nothing_else_does() {
    let fake = Fake::new(2);
    fake.world().reinstates = false;
    let mut settings = settings();
    settings.volume.settle = Duration::from_secs(6);
    let volume = open_paths(&fake, settings);
    fake.world().portals[0].up = false;
    let begun = Instant::now();
    let stale = stale_write(&fake, &volume);
    assert_eq!(run(&volume, write(9, 1), 5), Ok(()), "new writes go on");
    assert_eq!(run(&volume, read(9, 1), 6), Ok(()), "so do reads");
    assert_eq!(stale.count(), 0, "and the one in doubt waits");
    assert_eq!(fake.execute_late(PATIENCE), 1, "the server takes its time");
    assert_eq!(stale.result(), Ok(()));
    assert!(begun.elapsed() >= Duration::from_secs(6));
    // Acknowledged now, and overwritten: the old one is not to come after that.
    assert_eq!(run(&volume, write(0, 1), 2), Ok(()));
    assert_eq!(fake.execute_late(PATIENCE), 0);
    assert_eq!(fake.word(0), 2);
    volume.close();
}

#[test]
fn a_write_in_doubt_goes_on_as_soon_as_its_session_is_reinstated() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.settle = Duration::from_secs(100);
    let volume = open_with(&fake, settings);
    let stale = stale_write(&fake, &volume);
    assert_eq!(stale.result(), Ok(()));
    assert_eq!(run(&volume, write(0, 1), 2), Ok(()));
    assert_eq!(
        fake.execute_late(PATIENCE),
        0,
        "the login has ended the old session"
    );
    assert_eq!(fake.word(0), 2);
    volume.close();
}

#[test]
fn a_session_elsewhere_does_not_end_the_former_one() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.settle = Duration::from_millis(200);
    let volume = open_with(&fake, settings);
    fake.world().portals[0].address = 2;
    let begun = Instant::now();
    let stale = stale_write(&fake, &volume);
    until("the portal has sent us elsewhere", || {
        volume.state().paths[0].in_use
    });
    assert_eq!(stale.result(), Ok(()));
    assert!(begun.elapsed() >= Duration::from_millis(200), "it waited");
    volume.close();
}

#[test]
fn a_write_in_doubt_goes_on_when_the_peer_confirms_the_end_of_its_link() {
    let fake = Fake::new(2);
    fake.world().reinstates = false;
    fake.world().confirms_end = true;
    let mut settings = settings();
    settings.volume.settle = Duration::from_secs(100);
    let volume = open_paths(&fake, settings);
    let stale = stale_write(&fake, &volume);
    assert_eq!(stale.result(), Ok(()));
    assert_eq!(fake.execute_late(PATIENCE), 0);
    volume.close();
}

/// Cuts the first path, and waits until it is back.
fn reconnect(fake: &Fake, volume: &RemoteVolume) {
    let before = volume.state().paths[0].connects;
    fake.world().cut(0);
    until("it is back", || {
        let path = &volume.state().paths[0];
        path.connects > before && path.in_use
    });
    // Whatever goes on because of that is through.
    assert_eq!(run(volume, read(0, 1), 77), Ok(()));
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn fewer_sessions_end_no_writes_of_more_however_often_they_come_back() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.settle = Duration::from_secs(100);
    settings.queues = QueueMaps::plain(4);
    fake.world().portals[0].maps = QueueMaps::plain(4);
    let volume = open_with(&fake, settings);
    fake.world().portals[0].maps = QueueMaps::plain(2);
    let stale = stale_write(&fake, &volume);
    reconnect(&fake, &volume);
    reconnect(&fake, &volume);
    assert_eq!(stale.count(), 0, "two sessions may still be there");
    fake.world().portals[0].maps = QueueMaps::plain(4);
    reconnect(&fake, &volume);
    assert_eq!(stale.result(), Ok(()));
    volume.close();
}

#[test]
fn the_confirmed_end_of_one_link_ends_no_writes_of_an_earlier_one() {
    let fake = Fake::new(1);
    fake.world().reinstates = false;
    let mut settings = settings();
    settings.volume.settle = Duration::from_secs(100);
    settings.volume.close_wait = Duration::from_millis(30);
    let volume = open_with(&fake, settings);
    let stale = stale_write(&fake, &volume);
    until("it is back", || volume.state().paths[0].in_use);
    until("the end of the first was asked for", || {
        fake.world().ends > 0
    });
    fake.world().confirms_end = true;
    reconnect(&fake, &volume);
    assert_eq!(
        stale.count(),
        0,
        "nobody has confirmed the end of the first"
    );
    volume.close();
    assert_eq!(stale.result(), Err(Failure::Closed));
}

#[test]
fn a_volume_that_grows_is_seen() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.world().info.block_count = 1 << 21;
    fake.tell_by_queue(0, Notice::CapacityChanged);
    until("it has grown", || volume.info().block_count == 1 << 21);
    fake.world().info.block_count = 1 << 22;
    fake.tell(0, Notice::CapacityChanged);
    fake.tell(0, Notice::CapacityChanged);
    until("it has grown again", || {
        volume.info().block_count == 1 << 22
    });
    assert_eq!(volume.state().counters.losses, 0);
    volume.close();
}

#[test]
fn a_volume_that_turns_into_another_is_left() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.world().info.identifiers[0].value = "another".to_owned();
    fake.tell(0, Notice::CapacityChanged);
    until("it is refused", || {
        volume.state().paths[0].condition == PathCondition::Refused
    });
    assert!(run(&volume, write(0, 1), 1).is_err());
    assert_eq!(fake.word(0), 0);
    volume.close();
}

#[test]
fn a_peer_that_asks_us_to_leave_gets_what_is_under_way_done_first() {
    let fake = Fake::new(2);
    let volume = open_paths(&fake, settings());
    fake.behaviours([Behaviour::Hold]);
    let held = submit(&volume, compare_and_write(0, 1), 0);
    fake.tell_by_queue(0, Notice::LogoutAsked);
    until("new operations go elsewhere", || {
        volume.state().paths[1].in_use
    });
    fake.release();
    assert_eq!(held.result(), Ok(()), "not of unknown outcome");
    until("it has left and is back", || {
        let path = &volume.state().paths[0];
        path.connects == 2 && path.in_use
    });
    volume.close();
}
