//! Every way to break the rules of the transport, and what the C2HTermReq says then.

use super::*;
use crate::pdu::Terminator;

const INVALID: FatalErrorStatus = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
const SEQUENCE: FatalErrorStatus = FatalErrorStatus::PDU_SEQUENCE_ERROR;
const DIGEST: FatalErrorStatus = FatalErrorStatus::HEADER_DIGEST_ERROR;
const RANGE: FatalErrorStatus = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
const LIMIT: FatalErrorStatus = FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED;

/// A PDU with some bytes changed.
fn with(mut pdu: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        pdu[*at] = *byte;
    }
    pdu
}

/// What is said, in a state that is reached by `Setup`; FES and FEI; bytes of the header repeated.
struct Violation {
    name: &'static str,
    status: FatalErrorStatus,
    information: u32,
    /// Bytes of the PDU in error that are repeated.
    repeated: usize,
}

const fn violation(
    name: &'static str,
    status: FatalErrorStatus,
    information: u32,
    repeated: usize,
) -> Violation {
    Violation {
        name,
        status,
        information,
        repeated,
    }
}

/// Says `bytes`, whole and in pieces, and checks the answer.
fn check(start: &dyn Fn() -> Wire, bytes: &[u8], expected: &Violation) {
    let name = expected.name;
    let cuts = (0..bytes.len().min(200)).map(|cut| [&bytes[..cut], &bytes[cut..]].to_vec());
    let single = std::iter::once(bytes.chunks(1).collect::<Vec<_>>());
    for pieces in single.chain(cuts) {
        let mut wire = start();
        for piece in pieces {
            if wire.target.closed().is_none() {
                wire.hear(piece);
            }
        }
        let said = wire.said();
        let Some(Said::TermReq(error, repeated)) = said.last() else {
            panic!("{name}: {said:?} does not end the connection");
        };
        assert_eq!(error.status, expected.status, "{name}");
        assert_eq!(error.information, expected.information, "{name}");
        assert_eq!(repeated[..], bytes[..expected.repeated], "{name}");
        assert_eq!(
            wire.target.closed(),
            Some(CloseReason::Terminated(*error)),
            "{name}"
        );
        // Nothing is taken, and nothing said, after that.
        let sent = wire.sent.len();
        let capsule = wire.capsule(flush(99), &[]);
        wire.hear(&capsule);
        assert_eq!(wire.sent.len(), sent, "{name}");
    }
}

#[test]
fn violations_before_initialization_are_told_by_their_fes_and_fei() {
    let setup = Setup::default();
    let start = || Wire::silent(&Setup::default());
    let good = ic_req(&setup).encode().to_vec();
    let capsule = CapsuleCmd { entry: flush(1) }.encode().to_vec();
    let data = h2c_data(1, TransferTag(0), 0, 4, true).encode().to_vec();
    let cases = [
        (violation("a command first", SEQUENCE, 0, 8), capsule),
        (violation("data first", SEQUENCE, 0, 8), data),
        (
            violation("HTTP", INVALID, 0, 8),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        ),
        (
            violation("TLS", INVALID, 0, 8),
            vec![0x16, 3, 1, 2, 0, 1, 0, 1],
        ),
        (
            violation("an ICResp", INVALID, 0, 8),
            with(good.clone(), &[(0, 1)]),
        ),
        (
            violation("HLEN of ICReq", INVALID, 2, 8),
            with(good.clone(), &[(2, 127)]),
        ),
        (
            violation("PLEN of ICReq", INVALID, 4, 128),
            with(good.clone(), &[(4, 129)]),
        ),
        (
            violation("no PLEN", INVALID, 4, 128),
            with(good.clone(), &[(4, 0)]),
        ),
        (
            violation("PFV", INVALID, 8, 128),
            with(good.clone(), &[(8, 1)]),
        ),
        (
            violation("PFV, high byte", INVALID, 8, 128),
            with(good.clone(), &[(9, 1)]),
        ),
        (violation("HPDA", INVALID, 10, 128), with(good, &[(10, 32)])),
    ];
    for (expected, bytes) in cases {
        check(&start, &bytes, &expected);
    }
}

#[test]
fn violations_by_capsules_are_told_by_their_fes_and_fei() {
    let setup = Setup::default();
    let start = || Wire::connected(&Setup::default());
    let wire = start();
    let bare = wire.capsule(flush(1), &[]);
    let full = wire.capsule(write_in_capsule(1, 0, 512), &[1; 512]);
    let cases = [
        (
            violation("a second ICReq", SEQUENCE, 0, 8),
            ic_req(&setup).encode().to_vec(),
        ),
        (
            violation("an unknown type", INVALID, 0, 8),
            with(bare.clone(), &[(0, 8)]),
        ),
        (
            violation("the type of a response", INVALID, 0, 8),
            with(bare.clone(), &[(0, 5)]),
        ),
        (
            violation("the type of C2HData", INVALID, 0, 8),
            with(bare.clone(), &[(0, 7)]),
        ),
        (
            violation("the type of C2HTermReq", INVALID, 0, 8),
            with(bare.clone(), &[(0, 3)]),
        ),
        (
            violation("the type of R2T", INVALID, 0, 8),
            with(bare.clone(), &[(0, 9)]),
        ),
        (
            violation("HLEN", INVALID, 2, 8),
            with(bare.clone(), &[(2, 71)]),
        ),
        (
            violation("a longer HLEN", INVALID, 2, 8),
            with(bare.clone(), &[(2, 255)]),
        ),
        (
            violation("HDGSTF without header digests", INVALID, 1, 8),
            with(bare.clone(), &[(1, 1)]),
        ),
        (
            violation("PLEN shorter than the header", INVALID, 4, 72),
            with(bare.clone(), &[(4, 71)]),
        ),
        (
            violation("DDGSTF without data digests", INVALID, 1, 72),
            with(full.clone(), &[(1, 2)]),
        ),
        (
            violation("PDO inside the header", INVALID, 3, 72),
            with(full.clone(), &[(3, 68)]),
        ),
        (
            violation("no PDO", INVALID, 3, 72),
            with(full.clone(), &[(3, 0)]),
        ),
        (
            violation("PDO between dwords", INVALID, 3, 72),
            with(full.clone(), &[(3, 74)]),
        ),
        (
            violation("PDO at the end", INVALID, 4, 72),
            with(full.clone(), &[(3, 76), (4, 76), (5, 0)]),
        ),
        (
            violation("PDO beyond the end", INVALID, 4, 72),
            with(full.clone(), &[(3, 80), (4, 76), (5, 0)]),
        ),
        (
            violation("more than a capsule has room for", LIMIT, 0, 72),
            with(full.clone(), &[(5, 0x80)]),
        ),
        (
            violation("gigabytes in a capsule", LIMIT, 0, 72),
            with(full.clone(), &[(7, 0xff)]),
        ),
        (
            violation("data that a read has no use for", INVALID, 4, 72),
            wire.capsule(read(1, 512), &[1; 512]),
        ),
        (
            violation("data that are to be asked for", INVALID, 4, 72),
            wire.capsule(write(1, 512), &[1; 512]),
        ),
    ];
    for (expected, bytes) in cases {
        check(&start, &bytes, &expected);
    }
}

#[test]
fn violations_of_digests_are_told_by_their_fes_and_fei() {
    let start = || {
        Wire::connected(&Setup {
            digests: BOTH_DIGESTS,
            ..Setup::default()
        })
    };
    let wire = start();
    let bare = wire.capsule(flush(1), &[]);
    let full = wire.capsule(write_in_capsule(1, 0, 512), &[1; 512]);
    let digest = u32::from_le_bytes([bare[72], bare[73], bare[74], bare[75]]);
    let undigested = CapsuleCmd {
        entry: write_in_capsule(1, 0, 512),
    };
    let mut no_data_digest = Encoder::default();
    no_data_digest.initialized(true, false, 0);
    let mut transmit = Transmit::new();
    no_data_digest.push_data(undigested.encode(), Chunk::Bytes(&[1; 512]), &mut transmit);
    let cases = [
        (
            violation("a damaged header", DIGEST, digest, 72),
            with(bare.clone(), &[(20, 1)]),
        ),
        (
            violation("a damaged digest", DIGEST, digest ^ 0x0100_0000, 72),
            with(bare.clone(), &[(75, bare[75] ^ 1)]),
        ),
        (
            violation("no HDGSTF", INVALID, 1, 8),
            with(bare.clone(), &[(1, 0)]),
        ),
        (
            violation("no HDGSTF with data", INVALID, 1, 8),
            with(full, &[(1, 2)]),
        ),
        (
            violation("no DDGSTF", INVALID, 1, 72),
            transmit.arena().to_vec(),
        ),
    ];
    for (expected, bytes) in cases {
        check(&start, &bytes, &expected);
    }
}

#[test]
fn violations_by_data_are_told_by_their_fes_and_fei() {
    // An R2T of 8192 bytes with tag 0 is outstanding for command 3.
    let start = || {
        let mut wire = Wire::connected(&Setup {
            config: |config| {
                config.r2t_bytes = 4096;
                config.max_h2c_data_bytes = 4096;
            },
            ..Setup::default()
        });
        let bytes = wire.capsule(write(3, 8192), &[]);
        wire.hear(&bytes);
        assert_eq!(wire.r2t().tag, TransferTag(0));
        wire
    };
    let wire = start();
    let bytes = [7; 8192];
    let pdu = |id, tag, offset, length: u32, last| {
        let header = h2c_data(id, TransferTag(tag), offset, length, last);
        wire.data(header, &bytes[..length as usize])
    };
    let good = pdu(3, 0, 0, 4096, true);
    let cases = [
        (
            violation("HLEN", INVALID, 2, 8),
            with(good.clone(), &[(2, 23)]),
        ),
        (
            violation("PDO between dwords", INVALID, 3, 24),
            with(good.clone(), &[(3, 25)]),
        ),
        (
            violation("PLEN without data", INVALID, 16, 24),
            with(good.clone(), &[(4, 24), (5, 0)]),
        ),
        (
            violation("DATAL of 0", INVALID, 16, 24),
            pdu(3, 0, 0, 0, false),
        ),
        (
            violation("DATAL other than PLEN says", INVALID, 16, 24),
            with(good.clone(), &[(16, 1)]),
        ),
        (
            violation("DATAL beyond MAXH2CDATA", LIMIT, 0, 24),
            pdu(3, 0, 0, 4100, false),
        ),
        (
            violation("a tag without R2T", SEQUENCE, 0, 24),
            pdu(3, 1, 0, 4096, true),
        ),
        (
            violation("the highest tag", SEQUENCE, 0, 24),
            pdu(3, 0xffff, 0, 4096, true),
        ),
        (
            violation("another command", SEQUENCE, 0, 24),
            pdu(4, 0, 0, 4096, true),
        ),
        (
            violation("an offset beyond what comes next", RANGE, 0, 24),
            pdu(3, 0, 4, 4092, true),
        ),
        (
            violation("an offset beyond everything", RANGE, 0, 24),
            pdu(3, 0, u32::MAX, 4, true),
        ),
        (
            violation("LAST_PDU too early", INVALID, 1, 24),
            pdu(3, 0, 0, 4092, true),
        ),
    ];
    for (expected, bytes) in cases {
        check(&start, &bytes, &expected);
    }

    let half = || {
        let mut wire = start();
        let half = wire.data(h2c_data(3, TransferTag(0), 0, 2048, false), &[7; 2048]);
        wire.hear(&half);
        wire
    };
    let cases = [
        (
            violation("the same data again", RANGE, 0, 24),
            pdu(3, 0, 0, 2048, false),
        ),
        (
            violation("more than is asked for", RANGE, 0, 24),
            pdu(3, 0, 2048, 2052, true),
        ),
    ];
    for (expected, bytes) in cases {
        check(&half, &bytes, &expected);
    }

    let done = || {
        let mut wire = start();
        for offset in [0, 4096] {
            let data = h2c_data(3, TransferTag(0), offset, 4096, true);
            let bytes = wire.data(data, &[7; 4096]);
            wire.hear(&bytes);
        }
        wire
    };
    let late = violation("data for an R2T that has been answered", SEQUENCE, 0, 24);
    check(&done, &pdu(3, 0, 0, 4096, true), &late);
}

#[test]
fn a_host_that_terminates_is_not_answered() {
    let error = FatalError::invalid_field(5);
    let request = TermReq {
        by: Terminator::Host,
        error,
    };
    let mut bytes = request.encode(24).to_vec();
    bytes.extend([1; 24]);
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        for start in [Wire::silent, Wire::initialized, Wire::connected] {
            let mut wire = start(&setup);
            wire.seen.clear();
            wire.hear(&bytes);
            let reason = CloseReason::HostTerminated(error);
            assert_eq!(wire.seen, [Seen::Close(reason)]);
            assert_eq!(wire.said(), []);
        }
    }
}

#[test]
fn a_term_req_is_not_longer_than_152_bytes() {
    let request = TermReq {
        by: Terminator::Host,
        error: FatalError::invalid_field(5),
    };
    let mut bytes = request.encode(128).to_vec();
    bytes[4] = 153;
    let start = || Wire::connected(&Setup::default());
    let expected = violation("PLEN of H2CTermReq", INVALID, 4, 24);
    check(&start, &bytes, &expected);
}

#[test]
fn after_the_end_completions_are_not_sent_and_payload_is_released() {
    let mut wire = Wire::held(&Setup::default());
    let mut bytes = wire.capsule(read(1, 512), &[]);
    bytes.extend(wire.capsule(write(2, 512), &[]));
    wire.hear(&bytes);
    let write = wire.arrived().slot;
    wire.target.want_data_out(write, 512, &mut wire.transmit);
    wire.said();
    wire.hear(&[0xff; 8]);
    wire.terminated();
    wire.buffer = pattern(512);
    let payload = Payload::Buffer {
        id: BUFFER,
        bytes: &pattern(512),
    };
    let inline = wire
        .target
        .begin_inline_read(CommandSlot(0), 512, &mut wire.transmit);
    assert!(inline.is_none());
    wire.complete_with(CommandSlot(0), payload);
    assert!(!wire.target.outstanding_data_out(write));
    wire.complete(write, Completion::status(Status::ABORT_REQUESTED));
    assert_eq!(wire.said(), []);
    assert_eq!(wire.released, [BUFFER]);
    assert_eq!(wire.target.commands().count(), 0);
}

#[test]
fn a_driver_can_end_a_connection_once() {
    let mut wire = Wire::connected(&Setup::default());
    let error = FatalError::plain(SEQUENCE);
    let other = FatalError::plain(LIMIT);
    wire.target.fatal(error, &mut wire.transmit, 5);
    wire.target.fatal(other, &mut wire.transmit, 6);
    wire.hear(&[]);
    assert_eq!(wire.terminated(), error);
}
