//! Operations become the right commands, and ends of commands the right ends of operations.

use super::*;
use longshore_block::extent::Lba;
use longshore_iscsi::initiator::login::LoginConfig;
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{Isid, RejectReason};
use proptest::prelude::*;

const ALL: Dialect = Dialect {
    block_size: 512,
    fua: true,
    write_cache: true,
    synchronize_cache_16: false,
    unmap: true,
    write_same: true,
    write_same_unmap: true,
    write_same_without_data: true,
    compare_and_write_max: 8,
    get_lba_status: true,
};
const NONE: Dialect = Dialect {
    fua: false,
    write_cache: false,
    unmap: false,
    write_same: false,
    write_same_unmap: false,
    write_same_without_data: false,
    compare_and_write_max: 0,
    get_lba_status: false,
    ..ALL
};

fn machine(dialect: Dialect) -> Machine {
    let name = |text| IscsiName::parse(text).unwrap();
    let (initiator, target) = (name("iqn.2026-11.test:i"), name("iqn.2026-11.test:t"));
    let login = LoginConfig::normal(initiator, target, Isid([0x80, 0, 0, 0, 0, 1]));
    let mut transmit = Transmit::new();
    let connection = Connection::new(login, 4, &mut |bytes| bytes.fill(1), &mut transmit);
    Machine::new(connection, Lun::ZERO, dialect)
}

const fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

fn zeroes(blocks: u64, may_unmap: bool, fua: bool) -> Operation {
    Operation::WriteZeroes {
        extent: extent(1, blocks),
        may_unmap,
        fua,
    }
}

fn outcome(status: u8, residual: Residual) -> CommandOutcome {
    CommandOutcome {
        status: Some(status),
        rejected: None,
        sense: Vec::new(),
        residual,
        data_in_length: 0,
    }
}

#[test]
fn what_a_target_lacks_is_not_sent() {
    let machine = machine(NONE);
    let extent = extent(0, 1);
    for operation in [
        Operation::CompareAndWrite { extent, fua: false },
        zeroes(1, false, false),
        Operation::Unmap { extent },
        Operation::ExtentStatus { extent },
    ] {
        let result = machine.translate(&operation).map(|(cdb, ..)| cdb);
        assert_eq!(result, Err(Failure::Unsupported), "{operation:?}");
    }
    assert!(machine.translate(&Operation::Flush).is_ok());
}

#[test]
fn zeros_go_with_or_without_a_block_of_them_and_never_to_the_whole_medium() {
    let flags = |dialect, may_unmap| {
        let translated = machine(dialect).translate(&zeroes(9, may_unmap, false));
        let (cdb, _, transfer) = translated.unwrap();
        (cdb.as_bytes()[1], transfer)
    };
    assert_eq!(flags(ALL, true), (0x09, Transfer::Write(0)));
    assert_eq!(flags(ALL, false), (0x01, Transfer::Write(0)));
    let with_data = Dialect {
        write_same_without_data: false,
        ..ALL
    };
    assert_eq!(flags(with_data, true), (0x08, Transfer::Write(512)));
    let no_unmap = Dialect {
        write_same_unmap: false,
        ..with_data
    };
    assert_eq!(flags(no_unmap, true), (0x00, Transfer::Write(512)));
    let of = |operation| machine(ALL).translate(&operation).map(|_| ()).unwrap_err();
    assert_eq!(of(zeroes(0, false, false)), Failure::OutOfRange);
    assert_eq!(of(zeroes(1 << 32, false, false)), Failure::TooLarge);
}

#[test]
fn force_unit_access_is_a_bit_where_there_is_one_and_a_flush_where_there_is_a_cache() {
    let write = Operation::Write {
        extent: extent(0, 1),
        fua: true,
    };
    let compare = Operation::CompareAndWrite {
        extent: extent(0, 1),
        fua: true,
    };
    for (fua, write_cache) in [(true, true), (true, false), (false, true), (false, false)] {
        let machine = machine(Dialect {
            fua,
            write_cache,
            ..ALL
        });
        let bit = |operation| {
            let (cdb, ..) = machine.translate(operation)?;
            Ok(cdb.as_bytes()[1] & 0x08 != 0)
        };
        assert_eq!(bit(&write), Ok(fua));
        assert_eq!(machine.needs_flush(&write), !fua && write_cache);
        assert_eq!(machine.needs_flush(&zeroes(1, true, true)), write_cache);
        assert!(!machine.needs_flush(&zeroes(1, true, false)));
        let expected = if fua || !write_cache {
            Ok(fua)
        } else {
            Err(Failure::Unsupported)
        };
        assert_eq!(bit(&compare), expected);
    }
}

#[test]
fn more_than_a_command_can_move_is_refused() {
    let machine = machine(ALL);
    let large = extent(0, 1 << 23);
    for operation in [
        Operation::Read { extent: large },
        Operation::Write {
            extent: large,
            fua: false,
        },
        Operation::CompareAndWrite {
            extent: extent(0, 9),
            fua: false,
        },
        Operation::Unmap {
            extent: extent(0, 1 << 32),
        },
    ] {
        let result = machine.translate(&operation).map(|(cdb, ..)| cdb);
        assert_eq!(result, Err(Failure::TooLarge), "{operation:?}");
    }
}

#[test]
fn a_residual_is_no_success_in_either_direction() {
    let mut machine = machine(ALL);
    for transfer in [Transfer::Read(1024), Transfer::Write(1024)] {
        machine.slots[0].transfer = transfer;
        let mut of = |residual| machine.result(CommandId(0), &outcome(0, residual));
        assert_eq!(of(Residual::None), Ok(Reply::Done));
        let short = |expected, moved| Err(Failure::ShortTransfer { expected, moved });
        assert_eq!(of(Residual::Underflow(512)), short(1024, 512));
        assert_eq!(of(Residual::Underflow(5000)), short(1024, 0));
        assert_eq!(of(Residual::Overflow(512)), short(1536, 1024));
    }
}

#[test]
fn a_flush_that_a_target_without_cache_does_not_know_is_done() {
    let rejected = CommandOutcome {
        status: None,
        rejected: Some(RejectReason::COMMAND_NOT_SUPPORTED),
        ..outcome(0, Residual::None)
    };
    for (dialect, expected) in [(NONE, Ok(Reply::Done)), (ALL, Err(Failure::Unsupported))] {
        let mut machine = machine(dialect);
        machine.slots[0].purpose = Purpose::Flush;
        assert_eq!(machine.result(CommandId(0), &rejected), expected);
    }
}

#[test]
fn a_unit_attention_fails_its_command_and_is_told() {
    let mut machine = machine(ALL);
    let attention = CommandOutcome {
        sense: vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2a, 9, 0, 0, 0, 0],
        ..outcome(2, Residual::Underflow(512))
    };
    let failed = machine.result(CommandId(0), &attention);
    assert!(matches!(failed, Err(Failure::Scsi { .. })));
    let (mut input, mut transmit) = (&[][..], Transmit::new());
    let event = queue::Machine::next(&mut machine, &mut input, &mut transmit);
    assert!(matches!(
        event,
        MachineEvent::Notice(Notice::CapacityChanged)
    ));
    let event = queue::Machine::next(&mut machine, &mut input, &mut transmit);
    assert!(matches!(event, MachineEvent::NeedMore));
}

fn lba_status(lba: u64, blocks: u32, state: u8) -> Vec<u8> {
    let mut answer = vec![0, 0, 0, 20, 0, 0, 0, 0];
    answer.extend(lba.to_be_bytes());
    answer.extend(blocks.to_be_bytes());
    answer.extend([state, 0, 0, 0]);
    answer
}

#[test]
fn the_run_at_the_start_of_a_range_has_a_state() {
    let run = |blocks, state| {
        Some(Reply::Extent {
            blocks: BlockCount(blocks),
            state,
        })
    };
    for (answer, expected) in [
        (lba_status(100, 8, 0), run(8, ExtentState::Mapped)),
        (lba_status(90, 18, 1), run(8, ExtentState::Deallocated)),
        (lba_status(100, 1000, 2), run(50, ExtentState::Anchored)),
        (lba_status(100, 8, 0xf4), run(8, ExtentState::Mapped)),
        (lba_status(101, 8, 1), None),
        (lba_status(90, 10, 1), None),
        (lba_status(100, 8, 1)[..20].to_vec(), None),
        (Vec::new(), None),
    ] {
        assert_eq!(parse_lba_status(extent(100, 50), &answer), expected);
    }
}

proptest! {
    #[test]
    fn no_answer_about_extents_makes_it_panic_or_claim_too_much(
        answer in prop::collection::vec(any::<u8>(), 0..32),
        lba: u64,
        blocks in 1..u64::MAX,
    ) {
        if let Some(done) = parse_lba_status(extent(lba, blocks), &answer) {
            let Reply::Extent { blocks: run, .. } = done else {
                panic!("a state")
            };
            prop_assert!(run.0 >= 1 && run.0 <= blocks);
        }
    }
}
