//! Identification of a logical unit: geometry, limits, abilities and names, in steps.
//!
//! Only INQUIRY, TEST UNIT READY and one of the two READ CAPACITYs are needed. Everything else has an
//! answer for targets that lack it:
//!
//! | asked by | without it |
//! |---|---|
//! | VPD pages 80h, 83h, B0h, B2h | no serial number, names, limits, provisioning |
//! | READ CAPACITY (16) | READ CAPACITY (10), and no command beyond 65,535 blocks |
//! | caching mode page | a trial of SYNCHRONIZE CACHE: whoever has that may have a cache |
//! | REPORT SUPPORTED OPERATION CODES | WRITE SAME where limits speak of it, GET LBA STATUS on trial |
//!
//! Unit attentions, which every new session begins with, are met by asking again, a bounded number of
//! times.

use std::time::Duration;

use longshore_iscsi::pdu::Lun;
use longshore_scsi::status::Status;

use super::cdb::{Cdb, opcode, service_action};
use super::machine::Dialect;
use super::outcome::{failure, key};
use super::pages::{
    self, BlockLimits, CACHING_PAGE, Capacity, CommandSupport, Designators, Inquiry, Mode, Page,
    Provisioning,
};
use super::session::{Session, Transfer};
use crate::error::{Error, Failure, Retry};
use crate::info::{AccessState, Protocol, VolumeInfo};

/// Times that a question is asked again after a unit attention, or because the unit is busy.
const ATTEMPTS_MAX: u32 = 16;
/// Longest pause between them.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Bytes of a page that are asked for.
const PAGE_BYTES: u16 = 1024;
/// Bytes of a list of LUNs that are asked for.
const LUNS_BYTES: u32 = 8 + 8 * 16_384;
/// Blocks of a transfer where the 16-byte commands are in doubt.
const SHORT_TRANSFER_MAX: u32 = 0xffff;
/// Blocks of a WRITE SAME where the target states no limit.
const WRITE_SAME_MAX: u32 = 0xffff;
/// Blocks of supported lengths.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// A unit, as it was found.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) info: VolumeInfo,
    pub(super) dialect: Dialect,
    pub(super) access: AccessState,
}

/// A LUN in the eight bytes that travel.
pub(super) fn wire_lun(number: u16) -> Lun {
    let lun = longshore_scsi::lun::Lun::from_number(number);
    Lun(lun.expect("a URL has no LUN beyond those").0)
}

/// Asks all there is to know.
pub(super) fn identify(session: &mut Session, number: u16) -> Result<Unit, Error> {
    let mut asking = Asking {
        session,
        lun: wire_lun(number),
        opcodes: true,
    };
    let inquiry = asking.inquiry(number)?;
    asking.meet_unit_attentions()?;
    let supported = asking.vital_product_data(0x00)?.unwrap_or_default();
    let mut page = |code: u8| {
        if supported
            .get(4..)
            .is_some_and(|pages| pages.contains(&code))
        {
            asking
                .vital_product_data(code)
                .map(Option::unwrap_or_default)
        } else {
            Ok(Vec::new())
        }
    };
    let (serial, designators) = (page(0x80)?, page(0x83)?);
    let (limits, provisioning) = (page(0xb0)?, page(0xb2)?);
    let limits = BlockLimits::parse(Page(&limits));
    let provisioning = Provisioning::parse(Page(&provisioning));
    let designators = Page(&designators).vital_product_data(0x83);
    let designators = Designators::parse(designators.unwrap_or_default());
    let (capacity, has_16) = asking.capacity()?;
    let mode = asking.mode()?;
    let dialect = asking.dialect(&capacity, &mode, limits, provisioning)?;
    let access = match (inquiry.reports_port_groups, designators.port_group) {
        (true, Some(group)) => asking.access_state(group)?,
        _ => AccessState::Optimized,
    };
    let above_0 = |limit: u32| (limit > 0).then_some(limit);
    let max_transfer = above_0(limits.max_transfer);
    let info = VolumeInfo {
        protocol: Protocol::Iscsi,
        block_size: capacity.block_size,
        block_count: capacity.block_count,
        physical_block_size: capacity
            .block_size
            .saturating_mul(1 << capacity.physical_exponent),
        read_only: mode.write_protected,
        write_cache: dialect.write_cache,
        fua: dialect.fua,
        unmap: dialect.unmap,
        unmapped_reads_zeros: capacity.unmapped_reads_zeros || provisioning.unmapped_reads_zeros,
        write_zeroes: dialect.write_same,
        compare_and_write_max: above_0(dialect.compare_and_write_max.into()),
        extent_status: dialect.get_lba_status,
        max_transfer_blocks: if has_16 {
            max_transfer
        } else {
            Some(max_transfer.map_or(SHORT_TRANSFER_MAX, |max| max.min(SHORT_TRANSFER_MAX)))
        },
        optimal_transfer_blocks: above_0(limits.optimal_transfer),
        unmap_granularity_blocks: above_0(limits.unmap_granularity),
        max_unmap_blocks: dialect.unmap.then(|| match limits.max_unmap {
            0 => u32::MAX.into(),
            blocks => blocks.into(),
        }),
        max_write_zeroes_blocks: dialect.write_same.then(|| match limits.max_write_same {
            0 => WRITE_SAME_MAX.into(),
            blocks => blocks.min(u32::MAX.into()),
        }),
        vendor: inquiry.vendor,
        product: inquiry.product,
        revision: inquiry.revision,
        serial: Page(&serial)
            .vital_product_data(0x80)
            .map_or_else(String::new, |body| Page(body).text(0, body.len())),
        identifiers: designators.identifiers,
    };
    Ok(Unit {
        info,
        dialect,
        access,
    })
}

/// The numbers of the units that the target has. Empty when it does not tell.
pub(super) fn report_luns(session: &mut Session) -> Result<Vec<u16>, Error> {
    let mut asking = Asking {
        session,
        lun: Lun::ZERO,
        opcodes: false,
    };
    let data = asking.ask(Cdb::report_luns(LUNS_BYTES), LUNS_BYTES)?;
    let luns = data.unwrap_or_default();
    Ok(pages::luns(&luns)
        .filter_map(|lun| longshore_scsi::lun::Lun(lun).number())
        .collect())
}

/// Questions to one unit.
pub(super) struct Asking<'a> {
    session: &'a mut Session,
    lun: Lun,
    /// REPORT SUPPORTED OPERATION CODES is there, as far as we know.
    opcodes: bool,
}

impl<'a> Asking<'a> {
    pub(super) const fn new(session: &'a mut Session, lun: Lun) -> Self {
        Self {
            session,
            lun,
            opcodes: true,
        }
    }

    /// Sends a command until the unit has nothing else to say first.
    fn attempt(
        &mut self,
        cdb: Cdb,
        transfer: Transfer<'_>,
    ) -> Result<Result<Vec<u8>, Failure>, Error> {
        let mut attempt = 0;
        loop {
            let answer = self.session.command(self.lun, cdb.as_bytes(), transfer)?;
            let Some(failure) = failure(&answer.outcome, false) else {
                return Ok(Ok(answer.data));
            };
            attempt += 1;
            let pause = match failure.retry() {
                Retry::Now => Duration::ZERO,
                Retry::After(pause) => pause.min(PAUSE_MAX),
                Retry::Never | Retry::OtherPath => return Ok(Err(failure)),
            };
            if attempt == ATTEMPTS_MAX {
                return Ok(Err(failure));
            }
            std::thread::sleep(pause);
        }
    }

    /// The data of an answer; `None` when the unit does not know the question.
    pub(super) fn ask(&mut self, cdb: Cdb, length: u32) -> Result<Option<Vec<u8>>, Error> {
        self.attempt(cdb, Transfer::Read(length)).map(Result::ok)
    }

    /// The same for what every unit has to know.
    fn need(&mut self, cdb: Cdb, length: u32, step: &'static str) -> Result<Vec<u8>, Error> {
        self.attempt(cdb, Transfer::Read(length))?
            .map_err(|failure| self.failed(step, failure))
    }

    fn failed(&self, step: &'static str, failure: Failure) -> Error {
        Error::Command {
            portal: self.session.portal().clone(),
            step,
            failure,
        }
    }

    fn unusable(&self, reason: String) -> Error {
        Error::Unusable {
            portal: self.session.portal().clone(),
            reason,
        }
    }

    fn inquiry(&mut self, number: u16) -> Result<Inquiry, Error> {
        const LENGTH: u16 = 96;
        let data = match self.attempt(Cdb::inquiry(None, LENGTH), Transfer::Read(LENGTH.into()))? {
            Ok(data) => data,
            Err(failure) if is_missing_unit(&failure) => return Err(self.no_such_unit(number)),
            Err(failure) => return Err(self.failed("INQUIRY", failure)),
        };
        let inquiry = Inquiry::parse(&data);
        if inquiry.peripheral_qualifier != 0 || inquiry.device_type == 0x1f {
            return Err(self.no_such_unit(number));
        }
        if !inquiry.is_disk() {
            let others = report_luns(self.session).unwrap_or_default();
            let others: Vec<String> = others
                .iter()
                .filter(|other| **other != number)
                .map(u16::to_string)
                .collect();
            let hint = if others.is_empty() {
                "and the target has no other".to_owned()
            } else {
                format!("try LUN {}", others.join(", "))
            };
            return Err(self.unusable(format!(
                "LUN {number} is not a disk (peripheral device type {:#04x}, {} {}); {hint}",
                inquiry.device_type, inquiry.vendor, inquiry.product,
            )));
        }
        Ok(inquiry)
    }

    fn no_such_unit(&mut self, number: u16) -> Error {
        let luns = report_luns(self.session).unwrap_or_default();
        Error::NotFound {
            portal: self.session.portal().clone(),
            wanted: format!("LUN {number}"),
            available: luns.iter().map(|lun| format!("LUN {lun}")).collect(),
        }
    }

    /// Meets unit attentions, and waits for a unit that is starting.
    pub(super) fn meet_unit_attentions(&mut self) -> Result<(), Error> {
        match self.attempt(Cdb::test_unit_ready(), Transfer::None)? {
            // Who may not use it may still ask about it.
            Ok(_) | Err(Failure::ReservationConflict | Failure::Unsupported) => Ok(()),
            // A path that is not to be used now is known from its access state.
            Err(failure) if failure.retry() == Retry::OtherPath => Ok(()),
            Err(failure) => Err(self.failed("TEST UNIT READY", failure)),
        }
    }

    fn vital_product_data(&mut self, code: u8) -> Result<Option<Vec<u8>>, Error> {
        let cdb = Cdb::inquiry(Some(code), PAGE_BYTES);
        let data = self.ask(cdb, PAGE_BYTES.into())?;
        Ok(data.filter(|data| Page(data).vital_product_data(code).is_some()))
    }

    /// The capacity, and whether commands of 16 bytes are there.
    fn capacity(&mut self) -> Result<(Capacity, bool), Error> {
        const LENGTH: u32 = 32;
        let long = self.ask(Cdb::read_capacity_16(LENGTH), LENGTH)?;
        let long = long.as_deref().and_then(Capacity::parse_16);
        let (capacity, has_16) = match long {
            Some(capacity) => (capacity, true),
            None => {
                let data = self.need(Cdb::read_capacity_10(), 8, "READ CAPACITY")?;
                let capacity = Capacity::parse_10(&data);
                let short = || self.unusable("it does not report its capacity".to_owned());
                (capacity.ok_or_else(short)?, false)
            }
        };
        let size = capacity.block_size;
        if !BLOCK_SIZES.contains(&size) || !size.is_power_of_two() {
            return Err(self.unusable(format!("its blocks have {size} bytes")));
        }
        let blocks = capacity.block_count;
        if blocks.checked_mul(size.into()).is_none() {
            let reason = format!("it claims {blocks} blocks of {size} bytes");
            return Err(self.unusable(reason));
        }
        Ok((capacity, has_16))
    }

    fn mode(&mut self) -> Result<Mode, Error> {
        const LENGTH: u8 = 192;
        let data = self.ask(Cdb::mode_sense_6(CACHING_PAGE, LENGTH), LENGTH.into())?;
        Ok(data.as_deref().map(Mode::parse_6).unwrap_or_default())
    }

    /// What the target says of a command; `None` when it does not say.
    fn support<T>(
        &mut self,
        code: u8,
        action: Option<u8>,
        look: impl FnOnce(&CommandSupport<'_>) -> T,
    ) -> Result<Option<T>, Error> {
        const LENGTH: u32 = 64;
        if !self.opcodes {
            return Ok(None);
        }
        let cdb = Cdb::report_supported_operation_code(code, action, LENGTH);
        let data = self.ask(cdb, LENGTH)?;
        self.opcodes = data.is_some();
        let data = data.unwrap_or_default();
        Ok(CommandSupport::parse(&data).as_ref().map(look))
    }

    fn dialect(
        &mut self,
        capacity: &Capacity,
        mode: &Mode,
        limits: BlockLimits,
        provisioning: Provisioning,
    ) -> Result<Dialect, Error> {
        let (write_cache, synchronize_cache_16) = self.cache(mode)?;
        let write_same = self.support(opcode::WRITE_SAME_16, None, |support| {
            (support.is_supported, support.uses(1, 0))
        })?;
        let told_by_limits = provisioning.write_same_unmap || limits.max_write_same > 0;
        let (write_same, write_same_without_data) = write_same.unwrap_or((told_by_limits, false));
        let reads_zeros = capacity.unmapped_reads_zeros || provisioning.unmapped_reads_zeros;
        Ok(Dialect {
            block_size: capacity.block_size,
            fua: mode.fua,
            write_cache,
            synchronize_cache_16,
            unmap: provisioning.unmap || capacity.provisioned && limits.max_unmap > 0,
            write_same,
            // Deallocated blocks would not read as the zeros that were written.
            write_same_unmap: provisioning.write_same_unmap && reads_zeros,
            write_same_without_data,
            compare_and_write_max: self.compare_and_write_max(limits)?,
            get_lba_status: self.has_get_lba_status()?,
        })
    }

    /// Whether there is a write cache, and whether only SYNCHRONIZE CACHE (16) flushes it.
    fn cache(&mut self, mode: &Mode) -> Result<(bool, bool), Error> {
        let short = opcode::SYNCHRONIZE_CACHE_10;
        let short = self.support(short, None, |support| support.is_supported)?;
        let long = opcode::SYNCHRONIZE_CACHE_16;
        let long = match short {
            Some(false) => self.support(long, None, |support| support.is_supported)?,
            _ => None,
        };
        let only_16 = long == Some(true);
        if let Some(write_cache) = mode.write_cache {
            return Ok((write_cache, only_16));
        }
        let cdb = if only_16 {
            Cdb::synchronize_cache_16()
        } else {
            Cdb::synchronize_cache_10()
        };
        let trial = self.attempt(cdb, Transfer::None)?;
        Ok((trial != Err(Failure::Unsupported), only_16))
    }

    /// Where the page of limits has no word of it, one block is what everybody has who has it at all.
    fn compare_and_write_max(&mut self, limits: BlockLimits) -> Result<u8, Error> {
        if limits != BlockLimits::default() {
            return Ok(limits.max_compare_and_write);
        }
        let code = opcode::COMPARE_AND_WRITE;
        let is_supported = self.support(code, None, |support| support.is_supported)?;
        Ok(u8::from(is_supported == Some(true)))
    }

    fn has_get_lba_status(&mut self) -> Result<bool, Error> {
        let action = Some(service_action::GET_LBA_STATUS);
        let code = opcode::SERVICE_ACTION_IN_16;
        if let Some(known) = self.support(code, action, |support| support.is_supported)? {
            return Ok(known);
        }
        const LENGTH: u32 = 24;
        let data = self.ask(Cdb::get_lba_status(0, LENGTH), LENGTH)?;
        Ok(data.is_some_and(|data| data.len() >= LENGTH as usize))
    }

    fn access_state(&mut self, group: u16) -> Result<AccessState, Error> {
        let length = PAGE_BYTES.into();
        let data = self.ask(Cdb::report_target_port_groups(length), length)?;
        let state = data.and_then(|data| pages::access_state(&data, group));
        Ok(state.unwrap_or_default())
    }
}

/// LOGICAL UNIT NOT SUPPORTED.
fn is_missing_unit(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Scsi { status, sense: Some(sense) }
            if Status(*status) == Status::CHECK_CONDITION
                && sense.key == key::ILLEGAL_REQUEST
                && sense.asc == 0x25
    )
}
