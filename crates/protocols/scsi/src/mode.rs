//! Mode pages (SPC-4 §7.5, SBC-3 mode parameters): settings of a logical unit that initiators can read and,
//! some of them, change.
//!
//! | page | | what can be changed |
//! |---|---|---|
//! | 01h | read-write error recovery | nothing; LBPERE says whether thresholds of provisioning are told |
//! | 08h | caching | nothing; WCE says what the volume is like |
//! | 0Ah | control | D_SENSE, SWP |
//! | 1Ch | informational exceptions control | nothing; they are disabled |
//! | 1Ch, 02h | logical block provisioning | nothing; only where thin units share space |
//!
//! ```text
//!            MODE SENSE (6)                          MODE SENSE (10)
//!  0  MODE DATA LENGTH (1)                  0  MODE DATA LENGTH (2)
//!  1  MEDIUM TYPE = 0                       2  MEDIUM TYPE = 0
//!  2  WP, DPOFUA                            3  WP, DPOFUA
//!  3  BLOCK DESCRIPTOR LENGTH (1)           4  LONGLBA
//!  4  block descriptor, pages               6  BLOCK DESCRIPTOR LENGTH (2)
//!                                           8  block descriptor, pages
//! ```

use crate::cdb::Cdb;
use crate::command_table::CommandKind;
pub use crate::mode_state::ModeState;
use crate::nexus::Nexus;
use crate::provisioning;
use crate::sense::{AdditionalSense, Sense};
use crate::unit::LogicalUnit;
use crate::unit_attention::UnitAttention;

/// PAGE CONTROL: which values of a page MODE SENSE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageControl {
    Current,
    Changeable,
    Default,
    Saved,
}

impl PageControl {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Current,
            1 => Self::Changeable,
            2 => Self::Default,
            _ => Self::Saved,
        }
    }
}

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// SPF: the page has a subpage code, and a length of two bytes.
const SPF: u8 = 0x40;

/// A page code and subpage code.
type PageCode = (u8, u8);

const ERROR_RECOVERY: PageCode = (0x01, 0);
const CACHING: PageCode = (0x08, 0);
const CONTROL: PageCode = (0x0a, 0);
const INFORMATIONAL_EXCEPTIONS: PageCode = (0x1c, 0);
const LOGICAL_BLOCK_PROVISIONING: PageCode = (0x1c, 2);

/// Pages of a unit in the order in which "all pages" returns them.
fn pages(unit: &LogicalUnit) -> &'static [PageCode] {
    const ALL: [PageCode; 5] = [
        ERROR_RECOVERY,
        CACHING,
        CONTROL,
        INFORMATIONAL_EXCEPTIONS,
        LOGICAL_BLOCK_PROVISIONING,
    ];
    let [of_all_units @ .., _] = &ALL;
    if unit.config().has_thresholds() {
        &ALL
    } else {
        of_all_units
    }
}

/// Bit of byte 7 of the read-write error recovery mode page.
const LBPERE: u8 = 0x80;

/// Byte and bits of the control mode page.
const D_SENSE: (usize, u8) = (2, 0x04);
const SWP: (usize, u8) = (4, 0x08);

/// A whole page with its header. `flags`: the settings the values are to show.
fn page(code: PageCode, flags: u8, unit: &LogicalUnit) -> Vec<u8> {
    let mut page = blank(code);
    match code {
        ERROR_RECOVERY if unit.config().has_thresholds() => page[7] = LBPERE,
        CACHING => {
            page[2] = if unit.config().volatile_cache {
                0x04
            } else {
                0
            }
        }
        CONTROL => {
            // QUEUE ALGORITHM MODIFIER: unrestricted reordering.
            page[3] = 0x10;
            set(&mut page, D_SENSE, flags & ModeState::D_SENSE != 0);
            set(&mut page, SWP, flags & ModeState::SWP != 0);
        }
        // DEXCPT: we report no informational exceptions.
        INFORMATIONAL_EXCEPTIONS => page[2] = 0x08,
        // SITUA = 0: all nexuses are told.
        LOGICAL_BLOCK_PROVISIONING => page.extend(provisioning::threshold_descriptors(unit)),
        _ => {}
    }
    with_length(page)
}

/// The same page with ones where MODE SELECT can change it.
fn changeable(code: PageCode, unit: &LogicalUnit) -> Vec<u8> {
    let mut page = blank(code);
    if code == CONTROL {
        set(&mut page, D_SENSE, true);
        set(&mut page, SWP, true);
    }
    page.resize(self::page(code, 0, unit).len(), 0);
    with_length(page)
}

/// A page of zeros without what depends on the unit, and without its length.
fn blank(code: PageCode) -> Vec<u8> {
    let length = match code {
        CACHING => 20,
        LOGICAL_BLOCK_PROVISIONING => 16,
        _ => 12,
    };
    let mut page = vec![0; length];
    match code {
        (code, 0) => page[0] = code,
        (code, subpage) => page[..2].copy_from_slice(&[SPF | code, subpage]),
    }
    page
}

/// The page with PAGE LENGTH: that of all behind it.
fn with_length(mut page: Vec<u8>) -> Vec<u8> {
    if page[0] & SPF == 0 {
        page[1] = u8::try_from(page.len() - 2).unwrap_or(0);
    } else {
        let length = u16::try_from(page.len() - 4).unwrap_or(0);
        page[2..4].copy_from_slice(&length.to_be_bytes());
    }
    page
}

fn set(page: &mut [u8], (byte, bits): (usize, u8), on: bool) {
    if on {
        page[byte] |= bits;
    } else {
        page[byte] &= !bits;
    }
}

/// Which of the two forms of MODE SENSE and MODE SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Six,
    Ten,
}

impl Form {
    fn of(operation: CommandKind) -> Self {
        if matches!(
            operation,
            CommandKind::ModeSense6 | CommandKind::ModeSelect6
        ) {
            Self::Six
        } else {
            Self::Ten
        }
    }

    fn header_length(self) -> usize {
        match self {
            Self::Six => 4,
            Self::Ten => 8,
        }
    }
}

/// MODE SENSE (SPC-4 §6.13 f.).
pub(crate) fn sense(
    operation: CommandKind,
    cdb: Cdb,
    unit: &LogicalUnit,
    nexus: &Nexus,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    let form = Form::of(operation);
    let no_block_descriptor = cdb.flag(1, 3);
    let long_lba = form == Form::Ten && cdb.flag(1, 4);
    let (code, subpage) = (cdb.bits(2, 0, 6), cdb.byte(3));
    let of_code = |it: &&PageCode| code == ALL_PAGES || it.0 == code;
    let of_subpage = |it: &&PageCode| subpage == ALL_SUBPAGES || it.1 == subpage;
    let mut pages = pages(unit).iter().filter(of_code).peekable();
    pages.peek().ok_or(Sense::invalid_field_in_cdb(2, 5))?;
    if code == ALL_PAGES && !matches!(subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::invalid_field_in_cdb(3, 7));
    }
    let mut pages = pages.filter(of_subpage).peekable();
    pages.peek().ok_or(Sense::invalid_field_in_cdb(3, 7))?;
    let control = PageControl::from_bits(cdb.bits(2, 6, 2));
    if control == PageControl::Saved {
        return Err(Sense::illegal_request(
            AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED,
        ));
    }
    let descriptor = if no_block_descriptor {
        Vec::new()
    } else {
        block_descriptor(unit, long_lba)
    };
    let start = data_in.len();
    push_header(
        form,
        long_lba,
        device_specific(unit, nexus),
        descriptor.len(),
        data_in,
    );
    data_in.extend(descriptor);
    for code in pages {
        data_in.extend(match control {
            PageControl::Changeable => changeable(*code, unit),
            PageControl::Default => page(*code, 0, unit),
            PageControl::Current | PageControl::Saved => page(*code, unit.modes().flags(), unit),
        });
    }
    let length = data_in.len() - start;
    match form {
        Form::Six => data_in[start] = u8::try_from(length - 1).unwrap_or(u8::MAX),
        Form::Ten => {
            let length = u16::try_from(length - 2).unwrap_or(u16::MAX);
            data_in[start..start + 2].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

/// DEVICE-SPECIFIC PARAMETER of block devices: WP, DPOFUA.
fn device_specific(unit: &LogicalUnit, nexus: &Nexus) -> u8 {
    const WP: u8 = 0x80;
    const DPOFUA: u8 = 0x10;
    DPOFUA
        | if unit.is_write_protected(nexus) {
            WP
        } else {
            0
        }
}

fn push_header(
    form: Form,
    long_lba: bool,
    device_specific: u8,
    descriptor_length: usize,
    data_in: &mut Vec<u8>,
) {
    let descriptor_length = u8::try_from(descriptor_length).unwrap_or(u8::MAX);
    match form {
        Form::Six => data_in.extend([0, 0, device_specific, descriptor_length]),
        Form::Ten => {
            let long_lba = u8::from(long_lba);
            data_in.extend([0, 0, 0, device_specific, long_lba, 0, 0, descriptor_length]);
        }
    }
}

/// Number of blocks (saturated in the short form) and block length.
fn block_descriptor(unit: &LogicalUnit, long_lba: bool) -> Vec<u8> {
    let (block_size, block_count) = unit.capacity();
    let mut descriptor = Vec::with_capacity(16);
    if long_lba {
        descriptor.extend(block_count.to_be_bytes());
        descriptor.extend([0; 4]);
    } else {
        descriptor.extend(u32::try_from(block_count).unwrap_or(u32::MAX).to_be_bytes());
    }
    // In the short form the length has three bytes, below a reserved one.
    descriptor.extend(block_size.to_be_bytes());
    descriptor
}

/// What of a MODE SELECT (SPC-4 §6.11 f.) can be decided without its data. Gives the parameter list
/// length.
pub(crate) fn check_select(operation: CommandKind, cdb: Cdb) -> Result<u16, Sense> {
    let (page_format, save_pages) = (cdb.flag(1, 4), cdb.flag(1, 0));
    let length = match Form::of(operation) {
        Form::Six => u16::from(cdb.byte(4)),
        Form::Ten => cdb.be16(7),
    };
    if save_pages {
        return Err(Sense::invalid_field_in_cdb(1, 0));
    }
    // PF = 0 means a vendor specific format; we have none.
    if !page_format && length > 0 {
        return Err(Sense::invalid_field_in_cdb(1, 4));
    }
    Ok(length)
}

/// Carries a MODE SELECT out: all of it, or nothing.
pub(crate) fn select(
    operation: CommandKind,
    list: &[u8],
    unit: &LogicalUnit,
    nexus: &Nexus,
) -> Result<(), Sense> {
    if list.is_empty() {
        return Ok(());
    }
    let before = unit.modes().flags();
    let after = check_list(Form::of(operation), list, before, unit)?;
    if unit.modes().swap_flags(after) != after {
        unit.establish_for_others(nexus, UnitAttention::ModeParametersChanged);
    }
    Ok(())
}

/// Settings after the list has been applied to `flags`.
fn check_list(form: Form, list: &[u8], mut flags: u8, unit: &LogicalUnit) -> Result<u8, Sense> {
    let too_short = Sense::parameter_list_length_error();
    let header = list.get(..form.header_length()).ok_or(too_short)?;
    // MODE DATA LENGTH and DEVICE-SPECIFIC PARAMETER are reserved here, and what MODE SENSE gave may
    // be sent back, so they are not looked at.
    let (medium_type_at, long_lba, descriptor_length) = match *header {
        [_, _, _, length] => (1, false, usize::from(length)),
        [_, _, _, _, long, _, high, low] => (
            2,
            long & 1 != 0,
            usize::from(u16::from_be_bytes([high, low])),
        ),
        _ => return Err(too_short),
    };
    if header[medium_type_at] != 0 {
        return Err(Sense::invalid_field_in_parameter_list(
            u16::from(form == Form::Ten) + 1,
        ));
    }
    let mut at = form.header_length();
    let descriptor = list.get(at..at + descriptor_length).ok_or(too_short)?;
    check_block_descriptor(descriptor, long_lba, at, unit)?;
    at += descriptor_length;
    while at < list.len() {
        let (length, changed) = check_page(&list[at..], at, flags, unit)?;
        flags = changed;
        at += length;
    }
    Ok(flags)
}

/// The block descriptor may only say what is so already; zero or all ones blocks mean the same.
fn check_block_descriptor(
    descriptor: &[u8],
    long_lba: bool,
    at: usize,
    unit: &LogicalUnit,
) -> Result<(), Sense> {
    let invalid = |offset: usize| {
        Sense::invalid_field_in_parameter_list(u16::try_from(at + offset).unwrap_or(u16::MAX))
    };
    let (block_size, block_count) = unit.capacity();
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |n, byte| (n << 8) | u64::from(*byte))
    };
    let (blocks, all_ones, length, length_at) = match (descriptor.len(), long_lba) {
        (0, _) => return Ok(()),
        (8, false) => (
            number(&descriptor[..4]),
            u64::from(u32::MAX),
            number(&descriptor[5..8]),
            5,
        ),
        (16, true) => (
            number(&descriptor[..8]),
            u64::MAX,
            number(&descriptor[12..16]),
            12,
        ),
        _ => {
            return Err(Sense::invalid_field_in_parameter_list(if at == 8 {
                6
            } else {
                3
            }));
        }
    };
    if length != u64::from(block_size) {
        return Err(invalid(length_at));
    }
    if blocks != 0 && blocks != all_ones && blocks != block_count.min(all_ones) {
        return Err(invalid(0));
    }
    Ok(())
}

/// Checks the page at the start of `rest`, which is `at` bytes into the list. Gives its length and
/// the settings with the page applied.
fn check_page(rest: &[u8], at: usize, flags: u8, unit: &LogicalUnit) -> Result<(usize, u8), Sense> {
    const PS: u8 = 0x80;
    let invalid = |offset: usize| {
        Sense::invalid_field_in_parameter_list(u16::try_from(at + offset).unwrap_or(u16::MAX))
    };
    let too_short = Sense::parameter_list_length_error();
    let [first, second, ..] = *rest else {
        return Err(too_short);
    };
    // PS is reserved in MODE SELECT; initiators that send back what MODE SENSE gave may have it set.
    let (code, length) = if first & SPF == 0 {
        ((first & !PS, 0), 1..2)
    } else {
        ((first & !(PS | SPF), second), 2..4)
    };
    let is_known = pages(unit).contains(&code) && (first & SPF != 0) == (code.1 != 0);
    if !is_known {
        return Err(invalid(0));
    }
    let current = page(code, flags, unit);
    if rest.get(length.clone()).ok_or(too_short)? != &current[length.clone()] {
        return Err(invalid(length.start));
    }
    let sent = rest.get(..current.len()).ok_or(too_short)?;
    let mask = changeable(code, unit);
    let wrong = (length.end..current.len()).find(|i| (sent[*i] ^ current[*i]) & !mask[*i] != 0);
    if let Some(offset) = wrong {
        return Err(invalid(offset));
    }
    let mut changed = flags;
    if code == CONTROL {
        let flag = |(byte, bits): (usize, u8), flag: u8| {
            if sent[byte] & bits != 0 { flag } else { 0 }
        };
        changed = flag(D_SENSE, ModeState::D_SENSE) | flag(SWP, ModeState::SWP);
    }
    Ok((current.len(), changed))
}
