//! PDUs that a peer that has gone mad sends within a session or on a queue, in both protocols: random ones, plausible
//! more often than not.

use longshore_nvme::opcode::io;

use crate::initiator::Initiator;
use crate::nvme::pdu as nvme;
use crate::nvme::pdu::kind;
use crate::pdu::{Pdu, opcode};
use crate::random::Random;

/// A PDU of a random opcode, with plausible numbers more often than not.
pub fn iscsi_pdu(random: &mut Random, peer: &mut Initiator) -> Pdu {
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
    let op = pick(random, &OPCODES);
    let mut pdu = Pdu::new(op);
    random.fill(&mut pdu.bhs[8..]);
    pdu.bhs[1] = byte(random) | 0x80;
    if random.below(4) > 0 {
        pdu = pdu.set_lun(byte(random) % 3).set_word(24, peer.cmd_sn);
        pdu = pdu
            .set_word(28, peer.exp_stat_sn)
            .set_word(16, below(random, 8));
        pdu = pdu.set_word(20, below(random, 1 << 20));
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    }
    if random.below(3) == 0 {
        pdu = pdu.immediate();
    }
    let mut data = vec![0; usize::try_from(random.below(2_000)).expect("small")];
    random.fill(&mut data);
    pdu.with_data(&data)
}

/// A PDU of a random type, plausible more often than not.
pub fn nvme_pdu(random: &mut Random) -> nvme::Pdu {
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
    if random.below(8) == 0 {
        let mut pdu = nvme::Pdu::new(kind::H2C_DATA, 24);
        random.fill(&mut pdu.header[8..]);
        return pdu.with_data(&[1; 512]);
    }
    let mut entry = [0; 64];
    random.fill(&mut entry);
    entry[0] = pick(random, &OPCODES);
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
    let pdu = nvme::Pdu::command(&entry);
    if entry[39] == 0x01 {
        let mut data = vec![0; usize::from(entry[48]) * 512 + 512];
        random.fill(&mut data);
        if data.len() <= 8192 {
            return pdu.with_data(&data);
        }
    }
    pdu
}

fn byte(random: &mut Random) -> u8 {
    random.next().to_le_bytes()[0]
}

fn below(random: &mut Random, bound: u32) -> u32 {
    u32::try_from(random.below(bound.into())).expect("below 32 bits")
}

fn pick(random: &mut Random, list: &[u8]) -> u8 {
    let length = u64::try_from(list.len()).expect("a list is short");
    list[usize::try_from(random.below(length)).expect("an index of the list")]
}
