//! Valid sessions that go mad: random PDUs by a printed seed.

use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::noise::iscsi_pdu;
use longshore_tests::random::Random;

use crate::Scene;

/// Sessions; each sends PDUs until the server hangs up, or its share has been sent.
const SESSIONS: u16 = 60;
const PDUS: usize = 60;

#[test]
fn random_pdus_within_a_session_harm_nobody() {
    let seed = std::env::var("LONGSHORE_SEED").map_or_else(
        |_| 20_261_121,
        |text| text.parse().expect("LONGSHORE_SEED is a number"),
    );
    println!("LONGSHORE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut scene = Scene::new();
    for isid in 0..SESSIONS {
        let login = Login {
            header_digest: random.below(2) == 0,
            data_digest: random.below(2) == 0,
            ..Login::numbered(isid)
        };
        let mut peer = Initiator::log_in(scene.server.portal(0), &login).unwrap();
        for _ in 0..PDUS {
            let pdu = iscsi_pdu(&mut random, &mut peer);
            if peer.send(&pdu).is_err() {
                break;
            }
        }
        let _ = peer.drain(Duration::from_millis(1));
        if isid % 10 == 0 {
            scene.assert_others_do_not_notice_except_writes();
        }
    }
    scene.assert_memory_grew_at_most(96 << 20);
}

impl Scene {
    /// Random writes may hit the blocks that the well-behaved session reads.
    fn assert_others_do_not_notice_except_writes(&mut self) {
        let answer = self
            .healthy
            .command(0, &cdb::write_16(0, 8, false), Data::Out(&[7; 4096]));
        // Unit attentions come from the resets that the noise asked for, reservations likewise.
        let answer = answer.unwrap();
        assert_eq!(answer.response, 0, "{answer:?}");
    }
}
