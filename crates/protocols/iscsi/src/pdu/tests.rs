//! Properties every PDU has, and a byte-exact example of each.
//!
//! The examples are written out by hand from the drawings of RFC 7143 chapter 11, with a distinct
//! value in every field.

use super::*;
use proptest::prelude::*;

/// What `pdu!` makes of a table.
pub(crate) trait Header: Sized {
    fn decode(bhs: &Bhs) -> Self;
    fn encode(&self) -> Bhs;
}

fn round_trips<H: Header + PartialEq + std::fmt::Debug>(header: &H) {
    assert_eq!(&H::decode(&header.encode()), header);
}

/// Decoding ignores what encoding leaves zero, so one round brings any header to its clean form.
fn is_stable<H: Header + PartialEq + std::fmt::Debug>(opcode: Opcode, mut bytes: [u8; BHS_LENGTH]) {
    bytes[0] = bytes[0] & 0xc0 | opcode.0;
    let header = H::decode(&Bhs(bytes));
    let clean = header.encode();
    assert_eq!(H::decode(&clean), header);
    assert_eq!(clean.data_segment_length(), 0);
    assert_eq!(clean.total_ahs_length_bytes(), 0);
}

macro_rules! for_every_pdu {
    ($($test:ident $name:ident)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test(header: $name, bytes: [u8; 32], tail: [u8; 16]) {
                    round_trips(&header);
                    let mut all = [0; BHS_LENGTH];
                    all[..32].copy_from_slice(&bytes);
                    all[32..].copy_from_slice(&tail);
                    is_stable::<$name>($name::OPCODE, all);
                }
            )*
        }
    };
}

for_every_pdu! {
    scsi_command_decodes_what_it_encodes ScsiCommand
    scsi_response_decodes_what_it_encodes ScsiResponse
    task_management_request_decodes_what_it_encodes TaskManagementRequest
    task_management_response_decodes_what_it_encodes TaskManagementResponse
    data_out_decodes_what_it_encodes DataOut
    data_in_decodes_what_it_encodes DataIn
    r2t_decodes_what_it_encodes R2t
    async_message_decodes_what_it_encodes AsyncMessage
    text_request_decodes_what_it_encodes TextRequest
    text_response_decodes_what_it_encodes TextResponse
    login_request_decodes_what_it_encodes LoginRequest
    login_response_decodes_what_it_encodes LoginResponse
    logout_request_decodes_what_it_encodes LogoutRequest
    logout_response_decodes_what_it_encodes LogoutResponse
    snack_request_decodes_what_it_encodes SnackRequest
    reject_decodes_what_it_encodes Reject
    nop_out_decodes_what_it_encodes NopOut
    nop_in_decodes_what_it_encodes NopIn
}

/// A header from its twelve words.
fn words(words: [u32; 12]) -> Bhs {
    let mut bytes = [0; BHS_LENGTH];
    for (place, word) in bytes.chunks_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    Bhs(bytes)
}

const LUN: Lun = Lun([0, 1, 0, 0, 0, 0, 0, 2]);
const ITT: InitiatorTaskTag = InitiatorTaskTag(0x1111_0001);
const TTT: TargetTransferTag = TargetTransferTag(0x2222_0002);
const WINDOW: CommandWindow = CommandWindow {
    exp_cmd_sn: CmdSn(0x4444_0004),
    max_cmd_sn: CmdSn(0x5555_0005),
};

#[test]
fn scsi_command_and_response_are_laid_out_as_drawn() {
    let command = ScsiCommand {
        immediate: true,
        is_final: true,
        read: true,
        write: false,
        attribute: Attribute::ORDERED,
        lun: LUN,
        initiator_task_tag: ITT,
        expected_data_transfer_length: 512,
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
        cdb: [0x28, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    };
    let expected = words([
        0x41c2_0000,
        0,
        0x0001_0000,
        2,
        0x1111_0001,
        512,
        0x77,
        0x88,
        0x2800_0000,
        0x0001_0000,
        0x0100_0000,
        0,
    ]);
    assert_eq!(command.encode(), expected);
    let response = ScsiResponse {
        bidirectional_overflow: false,
        bidirectional_underflow: false,
        overflow: false,
        underflow: true,
        response: ServiceResponse::TARGET_FAILURE,
        status: 2,
        initiator_task_tag: ITT,
        snack_tag: 0x99,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        exp_data_sn: 3,
        bidirectional_residual_count: 0xaa,
        residual_count: 0xbb,
    };
    let expected = words([
        0x2182_0102,
        0,
        0,
        0,
        0x1111_0001,
        0x99,
        0x33,
        0x4444_0004,
        0x5555_0005,
        3,
        0xaa,
        0xbb,
    ]);
    assert_eq!(response.encode(), expected);
}

#[test]
fn data_pdus_are_laid_out_as_drawn() {
    let data_out = DataOut {
        is_final: true,
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        exp_stat_sn: StatSn(0x88),
        data_sn: DataSn(5),
        buffer_offset: 0x1000,
    };
    let expected = words([
        0x0580_0000,
        0,
        0x0001_0000,
        2,
        0x1111_0001,
        0x2222_0002,
        0,
        0x88,
        0,
        5,
        0x1000,
        0,
    ]);
    assert_eq!(data_out.encode(), expected);
    let data_in = DataIn {
        is_final: true,
        acknowledge: false,
        overflow: true,
        underflow: false,
        has_status: true,
        status: 4,
        lun: Lun::ZERO,
        initiator_task_tag: ITT,
        target_transfer_tag: TargetTransferTag::RESERVED,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        data_sn: DataSn(6),
        buffer_offset: 0x2000,
        residual_count: 7,
    };
    let expected = words([
        0x2585_0004,
        0,
        0,
        0,
        0x1111_0001,
        0xffff_ffff,
        0x33,
        0x4444_0004,
        0x5555_0005,
        6,
        0x2000,
        7,
    ]);
    assert_eq!(data_in.encode(), expected);
    let r2t = R2t {
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        r2t_sn: R2tSn(8),
        buffer_offset: 0x3000,
        desired_data_transfer_length: 0x4000,
    };
    let expected = words([
        0x3180_0000,
        0,
        0x0001_0000,
        2,
        0x1111_0001,
        0x2222_0002,
        0x33,
        0x4444_0004,
        0x5555_0005,
        8,
        0x3000,
        0x4000,
    ]);
    assert_eq!(r2t.encode(), expected);
}

#[test]
fn task_management_pdus_are_laid_out_as_drawn() {
    let request = TaskManagementRequest {
        immediate: true,
        function: Function::ABORT_TASK,
        lun: LUN,
        initiator_task_tag: ITT,
        referenced_task_tag: InitiatorTaskTag(0x1111_0009),
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
        ref_cmd_sn: CmdSn(0x76),
        exp_data_sn: 9,
    };
    let expected = words([
        0x4281_0000,
        0,
        0x0001_0000,
        2,
        0x1111_0001,
        0x1111_0009,
        0x77,
        0x88,
        0x76,
        9,
        0,
        0,
    ]);
    assert_eq!(request.encode(), expected);
    let response = TaskManagementResponse {
        response: TaskManagementResponseCode::FUNCTION_REJECTED,
        initiator_task_tag: ITT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
    };
    let expected = words([
        0x2280_ff00,
        0,
        0,
        0,
        0x1111_0001,
        0,
        0x33,
        0x4444_0004,
        0x5555_0005,
        0,
        0,
        0,
    ]);
    assert_eq!(response.encode(), expected);
}

#[test]
fn login_pdus_are_laid_out_as_drawn() {
    let request = LoginRequest {
        transit: true,
        continues: false,
        current_stage: Stage::LOGIN_OPERATIONAL_NEGOTIATION,
        next_stage: Stage::FULL_FEATURE_PHASE,
        version_max: 1,
        version_min: 2,
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih(0x0607),
        initiator_task_tag: ITT,
        connection_id: ConnectionId(0x0a0b),
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
    };
    let expected = words([
        0x4387_0102,
        0,
        0x8001_0203,
        0x0405_0607,
        0x1111_0001,
        0x0a0b_0000,
        0x77,
        0x88,
        0,
        0,
        0,
        0,
    ]);
    assert_eq!(request.encode_immediate(), expected);
    let response = LoginResponse {
        transit: false,
        continues: true,
        current_stage: Stage::LOGIN_OPERATIONAL_NEGOTIATION,
        next_stage: Stage::SECURITY_NEGOTIATION,
        version_max: 1,
        version_active: 2,
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih(0x0607),
        initiator_task_tag: ITT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        status: LoginStatus::NOT_FOUND,
    };
    let expected = words([
        0x2344_0102,
        0,
        0x8001_0203,
        0x0405_0607,
        0x1111_0001,
        0,
        0x33,
        0x4444_0004,
        0x5555_0005,
        0x0203_0000,
        0,
        0,
    ]);
    assert_eq!(response.encode(), expected);
}

#[test]
fn text_and_nop_pdus_are_laid_out_as_drawn() {
    let request = TextRequest {
        immediate: true,
        is_final: false,
        continues: true,
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
    };
    let after_tags = |first, rest: [u32; 6]| {
        let [a, b, c, d, e, f] = rest;
        words([
            first,
            0,
            0x0001_0000,
            2,
            0x1111_0001,
            0x2222_0002,
            a,
            b,
            c,
            d,
            e,
            f,
        ])
    };
    assert_eq!(
        request.encode(),
        after_tags(0x4440_0000, [0x77, 0x88, 0, 0, 0, 0])
    );
    assert_eq!(TextRequest::cmd_sn_of(&request.encode()), request.cmd_sn);
    let answer = [0x33, 0x4444_0004, 0x5555_0005, 0, 0, 0];
    let response = TextResponse {
        is_final: true,
        continues: false,
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
    };
    assert_eq!(response.encode(), after_tags(0x2480_0000, answer));
    let nop_out = NopOut {
        immediate: true,
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
    };
    assert_eq!(
        nop_out.encode(),
        after_tags(0x4080_0000, [0x77, 0x88, 0, 0, 0, 0])
    );
    let nop_in = NopIn {
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
    };
    assert_eq!(nop_in.encode(), after_tags(0x2080_0000, answer));
}

#[test]
fn logout_pdus_are_laid_out_as_drawn() {
    let request = LogoutRequest {
        immediate: true,
        reason: LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
        initiator_task_tag: ITT,
        connection_id: ConnectionId(0x0a0b),
        cmd_sn: CmdSn(0x77),
        exp_stat_sn: StatSn(0x88),
    };
    let expected = words([
        0x4682_0000,
        0,
        0,
        0,
        0x1111_0001,
        0x0a0b_0000,
        0x77,
        0x88,
        0,
        0,
        0,
        0,
    ]);
    assert_eq!(request.encode(), expected);
    let response = LogoutResponse {
        response: LogoutResult::CID_NOT_FOUND,
        initiator_task_tag: ITT,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        time2wait: 2,
        time2retain: 20,
    };
    let expected = words([
        0x2680_0100,
        0,
        0,
        0,
        0x1111_0001,
        0,
        0x33,
        0x4444_0004,
        0x5555_0005,
        0,
        0x0002_0014,
        0,
    ]);
    assert_eq!(response.encode(), expected);
}

#[test]
fn async_message_reject_and_snack_are_laid_out_as_drawn() {
    let message = AsyncMessage {
        lun: LUN,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        event: AsyncEvent::CONNECTION_DROP,
        vendor_code: 0xcc,
        parameter1: 1,
        parameter2: 2,
        parameter3: 3,
    };
    let expected = words([
        0x3280_0000,
        0,
        0x0001_0000,
        2,
        0xffff_ffff,
        0,
        0x33,
        0x4444_0004,
        0x5555_0005,
        0x02cc_0001,
        0x0002_0003,
        0,
    ]);
    assert_eq!(message.encode(), expected);
    let reject = Reject {
        reason: RejectReason::PROTOCOL_ERROR,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        stat_sn: StatSn(0x33),
        window: WINDOW,
        data_sn: 0xdd,
    };
    let expected = words([
        0x3f80_0400,
        0,
        0,
        0,
        0xffff_ffff,
        0,
        0x33,
        0x4444_0004,
        0x5555_0005,
        0xdd,
        0,
        0,
    ]);
    assert_eq!(reject.encode(), expected);
    let snack = SnackRequest {
        kind: SnackType::R_DATA,
        lun: LUN,
        initiator_task_tag: ITT,
        target_transfer_tag: TTT,
        exp_stat_sn: StatSn(0x88),
        beg_run: 0xee,
        run_length: 0xff,
    };
    let expected = words([
        0x1083_0000,
        0,
        0x0001_0000,
        2,
        0x1111_0001,
        0x2222_0002,
        0,
        0x88,
        0,
        0,
        0xee,
        0xff,
    ]);
    assert_eq!(snack.encode(), expected);
}

/// Every flag has its own bit: set alone it is the only one seen, and clear alone the only one
/// missed. Reserved bits change nothing.
#[test]
fn each_flag_is_its_own_bit() {
    let command = |byte1: u8| {
        let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
        bhs.0[1] = byte1;
        let ScsiCommand {
            is_final,
            read,
            write,
            attribute,
            ..
        } = ScsiCommand::decode(&bhs);
        (is_final, read, write, attribute.to_bits())
    };
    assert_eq!(command(0x80), (true, false, false, 0));
    assert_eq!(command(0x40), (false, true, false, 0));
    assert_eq!(command(0x20), (false, false, true, 0));
    assert_eq!(command(0x07), (false, false, false, 7));
    assert_eq!(command(0x18), (false, false, false, 0));
    assert_eq!(command(!0x80), (false, true, true, 7));
    let data_in = |byte1: u8| {
        let mut bhs = Bhs::new(Opcode::DATA_IN);
        bhs.0[1] = byte1;
        let data_in = DataIn::decode(&bhs);
        let DataIn {
            is_final,
            acknowledge,
            overflow,
            underflow,
            has_status,
            ..
        } = data_in;
        [is_final, acknowledge, overflow, underflow, has_status]
    };
    for (n, mask) in [0x80, 0x40, 0x04, 0x02, 0x01].into_iter().enumerate() {
        let only: [bool; 5] = std::array::from_fn(|i| i == n);
        assert_eq!(data_in(mask), only);
        assert_eq!(data_in(!mask), only.map(|flag| !flag));
    }
    assert_eq!(data_in(0x38), [false; 5]);
}

#[test]
fn unknown_codes_survive_and_print_in_hexadecimal() {
    let mut bhs = Bhs::new(Opcode::REJECT);
    bhs.0[2] = 0x77;
    let reject = Reject::decode(&bhs);
    assert_eq!(format!("{:?}", reject.reason), "RejectReason(0x77)");
    assert_eq!(reject.encode().0[2], 0x77);
    assert_eq!(format!("{:?}", Stage::from_bits(2)), "Stage(0x02)");
    let status = LoginStatus {
        class: 9,
        detail: 1,
    };
    assert_eq!(status.to_string(), "0901 unknown login status");
}
