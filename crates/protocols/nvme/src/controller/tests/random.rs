//! Whatever a host sends: no panic, and never more data than it asked for.

use proptest::prelude::*;

use super::*;
use crate::opcode::{FABRICS, Opcode, admin};

/// Entries that look like admin commands, with small numbers where they matter.
fn entries() -> impl Strategy<Value = SubmissionEntry> {
    let opcode = prop_oneof![
        Just(admin::IDENTIFY),
        Just(admin::GET_LOG_PAGE),
        Just(admin::GET_FEATURES),
        Just(admin::SET_FEATURES),
        Just(admin::ABORT),
        Just(admin::ASYNC_EVENT_REQUEST),
        Just(admin::KEEP_ALIVE),
        any::<u8>().prop_map(Opcode),
    ];
    let number = || prop_oneof![0u32..8, Just(u32::MAX), any::<u32>()];
    let selector = prop_oneof![0u32..0x20, 0x70u32..0x84, any::<u32>()];
    let length = prop_oneof![Just(4096u32), 0u32..20_000, any::<u32>()];
    let numbers = prop::collection::vec(number(), 6);
    (opcode, number(), selector, numbers, length).prop_map(
        |(opcode, namespace, selector, numbers, length)| {
            let mut entry = SubmissionEntry::new(opcode, CommandId(1), NamespaceId(namespace));
            entry.set_dword(10, selector);
            for (dword, value) in (11..16).zip(numbers) {
                entry.set_dword(dword, value);
            }
            if opcode == admin::GET_LOG_PAGE {
                entry.set_dword(10, selector & 0xff | (length / 4).min(0xffff) << 16);
            }
            entry.set_sgl(SglDescriptor::Transport { length });
            entry
        },
    )
}

/// Values of CC: mostly what hosts write.
fn configurations() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(ENABLE),
        Just(0),
        Just(ENABLE | 1 << 14),
        Just(ENABLE | 2 << 14),
        any::<u32>(),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Configure(u32),
    Connect(u16),
    Close(u16),
    Flushed,
    Admin(SubmissionEntry),
    Time(u64),
    Resize,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        configurations().prop_map(Step::Configure),
        (1u16..4).prop_map(Step::Connect),
        (1u16..4).prop_map(Step::Close),
        Just(Step::Flushed),
        entries().prop_map(Step::Admin),
        (0u64..20_000).prop_map(Step::Time),
        Just(Step::Resize),
    ]
}

fn check(scene: &Scene, controller: &Controller, entry: &SubmissionEntry, data: &[u8]) {
    let transfer = AdminTransfer::of(entry);
    let answer = scene.send_entry(controller, entry, data);
    let asked = transfer.length as usize;
    if !answer.data.is_empty() {
        assert_eq!(transfer.direction, Direction::ToHost);
        assert_eq!(answer.data.len(), asked);
        assert!(answer.data.len() <= entry.sgl().length() as usize);
    }
    if let AdminOutcome::Complete { status, .. } = answer.outcome {
        let wanted_data = transfer.direction == Direction::ToHost;
        if status.is_success() && wanted_data {
            assert_eq!(answer.data.len(), asked);
        }
        if !status.is_success() {
            assert!(answer.data.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_entry_is_answered(bytes in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform32(any::<u8>()), data: Vec<u8>) {
        let scene = scene();
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&rest);
        for controller in [scene.ready(), scene.enabled("host", &discovery())] {
            check(&scene, &controller, &SubmissionEntry(entry), &data);
            let _ = controller.fabrics_on_io_queue(1, &SubmissionEntry(entry));
            entry[0] = FABRICS.0;
        }
    }

    #[test]
    fn commands_never_return_more_than_was_asked_for(
        entries in prop::collection::vec(entries(), 1..20),
        data in prop_oneof![Just(vec![0; 512]), Just(vec![]), any::<Vec<u8>>()],
    ) {
        let scene = scene();
        for controller in [scene.ready(), scene.enabled("host", &discovery())] {
            for entry in &entries {
                check(&scene, &controller, entry, &data);
            }
        }
    }

    /// The states of CC and CSTS against what the standard says of them.
    #[test]
    fn states_are_consistent_whatever_happens(steps in prop::collection::vec(steps(), 1..40)) {
        let mut scene = scene();
        let controller = scene.connected("host", &nqn("shared"));
        for step in steps {
            match step {
                Step::Configure(value) => {
                    if let AdminOutcome::CloseQueues { queues } | AdminOutcome::ShutDown { queues }
                        = scene.set_cc(&controller, value).outcome
                    {
                        prop_assert_eq!(queues, controller.io_queues());
                    }
                }
                Step::Connect(queue_id) => {
                    let connected = scene.io_queue(&controller, queue_id).is_ok();
                    prop_assert!(!connected || controller.is_enabled());
                }
                Step::Close(queue_id) => {
                    controller.queue_closed(queue_id);
                }
                Step::Flushed => controller.shutdown_finished(),
                Step::Admin(entry) => {
                    check(&scene, &controller, &entry, &[0; 512]);
                }
                Step::Time(passed) => {
                    scene.now_ms += passed;
                    let _ = controller.handle_deadline(scene.now_ms);
                }
                Step::Resize => scene.subsystems.namespace_resized(0),
            }
            let mut completions = Vec::new();
            controller.poll_events(&mut completions);
            prop_assert!(completions.len() <= 5);
            let csts = scene.csts(&controller);
            let cc = scene.send(&controller, &property_get(Property::CC)).result();
            let (ready, failed, shutdown) = (csts & 1 != 0, csts & 2 != 0, csts >> 2);
            prop_assert!(shutdown <= 2);
            let enabled = cc & 1 != 0 && ready && !failed && shutdown == 0;
            prop_assert_eq!(controller.is_enabled(), enabled);
            if controller.io_queues().is_empty() {
                prop_assert!(ready <= (cc & 1 != 0), "RDY without EN and queues");
            }
        }
    }
}
