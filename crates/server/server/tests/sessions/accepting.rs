//! Connections that come all at once.

use longshore_tests::initiator::Initiator;

use crate::scene::*;

#[test]
fn connections_that_wait_already_at_the_start_are_all_accepted() {
    for engine in ENGINES {
        let config = config(vec![mem("disk", 512)], engine);
        let portal = config.listeners[0].local_address().unwrap();
        // No more than the backlog of the socket; several times what is accepted in one turn.
        let mut hosts: Vec<_> = (0..100)
            .map(|_| Initiator::connect(portal).unwrap())
            .collect();
        let _scene = Scene::new(config);
        for (number, host) in (1..).zip(&mut hosts) {
            assert_eq!(host.try_login(&login(number)).unwrap(), 0);
        }
    }
}
