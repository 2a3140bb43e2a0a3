//! Byte-exact examples, and what the types have in common.

use longshore_wire::pdu_data::DataLayout;
use proptest::prelude::*;

use super::*;
use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::completion::CompletionEntry;
use crate::opcode::io;
use crate::sgl::SglDescriptor;
use crate::status::Status;

/// Bytes at the front of a header; the rest of it is zero.
fn assert_starts(header: &[u8], front: &[u8]) {
    let (start, rest) = header.split_at(front.len());
    assert_eq!(start, front);
    assert!(rest.iter().all(|byte| *byte == 0), "{rest:?}");
}

/// What Linux 6.1 sends with both digests on.
#[test]
fn an_ic_req_is_as_linux_sends_it() {
    let request = IcReq {
        pfv: 0,
        hpda: 0,
        digests: Digests {
            header: true,
            data: true,
        },
        max_r2t: 1,
    };
    assert_starts(&request.encode(), &[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3]);
}

#[test]
fn an_ic_resp_has_its_fields_where_they_belong() {
    let response = IcResp {
        pfv: 0x0102,
        cpda: 5,
        digests: Digests {
            header: false,
            data: true,
        },
        max_h2c_data: 0x0403_0201,
    };
    let front = [1, 0, 128, 0, 128, 0, 0, 0, 2, 1, 5, 2, 1, 2, 3, 4];
    assert_starts(&response.encode(), &front);
}

#[test]
fn max_r2t_counts_from_zero_on_the_wire() {
    let mut request = IcReq {
        pfv: 0,
        hpda: 0,
        digests: Digests::default(),
        max_r2t: 1,
    };
    for (count, wire) in [(1, [0; 4]), (2, [1, 0, 0, 0]), (1 << 32, [0xff; 4])] {
        request.max_r2t = count;
        let bytes = request.encode();
        assert_eq!(bytes[12..16], wire);
        assert_eq!(IcReq::decode(&bytes).max_r2t, count);
    }
}

#[test]
fn a_term_req_has_its_fields_where_they_belong() {
    let request = TermReq {
        by: Terminator::Controller,
        error: FatalError {
            status: FatalErrorStatus::HEADER_DIGEST_ERROR,
            information: 0x0403_0201,
        },
    };
    let front = [3, 0, 24, 0, 24 + 72, 0, 0, 0, 3, 0, 1, 2, 3, 4];
    assert_starts(&request.encode(72), &front);
}

#[test]
fn capsules_carry_entries_behind_the_common_header() {
    let mut entry = SubmissionEntry::new(io::READ, CommandId(0x0201), NamespaceId(1));
    entry.set_sgl(SglDescriptor::Transport { length: 512 });
    let command = CapsuleCmd { entry }.encode();
    assert_eq!(command[..8], [4, 0, 72, 0, 72, 0, 0, 0]);
    assert_eq!(command[8..], entry.0);
    let entry = CompletionEntry {
        result: 7,
        sq_head: 3,
        id: CommandId(0x0201),
        status: Status::INVALID_FIELD.do_not_retry(),
    };
    let response = CapsuleResp { entry }.encode();
    assert_eq!(response[..8], [5, 0, 24, 0, 24, 0, 0, 0]);
    assert_eq!(response[8..], entry.encode());
}

#[test]
fn data_pdus_have_their_fields_where_they_belong() {
    let (command, tag) = (CommandId(0x0201), TransferTag(0x0403));
    let (offset, length) = (0x0807_0605, 0x0c0b_0a09);
    let fields = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let h2c_data = H2cData {
        last: true,
        command,
        tag,
        offset,
        length,
    };
    let bytes = h2c_data.encode();
    assert_eq!(bytes[..10], [6, 4, 24, 0, 24, 0, 0, 0, 1, 2]);
    assert_starts(&bytes[10..], &fields);
    let r2t = R2t {
        command,
        tag,
        offset,
        length,
    };
    let bytes = r2t.encode();
    assert_eq!(bytes[..10], [9, 0, 24, 0, 24, 0, 0, 0, 1, 2]);
    assert_starts(&bytes[10..], &fields);
    let c2h_data = C2hData {
        last: true,
        success: true,
        command,
        offset,
        length,
    };
    let bytes = c2h_data.encode();
    assert_eq!(bytes[..12], [7, 12, 24, 0, 24, 0, 0, 0, 1, 2, 0, 0]);
    assert_starts(&bytes[12..], &fields[2..]);
}

#[test]
fn each_flag_is_one_bit() {
    let flags = [
        (Flags::HDGSTF, 1),
        (Flags::DDGSTF, 2),
        (Flags::LAST_PDU, 4),
        (Flags::SUCCESS, 8),
    ];
    for (flag, bit) in flags {
        assert!(Flags(bit).contains(flag));
        assert!(!Flags(!bit).contains(flag));
        assert_eq!(Flags(0).with(flag, true), Flags(bit));
        assert_eq!(Flags(0).with(flag, false), Flags(0));
    }
}

#[test]
fn data_lie_between_pdo_and_plen() {
    let common = |flags, pdo, plen| CommonHeader {
        pdu_type: PduType::CAPSULE_CMD,
        flags: Flags(flags),
        hlen: 72,
        pdo,
        plen,
    };
    let layout = |lead, length, has_digest| DataLayout {
        lead,
        length,
        padding: 0,
        has_digest,
    };
    let none = DataLayout::default();
    assert_eq!(common(0, 0, 72).layout(false, 4), Ok(none));
    // Without data PDO and DDGSTF mean nothing.
    assert_eq!(common(2, 99, 72).layout(true, 4), Ok(none));
    assert_eq!(common(0, 72, 73).layout(false, 4), Ok(layout(0, 1, false)));
    assert_eq!(common(3, 76, 584).layout(true, 4), Ok(layout(0, 504, true)));
    assert_eq!(
        common(3, 128, 133).layout(true, 128),
        Ok(layout(52, 1, true))
    );
    let at = |offset| Err(FatalError::invalid_field(offset));
    assert_eq!(common(3, 80, 584).layout(true, 32), at(3));
    assert_eq!(common(3, 76, 80).layout(true, 4), at(4));
    assert_eq!(common(1, 76, u32::MAX).layout(true, 4), at(1));
    assert_eq!(common(0, 255, 100).layout(false, 1), at(4));
    let response = CommonHeader {
        pdu_type: PduType::CAPSULE_RESP,
        hlen: 24,
        ..common(0, 24, 28)
    };
    assert_eq!(response.layout(false, 4), at(4));
}

#[test]
fn types_are_named_as_in_the_standard() {
    assert_eq!(format!("{:?}", PduType::H2C_TERM_REQ), "H2CTermReq");
    assert_eq!(format!("{:?}", PduType(0x47)), "PDU type 47h");
    assert_eq!(PduType(0x47).header_length(), None);
}

proptest! {
    #[test]
    fn every_type_decodes_what_it_encodes(
        bits in any::<[bool; 2]>(),
        alignment: u8,
        pfv: u16,
        count in 1_u64..=1 << 32,
        words: [u16; 2],
        offset: u32,
        length: u32,
        result: u64,
        entry in prop::collection::vec(any::<u8>(), 64),
    ) {
        let digests = Digests { header: bits[0], data: bits[1] };
        let request = IcReq { pfv, hpda: alignment, digests, max_r2t: count };
        prop_assert_eq!(IcReq::decode(&request.encode()), request);
        let response = IcResp { pfv, cpda: alignment, digests, max_h2c_data: length };
        prop_assert_eq!(IcResp::decode(&response.encode()), response);
        let (command, tag) = (CommandId(words[0]), TransferTag(words[1]));
        let h2c_data = H2cData { last: bits[0], command, tag, offset, length };
        prop_assert_eq!(H2cData::decode(&h2c_data.encode()), h2c_data);
        let c2h_data = C2hData { last: bits[0], success: bits[1], command, offset, length };
        prop_assert_eq!(C2hData::decode(&c2h_data.encode()), c2h_data);
        let r2t = R2t { command, tag, offset, length };
        prop_assert_eq!(R2t::decode(&r2t.encode()), r2t);
        for by in [Terminator::Host, Terminator::Controller] {
            let error = FatalError { status: FatalErrorStatus(words[0]), information: offset };
            let request = TermReq { by, error };
            prop_assert_eq!(TermReq::decode(&request.encode(usize::from(alignment) / 2)), request);
        }
        let mut capsule = CapsuleCmd { entry: SubmissionEntry([0; 64]) };
        capsule.entry.0.copy_from_slice(&entry);
        prop_assert_eq!(CapsuleCmd::decode(&capsule.encode()), capsule);
        let entry = CompletionEntry {
            result,
            sq_head: words[1],
            id: command,
            status: Status(words[1] & 0x7fff),
        };
        let capsule = CapsuleResp { entry };
        prop_assert_eq!(CapsuleResp::decode(&capsule.encode()), capsule);
    }
}
