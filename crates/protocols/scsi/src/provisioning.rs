//! Logical block provisioning thresholds (SBC-3, logical block provisioning): the space shared by thin units, its use, and
//! the levels reported to hosts.
//!
//! Space is counted in *threshold sets* of 1 MiB: `2^exponent` blocks, with the exponent of VPD page B2h.
//!
//! ```text
//!  logical block provisioning log page (0Ch)     logical block provisioning mode page (1Ch, subpage 02h)
//!   0  page code                                  0  PS, SPF = 1, page code    1  SUBPAGE CODE
//!   2  PAGE LENGTH (2)                            2  PAGE LENGTH (2)
//!   4  parameters of 12 bytes:                    4  SITUA
//!      0  PARAMETER CODE (2)                     16  descriptors of 8 bytes:
//!      2  FORMAT AND LINKING                          0  ENABLED, THRESHOLD TYPE, THRESHOLD ARMING
//!      3  PARAMETER LENGTH = 8                        1  THRESHOLD RESOURCE
//!      4  RESOURCE COUNT (4)                          4  THRESHOLD COUNT (4)
//!      8  SCOPE
//! ```

use crate::unit::{LogicalUnit, SharedSpace};

const SET_SHIFT: u32 = 20;

/// Parameters of the log page, and resources of thresholds.
const AVAILABLE: u8 = 0x01;
const USED: u8 = 0x02;

/// THRESHOLD EXPONENT; 0: no thresholds.
pub(crate) fn threshold_exponent(unit: &LogicalUnit) -> u8 {
    let config = unit.config();
    if !config.has_thresholds() {
        return 0;
    }
    let exponent = SET_SHIFT.saturating_sub(config.block_size.trailing_zeros());
    u8::try_from(exponent).unwrap_or(0)
}

fn sets(bytes: u64) -> [u8; 4] {
    u32::try_from(bytes >> SET_SHIFT)
        .unwrap_or(u32::MAX)
        .to_be_bytes()
}

/// Threshold descriptors: each threshold that is told, as what is then available.
pub(crate) fn threshold_descriptors(unit: &LogicalUnit) -> Vec<u8> {
    /// ENABLED; a soft threshold by count, armed decreasing.
    const SOFT: u8 = 0x80;
    let capacity = unit.threshold_capacity();
    let of_percent = |percent: &u8| {
        let left = 100_u64.saturating_sub(u64::from(*percent));
        let mut descriptor = [SOFT, AVAILABLE, 0, 0, 0, 0, 0, 0];
        // As the capacity in hundredths, which cannot overflow.
        descriptor[4..].copy_from_slice(&sets(capacity / 100 * left));
        descriptor
    };
    let all = unit.config().soft_thresholds.iter();
    all.flat_map(of_percent).collect()
}

/// Parameters of the log page with these codes or higher ones; `None`: there are none.
pub(crate) fn log_parameters(unit: &LogicalUnit, first: u16) -> Option<Vec<u8>> {
    /// TSD, as nothing is saved; FORMAT AND LINKING: a list in binary, whose values nothing resets.
    const BINARY_LIST: u8 = 0x23;
    /// SCOPE: the resources are not for this unit alone.
    const SHARED: u8 = 0x02;
    let SharedSpace { capacity, used, .. } = unit.shared_space();
    let available = sets(capacity.saturating_sub(used));
    let used = sets(used.saturating_add((1 << SET_SHIFT) - 1));
    let parameters = [(AVAILABLE, available), (USED, used)];
    let wanted = parameters.iter().filter(|it| u16::from(it.0) >= first);
    let bytes: Vec<u8> = wanted
        .flat_map(|(code, count)| {
            let head = [0, *code, BINARY_LIST, 8];
            [head, *count, [SHARED, 0, 0, 0]].into_iter().flatten()
        })
        .collect();
    (!bytes.is_empty()).then_some(bytes)
}
