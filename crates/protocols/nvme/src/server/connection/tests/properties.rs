//! Random hosts: honest ones in random pieces, and others.

use proptest::prelude::*;

use super::*;

/// A command of an honest host, and how it sends the data.
#[derive(Clone, Debug)]
enum Spoken {
    Flush,
    Read(u32),
    InCapsule(u32),
    /// In H2CData PDUs of at most so many bytes.
    Write(u32, u32),
}

fn spoken() -> impl Strategy<Value = Spoken> {
    prop_oneof![
        Just(Spoken::Flush),
        (1_u32..20_000).prop_map(Spoken::Read),
        (1_u32..=8192).prop_map(Spoken::InCapsule),
        (1_u32..20_000, 1_u32..=4096).prop_map(|(length, piece)| Spoken::Write(length, piece)),
    ]
}

fn digests() -> impl Strategy<Value = Digests> {
    prop::sample::select(all_digests().to_vec())
}

fn setups() -> impl Strategy<Value = Setup> {
    (digests(), 0_u8..32, 1_u64..6, any::<bool>()).prop_map(
        |(digests, hpda, max_r2t, flow_control)| {
            let mut setup = Setup {
                digests,
                hpda,
                max_r2t,
                config: |config| {
                    config.r2t_bytes = 4096;
                    config.max_h2c_data_bytes = 4096;
                },
                ..Setup::default()
            };
            setup.queue.flow_control = flow_control;
            setup
        },
    )
}

/// Sends bytes in pieces of the given sizes, over and over.
fn hear_in_pieces(wire: &mut Wire, mut bytes: &[u8], sizes: &[usize], at: &mut usize) {
    while !bytes.is_empty() {
        let size = sizes[*at % sizes.len()].min(bytes.len());
        *at += 1;
        wire.hear(&bytes[..size]);
        bytes = &bytes[size..];
    }
}

/// One command, from its capsule to its end. Returns its status.
fn converse(wire: &mut Wire, id: u16, spoken: &Spoken, sizes: &[usize], at: &mut usize) -> Status {
    let (entry, in_capsule) = match *spoken {
        Spoken::Flush => (flush(id), Vec::new()),
        Spoken::Read(length) => (read(id, length), Vec::new()),
        Spoken::InCapsule(length) => (write_in_capsule(id, 0, length), pattern(length)),
        Spoken::Write(length, _) => (write(id, length), Vec::new()),
    };
    let bytes = wire.capsule(entry, &in_capsule);
    hear_in_pieces(wire, &bytes, sizes, at);
    let mut answers = std::collections::VecDeque::from(wire.said());
    while let Some(said) = answers.pop_front() {
        match said {
            Said::R2t(r2t) => {
                let Spoken::Write(length, piece) = *spoken else {
                    panic!("{r2t:?} for {spoken:?}");
                };
                let data = pattern(length);
                let mut offset = r2t.offset;
                while offset < r2t.offset + r2t.length {
                    let end = (offset + piece).min(r2t.offset + r2t.length);
                    let last = end == r2t.offset + r2t.length;
                    let header = h2c_data(id, r2t.tag, offset, end - offset, last);
                    let bytes = wire.data(header, &data[offset as usize..end as usize]);
                    hear_in_pieces(wire, &bytes, sizes, at);
                    offset = end;
                }
                answers.extend(wire.said());
            }
            Said::Data(header, data) => {
                let Spoken::Read(length) = *spoken else {
                    panic!("{header:?} for {spoken:?}");
                };
                assert_eq!(data, pattern(length));
                if header.success {
                    assert!(answers.is_empty());
                    return Status::SUCCESS;
                }
            }
            Said::Response(entry) => {
                assert_eq!(entry.id, CommandId(id));
                assert!(answers.is_empty());
                return entry.status;
            }
            Said::IcResp(_) | Said::TermReq(..) => panic!("{said:?} for {spoken:?}"),
        }
    }
    panic!("no answer to {spoken:?}");
}

/// Bytes that have a chance to be taken for PDUs.
fn almost_pdus() -> impl Strategy<Value = Vec<u8>> {
    let header = (
        prop::sample::select(vec![0_u8, 2, 4, 4, 4, 6, 6, 6, 7, 0x7f]),
        prop::sample::select(vec![0_u8, 0, 0, 1, 2, 3, 4, 8]),
        prop::sample::select(vec![72_u8, 72, 24, 24, 128, 0]),
        prop::sample::select(vec![0_u8, 24, 28, 72, 72, 76, 128]),
        prop::sample::select(vec![
            0_u32,
            24,
            28,
            72,
            72,
            76,
            128,
            152,
            584,
            600,
            u32::MAX,
        ]),
        prop::collection::vec(0_u8..4, 0..128),
        prop::sample::select(vec![0_u8, 1, 2, 0x7f, 5]),
        prop::sample::select(vec![0_u8, 1, 0x5a, 0x20]),
    );
    header.prop_map(|(pdu_type, flags, hlen, pdo, plen, body, opcode, sgl)| {
        let mut bytes = vec![pdu_type, flags, hlen, pdo];
        bytes.extend(plen.to_le_bytes());
        bytes.extend(body);
        if bytes.len() > 48 {
            bytes[8] = opcode;
            bytes[9] = 0x40;
            bytes[47] = sgl;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_honest_host_gets_what_it_asks_for_in_any_pieces(
        setup in setups(),
        commands in prop::collection::vec(spoken(), 1..12),
        sizes in prop::collection::vec(1_usize..6000, 1..8),
        direct: bool,
    ) {
        let mut wire = Wire::connected(&setup);
        wire.direct = direct;
        let mut at = 0;
        for (id, spoken) in (100..).zip(&commands) {
            wire.seen.clear();
            let status = converse(&mut wire, id, spoken, &sizes, &mut at);
            prop_assert_eq!(status, Status::SUCCESS);
            let written = wire.seen.iter().find_map(|seen| match seen {
                Seen::Complete(_, data) => Some(data.clone()),
                _ => None,
            });
            let expected = match *spoken {
                Spoken::InCapsule(length) | Spoken::Write(length, _) => Some(pattern(length)),
                Spoken::Flush | Spoken::Read(_) => None,
            };
            prop_assert_eq!(written, expected);
            prop_assert_eq!(wire.target.commands().count(), 0);
        }
        prop_assert!(wire.target.is_connected());
        prop_assert!(!wire.target.is_inside_pdu());
    }

    /// One flipped bit of a stream with digests: the connection ends, or commands fail, or nothing
    /// happens because nobody looks; but damaged data are not taken for good.
    #[test]
    fn damage_is_never_taken_for_data(
        bit in 0_usize..8,
        place in any::<prop::sample::Index>(),
        length in 1_u32..5000,
    ) {
        let setup = Setup { digests: BOTH_DIGESTS, ..Setup::default() };
        let mut wire = Wire::connected(&setup);
        let data = pattern(length);
        let mut bytes = wire.capsule(write_in_capsule(1, 0, length), &data);
        bytes.extend(wire.capsule(write(2, length), &[]));
        bytes.extend(wire.data(h2c_data(2, TransferTag(0), 0, length, true), &data));
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        wire.hear(&bytes);
        wire.said();
        for seen in &wire.seen {
            if let Seen::Complete(_, written) = seen {
                prop_assert_eq!(written, &data);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_what_it_says_is_well_formed(
        stage in 0_u8..3,
        digests in digests(),
        pdus in prop::collection::vec(almost_pdus(), 1..20),
        sizes in prop::collection::vec(1_usize..300, 1..4),
        answers: bool,
    ) {
        let setup = Setup { digests, ..Setup::default() };
        let mut wire = match stage {
            0 => Wire::silent(&setup),
            1 => Wire::initialized(&setup),
            _ => Wire::connected(&setup),
        };
        wire.answers = answers || stage < 2;
        let mut at = 0;
        for pdu in &pdus {
            hear_in_pieces(&mut wire, pdu, &sizes, &mut at);
        }
        wire.said();
        prop_assert!(wire.target.commands().count() <= wire.target.capacity());
    }

    #[test]
    fn noise_ends_a_connection_with_a_reason(noise in prop::collection::vec(any::<u8>(), 8..600)) {
        let mut wire = Wire::silent(&Setup::default());
        wire.hear(&noise);
        // By chance it begins as an ICReq or H2CTermReq once in 2^15 cases, which is nothing bad.
        if noise[0] > 6 {
            wire.terminated();
        }
    }
}
