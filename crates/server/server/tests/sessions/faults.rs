//! What a volume's failures become for the initiator, and that it stays usable.

use std::sync::Arc;

use longshore_reactor::EngineChoice;
use longshore_tests::initiator::{Data, cdb};
use longshore_volume::Volume;
use longshore_volume::layer::fault::{Fault, FaultRule, FaultTarget, FaultVolume};

use crate::scene::*;

fn faulty(target: FaultTarget, fault: Fault) -> Arc<dyn Volume> {
    let rule = FaultRule {
        target,
        range: 0..8 * 512,
        failures_per_million: 1_000_000,
        fault,
    };
    Arc::new(FaultVolume::new(mem("disk", 512), vec![rule], 1))
}

#[test]
fn write_without_space_is_data_protect_and_the_volume_stays_usable() {
    for engine in ENGINES {
        let scene = Scene::with(vec![faulty(FaultTarget::Write, Fault::NoSpace)], engine);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        for _ in 0..3 {
            let answer = write(&mut one, 0, 1);
            assert_eq!(answer.status, CHECK_CONDITION);
            assert_eq!(answer.sense_code(), Some((7, 0x27, 7)));
        }
        assert!(write(&mut two, 100, 2).is_good());
        assert_eq!(read(&mut one, 100), [2; 512]);
        assert_eq!(read(&mut one, 0), [0; 512]);
    }
}

#[test]
fn failed_write_is_a_write_error_and_failed_read_an_unrecovered_read_error() {
    for engine in ENGINES {
        let volumes = vec![faulty(FaultTarget::Write, Fault::Medium)];
        let scene = Scene::with(volumes, engine);
        let mut host = scene.host(1);
        let sense = write(&mut host, 3, 1).sense_code().unwrap();
        assert_eq!((sense.0, sense.1), (3, 0x0c), "{sense:?}");
        assert!(write(&mut host, 100, 2).is_good());

        let scene = Scene::with(vec![faulty(FaultTarget::Read, Fault::Medium)], engine);
        let mut host = scene.host(1);
        let answer = host.command(0, &cdb::read_16(3, 1), Data::In(512)).unwrap();
        let sense = answer.sense_code().unwrap();
        assert_eq!((sense.0, sense.1), (3, 0x11), "{sense:?}");
        assert!(answer.data.is_empty());
        assert!(write(&mut host, 100, 2).is_good());
        assert_eq!(read(&mut host, 100), [2; 512]);
    }
}

#[test]
fn failed_flush_refuses_all_writes_from_then_on() {
    let scene = Scene::with(
        vec![faulty(FaultTarget::Flush, Fault::Medium)],
        EngineChoice::Auto,
    );
    let (mut one, mut two) = (scene.host(1), scene.host(2));
    assert!(write(&mut one, 0, 1).is_good());
    let flush = cdb::synchronize_cache_16();
    let answer = one.command(0, &flush, Data::None).unwrap();
    assert_eq!(answer.status, CHECK_CONDITION, "{answer:?}");
    assert_eq!(write(&mut two, 1, 1).status, CHECK_CONDITION);
    assert_eq!(
        one.command(0, &flush, Data::None).unwrap().status,
        CHECK_CONDITION
    );
    assert_eq!(read(&mut two, 0), [1; 512]);
}
