//! The command table: every command we support, once.
//!
//! It drives dispatch, the validation of CDBs, admission, and what REPORT SUPPORTED OPERATION CODES
//! says (SPC-4 §6.35), so that none of these can disagree. A bit that is zero in the usage map must
//! be zero in the CDB: a bit we do not evaluate could change what a command does to data, so it is
//! refused with INVALID FIELD IN CDB. Let pass are fields that the standard says are ignored, the
//! vendor specific bits of CONTROL, and for the sake of old initiators the SCSI-2 LUN field in byte
//! 1 of 6-byte CDBs.

use crate::access::{Access, ReservationClass};
use crate::cdb::Cdb;
use crate::unit_config::LogicalUnitConfig;

/// What a command does; the decoder it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandKind {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ModeSelect6,
    ModeSelect10,
    ModeSense6,
    ModeSense10,
    Reserve6,
    Release6,
    StartStopUnit,
    SendDiagnostic,
    PreventAllow,
    ReadCapacity10,
    ReadCapacity16,
    Read,
    Write,
    WriteAndVerify,
    Verify,
    SynchronizeCache,
    PreFetch,
    WriteSame,
    ReadDefectData10,
    ReadDefectData12,
    Sanitize,
    Unmap,
    LogSense,
    PersistentReserveIn,
    PersistentReserveOut,
    ExtendedCopy,
    ReceiveCopyResults,
    CompareAndWrite,
    OrWrite,
    WriteAtomic,
    GetLbaStatus,
    ReportLuns,
    ReportTargetPortGroups,
    ReportSupportedOperationCodes,
    ReportSupportedTaskManagementFunctions,
}

/// On what of the configuration a command depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Needs logical block provisioning; refused on a fully provisioned unit.
    Unmap,
    /// SANITIZE by overwriting, and leaving its failure.
    Sanitize,
    /// SANITIZE by freeing blocks.
    BlockErase,
}

/// How long a command takes, for command timeouts descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duration {
    /// Answered from memory, without the medium.
    Immediate,
    /// One operation on the medium.
    Medium,
    /// Many operations on the medium, or a flush.
    Long,
}

impl Duration {
    /// NOMINAL COMMAND PROCESSING TIMEOUT and RECOMMENDED COMMAND TIMEOUT in seconds.
    pub(crate) fn timeouts_s(self) -> (u32, u32) {
        match self {
            Self::Immediate => (1, 10),
            Self::Medium => (1, 30),
            Self::Long => (10, 120),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CommandDescription {
    pub(crate) operation: CommandKind,
    pub(crate) service_action: Option<u8>,
    pub(crate) access: Access,
    pub(crate) needs: Needs,
    /// Refused while the logical unit is write protected.
    pub(crate) writes: bool,
    pub(crate) duration: Duration,
    /// CDB USAGE DATA: byte 0 is the operation code, other bits are set where evaluated. As long
    /// as the CDB.
    pub(crate) usage: &'static [u8],
    /// Bits of the CDB that must be zero.
    forbidden: u128,
}

impl CommandDescription {
    /// Whether it runs while the medium is being sanitized (SBC-3 §4.11.2). SANITIZE decides for itself.
    #[inline]
    pub(crate) fn runs_during_sanitize(&self) -> bool {
        let is_unaffected = matches!(self.access.reservation, ReservationClass::Unaffected);
        is_unaffected && self.operation != CommandKind::LogSense
            || matches!(
                self.operation,
                CommandKind::Sanitize
                    | CommandKind::PersistentReserveIn
                    | CommandKind::ReportSupportedOperationCodes
                    | CommandKind::ReportSupportedTaskManagementFunctions
            )
    }

    pub(crate) fn operation_code(&self) -> u8 {
        self.usage[0]
    }

    pub(crate) fn cdb_length(&self) -> u8 {
        // INVARIANT: the table holds CDBs of 6 to 16 bytes, checked at compile time.
        u8::try_from(self.usage.len()).unwrap_or(16)
    }

    /// Whether a bit is set that should not be.
    #[inline]
    pub(crate) fn has_forbidden_bit(&self, cdb: Cdb) -> bool {
        cdb.to_u128() & self.forbidden != 0
    }

    /// The first bit that is set and should not be: byte and bit number.
    pub(crate) fn forbidden_bit(&self, cdb: Cdb) -> Option<(u16, u8)> {
        let wrong = cdb.to_u128() & self.forbidden;
        if wrong == 0 {
            return None;
        }
        let position = u16::try_from(wrong.leading_zeros()).unwrap_or(0);
        let bit = 7 - u8::try_from(position % 8).unwrap_or(0);
        Some((position / 8, bit))
    }

    /// Whether a logical unit of this configuration has the command.
    pub(crate) fn is_supported(&self, config: &LogicalUnitConfig) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Unmap => config.unmap_granularity_blocks.is_some(),
            Needs::Sanitize => config.sanitizes(),
            Needs::BlockErase => config.erases_blocks(),
        }
    }
}

/// The commands with an operation code; several if it has service actions.
pub(crate) fn commands(operation_code: u8) -> &'static [CommandDescription] {
    let (first, count) = INDEX[usize::from(operation_code)];
    &TABLE[usize::from(first)..usize::from(first) + usize::from(count)]
}

/// The command with an operation code that has no service actions.
#[inline]
pub(crate) fn without_action(operation_code: u8) -> Option<&'static CommandDescription> {
    let (first, count) = INDEX[usize::from(operation_code)];
    TABLE
        .get(usize::from(first))
        .filter(|command| count == 1 && command.service_action.is_none())
}

/// The description of a CDB, if we have such a command at all.
#[inline]
pub(crate) fn lookup(cdb: Cdb) -> Lookup {
    match commands(cdb.operation_code()) {
        [] => Lookup::UnknownOperationCode,
        [one] if one.service_action.is_none() => Lookup::Found(one),
        several => several
            .iter()
            .find(|command| command.service_action == Some(cdb.service_action()))
            .map_or(Lookup::UnknownServiceAction, Lookup::Found),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    Found(&'static CommandDescription),
    UnknownOperationCode,
    UnknownServiceAction,
}

/// Every command, by operation code and service action.
pub(crate) static TABLE: &[CommandDescription] = TABLE_CONST;

/// For each operation code, where in [`TABLE`] its commands begin and how many there are.
static INDEX: [(u8, u8); 256] = index();

const fn index() -> [(u8, u8); 256] {
    let mut index = [(0_u8, 0_u8); 256];
    let mut i = 0_u8;
    while (i as usize) < TABLE_CONST.len() {
        let usage = TABLE_CONST[i as usize].usage;
        assert!(usage.len() >= 6 && usage.len() <= 16);
        let entry = &mut index[usage[0] as usize];
        if entry.1 == 0 {
            entry.0 = i;
        }
        assert!(
            entry.0 + entry.1 == i,
            "commands of one operation code stand together"
        );
        entry.1 += 1;
        i += 1;
    }
    index
}

/// Bits let pass although we do not evaluate them.
const fn tolerated(usage: &[u8]) -> u128 {
    let control = 0xc0_u128 << (8 * (15 - (usage.len() - 1)));
    let scsi_2_lun = if usage.len() == 6 {
        0xe0_u128 << 112
    } else {
        0
    };
    // SCOPE and TYPE of PERSISTENT RESERVE OUT and LIST IDENTIFIER of RECEIVE COPY RESULTS are
    // ignored, not reserved, where the service action has no use for them.
    let ignored = match usage[0] {
        0x5f | 0x84 => 0xff_u128 << 104,
        _ => 0,
    };
    control | scsi_2_lun | ignored
}

const fn forbidden(usage: &[u8]) -> u128 {
    let mut used = 0_u128;
    let mut at = 0;
    while at < 16 {
        // Bytes beyond the CDB are padding of the transport.
        let byte = if at < usage.len() { usage[at] } else { 0xff };
        let byte = if at == 0 { 0xff } else { byte };
        used = (used << 8) | byte as u128;
        at += 1;
    }
    !(used | tolerated(usage))
}

struct Class {
    access: Access,
    needs: Needs,
    writes: bool,
    duration: Duration,
}

const fn class(reservation: ReservationClass, duration: Duration) -> Class {
    let access = Access {
        reservation,
        ignores_unit_attention: false,
    };
    Class {
        access,
        needs: Needs::Nothing,
        writes: false,
        duration,
    }
}

impl Class {
    const fn writing(self) -> Self {
        Self {
            writes: true,
            ..self
        }
    }

    const fn needing(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    const fn provisioning(self) -> Self {
        Self {
            needs: Needs::Unmap,
            ..self
        }
    }
}

/// INQUIRY, REPORT LUNS, REQUEST SENSE.
const DISCOVERY: Class = Class {
    access: Access {
        reservation: ReservationClass::Unaffected,
        ignores_unit_attention: true,
    },
    needs: Needs::Nothing,
    writes: false,
    duration: Duration::Immediate,
};
const UNAFFECTED: Class = class(ReservationClass::Unaffected, Duration::Immediate);
const RESERVATION: Class = class(ReservationClass::Reservation, Duration::Immediate);
const INSPECTS: Class = class(ReservationClass::Inspects, Duration::Immediate);
const SETTINGS_IN: Class = class(ReservationClass::Reads, Duration::Immediate);
const SETTINGS_OUT: Class = class(ReservationClass::Changes, Duration::Immediate);
const READS: Class = class(ReservationClass::Reads, Duration::Medium);
const SCANS: Class = class(ReservationClass::Reads, Duration::Long);
const FLUSHES: Class = class(ReservationClass::Changes, Duration::Long);
const WRITES: Class = class(ReservationClass::Changes, Duration::Medium).writing();
const WRITES_LONG: Class = class(ReservationClass::Changes, Duration::Long).writing();

const fn plain(operation: CommandKind, class: Class, usage: &'static [u8]) -> CommandDescription {
    CommandDescription {
        operation,
        service_action: None,
        access: class.access,
        needs: class.needs,
        writes: class.writes,
        duration: class.duration,
        usage,
        forbidden: forbidden(usage),
    }
}

/// A command with a service action. In the usage map its field holds the service action itself
/// (SPC-4 §6.35.3); every other value of the field has been ruled out by [`lookup`].
const fn action(
    operation: CommandKind,
    service_action: u8,
    class: Class,
    usage: &'static [u8],
) -> CommandDescription {
    assert!(usage[1] & 0x1f == service_action);
    let command = plain(operation, class, usage);
    let forbidden = command.forbidden & !(0x1f << 112);
    CommandDescription {
        service_action: Some(service_action),
        forbidden,
        ..command
    }
}

#[rustfmt::skip]
const TABLE_CONST: &[CommandDescription] = {
    use CommandKind::*;
    // NACA of CONTROL is not supported, so CONTROL is 00h everywhere. GROUP NUMBER (1Fh) and DPO
    // are taken as hints and have no effect.
    &[
        plain(TestUnitReady, INSPECTS, &[0x00, 0, 0, 0, 0, 0]),
        plain(RequestSense, DISCOVERY, &[0x03, 0x01, 0, 0, 0xff, 0]),
        plain(Read, READS, &[0x08, 0x1f, 0xff, 0xff, 0xff, 0]),
        plain(Write, WRITES, &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0]),
        plain(Inquiry, DISCOVERY, &[0x12, 0x01, 0xff, 0xff, 0xff, 0]),
        plain(ModeSelect6, SETTINGS_OUT, &[0x15, 0x11, 0, 0, 0xff, 0]),
        plain(Reserve6, RESERVATION, &[0x16, 0, 0, 0, 0, 0]),
        plain(Release6, UNAFFECTED, &[0x17, 0, 0, 0, 0, 0]),
        plain(ModeSense6, SETTINGS_IN, &[0x1a, 0x08, 0xff, 0xff, 0xff, 0]),
        plain(StartStopUnit, FLUSHES, &[0x1b, 0x01, 0, 0, 0xf7, 0]),
        plain(SendDiagnostic, SCANS, &[0x1d, 0xf7, 0, 0xff, 0xff, 0]),
        plain(PreventAllow, SETTINGS_OUT, &[0x1e, 0, 0, 0, 0x03, 0]),
        plain(ReadCapacity10, INSPECTS, &[0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0]),
        plain(Read, READS, &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(Write, WRITES, &[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(WriteAndVerify, WRITES_LONG, &[0x2e, 0x16, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(Verify, SCANS, &[0x2f, 0x16, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(PreFetch, READS, &[0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(SynchronizeCache, FLUSHES, &[0x35, 0x06, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(ReadDefectData10, SETTINGS_IN, &[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0]),
        plain(WriteSame, WRITES_LONG, &[0x41, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
        plain(Unmap, WRITES_LONG.provisioning(), &[0x42, 0x01, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0]),
        // IMMED, AUSE. ZNR is for zoned media.
        action(Sanitize, 0x01, WRITES_LONG.needing(Needs::Sanitize), &[0x48, 0xa1, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(Sanitize, 0x02, WRITES_LONG.needing(Needs::BlockErase), &[0x48, 0xa2, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(Sanitize, 0x1f, WRITES_LONG.needing(Needs::Sanitize), &[0x48, 0x9f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        plain(LogSense, UNAFFECTED, &[0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        plain(ModeSelect10, SETTINGS_OUT, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        plain(ModeSense10, SETTINGS_IN, &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
        action(PersistentReserveIn, 0x00, RESERVATION, &[0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(PersistentReserveIn, 0x01, RESERVATION, &[0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(PersistentReserveIn, 0x02, RESERVATION, &[0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(PersistentReserveIn, 0x03, RESERVATION, &[0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x00, RESERVATION, &[0x5f, 0x00, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x01, RESERVATION, &[0x5f, 0x01, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x02, RESERVATION, &[0x5f, 0x02, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x03, RESERVATION, &[0x5f, 0x03, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x04, RESERVATION, &[0x5f, 0x04, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x05, RESERVATION, &[0x5f, 0x05, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x06, RESERVATION, &[0x5f, 0x06, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(PersistentReserveOut, 0x07, RESERVATION, &[0x5f, 0x07, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        action(ExtendedCopy, 0x00, class(ReservationClass::Changes, Duration::Long), &[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReceiveCopyResults, 0x00, INSPECTS, &[0x84, 0x00, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReceiveCopyResults, 0x03, INSPECTS, &[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReceiveCopyResults, 0x04, INSPECTS, &[0x84, 0x04, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        plain(Read, READS, &[0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(CompareAndWrite, WRITES, &[0x89, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x1f, 0]),
        plain(Write, WRITES, &[0x8a, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(OrWrite, WRITES_LONG, &[0x8b, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(WriteAndVerify, WRITES_LONG, &[0x8e, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(Verify, SCANS, &[0x8f, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(PreFetch, READS, &[0x90, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(SynchronizeCache, FLUSHES, &[0x91, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(WriteSame, WRITES_LONG, &[0x93, 0x19, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(WriteAtomic, WRITES, &[0x9c, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0x1f, 0]),
        action(ReadCapacity16, 0x10, INSPECTS, &[0x9e, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0]),
        action(GetLbaStatus, 0x12, READS, &[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        plain(ReportLuns, DISCOVERY, &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReportTargetPortGroups, 0x0a, INSPECTS, &[0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReportSupportedOperationCodes, 0x0c, INSPECTS, &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        action(ReportSupportedTaskManagementFunctions, 0x0d, INSPECTS, &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        plain(Read, READS, &[0xa8, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(Write, WRITES, &[0xaa, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(WriteAndVerify, WRITES_LONG, &[0xae, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(Verify, SCANS, &[0xaf, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        plain(ReadDefectData12, SETTINGS_IN, &[0xb7, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    ]
};
