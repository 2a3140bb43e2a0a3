//! Authentication Send and Authentication Receive, the Fabrics commands that carry messages (NVMe base 2.0 §6.1, §6.2).
//!
//! ```text
//!  41 SPSP0   42 SPSP1   43 SECP   44 TL or AL
//! ```

use longshore_wire::field::le32;

use crate::command::SubmissionEntry;
use crate::status::Status;

/// SECP of NVMe in-band authentication; the two SPSP are 1.
const SECURITY_PROTOCOL: u8 = 0xe9;
const SPECIFIC: u8 = 0x01;

/// Longest data of Authentication Send that are taken: Reply with the largest group has 1168 bytes.
pub const SEND_LENGTH_MAX: u32 = 4096;

/// Most data of Authentication Receive; what is beyond the message are zeros.
pub const RECEIVE_LENGTH: u32 = 4096;

/// The fields of either command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationCommand {
    /// TL or AL, in bytes.
    pub length: u32,
}

impl AuthenticationCommand {
    /// The fields, if they are those of in-band authentication.
    ///
    /// # Errors
    /// The status of the command.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        let length = le32(&entry.0, 44);
        let is_ours = entry.0[43] == SECURITY_PROTOCOL && entry.0[41..43] == [SPECIFIC, SPECIFIC];
        if !is_ours || length == 0 {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        Ok(Self { length })
    }

    /// Writes the fields into the command's dwords 10 and 11.
    pub fn encode(self, entry: &mut SubmissionEntry) {
        entry.0[41..44].copy_from_slice(&[SPECIFIC, SPECIFIC, SECURITY_PROTOCOL]);
        longshore_wire::field::set_le32(&mut entry.0, 44, self.length);
    }
}
