//! The end of commands: data for the host, response capsules.
//!
//! Data of a command are one C2HData PDU. When they say that the command has succeeded, there is no
//! response capsule; a host that uses SQ flow control needs one, as SQHD is in it.

use longshore_wire::transmit::Transmit;

use super::state::{Connection, InlineRead, Phase};
use crate::command::CommandId;
use crate::completion::CompletionEntry;
use crate::pdu::{C2hData, CapsuleResp};
use crate::server::command::{CommandSlot, Completion, Payload};
use crate::status::Status;
use longshore_wire::transmit::{Chunk, OpenPdu};

impl Connection {
    /// Place in the transmit queue for the data of a small read, which the driver fills at once and in
    /// full; stale bytes are in it. The place is shorter than `length` when the host has room for less.
    /// `None` when it is too long for this way, or there is nothing to send. Must be followed by
    /// [`Self::commit_inline_read`] or [`Self::rollback_inline_read`] before any other call.
    ///
    /// # Panics
    /// When the command is not live.
    #[inline]
    pub fn begin_inline_read<'t>(
        &mut self,
        slot: CommandSlot,
        length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]> {
        debug_assert!(self.inline_read.is_none(), "an inline read is open");
        let (pdu, length) = self.open_inline(slot, length, transmit)?;
        self.inline_read = Some(InlineRead { slot, pdu, length });
        Some(pdu.payload_mut(transmit))
    }

    /// Sends the read begun, and that it succeeded; ends the command.
    ///
    /// # Panics
    /// When no inline read of this command is open.
    #[inline]
    pub fn commit_inline_read(&mut self, slot: CommandSlot, transmit: &mut Transmit) {
        let open = self.inline_read.take().expect("an inline read is open");
        assert_eq!(open.slot, slot, "the inline read is another command's");
        self.send_inline(slot, open.pdu, open.length, transmit);
    }

    /// Answers a small read in one go: `fill` puts all of the data, `length` or fewer bytes, in the place
    /// it is given, where stale bytes are, and says whether it could. If so, the command ends with
    /// success. `Some(false)`: it could not, and the command lives on. `None`: the read is too long for
    /// this way, or there is nothing to send.
    ///
    /// # Panics
    /// When the command is not live.
    #[inline]
    pub fn read_inline(
        &mut self,
        slot: CommandSlot,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool> {
        let (pdu, length) = self.open_inline(slot, length, transmit)?;
        if !fill(pdu.payload_mut(transmit)) {
            pdu.cancel(transmit);
            return Some(false);
        }
        self.send_inline(slot, pdu, length, transmit);
        Some(true)
    }

    /// Opens the C2HData of a read that fits it, with as many bytes as the host wants.
    #[inline(always)]
    fn open_inline(
        &mut self,
        slot: CommandSlot,
        length: u32,
        transmit: &mut Transmit,
    ) -> Option<(OpenPdu, u32)> {
        let length = length.min(self.commands.get(slot).to_host);
        if length == 0 || length > self.config.inline_read_max || self.closed().is_some() {
            return None;
        }
        let pdu = self
            .encoder
            .open::<{ C2hData::LENGTH }>(length as usize, transmit);
        Some((pdu, length))
    }

    /// Ends a command by the C2HData that its data are in.
    #[inline]
    fn send_inline(
        &mut self,
        slot: CommandSlot,
        pdu: OpenPdu,
        length: u32,
        transmit: &mut Transmit,
    ) {
        let command = self.commands.get(slot);
        let (id, connects) = (command.id, command.connects);
        let success = self.may_collapse() && length == command.to_host;
        self.end_command(slot);
        let data = C2hData {
            last: true,
            success,
            command: id,
            offset: 0,
            length,
        };
        self.encoder.close(pdu, data.encode(), transmit);
        if !success {
            self.send_response(id, Status::SUCCESS, 0, connects, transmit);
        }
    }

    /// Forgets the read begun; the command lives on.
    ///
    /// # Panics
    /// When no inline read of this command is open.
    pub fn rollback_inline_read(&mut self, slot: CommandSlot, transmit: &mut Transmit) {
        let open = self.inline_read.take().expect("an inline read is open");
        assert_eq!(open.slot, slot, "the inline read is another command's");
        open.pdu.cancel(transmit);
    }

    /// Ends a command: its data, if any, and how it went. After the connection has ended nothing is sent.
    ///
    /// # Panics
    /// When the command is not live, or while [`Self::outstanding_data_out`].
    pub fn complete(
        &mut self,
        slot: CommandSlot,
        completion: Completion<'_>,
        transmit: &mut Transmit,
    ) {
        assert!(
            !self.outstanding_data_out(slot),
            "the host is sending data of the command"
        );
        let command = self.commands.get(slot);
        let (id, connects, room) = (command.id, command.connects, command.to_host);
        self.end_command(slot);
        let open = self.closed().is_none();
        let available = u32::try_from(completion.data.len()).unwrap_or(u32::MAX);
        let length = if open { available.min(room) } else { 0 };
        let success = length > 0
            && length == room
            && completion.status.0 == Status::SUCCESS.0
            && completion.result == 0
            && self.may_collapse();
        let data = C2hData {
            last: true,
            success,
            command: id,
            offset: 0,
            length,
        };
        self.send_data(data, completion.data, transmit);
        if open && !success {
            self.send_response(id, completion.status, completion.result, connects, transmit);
        }
    }

    fn send_data(&self, data: C2hData, payload: Payload<'_>, transmit: &mut Transmit) {
        let length = data.length as usize;
        let chunk = match payload {
            Payload::Buffer { id, .. } | Payload::Unseen { id, .. } if length == 0 => {
                // Nothing of it leaves, but it has to be released all the same.
                return transmit.push_buffer(id, 0, 0, true);
            }
            Payload::None => return,
            _ if length == 0 => return,
            Payload::Bytes(bytes) => Chunk::Bytes(&bytes[..length]),
            Payload::Zeros(_) => Chunk::Zeros(data.length),
            Payload::Buffer { id, bytes } => Chunk::Buffer {
                id,
                start: 0,
                bytes: &bytes[..length],
                last: true,
            },
            Payload::Unseen { id, .. } => Chunk::Unseen {
                id,
                start: 0,
                length: data.length,
                last: true,
            },
        };
        self.encoder.push_data(data.encode(), chunk, transmit);
    }

    /// Whether a digest covers the data of reads, so that [`Payload::Unseen`] cannot be sent.
    #[inline]
    #[must_use]
    pub fn has_data_digest(&self) -> bool {
        self.encoder.data_digest
    }

    /// Whether data may say that the command has succeeded.
    #[inline]
    const fn may_collapse(&self) -> bool {
        match self.phase {
            Phase::Connected(queue) => !queue.flow_control,
            Phase::Initializing | Phase::Unconnected | Phase::Closed(_) => false,
        }
    }

    /// Sends a response capsule.
    #[inline]
    pub(super) fn send_response(
        &mut self,
        id: CommandId,
        status: Status,
        result: u64,
        connects: bool,
        transmit: &mut Transmit,
    ) {
        let entry = CompletionEntry {
            result,
            sq_head: self.next_sq_head(connects),
            id,
            status,
        };
        self.encoder.push(CapsuleResp { entry }.encode(), transmit);
    }

    /// SQHD of the next response. Without flow control it is not used, and the response to Connect says so
    /// by FFFFh.
    #[inline]
    pub(super) fn next_sq_head(&mut self, connects: bool) -> u16 {
        match self.phase {
            Phase::Connected(queue) if queue.flow_control => {
                let next = self.sq_head + 1;
                self.sq_head = if next >= queue.entries { 0 } else { next };
                self.sq_head
            }
            Phase::Connected(_) if connects => u16::MAX,
            Phase::Initializing | Phase::Unconnected | Phase::Connected(_) | Phase::Closed(_) => 0,
        }
    }
}
