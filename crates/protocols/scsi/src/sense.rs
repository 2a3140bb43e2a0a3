//! Sense data (SPC-4 §4.5): why a command ended in CHECK CONDITION.
//!
//! ```text
//! fixed format, 18 bytes                     descriptor format
//!  0  VALID | 70h                             0  72h
//!  2  ILI.. | SENSE KEY                       1  SENSE KEY
//!  3  INFORMATION (4)                         2  ASC, ASCQ
//!  7  ADDITIONAL SENSE LENGTH = 10            7  ADDITIONAL SENSE LENGTH
//!  8  COMMAND-SPECIFIC INFORMATION (4)        8  descriptors: information (00h), sense key
//! 12  ASC, ASCQ                                  specific (02h), block commands (05h)
//! 15  SKSV | SENSE KEY SPECIFIC (3)
//! ```

use std::fmt;

use longshore_block::operation::MediaError;

/// The SENSE KEY field (SPC-4 §4.5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// No error; the bits of the sense data may still inform.
    NoSense = 0x0,
    /// The command succeeded after a recovery.
    RecoveredError = 0x1,
    /// The logical unit is not accessible.
    NotReady = 0x2,
    /// Data could not be read or written for a fault of the medium.
    MediumError = 0x3,
    /// The device failed in another way.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something happened that the initiator should know of before it goes on.
    UnitAttention = 0x6,
    /// Reading or writing the block is not permitted.
    DataProtect = 0x7,
    /// EXTENDED COPY was aborted.
    CopyAborted = 0xa,
    /// The device server aborted the command.
    AbortedCommand = 0xb,
    /// The data read differs from the data sent.
    Miscompare = 0xe,
}

/// ADDITIONAL SENSE CODE and its qualifier (SPC-4 Annex F). An open set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdditionalSense {
    /// ADDITIONAL SENSE CODE, the first of two bytes.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
}

macro_rules! additional_sense {
    ($($name:ident = $asc:literal, $ascq:literal, $text:literal;)*) => {
        impl AdditionalSense {
            $(#[doc = $text] pub const $name: Self = Self { asc: $asc, ascq: $ascq };)*

            /// The standard's text, where we know it.
            pub fn text(self) -> Option<&'static str> {
                match (self.asc, self.ascq) {
                    $(($asc, $ascq) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

additional_sense! {
    NONE = 0x00, 0x00, "NO ADDITIONAL SENSE INFORMATION";
    OPERATION_IN_PROGRESS = 0x00, 0x16, "OPERATION IN PROGRESS";
    NOT_READY_INITIALIZING_COMMAND_REQUIRED = 0x04, 0x02, "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED";
    THIRD_PARTY_DEVICE_FAILURE = 0x0d, 0x01, "THIRD PARTY DEVICE FAILURE";
    COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d, 0x02, "COPY TARGET DEVICE NOT REACHABLE";
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d, 0x03, "INCORRECT COPY TARGET DEVICE TYPE";
    COPY_TARGET_DEVICE_DATA_UNDERRUN = 0x0d, 0x04, "COPY TARGET DEVICE DATA UNDERRUN";
    COPY_TARGET_DEVICE_DATA_OVERRUN = 0x0d, 0x05, "COPY TARGET DEVICE DATA OVERRUN";
    WRITE_ERROR = 0x0c, 0x00, "WRITE ERROR";
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e, 0x03, "INVALID FIELD IN COMMAND INFORMATION UNIT";
    UNRECOVERED_READ_ERROR = 0x11, 0x00, "UNRECOVERED READ ERROR";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a, 0x00, "PARAMETER LIST LENGTH ERROR";
    MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d, 0x00, "MISCOMPARE DURING VERIFY OPERATION";
    INVALID_COMMAND_OPERATION_CODE = 0x20, 0x00, "INVALID COMMAND OPERATION CODE";
    LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE = 0x21, 0x00, "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    INVALID_FIELD_IN_CDB = 0x24, 0x00, "INVALID FIELD IN CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25, 0x00, "LOGICAL UNIT NOT SUPPORTED";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26, 0x00, "INVALID FIELD IN PARAMETER LIST";
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x26, 0x04, "INVALID RELEASE OF PERSISTENT RESERVATION";
    TOO_MANY_TARGET_DESCRIPTORS = 0x26, 0x06, "TOO MANY TARGET DESCRIPTORS";
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = 0x26, 0x07, "UNSUPPORTED TARGET DESCRIPTOR TYPE CODE";
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x26, 0x08, "TOO MANY SEGMENT DESCRIPTORS";
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = 0x26, 0x09, "UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE";
    UNEXPECTED_INEXACT_SEGMENT = 0x26, 0x0a, "UNEXPECTED INEXACT SEGMENT";
    INLINE_DATA_LENGTH_EXCEEDED = 0x26, 0x0b, "INLINE DATA LENGTH EXCEEDED";
    WRITE_PROTECTED = 0x27, 0x00, "WRITE PROTECTED";
    HARDWARE_WRITE_PROTECTED = 0x27, 0x01, "HARDWARE WRITE PROTECTED";
    LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED = 0x27, 0x02, "LOGICAL UNIT SOFTWARE WRITE PROTECTED";
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x27, 0x07, "SPACE ALLOCATION FAILED WRITE PROTECT";
    POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED = 0x29, 0x00, "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED";
    POWER_ON_OCCURRED = 0x29, 0x01, "POWER ON OCCURRED";
    SCSI_BUS_RESET_OCCURRED = 0x29, 0x02, "SCSI BUS RESET OCCURRED";
    BUS_DEVICE_RESET_FUNCTION_OCCURRED = 0x29, 0x03, "BUS DEVICE RESET FUNCTION OCCURRED";
    I_T_NEXUS_LOSS_OCCURRED = 0x29, 0x07, "I_T NEXUS LOSS OCCURRED";
    MODE_PARAMETERS_CHANGED = 0x2a, 0x01, "MODE PARAMETERS CHANGED";
    RESERVATIONS_PREEMPTED = 0x2a, 0x03, "RESERVATIONS PREEMPTED";
    RESERVATIONS_RELEASED = 0x2a, 0x04, "RESERVATIONS RELEASED";
    REGISTRATIONS_PREEMPTED = 0x2a, 0x05, "REGISTRATIONS PREEMPTED";
    CAPACITY_DATA_HAS_CHANGED = 0x2a, 0x09, "CAPACITY DATA HAS CHANGED";
    SANITIZE_COMMAND_FAILED = 0x31, 0x03, "SANITIZE COMMAND FAILED";
    SANITIZE_IN_PROGRESS = 0x04, 0x1b, "LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS";
    COMMAND_SEQUENCE_ERROR = 0x2c, 0x00, "COMMAND SEQUENCE ERROR";
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2f, 0x00, "COMMANDS CLEARED BY ANOTHER INITIATOR";
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x38, 0x07, "THIN PROVISIONING SOFT THRESHOLD REACHED";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39, 0x00, "SAVING PARAMETERS NOT SUPPORTED";
    MEDIUM_NOT_PRESENT = 0x3a, 0x00, "MEDIUM NOT PRESENT";
    LOGICAL_UNIT_FAILURE = 0x3e, 0x01, "LOGICAL UNIT FAILURE";
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f, 0x0e, "REPORTED LUNS DATA HAS CHANGED";
    INQUIRY_DATA_HAS_CHANGED = 0x3f, 0x03, "INQUIRY DATA HAS CHANGED";
    INTERNAL_TARGET_FAILURE = 0x44, 0x00, "INTERNAL TARGET FAILURE";
    OVERLAPPED_COMMANDS_ATTEMPTED = 0x4e, 0x00, "OVERLAPPED COMMANDS ATTEMPTED";
    INSUFFICIENT_RESERVATION_RESOURCES = 0x55, 0x02, "INSUFFICIENT RESERVATION RESOURCES";
    INSUFFICIENT_RESOURCES = 0x55, 0x03, "INSUFFICIENT RESOURCES";
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55, 0x04, "INSUFFICIENT REGISTRATION RESOURCES";
}

impl fmt::Debug for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}/{:02x}", self.asc, self.ascq)?;
        self.text().map_or(Ok(()), |text| write!(f, " {text}"))
    }
}

/// Which byte, and where known which bit, of the CDB or the parameter list is wrong (SPC-4
/// §4.5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// In the CDB (C/D set) rather than in the parameter list.
    pub in_cdb: bool,
    /// Offset of the byte.
    pub byte: u16,
    /// The field's most significant bit in that byte, where one is meant.
    pub bit: Option<u8>,
}

/// Sense data before it is put into one of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    pub key: SenseKey,
    pub additional: AdditionalSense,
    /// The INFORMATION field: offset of a miscompare in bytes, or the first LBA that failed.
    pub information: Option<u64>,
    /// Which field is wrong.
    pub field: Option<FieldPointer>,
    /// PROGRESS INDICATION, in 65536ths.
    pub progress: Option<u16>,
}

impl Sense {
    /// Sense data of a key and a code, nothing else.
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self {
            key,
            additional,
            information: None,
            field: None,
            progress: None,
        }
    }

    /// ILLEGAL REQUEST with the given code.
    pub const fn illegal_request(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, additional)
    }

    /// UNIT ATTENTION with the given code.
    pub const fn unit_attention(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::UnitAttention, additional)
    }

    /// The medium is being sanitized, so far.
    pub const fn sanitize_in_progress(progress: u16) -> Self {
        Self {
            progress: Some(progress),
            ..Self::new(SenseKey::NotReady, AdditionalSense::SANITIZE_IN_PROGRESS)
        }
    }

    /// Sanitizing the medium has failed.
    pub const fn sanitize_failed() -> Self {
        Self::new(
            SenseKey::MediumError,
            AdditionalSense::SANITIZE_COMMAND_FAILED,
        )
    }

    /// INVALID FIELD IN CDB, pointing at a byte and the most significant bit of the field.
    pub const fn invalid_field_in_cdb(byte: u16, bit: u8) -> Self {
        Self {
            field: Some(FieldPointer {
                in_cdb: true,
                byte,
                bit: Some(bit),
            }),
            ..Self::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN PARAMETER LIST, pointing at a byte.
    pub const fn invalid_field_in_parameter_list(byte: u16) -> Self {
        Self {
            field: Some(FieldPointer {
                in_cdb: false,
                byte,
                bit: None,
            }),
            ..Self::illegal_request(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// PARAMETER LIST LENGTH ERROR.
    pub const fn parameter_list_length_error() -> Self {
        Self::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// LOGICAL UNIT NOT SUPPORTED.
    pub const fn logical_unit_not_supported() -> Self {
        Self::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
    }

    /// INVALID COMMAND OPERATION CODE.
    pub const fn invalid_operation_code() -> Self {
        Self {
            field: Some(FieldPointer {
                in_cdb: true,
                byte: 0,
                bit: Some(7),
            }),
            ..Self::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
        }
    }

    /// LOGICAL BLOCK ADDRESS OUT OF RANGE, with the first address asked for.
    pub const fn out_of_range(lba: u64) -> Self {
        Self::illegal_request(AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE)
            .with_information(lba)
    }

    /// The same with an INFORMATION field.
    #[must_use]
    pub const fn with_information(self, information: u64) -> Self {
        Self {
            information: Some(information),
            ..self
        }
    }

    /// The one place where failures of the medium become sense data. `writing`: the
    /// operation that failed was to change the medium.
    pub const fn media_failure(error: MediaError, writing: bool) -> Self {
        use AdditionalSense as Code;
        let (key, code) = match error {
            MediaError::OutOfRange => (
                SenseKey::IllegalRequest,
                Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
            ),
            MediaError::ReadOnly => (SenseKey::DataProtect, Code::WRITE_PROTECTED),
            // SBC-3 §4.7: thin provisioning ran out of space, for good as far as we know.
            MediaError::NoSpace => (
                SenseKey::DataProtect,
                Code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
            ),
            MediaError::Unsupported => (
                SenseKey::IllegalRequest,
                Code::INVALID_COMMAND_OPERATION_CODE,
            ),
            // The cache lost data that was acknowledged: nothing written since can be trusted, and
            // no retry will help until the volume is reopened.
            MediaError::Poisoned => (SenseKey::HardwareError, Code::INTERNAL_TARGET_FAILURE),
            // The same of reads: SPC-4 annex D.
            MediaError::Failed => (SenseKey::HardwareError, Code::LOGICAL_UNIT_FAILURE),
            MediaError::Sanitizing => (SenseKey::NotReady, Code::SANITIZE_IN_PROGRESS),
            // Hosts repeat an aborted command.
            MediaError::OutOfMemory => (SenseKey::AbortedCommand, Code::INSUFFICIENT_RESOURCES),
            MediaError::ShortFile | MediaError::Io if writing => {
                (SenseKey::MediumError, Code::WRITE_ERROR)
            }
            MediaError::ShortFile | MediaError::Io => {
                (SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR)
            }
        };
        Self::new(key, code)
    }

    /// Encodes in the given format.
    pub fn to_bytes(&self, format: SenseFormat) -> SenseBytes {
        match format {
            SenseFormat::Fixed => self.to_fixed(),
            SenseFormat::Descriptor => self.to_descriptors(),
        }
    }

    fn to_fixed(self) -> SenseBytes {
        let mut out = SenseBytes::new();
        // VALID is set only if the value fits the field (SPC-4 §4.5.3).
        let information = self.information.and_then(|value| u32::try_from(value).ok());
        out.push(&[
            if information.is_some() { 0xf0 } else { 0x70 },
            0,
            self.key as u8,
        ]);
        out.push(&information.unwrap_or(0).to_be_bytes());
        out.push(&[10]);
        out.push(&[0; 4]);
        out.push(&[self.additional.asc, self.additional.ascq, 0]);
        out.push(&self.key_specific().unwrap_or([0; 3]));
        out
    }

    fn to_descriptors(self) -> SenseBytes {
        let mut out = SenseBytes::new();
        let AdditionalSense { asc, ascq } = self.additional;
        out.push(&[0x72, self.key as u8, asc, ascq, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            out.push(&[0x00, 0x0a, 0x80, 0x00]);
            out.push(&information.to_be_bytes());
        }
        if let Some([first, second, third]) = self.key_specific() {
            out.push(&[0x02, 0x06, 0, 0, first, second, third, 0]);
        }
        out.bytes[7] = out.length - 8;
        out
    }

    /// The SENSE KEY SPECIFIC field with SKSV set.
    fn key_specific(self) -> Option<[u8; 3]> {
        if let Some(progress) = self.progress {
            let [high, low] = progress.to_be_bytes();
            return Some([0x80, high, low]);
        }
        let field = self.field?;
        let [high, low] = field.byte.to_be_bytes();
        let in_cdb = if field.in_cdb { 0x40 } else { 0 };
        let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 7));
        Some([0x80 | in_cdb | bit, high, low])
    }
}

/// Which of the two formats (SPC-4 §4.5): chosen by D_SENSE of the control mode page, or by DESC
/// of REQUEST SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SenseFormat {
    /// Response codes 70h and 71h.
    #[default]
    Fixed,
    /// Response codes 72h and 73h.
    Descriptor,
}

#[derive(Clone, Copy)]
pub struct SenseBytes {
    bytes: [u8; Self::CAPACITY],
    length: u8,
}

impl SenseBytes {
    /// Descriptor format with every descriptor we send: 8 + 12 + 8 bytes.
    const CAPACITY: usize = 28;

    fn new() -> Self {
        Self {
            bytes: [0; Self::CAPACITY],
            length: 0,
        }
    }

    fn push(&mut self, more: &[u8]) {
        for byte in more {
            self.bytes[usize::from(self.length)] = *byte;
            self.length += 1;
        }
    }
}

impl std::ops::Deref for SenseBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for SenseBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &**self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_is_byte_exact() {
        let sense = Sense::invalid_field_in_cdb(2, 5);
        assert_eq!(
            *sense.to_bytes(SenseFormat::Fixed),
            [
                0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcd, 0, 2
            ]
        );
    }

    #[test]
    fn descriptor_format_is_byte_exact() {
        let sense = Sense::new(
            SenseKey::Miscompare,
            AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION,
        )
        .with_information(0x1_0000_0200);
        assert_eq!(
            *sense.to_bytes(SenseFormat::Descriptor),
            [
                0x72, 0xe, 0x1d, 0, 0, 0, 0, 12, 0, 0xa, 0x80, 0, 0, 0, 0, 1, 0, 0, 2, 0
            ]
        );
    }

    #[test]
    fn information_too_large_for_the_fixed_format_is_not_valid() {
        let sense = Sense::illegal_request(AdditionalSense::NONE).with_information(1 << 32);
        assert_eq!(sense.to_bytes(SenseFormat::Fixed)[0], 0x70);
        let sense = sense.with_information(0x1234);
        let bytes = sense.to_bytes(SenseFormat::Fixed);
        assert_eq!((bytes[0], &bytes[3..7]), (0xf0, &[0, 0, 0x12, 0x34][..]));
    }

    #[test]
    fn sense_with_everything_fits() {
        let sense = Sense::invalid_field_in_parameter_list(9).with_information(7);
        let bytes = sense.to_bytes(SenseFormat::Descriptor);
        assert_eq!(bytes.len(), 28);
        assert_eq!(bytes[7], 20);
    }

    #[test]
    fn no_space_is_data_protect() {
        let sense = Sense::media_failure(MediaError::NoSpace, true);
        assert_eq!(sense.key, SenseKey::DataProtect);
        assert_eq!(
            format!("{:?}", sense.additional),
            "27/07 SPACE ALLOCATION FAILED WRITE PROTECT"
        );
    }
}
