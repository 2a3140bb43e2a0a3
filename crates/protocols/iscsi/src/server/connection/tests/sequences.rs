//! Any PDU at any time: what must hold whatever an initiator sends and whenever the driver answers.

use proptest::prelude::*;

use super::*;
use crate::pdu::{
    BHS_LENGTH, CommandWindow, Function, LogoutReason, LogoutRequest, NopOut,
    TaskManagementRequest, TextRequest,
};
use crate::server::command::{TaskManagementId, TaskManagementResult};

/// Something an initiator or the driver does. Small numbers, so that tags meet again.
#[derive(Clone, Debug)]
enum Step {
    Command {
        tag: u32,
        ahead: u32,
        immediate: bool,
        length: u32,
        data: usize,
        flags: u8,
    },
    DataOut {
        tag: u32,
        r2t: usize,
        offset: u32,
        data: usize,
        data_sn: u32,
        is_final: bool,
    },
    TaskManagement {
        tag: u32,
        function: u8,
        referenced: u32,
        ahead: u32,
        immediate: bool,
    },
    Nop {
        tag: u32,
        ahead: u32,
        immediate: bool,
        data: usize,
    },
    Text {
        tag: u32,
        ahead: u32,
        flags: u8,
        text: String,
    },
    Logout {
        reason: u8,
    },
    Raw {
        bhs: Vec<u8>,
        data: usize,
    },
    /// The driver ends the task that has waited longest.
    Complete {
        status: u8,
        data: u32,
        scsi_length: u64,
    },
    Abort,
    AnswerManagement,
    Wait {
        ms: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tag = 0_u32..6;
    let ahead = prop_oneof![6 => Just(0_u32), 2 => 1_u32..4, 1 => any::<u32>()];
    let data = prop_oneof![2 => Just(0_usize), 3 => 0_usize..600, 1 => 0_usize..5000];
    let length = prop_oneof![Just(0_u32), 0_u32..30_000, any::<u32>()];
    let step = prop_oneof![
        6 => (tag.clone(), ahead.clone(), any::<bool>(), length, data.clone(), any::<u8>()).prop_map(
            |(tag, ahead, immediate, length, data, flags)| {
                Step::Command { tag, ahead, immediate: immediate && flags & 8 == 0, length, data, flags }
            }
        ),
        6 => (tag.clone(), 0_usize..4, 0_u32..3, data.clone(), 0_u32..3, any::<bool>()).prop_map(
            |(tag, r2t, offset, data, data_sn, is_final)| {
                Step::DataOut { tag, r2t, offset, data, data_sn, is_final }
            }
        ),
        1 => (tag.clone(), 0_u8..10, tag.clone(), ahead.clone(), any::<bool>()).prop_map(
            |(tag, function, referenced, ahead, immediate)| {
                Step::TaskManagement { tag, function, referenced, ahead, immediate }
            }
        ),
        1 => (tag.clone(), ahead.clone(), any::<bool>(), data.clone())
            .prop_map(|(tag, ahead, immediate, data)| Step::Nop { tag, ahead, immediate, data }),
        1 => (tag, ahead, any::<u8>(), "[A-Za-z=\\x00]{0,40}")
            .prop_map(|(tag, ahead, flags, text)| Step::Text { tag, ahead, flags, text }),
        1 => (1_u8..4).prop_map(|reason| Step::Logout { reason }),
        1 => (prop::collection::vec(any::<u8>(), BHS_LENGTH), data)
            .prop_map(|(bhs, data)| Step::Raw { bhs, data }),
        5 => (prop_oneof![Just(0_u8), Just(2)], 0_u32..20_000, 0_u64..20_000)
            .prop_map(|(status, data, scsi_length)| Step::Complete { status, data, scsi_length }),
        1 => Just(Step::Abort),
        1 => Just(Step::AnswerManagement),
        1 => (0_u64..40_000).prop_map(|ms| Step::Wait { ms }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the conversation is remembered by.
struct Observer {
    wire: Wire,
    /// Tasks the driver has and has not ended, and what it wants of them.
    waiting: Vec<TaskId>,
    management: Vec<TaskManagementId>,
    r2ts: Vec<R2t>,
    stat_sn: Option<StatSn>,
    window: CommandWindow,
    closed: bool,
}

impl Observer {
    fn new() -> Self {
        let mut setup = Setup::default();
        setup.directory.config.first_burst_length = 2048;
        let wire = Wire::with(setup);
        Self {
            window: wire.target.command_window(),
            wire,
            waiting: Vec::new(),
            management: Vec::new(),
            r2ts: Vec::new(),
            stat_sn: None,
            closed: false,
        }
    }

    fn send(&mut self, bhs: Bhs, data: usize) {
        let mut bytes = pdu_bytes(bhs, &vec![0x77; data]);
        if bhs.total_ahs_length_bytes() > 0 {
            let ahs = vec![0; bhs.total_ahs_length_bytes()];
            bytes.splice(BHS_LENGTH..BHS_LENGTH, ahs);
        }
        // In two pieces, cut anywhere.
        let (head, tail) = bytes.split_at(bytes.len() * 2 / 3);
        self.feed(head);
        self.feed(tail);
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        loop {
            let Wire {
                target,
                directory,
                transmit,
                now_ms,
                ..
            } = &mut self.wire;
            match target.next(&mut input, directory, transmit, *now_ms) {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Close(_) => {
                    self.closed = true;
                    break;
                }
                ConnectionEvent::Command(command) => {
                    assert!(command.task.index() < target.task_capacity());
                    assert!(
                        !self.waiting.contains(&command.task),
                        "a task was born twice"
                    );
                    self.waiting.push(command.task);
                    if command.write {
                        let wanted = u64::from(command.cdb.as_bytes()[0]) * 97;
                        target.want_data_out(command.task, wanted, transmit);
                    }
                }
                ConnectionEvent::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                } => {
                    assert!(
                        self.waiting.contains(&task),
                        "data of a task that has ended"
                    );
                    let length = u32::try_from(bytes.len()).unwrap();
                    let expected = target.task_info(task).expected_data_transfer_length;
                    assert!(
                        buffer_offset
                            .checked_add(length)
                            .is_some_and(|end| end <= expected)
                    );
                }
                ConnectionEvent::DataOutComplete { task }
                | ConnectionEvent::DataOutFailed { task, .. } => {
                    assert!(
                        self.waiting.contains(&task),
                        "news of a task that has ended"
                    );
                }
                ConnectionEvent::TaskManagement(request) => self.management.push(request.id),
                ConnectionEvent::Established => panic!("established twice"),
            }
        }
        self.look_at_what_was_sent();
    }

    fn look_at_what_was_sent(&mut self) {
        for Sent { bhs, .. } in self.wire.sent() {
            // The numbers are at the same place in all PDUs of a target.
            let nop = pdu::NopIn::decode(&Bhs({
                let mut bytes = bhs.0;
                bytes[0] = Opcode::NOP_IN.0;
                bytes
            }));
            assert!(!nop.window.exp_cmd_sn.precedes(self.window.exp_cmd_sn));
            assert!(!nop.window.max_cmd_sn.precedes(self.window.max_cmd_sn));
            let open = nop
                .window
                .max_cmd_sn
                .next()
                .steps_since(nop.window.exp_cmd_sn);
            assert!(open <= 8, "more places than there are");
            self.window = nop.window;
            let counted = match bhs.opcode() {
                Opcode::R2T => {
                    let r2t = R2t::decode(&bhs);
                    assert!((1..=8192).contains(&r2t.desired_data_transfer_length));
                    self.r2ts.push(r2t);
                    false
                }
                Opcode::DATA_IN => pdu::DataIn::decode(&bhs).has_status,
                Opcode::NOP_IN => !nop.initiator_task_tag.is_reserved(),
                _ => true,
            };
            if counted {
                if let Some(expected) = self.stat_sn {
                    assert_eq!(nop.stat_sn, expected);
                }
                self.stat_sn = Some(nop.stat_sn.next());
            }
        }
    }

    fn number(&self, ahead: u32) -> CmdSn {
        self.wire
            .target
            .command_window()
            .exp_cmd_sn
            .advanced_by(ahead)
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Command {
                tag,
                ahead,
                immediate,
                length,
                data,
                flags,
            } => {
                let header = pdu::ScsiCommand {
                    immediate,
                    is_final: flags & 1 != 0 || flags & 2 == 0,
                    read: flags & 6 == 4,
                    write: flags & 2 != 0,
                    attribute: Attribute::from_bits(flags >> 5),
                    cdb: [flags; 16],
                    expected_data_transfer_length: length,
                    ..command(tag, self.number(ahead), Transfer::None)
                };
                let data = if flags & 2 != 0 { data.min(4096) } else { 0 };
                self.send(header.encode(), data);
            }
            Step::DataOut {
                tag,
                r2t,
                offset,
                data,
                data_sn,
                is_final,
            } => {
                let mut header = match self.r2ts.iter().rev().nth(r2t) {
                    Some(r2t) => answer(r2t, is_final),
                    None => unsolicited(tag, 0, is_final),
                };
                header.data_sn = DataSn(data_sn / 2);
                header.buffer_offset = header.buffer_offset.saturating_add(offset / 2);
                self.send(header.encode(), data.min(4096));
            }
            Step::TaskManagement {
                tag,
                function,
                referenced,
                ahead,
                immediate,
            } => {
                let request = TaskManagementRequest {
                    immediate,
                    function: Function::from_bits(function),
                    lun: Lun::ZERO,
                    initiator_task_tag: InitiatorTaskTag(tag + 50),
                    referenced_task_tag: InitiatorTaskTag(referenced),
                    cmd_sn: self.number(ahead),
                    exp_stat_sn: StatSn(0),
                    ref_cmd_sn: self.number(ahead / 2),
                    exp_data_sn: 0,
                };
                self.send(request.encode(), 0);
            }
            Step::Nop {
                tag,
                ahead,
                immediate,
                data,
            } => {
                let nop = NopOut {
                    immediate,
                    lun: Lun::ZERO,
                    initiator_task_tag: InitiatorTaskTag(tag.wrapping_sub(1)),
                    target_transfer_tag: TargetTransferTag::RESERVED,
                    cmd_sn: self.number(ahead),
                    exp_stat_sn: StatSn(0),
                };
                self.send(nop.encode(), data.min(4096));
            }
            Step::Text {
                tag,
                ahead,
                flags,
                ref text,
            } => {
                let request = TextRequest {
                    immediate: flags & 1 != 0,
                    is_final: flags & 2 != 0,
                    continues: flags & 4 != 0,
                    lun: Lun::ZERO,
                    initiator_task_tag: InitiatorTaskTag(tag + 70),
                    target_transfer_tag: TargetTransferTag::RESERVED,
                    cmd_sn: self.number(ahead),
                    exp_stat_sn: StatSn(0),
                };
                let bytes = pdu_bytes(request.encode(), text.as_bytes());
                self.feed(&bytes);
            }
            Step::Logout { reason } => {
                let request = LogoutRequest {
                    immediate: true,
                    reason: LogoutReason::from_bits(reason),
                    initiator_task_tag: InitiatorTaskTag(99),
                    connection_id: pdu::ConnectionId(u16::from(reason)),
                    cmd_sn: self.number(0),
                    exp_stat_sn: StatSn(0),
                };
                self.send(request.encode(), 0);
            }
            Step::Raw { ref bhs, data } => {
                let mut header = Bhs(bhs[..].try_into().unwrap());
                header.set_data_segment_length(0);
                header.0[4] %= 4;
                self.send(header, data.min(4096));
            }
            Step::Complete {
                status,
                data,
                scsi_length,
            } => {
                if !self.waiting.is_empty() {
                    let task = self.waiting.remove(0);
                    let sense: &[u8] = if status == 0 { &[] } else { &[0x70; 18] };
                    let data_in = Payload::Zeros(data);
                    let completion = Completion {
                        status,
                        sense,
                        data_in,
                        scsi_length,
                    };
                    self.wire
                        .target
                        .complete(task, completion, &mut self.wire.transmit);
                }
                self.feed(&[]);
            }
            Step::Abort => {
                if let Some(task) = self.waiting.pop() {
                    self.wire.target.abort(task);
                }
                self.feed(&[]);
            }
            Step::AnswerManagement => {
                if let Some(id) = self.management.pop() {
                    let Wire {
                        target, transmit, ..
                    } = &mut self.wire;
                    target.task_management_done(
                        id,
                        TaskManagementResult::FunctionComplete,
                        transmit,
                    );
                }
                self.feed(&[]);
            }
            Step::Wait { ms } => {
                self.wire.now_ms += ms;
                let Wire {
                    target,
                    transmit,
                    now_ms,
                    ..
                } = &mut self.wire;
                self.closed |= target.handle_deadline(transmit, *now_ms).is_some();
                self.look_at_what_was_sent();
            }
        }
        let mut live: Vec<_> = self.wire.target.tasks().collect();
        let mut waiting = self.waiting.clone();
        live.sort_by_key(|task| task.0);
        waiting.sort_by_key(|task| task.0);
        assert_eq!(
            live, waiting,
            "the machine and the driver disagree about what lives"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn numbers_stay_in_order_and_tasks_live_once(steps in steps()) {
        let mut observer = Observer::new();
        for step in &steps {
            observer.take(step);
            if observer.closed {
                break;
            }
        }
    }
}
