//! Random commands against a byte array, and random bytes against everything.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Action {
    Read(u64, u64),
    Write(u64, u64, u64),
    Zeroes(u64, u64),
    Deallocate(u64, u64),
    Compare(u64, u64, bool),
    CompareAndWrite(u64, u64, u64, bool),
    Copy(u64, u64, u64),
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    let range = (0_u64..BLOCKS - 100, 1_u64..100);
    prop_oneof![
        range
            .clone()
            .prop_map(|(lba, blocks)| Action::Read(lba, blocks)),
        (range.clone(), any::<u64>()).prop_map(|((lba, blocks), seed)| Action::Write(
            lba,
            blocks,
            seed % 250
        )),
        range
            .clone()
            .prop_map(|(lba, blocks)| Action::Zeroes(lba, blocks)),
        range
            .clone()
            .prop_map(|(lba, blocks)| Action::Deallocate(lba, blocks)),
        (range.clone(), any::<bool>())
            .prop_map(|((lba, blocks), equal)| Action::Compare(lba, blocks, equal)),
        (range.clone(), 0_u64..250, any::<bool>()).prop_map(|((lba, blocks), seed, equal)| {
            Action::CompareAndWrite(lba, blocks, seed, equal)
        }),
        (range, 0_u64..BLOCKS - 100)
            .prop_map(|((lba, blocks), target)| Action::Copy(lba, blocks, target)),
        Just(Action::Flush),
    ]
}

/// Does it to the world and to the model, and compares what the host sees.
fn act(world: &mut World, model: &mut [u8], action: &Action) {
    let success = |answer: &Answer| assert!(answer.status().is_success(), "{answer:?}");
    let expected = |model: &[u8], lba, blocks, equal: bool| {
        let mut data = model[bytes(lba, blocks)].to_vec();
        if !equal {
            let last = data.len() - 1;
            data[last] ^= 1;
        }
        data
    };
    match *action {
        Action::Read(lba, blocks) => {
            let answer = world.read(&ranged(io::READ, lba, blocks));
            success(&answer);
            assert!(answer.data == model[bytes(lba, blocks)]);
        }
        Action::Write(lba, blocks, seed) => {
            let data = pattern(seed, blocks);
            success(&world.run(&ranged(io::WRITE, lba, blocks), &data));
            model[bytes(lba, blocks)].copy_from_slice(&data);
        }
        Action::Zeroes(lba, blocks) => {
            success(&world.run(&ranged(io::WRITE_ZEROES, lba, blocks), &[]));
            model[bytes(lba, blocks)].fill(0);
        }
        Action::Deallocate(lba, blocks) => {
            let mut range = vec![0; 4];
            range.extend((blocks as u32).to_le_bytes());
            range.extend(lba.to_le_bytes());
            success(&world.run(&set_bit(plain(io::DATASET_MANAGEMENT), 11, 2), &range));
            model[bytes(lba, blocks)].fill(0);
        }
        Action::Compare(lba, blocks, equal) => {
            let data = expected(model, lba, blocks, equal);
            let answer = world.run(&ranged(io::COMPARE, lba, blocks), &data);
            assert_eq!(answer.status().is_success(), equal);
        }
        Action::CompareAndWrite(lba, blocks, seed, equal) => {
            let (old, new) = (expected(model, lba, blocks, equal), pattern(seed, blocks));
            let first = fused(ranged(io::COMPARE, lba, blocks), Fuse::First);
            let second = fused(ranged(io::WRITE, lba, blocks), Fuse::Second);
            let outcome = world.run_pair((&first, &old), (&second, &new));
            assert_eq!(outcome.first.status.is_success(), equal);
            assert_eq!(outcome.second.status.is_success(), equal);
            if equal {
                model[bytes(lba, blocks)].copy_from_slice(&new);
            }
        }
        Action::Copy(lba, blocks, target) => {
            let mut range = vec![0; 32];
            range[8..16].copy_from_slice(&lba.to_le_bytes());
            range[16..18].copy_from_slice(&((blocks - 1) as u16).to_le_bytes());
            let mut entry = plain(io::COPY);
            entry.set_qword(10, target);
            success(&world.run(&entry, &range));
            model.copy_within(bytes(lba, blocks), bytes(target, 0).start);
        }
        Action::Flush => success(&world.run(&plain(io::FLUSH), &[])),
    }
}

const OPCODES: [u8; 14] = [
    0, 1, 2, 4, 5, 8, 9, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x19, 0x7f,
];

/// Entries near to sensible ones: random bytes alone are refused too early.
fn entry() -> impl Strategy<Value = SubmissionEntry> {
    let lba = prop_oneof![0_u64..2 * BLOCKS, any::<u64>()];
    let opcode = prop_oneof![prop::sample::select(&OPCODES[..]), any::<u8>()];
    let blocks = prop_oneof![0_u32..300, 0_u32..65536];
    let flags = prop_oneof![Just(0_u32), any::<u32>()];
    let rest = (
        0_u8..4,
        prop_oneof![Just(1_u32), any::<u32>()],
        flags,
        any::<[u32; 4]>(),
    );
    (opcode, lba, blocks, rest).prop_map(|(opcode, lba, blocks, (fuse, id, flags, words))| {
        let mut entry = SubmissionEntry::new(Opcode(opcode), CommandId(1), NamespaceId(id));
        entry.0[1] |= fuse;
        for (number, word) in [(2, 0), (13, 1), (14, 2), (15, 3)] {
            entry.set_dword(number, words[word]);
        }
        entry.set_qword(10, lba);
        entry.set_dword(12, flags & 0xffff_0000 | blocks & 0xffff);
        entry
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_sequence_of_commands_does_what_it_does_to_a_byte_array(
        actions in prop::collection::vec(action(), 1..40),
    ) {
        let mut world = World::new();
        let mut model = world.media[0].clone();
        for action in &actions {
            act(&mut world, &mut model, action);
        }
        prop_assert!(world.media[0] == model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    // The medium panics when it is asked for blocks it does not have.
    #[test]
    fn no_entry_panics_or_reaches_outside_the_namespace(
        entry in entry(),
        list in prop::collection::vec(any::<u8>(), 256),
        length in prop_oneof![Just(None), (0_u32..8192).prop_map(Some)],
        cache in any::<bool>(),
    ) {
        let mut world = World::new();
        world.namespaces[0].volatile_cache = cache;
        let exact = ((entry.dword(12) & 0xffff) + 1) * BLOCK as u32;
        let length = length.unwrap_or(exact);
        // As much as MDTS allows; what is longer is refused.
        let data = list.repeat(512);
        world.run_with_length(&entry, &data, length);
        let data = &data[..data.len().min(length as usize)];
        let partner = fused(entry, Fuse::Second);
        world.run_pair((&fused(entry, Fuse::First), data), (&partner, data));
    }

    #[test]
    fn no_bytes_panic(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>(), length in any::<u32>()) {
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&more);
        let command = Command::begin(&[TestNamespace::new(1)], &SubmissionEntry(entry), length);
        prop_assert!(command.transfer().length <= length);
    }
}
