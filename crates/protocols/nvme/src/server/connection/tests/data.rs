//! Data from the host.

use super::*;

/// R2Ts of 4096 bytes, up to four at a time.
fn short_r2ts() -> Setup {
    Setup {
        max_r2t: 4,
        config: |config| {
            config.r2t_bytes = 4096;
            config.max_h2c_data_bytes = 8192;
        },
        ..Setup::default()
    }
}

fn r2t(id: u16, tag: u16, offset: u32, length: u32) -> R2t {
    R2t {
        command: CommandId(id),
        tag: TransferTag(tag),
        offset,
        length,
    }
}

#[test]
fn in_capsule_data_are_written() {
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        let data = pattern(4096);
        let mut wire = in_any_pieces(&setup, |wire| {
            wire.capsule(write_in_capsule(3, 0, 4096), &data)
        });
        assert_eq!(wire.seen[1], Seen::Complete(CommandSlot(0), data));
        assert_eq!(wire.response().status, Status::SUCCESS);
    }
}

/// A Write with its data in the capsule, up to the event that tells of it: its slot, and what follows.
fn reported<'a>(wire: &mut Wire, mut bytes: &'a [u8]) -> (CommandSlot, &'a [u8]) {
    match wire.target.next(&mut bytes, &mut wire.transmit, 0) {
        ConnectionEvent::Command(command) => (command.slot, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_capsule_data_that_are_all_there_can_be_used_where_they_are() {
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        let data = pattern(4096);
        let mut wire = Wire::connected(&setup);
        let mut bytes = wire.capsule(write_in_capsule(3, 0, 4096), &data);
        bytes.extend(wire.capsule(flush(4), &[]));
        let (slot, mut rest) = reported(&mut wire, &bytes);
        assert_eq!(wire.target.whole_in_capsule(slot, rest), Some(&data[..]));
        wire.target.take_in_capsule(slot, &mut rest);
        wire.complete(slot, Completion::status(Status::SUCCESS));
        wire.hear(rest);
        let id = |said: &Said| match said {
            Said::Response(entry) => entry.id,
            other => panic!("{other:?}"),
        };
        let ids: Vec<_> = wire.said().iter().map(id).collect();
        assert_eq!(ids, [CommandId(3), CommandId(4)]);
        assert!(!wire.target.is_inside_pdu());
    }
}

#[test]
fn in_capsule_data_that_are_cut_or_corrupt_are_not_whole() {
    let setup = Setup {
        digests: Digests {
            header: true,
            data: true,
        },
        ..Setup::default()
    };
    let data = pattern(4096);
    for corrupt in [false, true] {
        let mut wire = Wire::connected(&setup);
        let mut bytes = wire.capsule(write_in_capsule(3, 0, 4096), &data);
        let last = bytes.len() - 1;
        bytes[last] ^= u8::from(corrupt);
        let (slot, rest) = reported(&mut wire, &bytes);
        let shown = if corrupt {
            rest
        } else {
            &rest[..rest.len() - 1]
        };
        assert_eq!(wire.target.whole_in_capsule(slot, shown), None);
    }
    // Bytes before those of the command, or behind them.
    for (offset, length) in [(4, 4092), (0, 4092)] {
        let mut wire = Wire::connected(&setup);
        let bytes = wire.capsule(write_in_capsule(3, offset, length), &data);
        let (slot, rest) = reported(&mut wire, &bytes);
        assert_eq!(wire.target.whole_in_capsule(slot, rest), None);
    }
}

#[test]
fn data_answer_an_r2t_in_as_many_pieces_as_the_host_likes() {
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        let data = pattern(1000);
        let mut wire = in_any_pieces(&setup, |wire| {
            let mut bytes = wire.capsule(write(3, 1000), &[]);
            let mut offset = 0;
            for length in [1, 3, 500, 496] {
                let end = offset + length;
                let piece = &data[offset as usize..end as usize];
                let header = h2c_data(3, TransferTag(0), offset, length, end == 1000);
                bytes.extend(wire.data(header, piece));
                offset = end;
            }
            bytes
        });
        assert_eq!(wire.seen[1], Seen::Complete(CommandSlot(0), data));
        let said = wire.said();
        assert_eq!(said[0], Said::R2t(r2t(3, 0, 0, 1000)));
        assert!(matches!(&said[1..], [Said::Response(entry)] if entry.status.is_success()));
    }
}

#[test]
fn a_host_is_asked_for_one_piece_after_another() {
    let setup = Setup {
        max_r2t: 1,
        ..short_r2ts()
    };
    let data = pattern(10_000);
    let mut wire = Wire::connected(&setup);
    let bytes = wire.capsule(write(3, 10_000), &[]);
    wire.hear(&bytes);
    for (offset, length) in [(0, 4096), (4096, 4096), (8192, 1808)] {
        let asked = wire.r2t();
        assert_eq!((asked.offset, asked.length), (offset, length));
        let piece = &data[offset as usize..(offset + length) as usize];
        let bytes = wire.data(h2c_data(3, asked.tag, offset, length, true), piece);
        wire.hear(&bytes);
    }
    assert_eq!(wire.response().status, Status::SUCCESS);
    assert_eq!(wire.seen[1], Seen::Complete(CommandSlot(0), data));
}

#[test]
fn several_r2ts_are_outstanding_where_the_host_allows_it() {
    for (max_r2t, at_once) in [(1, 1), (2, 2), (4, 4), (1 << 32, 4)] {
        let setup = Setup {
            max_r2t,
            ..short_r2ts()
        };
        let mut wire = Wire::connected(&setup);
        let bytes = wire.capsule(write(3, 100_000), &[]);
        wire.hear(&bytes);
        assert_eq!(wire.said().len(), at_once);
    }
}

#[test]
fn r2ts_are_answered_in_any_order() {
    let data = pattern(16_384);
    let mut wire = in_any_pieces(&short_r2ts(), |wire| {
        let mut bytes = wire.capsule(write(3, 16_384), &[]);
        for (tag, offset, last) in [
            (2, 8192, false),
            (0, 0, true),
            (3, 12_288, true),
            (2, 8192 + 2048, true),
            (1, 4096, true),
        ] {
            let length = if tag == 2 { 2048 } else { 4096 };
            let piece = &data[offset as usize..(offset + length) as usize];
            let header = h2c_data(3, TransferTag(tag), offset, length, last);
            bytes.extend(wire.data(header, piece));
        }
        bytes
    });
    assert_eq!(wire.seen[1], Seen::Complete(CommandSlot(0), data));
    assert_eq!(wire.said().len(), 5);
}

#[test]
fn data_of_several_commands_may_alternate() {
    let (one, two) = (pattern(8192), vec![9; 8192]);
    let wire = in_any_pieces(&short_r2ts(), |wire| {
        let mut bytes = wire.capsule(write(3, 8192), &[]);
        bytes.extend(wire.capsule(write(4, 8192), &[]));
        for (id, tag, data, offset) in [
            (3, 0, &one, 0),
            (4, 2, &two, 0),
            (4, 3, &two, 4096),
            (3, 1, &one, 4096),
        ] {
            let header = h2c_data(id, TransferTag(tag), offset, 4096, true);
            let at = offset as usize;
            bytes.extend(wire.data(header, &data[at..at + 4096]));
        }
        bytes
    });
    assert_eq!(wire.seen[2], Seen::Complete(CommandSlot(1), two));
    assert_eq!(wire.seen[3], Seen::Complete(CommandSlot(0), one));
}

#[test]
fn the_last_pdu_need_not_say_that_it_is() {
    let mut wire = Wire::connected(&Setup::default());
    let bytes = wire.capsule(write(3, 512), &[]);
    wire.hear(&bytes);
    let asked = wire.r2t();
    let bytes = wire.data(h2c_data(3, asked.tag, 0, 512, false), &[1; 512]);
    wire.hear(&bytes);
    assert_eq!(wire.response().status, Status::SUCCESS);
}

#[test]
fn no_more_is_asked_for_than_is_wanted() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(write(3, 8192), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    wire.target.want_data_out(slot, 512, &mut wire.transmit);
    assert!(wire.target.outstanding_data_out(slot));
    let asked = wire.r2t();
    assert_eq!(asked.length, 512);
    let bytes = wire.data(h2c_data(3, asked.tag, 0, 512, true), &[1; 512]);
    wire.hear(&bytes);
    assert!(!wire.target.outstanding_data_out(slot));
    assert_eq!(wire.seen[1], Seen::Complete(slot, vec![1; 512]));
}

#[test]
fn a_command_that_wants_nothing_is_complete_at_once() {
    let mut wire = Wire::held(&Setup::default());
    for entry in [write(3, 8192), read(4, 512), flush(5)] {
        let bytes = wire.capsule(entry, &[]);
        wire.hear(&bytes);
        let slot = wire.arrived().slot;
        wire.target.want_data_out(slot, 0, &mut wire.transmit);
        wire.hear(&[]);
        assert_eq!(wire.seen.last(), Some(&Seen::Complete(slot, Vec::new())));
    }
    assert_eq!(wire.said(), []);
}

#[test]
fn in_capsule_data_that_nobody_wants_are_skipped() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(write_in_capsule(3, 0, 512), &[1; 512]);
    wire.hear(&bytes[..100]);
    let slot = wire.arrived().slot;
    wire.written.clear();
    wire.target.want_data_out(slot, 0, &mut wire.transmit);
    assert_eq!(wire.target.payload_wanted(), None);
    wire.hear(&bytes[100..]);
    assert_eq!(wire.seen[1], Seen::Complete(slot, Vec::new()));
}

#[test]
fn a_command_may_end_while_its_capsule_still_arrives() {
    let mut wire = Wire::held(&Setup::default());
    let mut bytes = wire.capsule(write_in_capsule(3, 0, 512), &[1; 512]);
    bytes.extend(wire.capsule(flush(4), &[]));
    wire.hear(&bytes[..100]);
    let slot = wire.arrived().slot;
    wire.complete(slot, Completion::status(Status::LBA_OUT_OF_RANGE));
    assert_eq!(wire.response().status, Status::LBA_OUT_OF_RANGE);
    assert!(wire.target.is_inside_pdu());
    wire.hear(&bytes[100..]);
    assert_eq!(wire.arrived().entry, flush(4));
    assert_eq!(wire.seen.len(), 2);
    assert!(!wire.target.is_inside_pdu());
}

#[test]
fn a_command_that_is_given_up_ends_when_its_r2ts_are_answered() {
    let mut wire = Wire::held(&short_r2ts());
    let bytes = wire.capsule(write(3, 100_000), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    wire.target.want_data_out(slot, 100_000, &mut wire.transmit);
    assert_eq!(wire.said().len(), 4);
    wire.target.want_data_out(slot, 0, &mut wire.transmit);
    for tag in 0..4 {
        assert!(wire.target.outstanding_data_out(slot));
        let header = h2c_data(3, TransferTag(tag), u32::from(tag) * 4096, 4096, true);
        let bytes = wire.data(header, &[1; 4096]);
        wire.hear(&bytes);
    }
    assert_eq!(wire.seen[1..], [Seen::Complete(slot, Vec::new())]);
    assert_eq!(wire.said(), []);
}

#[test]
#[should_panic(expected = "the host is sending data of the command")]
fn a_command_must_not_end_while_the_host_may_be_sending() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(write(3, 512), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    wire.target.want_data_out(slot, 512, &mut wire.transmit);
    wire.complete(slot, Completion::status(Status::SUCCESS));
}

#[test]
fn a_data_digest_error_fails_the_command_alone() {
    let setup = Setup {
        digests: BOTH_DIGESTS,
        ..Setup::default()
    };
    let data = pattern(512);
    let mut wire = in_any_pieces(&setup, |wire| {
        let mut bytes = wire.capsule(write_in_capsule(3, 0, 512), &data);
        *bytes.last_mut().unwrap() ^= 1;
        bytes.extend(wire.capsule(write_in_capsule(4, 0, 512), &data));
        bytes
    });
    let said = wire.said();
    let [Said::Response(one), Said::Response(two)] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(one.status, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(two.status, Status::SUCCESS);
    assert_eq!(wire.seen[1], Seen::Failed(CommandSlot(0)));
    assert_eq!(wire.seen[3], Seen::Complete(CommandSlot(0), data));
}

#[test]
fn after_a_data_digest_error_what_was_asked_for_is_awaited_and_no_more() {
    let setup = Setup {
        digests: BOTH_DIGESTS,
        ..short_r2ts()
    };
    let mut wire = in_any_pieces(&setup, |wire| {
        let mut bytes = wire.capsule(write(3, 100_000), &[]);
        for tag in 0..4 {
            let header = h2c_data(3, TransferTag(tag), u32::from(tag) * 4096, 4096, true);
            let mut pdu = wire.data(header, &[1; 4096]);
            if tag == 0 {
                pdu[1000] ^= 1;
            }
            bytes.extend(pdu);
        }
        bytes.extend(wire.capsule(flush(4), &[]));
        bytes
    });
    let said = wire.said();
    let responses: Vec<_> = said
        .iter()
        .filter_map(|said| match said {
            Said::Response(entry) => Some((entry.id.0, entry.status)),
            _ => None,
        })
        .collect();
    let failed = (3, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(responses, [failed, (4, Status::SUCCESS)]);
    assert_eq!(said.len(), 4 + 2);
}

#[test]
fn a_digest_error_in_data_that_nobody_wants_changes_nothing() {
    let setup = Setup {
        digests: BOTH_DIGESTS,
        ..Setup::default()
    };
    let mut wire = in_any_pieces(&setup, |wire| {
        let mut entry = flush(3);
        entry.set_sgl(SglDescriptor::Offset {
            offset: 0,
            length: 512,
        });
        let mut bytes = wire.capsule(entry, &[1; 512]);
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    });
    assert_eq!(wire.response().status, Status::SUCCESS);
}

#[test]
fn payload_is_wanted_where_it_belongs() {
    let mut wire = Wire::held(&short_r2ts());
    let bytes = wire.capsule(write(3, 8192), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    assert_eq!(wire.target.payload_wanted(), None);
    wire.target.want_data_out(slot, 6000, &mut wire.transmit);
    assert_eq!(wire.said().len(), 2);
    let bytes = wire.data(h2c_data(3, TransferTag(1), 4096, 1904, true), &[1; 1904]);
    wire.hear(&bytes[..24]);
    let wanted = wire.target.payload_wanted().unwrap();
    assert_eq!(
        (wanted.slot, wanted.buffer_offset, wanted.length),
        (slot, 4096, 1904)
    );
    wire.target.payload_received(&[1; 904], 0);
    let wanted = wire.target.payload_wanted().unwrap();
    assert_eq!((wanted.buffer_offset, wanted.length), (5000, 1000));
    wire.target.payload_received(&[1; 1000], 0);
    assert_eq!(wire.target.payload_wanted(), None);
    assert!(wire.target.is_inside_pdu());
    wire.hear(&[]);
    assert!(!wire.target.is_inside_pdu());
}

#[test]
fn tags_are_bounded_by_the_queue() {
    let mut setup = Setup {
        max_r2t: 1 << 32,
        config: |config| {
            config.r2t_bytes = 4;
            config.r2ts_in_flight_max = u32::MAX;
        },
        ..Setup::default()
    };
    setup.queue.entries = u16::MAX;
    let wire = Wire::connected(&setup);
    assert_eq!(wire.target.r2ts_max, 1);
    setup.queue.entries = 1024;
    let wire = Wire::connected(&setup);
    assert_eq!(wire.target.r2ts_max, 64);
}
