//! Valid queues that go mad: random PDUs by a printed seed.

use std::time::Duration;

use longshore_nvme::opcode::io;
use longshore_tests::nvme::pdu::{Pdu, kind};
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
            let pdu = random_pdu(&mut random);
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

/// A PDU of a random type, plausible more often than not.
fn random_pdu(random: &mut Random) -> Pdu {
    const OPCODES: [u8; 12] = [
        io::FLUSH.0,
        io::WRITE.0,
        io::READ.0,
        io::COMPARE.0,
        io::WRITE_ZEROES.0,
        io::DATASET_MANAGEMENT.0,
        io::VERIFY.0,
        io::COPY.0,
        io::RESERVATION_REGISTER.0,
        io::RESERVATION_REPORT.0,
        0x7f,
        0xc1,
    ];
    let byte = |random: &mut Random| random.next().to_le_bytes()[0];
    if random.below(8) == 0 {
        let mut pdu = Pdu::new(kind::H2C_DATA, 24);
        random.fill(&mut pdu.header[8..]);
        return pdu.with_data(&[1; 512]);
    }
    let mut entry = [0; 64];
    random.fill(&mut entry);
    let opcode = usize::try_from(random.below(12)).unwrap();
    entry[0] = OPCODES[opcode];
    if random.below(4) > 0 {
        // A namespace that is there, a range that is there, one block to eight, an SGL that can be.
        entry[1] = 0x40;
        entry[4..8].copy_from_slice(&[1 + byte(random) % 2, 0, 0, 0]);
        entry[42..48].fill(0);
        entry[48..52].copy_from_slice(&[byte(random) % 8, 0, 0, 0]);
        entry[24..40].fill(0);
        let length = u32::from(entry[48]) * 512 + 512;
        entry[32..36].copy_from_slice(&length.to_le_bytes());
        entry[39] = if random.below(2) == 0 { 0x5a } else { 0x01 };
    }
    let pdu = Pdu::command(&entry);
    if entry[39] == 0x01 {
        let mut data = vec![0; usize::from(entry[48]) * 512 + 512];
        random.fill(&mut data);
        if data.len() <= 8192 {
            return pdu.with_data(&data);
        }
    }
    pdu
}
