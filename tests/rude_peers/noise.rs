//! Valid sessions that go mad: random PDUs by a printed seed.

use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::{Pdu, opcode};
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
            let pdu = random_pdu(&mut random, &mut peer);
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

/// A PDU of a random opcode, with plausible numbers more often than not.
fn random_pdu(random: &mut Random, peer: &mut Initiator) -> Pdu {
    const OPCODES: [u8; 8] = [
        opcode::NOP_OUT,
        opcode::SCSI_COMMAND,
        opcode::SCSI_COMMAND,
        opcode::TASK_MANAGEMENT_REQUEST,
        opcode::TEXT_REQUEST,
        opcode::DATA_OUT,
        opcode::SNACK_REQUEST,
        0x1d,
    ];
    let op = OPCODES[random.below(OPCODES.len() as u64) as usize];
    let mut pdu = Pdu::new(op);
    random.fill(&mut pdu.bhs[8..]);
    pdu.bhs[1] = random.next().to_le_bytes()[0] | 0x80;
    if random.below(4) > 0 {
        pdu = pdu
            .set_lun((random.below(3)) as u8)
            .set_word(24, peer.cmd_sn);
        pdu = pdu
            .set_word(28, peer.exp_stat_sn)
            .set_word(16, random.below(8) as u32);
        pdu = pdu.set_word(20, random.below(1 << 20) as u32);
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    }
    if random.below(3) == 0 {
        pdu = pdu.immediate();
    }
    let mut data = vec![0; random.below(2_000) as usize];
    random.fill(&mut data);
    pdu.with_data(&data)
}
