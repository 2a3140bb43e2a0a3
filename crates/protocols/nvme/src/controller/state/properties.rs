//! The values of the properties, and what setting CC changes.

use crate::controller::failure::Failure;
use crate::controller::limits::ControllerLimits;
use crate::status::Status;

/// VS of NVMe 2.0: major version in bits 31:16.
pub(in crate::controller) const VERSION: u32 = 0x0002_0000;

const CAP: u32 = 0x00;

const VS: u32 = 0x08;

pub(in crate::controller) const CC: u32 = 0x14;

const CSTS: u32 = 0x1c;

const NSSR: u32 = 0x20;

const CRTO: u32 = 0x68;

/// Last byte of what can be a property.
const PROPERTIES_END: u32 = 0x12ff;

/// What CAP.TO and CRTO bound, in units of 500 ms. Storage that hangs can keep a reset that long.
const READY_TIMEOUT: u32 = 30;

/// CC, the property at 14h, as the host wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Configuration(u32);

impl Configuration {
    /// All fields but the reserved ones, and CRIME, which CAP does not offer.
    const MASK: u32 = 0x00ff_fff1;
    /// CSS, MPS, AMS: to be changed while EN is 0 only.
    const FIXED_WHILE_ENABLED: u32 = 0x0000_3ff0;

    const fn enable(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS: I/O command set, 000b or 110b.
    const fn command_set(self) -> u32 {
        self.0 >> 4 & 7
    }

    /// MPS: memory page size as a power of two, less 12.
    const fn page_size(self) -> u32 {
        self.0 >> 7 & 0xf
    }

    /// AMS: arbitration mechanism, 000b is round robin.
    const fn arbitration(self) -> u32 {
        self.0 >> 11 & 7
    }

    /// SHN: shutdown notification, 00b is none.
    const fn shutdown(self) -> u32 {
        self.0 >> 14 & 3
    }

    /// IOSQES: submission entry size as a power of two, so 6.
    const fn submission_entry_size(self) -> u32 {
        self.0 >> 16 & 0xf
    }

    /// IOCQES: completion entry size as a power of two, so 4.
    const fn completion_entry_size(self) -> u32 {
        self.0 >> 20 & 0xf
    }

    /// Whether a controller can run so. Sizes of I/O queue entries may still be missing, until there
    /// are such queues.
    fn is_supported(self) -> bool {
        const NVM: u32 = 0b000;
        const ALL_SUPPORTED: u32 = 0b110;
        matches!(self.command_set(), NVM | ALL_SUPPORTED)
            && self.page_size() == 0
            && self.arbitration() == 0
            && matches!(self.submission_entry_size(), 0 | 6)
            && matches!(self.completion_entry_size(), 0 | 4)
    }
}

/// SHST: how far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None = 0,
    Processing = 1,
    Complete = 2,
}

/// The properties of a controller.
#[derive(Debug)]
pub(in crate::controller) struct Properties {
    capabilities: u64,
    configuration: Configuration,
    ready: bool,
    failed: bool,
    shutdown: Shutdown,
    /// EN is 0, but I/O queues are still there.
    resetting: bool,
    /// Flushes of shutdowns under way. There are several when a host resets the controller in the
    /// middle of a shutdown and begins another.
    pub(in crate::controller) flushes: u32,
}

impl Properties {
    pub(in crate::controller) fn new(is_discovery: bool, limits: &ControllerLimits) -> Self {
        Self {
            capabilities: capabilities(is_discovery, limits),
            configuration: Configuration::default(),
            ready: false,
            failed: false,
            shutdown: Shutdown::None,
            resetting: false,
            flushes: 0,
        }
    }

    pub(in crate::controller) fn status(&self) -> u32 {
        u32::from(self.ready) | u32::from(self.failed) << 1 | (self.shutdown as u32) << 2
    }

    pub(in crate::controller) fn is_running(&self) -> bool {
        self.ready && !self.resetting && !self.failed && self.shutdown == Shutdown::None
    }

    /// The controller does nothing more.
    pub(in crate::controller) fn fail(&mut self) {
        self.failed = true;
    }

    /// The flush of a shutdown has ended.
    pub(in crate::controller) fn flushed(&mut self) {
        self.flushes = self.flushes.saturating_sub(1);
    }

    /// There are no I/O queues: what waited for that is over.
    pub(in crate::controller) fn queues_closed(&mut self) {
        if self.resetting {
            self.resetting = false;
            self.ready = false;
            self.failed = false;
            self.shutdown = Shutdown::None;
        }
        if self.shutdown == Shutdown::Processing && self.flushes == 0 {
            self.shutdown = Shutdown::Complete;
        }
    }

    /// Whether CC says how long the entries of I/O queues are: 64 and 16 bytes.
    pub(in crate::controller) const fn has_io_queue_entry_sizes(&self) -> bool {
        self.configuration.submission_entry_size() == 6
            && self.configuration.completion_entry_size() == 4
    }

    /// A property by offset and length.
    pub(in crate::controller) fn get(&self, offset: u32, length: usize) -> Result<u64, Failure> {
        let value = match offset {
            CAP if length == 8 => return Ok(self.capabilities),
            CAP => return Err(Failure::field(ATTRIBUTES_AT)),
            VS => VERSION,
            CC => self.configuration.0,
            CSTS => self.status(),
            NSSR => 0,
            // CRWMT; CRIMT is the same.
            CRTO => READY_TIMEOUT | READY_TIMEOUT << 16,
            // Registers of other transports and reserved ones: nvmFabTest wants zeros, SPDK and the
            // Linux target refuse.
            VS..=PROPERTIES_END if offset.is_multiple_of(4) => return Ok(0),
            _ => return Err(Failure::field(OFFSET_AT)),
        };
        if length == 4 {
            Ok(u64::from(value))
        } else {
            Err(Failure::field(ATTRIBUTES_AT))
        }
    }

    /// Carries out a write to CC, which may enable, reset or shut down.
    pub(in crate::controller) fn configure(&mut self, value: u32) -> Result<Change, Failure> {
        let old = self.configuration;
        let new = Configuration(value & Configuration::MASK);
        let changed = old.0 ^ new.0;
        if old.enable() && new.enable() && changed & Configuration::FIXED_WHILE_ENABLED != 0 {
            return Err(refused(VALUE_AT));
        }
        if self.resetting && new.enable() {
            // The host should have waited for RDY to become 0; it may still.
            return Err(Failure::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        self.configuration = new;
        if old.enable() && !new.enable() {
            self.resetting = true;
            return Ok(Change::Reset);
        }
        if !old.enable() && new.enable() {
            self.failed = !new.is_supported();
            self.ready = !self.failed;
            self.shutdown = Shutdown::None;
        }
        // 11b is reserved.
        if matches!(new.shutdown(), 1 | 2) && self.shutdown == Shutdown::None {
            self.shutdown = Shutdown::Processing;
            return Ok(Change::ShutDown);
        }
        Ok(Change::Nothing)
    }
}

/// What setting CC did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Change {
    Nothing,
    /// EN changed from 1 to 0.
    Reset,
    /// SHN became 01b or 10b.
    ShutDown,
}

fn capabilities(is_discovery: bool, limits: &ControllerLimits) -> u64 {
    // Queues are contiguous (CQR): there is no memory in which they could not be.
    const CONTIGUOUS_QUEUES: u64 = 1 << 16;
    const CSS_NVM: u64 = 1 << 37;
    const CSS_ALL_SUPPORTED: u64 = 1 << 43;
    const READY_WITH_MEDIA: u64 = 1 << 59;
    let entries = u64::from(limits.queue_entries_max.max(2) - 1);
    let command_sets = if is_discovery {
        CSS_NVM
    } else {
        CSS_NVM | CSS_ALL_SUPPORTED
    };
    // DSTRD, NSSRS, MPSMIN and MPSMAX (4096 bytes) are 0.
    entries | CONTIGUOUS_QUEUES | u64::from(READY_TIMEOUT) << 24 | command_sets | READY_WITH_MEDIA
}

/// How Property Set is refused. The standard names no status for it that all targets agree on: this
/// is what nvmFabTest and SPDK have, Linux has INVALID FIELD.
pub(in crate::controller) const fn refused(byte: u16) -> Failure {
    Failure::at(Status::CONNECT_INVALID_PARAMETERS, byte)
}

/// Bytes of the entry at which ATTRIB and OFST are.
pub(in crate::controller) const ATTRIBUTES_AT: u16 = 40;
pub(in crate::controller) const OFFSET_AT: u16 = 44;
const VALUE_AT: u16 = 48;
