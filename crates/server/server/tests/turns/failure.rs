//! When a shard fails.

use longshore_server::stepped::Next;

use crate::rig::{Options, Rig};

#[test]
fn the_server_ends_when_one_of_its_shards_fails() {
    let mut rig = Rig::new(&Options {
        shards: 2,
        clients: 3,
        ..Options::default()
    });
    assert!(matches!(rig.turn_with_mail(), Next::Wait(_)));
    rig.fail(1);
    assert_eq!(rig.turn_with_mail(), Next::Ended);
}
