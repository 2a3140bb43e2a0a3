//! Valid queues that go mad: random PDUs by a printed seed.

use std::time::Duration;

use longshore_tests::noise::nvme_pdu;
use longshore_tests::random::Random;

use crate::{MEBI, Scene};

/// Queues; each sends PDUs until the server hangs up, or its share has been sent.
const QUEUES: u32 = 60;
const PDUS: usize = 60;

#[test]
fn random_pdus_on_a_queue_harm_nobody() {
    let seed = std::env::var("LONGSHORE_SEED").map_or_else(
        |_| 20_261_122,
        |text| text.parse().expect("LONGSHORE_SEED is a number"),
    );
    println!("LONGSHORE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut scene = Scene::new();
    for number in 0..QUEUES {
        let mut queue = scene.queue();
        for _ in 0..PDUS {
            let pdu = nvme_pdu(&mut random);
            if queue.peer.send(&pdu).is_err() {
                break;
            }
        }
        let _ = queue.peer.drain(Duration::from_millis(1));
        if number % 10 == 0 {
            // Noise may write, reserve or compare anything; it does not stop the server.
            let active = scene.healthy.active_namespaces().unwrap();
            assert_eq!(active, [1, 2]);
        }
    }
    scene.assert_memory_grew_at_most(96 * MEBI);
    // Whatever the queues did, reading still works, or somebody holds a reservation.
    let read = scene.healthy.read(crate::blocks(2, 0, 8)).unwrap();
    let conflict = longshore_nvme::status::Status::RESERVATION_CONFLICT;
    assert!(read.is_success() || read.code() == conflict, "{read:?}");
}
