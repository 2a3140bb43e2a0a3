//! What a host asks for: submission queue entries by name (NVMe base 2.0 §5 and §7, NVM command set 1.0
//! §3). Command Identifier and SGL are filled in when a command is submitted.
//!
//! A count is a true one here, also where the field is one less.

use longshore_block::extent::Lba;
use longshore_wire::field::{set_bytes, set_le16, set_le32, set_le64};

use crate::auth::AuthenticationCommand;
use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::nqn::Nqn;
use crate::opcode::{self, FABRICS, Opcode, admin, io};

/// A command to submit: its entry and what it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The entry; CID and SGL are still to be filled in.
    pub entry: SubmissionEntry,
    pub transfer: Transfer,
}

/// What a command moves: the direction, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    None,
    /// To the host, so many bytes.
    ToHost(u32),
    /// To the controller, so many bytes.
    ToController(u32),
}

impl Transfer {
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost(length) | Self::ToController(length) => length,
        }
    }
}

impl Command {
    /// A command that moves nothing, with all of its own dwords zero.
    #[must_use]
    pub fn new(opcode: Opcode, namespace: NamespaceId) -> Self {
        Self {
            entry: SubmissionEntry::new(opcode, CommandId(0), namespace),
            transfer: Transfer::None,
        }
    }

    /// The same command with another transfer.
    #[must_use]
    pub const fn with(mut self, transfer: Transfer) -> Self {
        self.transfer = transfer;
        self
    }

    /// With a value in Command Dword `number`.
    ///
    /// # Panics
    /// When there is no such dword.
    #[must_use]
    pub fn dword(mut self, number: usize, value: u32) -> Self {
        self.entry.set_dword(number, value);
        self
    }

    fn fabrics(command_type: u8) -> Self {
        let mut command = Self::new(FABRICS, NamespaceId::NONE);
        command.entry.0[4] = command_type;
        command
    }
}

/// CNTLID with which Connect asks for any controller of the subsystem (dynamic model).
pub const ANY_CONTROLLER: u16 = 0xffff;

/// Bytes of the data of Connect.
pub const CONNECT_DATA_LENGTH: usize = 1024;

/// A Connect command and its data (NVMe base 2.0 §6.3).
#[derive(Clone, Debug)]
pub struct Connect {
    /// Which host, the same for all of its connections.
    pub host_identifier: [u8; 16],
    pub host: Nqn,
    pub subsystem: Nqn,
    /// [`ANY_CONTROLLER`] for an admin queue, and its answer for I/O queues.
    pub controller_id: u16,
    /// QID: 0 is the admin queue.
    pub queue_id: u16,
    /// Entries of the queue, at least 2; it holds one command less.
    pub entries: u16,
    /// The submission queue has no flow control: no SQHD, and reads may end with the SUCCESS flag.
    pub disable_flow_control: bool,
    /// KATO, for admin queues. 0: no Keep Alive.
    pub keep_alive_ms: u32,
}

impl Connect {
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::fabrics(opcode::fabrics::CONNECT);
        command.transfer = Transfer::ToController(1024);
        let entry = &mut command.entry.0;
        set_le16(entry, 42, self.queue_id);
        set_le16(entry, 44, self.entries.wrapping_sub(1));
        entry[46] = u8::from(self.disable_flow_control) << 2;
        set_le32(entry, 48, self.keep_alive_ms);
        command
    }

    #[must_use]
    pub fn data(&self) -> [u8; CONNECT_DATA_LENGTH] {
        let mut data = [0; CONNECT_DATA_LENGTH];
        set_bytes(&mut data, 0, self.host_identifier);
        set_le16(&mut data, 16, self.controller_id);
        set_bytes(&mut data, 256, self.subsystem.to_field());
        set_bytes(&mut data, 512, self.host.to_field());
        data
    }
}

/// A property of a controller (NVMe base 2.0 §3.1.3), by offset and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// OFST: byte offset of the property.
    pub offset: u32,
    /// 8 bytes rather than 4.
    pub wide: bool,
}

impl Property {
    /// Controller Capabilities, 8 bytes at 0h.
    pub const CAP: Self = Self::new(0x00, true);
    /// Version, 4 bytes at 8h.
    pub const VS: Self = Self::new(0x08, false);
    /// Controller Configuration, 4 bytes at 14h.
    pub const CC: Self = Self::new(0x14, false);
    /// Controller Status, 4 bytes at 1Ch.
    pub const CSTS: Self = Self::new(0x1c, false);
    /// NVM Subsystem Reset, 4 bytes at 20h.
    pub const NSSR: Self = Self::new(0x20, false);
    /// Controller Ready Timeouts, 4 bytes at 68h.
    pub const CRTO: Self = Self::new(0x68, false);

    const fn new(offset: u32, wide: bool) -> Self {
        Self { offset, wide }
    }
}

/// Property Get. The value is the completion's result.
#[must_use]
pub fn property_get(property: Property) -> Command {
    let mut command = Command::fabrics(opcode::fabrics::PROPERTY_GET);
    command.entry.0[40] = u8::from(property.wide);
    set_le32(&mut command.entry.0, 44, property.offset);
    command
}

#[must_use]
pub fn property_set(property: Property, value: u64) -> Command {
    let mut command = Command::fabrics(opcode::fabrics::PROPERTY_SET);
    command.entry.0[40] = u8::from(property.wide);
    set_le32(&mut command.entry.0, 44, property.offset);
    set_le64(&mut command.entry.0, 48, value);
    command
}

/// Authentication Send, with a message of DH-HMAC-CHAP.
///
/// # Panics
/// When the message is longer than any is.
#[must_use]
pub fn authentication_send(length: usize) -> Command {
    let length = u32::try_from(length).expect("messages are short");
    let mut command = Command::fabrics(opcode::fabrics::AUTHENTICATION_SEND);
    AuthenticationCommand { length }.encode(&mut command.entry);
    command.with(Transfer::ToController(length))
}

/// Authentication Receive, of a message of at most that length.
#[must_use]
pub fn authentication_receive(length: u32) -> Command {
    let mut command = Command::fabrics(opcode::fabrics::AUTHENTICATION_RECEIVE);
    AuthenticationCommand { length }.encode(&mut command.entry);
    command.with(Transfer::ToHost(length))
}

/// Disconnect, of an I/O queue.
#[must_use]
pub fn disconnect() -> Command {
    Command::fabrics(opcode::fabrics::DISCONNECT)
}

/// Identify: the 4096 bytes of a CNS value.
#[must_use]
pub fn identify(cns: u8, namespace: NamespaceId) -> Command {
    Command::new(admin::IDENTIFY, namespace)
        .dword(10, u32::from(cns))
        .with(Transfer::ToHost(4096))
}

/// Identify of a data structure that belongs to an I/O command set (CSI).
#[must_use]
pub fn identify_of_command_set(cns: u8, namespace: NamespaceId, command_set: u8) -> Command {
    identify(cns, namespace).dword(11, u32::from(command_set) << 24)
}

/// Get Log Page: `length` bytes, a multiple of 4, from `offset` on.
///
/// # Panics
/// When `length` is no positive multiple of 4.
#[must_use]
pub fn get_log_page(page: u8, namespace: NamespaceId, offset: u64, length: u32) -> Command {
    assert!(
        length > 0 && length.is_multiple_of(4),
        "log pages are read by dwords"
    );
    let dwords = length / 4 - 1;
    let mut command = Command::new(admin::GET_LOG_PAGE, namespace)
        .dword(10, u32::from(page) | (dwords & 0xffff) << 16)
        .dword(11, dwords >> 16)
        .with(Transfer::ToHost(length));
    command.entry.set_qword(12, offset);
    command
}

/// The same with a Log Specific Parameter (LSP), of which there are seven bits.
///
/// # Panics
/// As [`get_log_page`].
#[must_use]
pub fn get_log_page_with(
    page: u8,
    parameter: u8,
    namespace: NamespaceId,
    offset: u64,
    length: u32,
) -> Command {
    let command = get_log_page(page, namespace, offset, length);
    let dword = command.entry.dword(10);
    command.dword(10, dword | u32::from(parameter & 0x7f) << 8)
}

/// Get Features, the current value, of a feature without data.
#[must_use]
pub fn get_features(feature: u8) -> Command {
    Command::new(admin::GET_FEATURES, NamespaceId::NONE).dword(10, u32::from(feature))
}

/// Set Features, not saved, of a feature without data.
#[must_use]
pub fn set_features(feature: u8, value: u32) -> Command {
    Command::new(admin::SET_FEATURES, NamespaceId::NONE)
        .dword(10, u32::from(feature))
        .dword(11, value)
}

/// Asynchronous Event Request, which completes when the controller has something to report.
#[must_use]
pub fn async_event_request() -> Command {
    Command::new(admin::ASYNC_EVENT_REQUEST, NamespaceId::NONE)
}

#[must_use]
pub fn keep_alive() -> Command {
    Command::new(admin::KEEP_ALIVE, NamespaceId::NONE)
}

/// Abort of a command of any queue of the controller.
#[must_use]
pub fn abort(queue_id: u16, command: CommandId) -> Command {
    Command::new(admin::ABORT, NamespaceId::NONE)
        .dword(10, u32::from(command.0) << 16 | u32::from(queue_id))
}

/// A range of logical blocks, and how long a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub namespace: NamespaceId,
    /// SLBA: the first block.
    pub lba: Lba,
    /// 1 to 65,536 blocks.
    pub count: u32,
    pub block_bytes: u32,
}

impl Blocks {
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.count.saturating_mul(self.block_bytes)
    }

    fn command(self, opcode: Opcode) -> Command {
        assert!(
            (1..=1 << 16).contains(&self.count),
            "a command covers 1 to 65,536 blocks"
        );
        let mut command = Command::new(opcode, self.namespace).dword(12, self.count - 1);
        command.entry.set_qword(10, self.lba.0);
        command
    }
}

/// Force Unit Access, in Command Dword 12 of what reads and writes.
pub const FORCE_UNIT_ACCESS: u32 = 1 << 30;

/// Deallocate, in Command Dword 12 of Write Zeroes.
pub const DEALLOCATE: u32 = 1 << 25;

/// Read.
///
/// # Panics
/// When the count of blocks is out of range; so do the other commands with blocks.
#[must_use]
pub fn read(blocks: Blocks) -> Command {
    blocks
        .command(io::READ)
        .with(Transfer::ToHost(blocks.bytes()))
}

/// Write; `flags` as [`FORCE_UNIT_ACCESS`].
#[must_use]
pub fn write(blocks: Blocks, flags: u32) -> Command {
    blocks
        .command(io::WRITE)
        .dword(12, (blocks.count - 1) | flags)
        .with(Transfer::ToController(blocks.bytes()))
}

#[must_use]
pub fn compare(blocks: Blocks) -> Command {
    blocks
        .command(io::COMPARE)
        .with(Transfer::ToController(blocks.bytes()))
}

#[must_use]
pub fn verify(blocks: Blocks) -> Command {
    blocks.command(io::VERIFY)
}

/// Write Zeroes; `flags` as [`DEALLOCATE`] and [`FORCE_UNIT_ACCESS`].
#[must_use]
pub fn write_zeroes(blocks: Blocks, flags: u32) -> Command {
    blocks
        .command(io::WRITE_ZEROES)
        .dword(12, (blocks.count - 1) | flags)
}

#[must_use]
pub fn flush(namespace: NamespaceId) -> Command {
    Command::new(io::FLUSH, namespace)
}

/// Dataset Management, deallocate, of 1 to 256 ranges, with its data from [`ranges`].
///
/// # Panics
/// When there are none or more.
#[must_use]
pub fn deallocate(namespace: NamespaceId, ranges: usize) -> Command {
    let ranges = u32::try_from(ranges).expect("at most 256 ranges");
    assert!((1..=256).contains(&ranges), "1 to 256 ranges");
    Command::new(io::DATASET_MANAGEMENT, namespace)
        .dword(10, ranges - 1)
        .dword(11, 1 << 2)
        .with(Transfer::ToController(ranges * 16))
}

/// The data of Dataset Management: first block and count of each range.
#[must_use]
pub fn ranges(ranges: &[(Lba, u32)]) -> Vec<u8> {
    let mut data = Vec::with_capacity(ranges.len() * 16);
    for (lba, count) in ranges {
        let mut range = [0; 16];
        set_le32(&mut range, 4, *count);
        set_le64(&mut range, 8, lba.0);
        data.extend_from_slice(&range);
    }
    data
}

/// Copy of 1 to 256 source ranges (format 0) to `destination` on, with its data from [`sources`].
///
/// # Panics
/// When there are none or more.
#[must_use]
pub fn copy(namespace: NamespaceId, destination: Lba, sources: usize) -> Command {
    let sources = u32::try_from(sources).expect("at most 256 ranges");
    assert!((1..=256).contains(&sources), "1 to 256 ranges");
    let mut command = Command::new(io::COPY, namespace)
        .dword(12, sources - 1)
        .with(Transfer::ToController(sources * 32));
    command.entry.set_qword(10, destination.0);
    command
}

/// The data of Copy: first block and count, 1 to 65,536, of each source range.
///
/// # Panics
/// When a count is out of range.
#[must_use]
pub fn sources(ranges: &[(Lba, u32)]) -> Vec<u8> {
    let mut data = Vec::with_capacity(ranges.len() * 32);
    for (lba, count) in ranges {
        let last = count.checked_sub(1).and_then(|n| u16::try_from(n).ok());
        let mut range = [0; 32];
        set_le64(&mut range, 8, lba.0);
        set_le16(&mut range, 16, last.expect("1 to 65,536 blocks"));
        data.extend_from_slice(&range);
    }
    data
}

/// Reservation Register. `action`: RREGA, 0 to register, 1 to unregister, 2 to replace; with the bits
/// of IEKEY and CPTPL. Its data: the current key, the new one.
#[must_use]
pub fn reservation_register(namespace: NamespaceId, action: u32) -> Command {
    Command::new(io::RESERVATION_REGISTER, namespace)
        .dword(10, action)
        .with(Transfer::ToController(16))
}

/// Reservation Acquire. `action`: RACQA, 0 to acquire, 1 to preempt, 2 to preempt and abort. Its data:
/// the current key, the one to preempt.
#[must_use]
pub fn reservation_acquire(namespace: NamespaceId, action: u32, kind: u8) -> Command {
    Command::new(io::RESERVATION_ACQUIRE, namespace)
        .dword(10, action | u32::from(kind) << 8)
        .with(Transfer::ToController(16))
}

/// Reservation Release. `action`: RRELA, 0 to release, 1 to clear. Its data: the current key.
#[must_use]
pub fn reservation_release(namespace: NamespaceId, action: u32, kind: u8) -> Command {
    Command::new(io::RESERVATION_RELEASE, namespace)
        .dword(10, action | u32::from(kind) << 8)
        .with(Transfer::ToController(8))
}

/// Reservation Report with the extended data structure, `length` bytes of it, a multiple of 4.
///
/// # Panics
/// When `length` is no positive multiple of 4.
#[must_use]
pub fn reservation_report(namespace: NamespaceId, length: u32) -> Command {
    assert!(
        length > 0 && length.is_multiple_of(4),
        "reports are read by dwords"
    );
    Command::new(io::RESERVATION_REPORT, namespace)
        .dword(10, length / 4 - 1)
        .dword(11, 1)
        .with(Transfer::ToHost(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_wire::field::{le16, le32, le64};

    #[test]
    fn connect_has_its_fields_where_the_standard_draws_them() {
        let host = Nqn::new("nqn.2026-11.com.example:host").unwrap();
        let subsystem = Nqn::new("nqn.2026-11.com.example:disks").unwrap();
        let connect = Connect {
            host_identifier: [7; 16],
            host: host.clone(),
            subsystem: subsystem.clone(),
            controller_id: 0x1234,
            queue_id: 3,
            entries: 128,
            disable_flow_control: true,
            keep_alive_ms: 5000,
        };
        let entry = connect.command().entry.0;
        assert_eq!(entry[..8], [0x7f, 0x40, 0, 0, 1, 0, 0, 0]);
        assert_eq!((le16(&entry, 40), le16(&entry, 42)), (0, 3));
        assert_eq!(le16(&entry, 44), 127);
        assert_eq!(entry[46], 4);
        assert_eq!(le32(&entry, 48), 5000);
        let data = connect.data();
        assert_eq!(data[..16], [7; 16]);
        assert_eq!(le16(&data, 16), 0x1234);
        assert_eq!(data[256..512], subsystem.to_field());
        assert_eq!(data[512..768], host.to_field());
    }

    #[test]
    fn properties_are_named_by_offset_and_size() {
        let get = property_get(Property::CAP).entry.0;
        assert_eq!((get[4], get[40], le32(&get, 44)), (4, 1, 0));
        let set = property_set(Property::CC, 0x0046_0001).entry.0;
        assert_eq!((set[4], set[40], le32(&set, 44)), (0, 0, 0x14));
        assert_eq!(le64(&set, 48), 0x0046_0001);
    }

    #[test]
    fn counts_travel_as_one_less() {
        let blocks = Blocks {
            namespace: NamespaceId(1),
            lba: Lba(1 << 40),
            count: 65_536,
            block_bytes: 512,
        };
        let write = write(blocks, FORCE_UNIT_ACCESS);
        assert_eq!(write.entry.qword(10), 1 << 40);
        assert_eq!(write.entry.dword(12), 0x4000_ffff);
        assert_eq!(write.transfer, Transfer::ToController(32 << 20));
        let log = get_log_page(0x70, NamespaceId::NONE, 1 << 33, 0x8_0000);
        assert_eq!(log.entry.dword(10), 0xffff_0070);
        assert_eq!(log.entry.dword(11), 1);
        assert_eq!(log.entry.qword(12), 1 << 33);
        assert_eq!(
            sources(&[(Lba(9), 1)])[8..18],
            [9, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(deallocate(NamespaceId(1), 256).entry.dword(10), 255);
    }
}
