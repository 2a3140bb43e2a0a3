//! What a host sends.

use longshore_wire::transmit::{Transmit, WriteData};

use super::state::{
    CloseReason, CommandSlot, Connection, ConnectionEvent, NotSent, Phase, R2tRequest, Slot,
};
use crate::command::Fuse;
use crate::host::{Command, Transfer};
use crate::pdu::encoder::push_term_req;
use crate::pdu::{CapsuleCmd, FatalError, H2cData, TermReq, Terminator};
use crate::sgl::SglDescriptor;

impl Connection {
    /// From the next command on, data up to this length travels in the capsule: what Identify
    /// Controller says of I/O queues, IOCCSZ × 16 − 64.
    pub const fn set_in_capsule_data_bytes(&mut self, bytes: u32) {
        self.config.in_capsule_data_bytes = bytes;
    }

    /// Whether so much data goes along with its command, rather than when asked for.
    #[must_use]
    pub const fn goes_in_capsule(&self, length: u32) -> bool {
        length > 0 && length <= self.config.in_capsule_data_bytes
    }

    /// Sends a command. `data` is all of its data if that [goes in the capsule](Self::goes_in_capsule), and
    /// not looked at otherwise. Commands leave in the order of these calls.
    ///
    /// # Errors
    /// When all slots are in use, or the connection is not [ready](Self::is_ready).
    ///
    /// # Panics
    /// When data for the capsule is shorter than the command says.
    #[inline]
    pub fn submit(
        &mut self,
        command: &Command,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<CommandSlot, NotSent> {
        if !self.is_ready() {
            return Err(NotSent::Closed);
        }
        let slot = CommandSlot(self.free.pop().ok_or(NotSent::Busy)?);
        self.occupy(slot, command.transfer);
        let length = command.transfer.length();
        let to_controller = matches!(command.transfer, Transfer::ToController(_));
        let in_capsule = to_controller && self.goes_in_capsule(length);
        let mut entry = command.entry;
        entry.set_id(self.command_id(slot));
        entry.set_sgl(if in_capsule {
            SglDescriptor::Offset { offset: 0, length }
        } else {
            SglDescriptor::Transport { length }
        });
        let capsule = CapsuleCmd { entry }.encode();
        if in_capsule {
            let state = &mut self.slots[usize::from(slot.0)];
            (state.requested, state.sent) = (length, length);
            let whole = data.chunk(0, length as usize, true);
            self.encoder.push_data(capsule, whole, transmit);
        } else {
            self.encoder.push(capsule, transmit);
        }
        Ok(slot)
    }

    /// Sends two commands that the controller carries out as one (fused operation), next to each other as they
    /// must be: both find a slot or neither does. FUSE is set here; `data` as with [`Self::submit`].
    ///
    /// # Errors
    /// When fewer than two slots are free, or the connection is not [ready](Self::is_ready).
    ///
    /// # Panics
    /// As [`Self::submit`].
    pub fn submit_fused(
        &mut self,
        commands: [&Command; 2],
        data: [WriteData<'_>; 2],
        transmit: &mut Transmit,
    ) -> Result<[CommandSlot; 2], NotSent> {
        if !self.is_ready() {
            return Err(NotSent::Closed);
        }
        if self.slots_free() < 2 {
            return Err(NotSent::Busy);
        }
        let [mut first, mut second] = commands.map(|command| *command);
        first.entry.set_fuse(Fuse::First);
        second.entry.set_fuse(Fuse::Second);
        Ok([
            self.submit(&first, data[0], transmit)?,
            self.submit(&second, data[1], transmit)?,
        ])
    }

    fn occupy(&mut self, slot: CommandSlot, transfer: Transfer) {
        // One generation is left out, so that no identifier is FFFFh, which error log entries use for
        // none.
        let generations = (1_u32 << (16 - self.slot_bits)) - 1;
        let slot = &mut self.slots[usize::from(slot.0)];
        let next = (u32::from(slot.generation) + 1) % generations;
        *slot = Slot {
            live: true,
            generation: u16::try_from(next).expect("a remainder of at most 16 bits"),
            transfer,
            ..Slot::FREE
        };
    }

    /// Answers an R2T; `data` are the bytes it asks for. Nothing is sent for a command that has ended
    /// meanwhile, for an R2T that was answered before, or on a connection that is not
    /// [ready](Self::is_ready).
    ///
    /// # Panics
    /// When there are more or fewer bytes than the R2T asks for.
    pub fn send_data(&mut self, r2t: &R2tRequest, data: WriteData<'_>, transmit: &mut Transmit) {
        if !self.is_ready() {
            return;
        }
        let Some((_, slot)) = self.slot_of(r2t.command) else {
            return;
        };
        let Some(r2ts) = slot.r2ts.checked_sub(1) else {
            return;
        };
        let wanted = r2t.length as usize;
        assert_eq!(data.bytes().len(), wanted, "an R2T is answered in full");
        slot.r2ts = r2ts;
        slot.sent = slot.sent.saturating_add(r2t.length);
        let mut sent = 0;
        while sent < wanted {
            let length = (wanted - sent).min(self.max_h2c_data as usize);
            let last = sent + length == wanted;
            let header = H2cData {
                last,
                command: r2t.command,
                tag: r2t.tag,
                offset: r2t.buffer_offset + length_u32(sent),
                length: length_u32(length),
            };
            let part = data.chunk(sent, length, last);
            self.encoder.push_data(header.encode(), part, transmit);
            sent += length;
        }
    }

    /// Tells the controller of an error that ends the connection, and ends it.
    pub fn terminate(&mut self, error: FatalError, transmit: &mut Transmit) {
        if !matches!(self.phase, Phase::Closed(_)) {
            send_term_req(error, &[], transmit);
            self.close_by_host();
        }
    }

    /// The controller broke a rule with the PDU whose header was taken last.
    #[cold]
    pub(super) fn fail(
        &mut self,
        error: FatalError,
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'static> {
        send_term_req(error, self.framing.header_bytes(), transmit);
        self.close(CloseReason::ProtocolError(error))
    }
}

fn send_term_req(error: FatalError, in_error: &[u8], transmit: &mut Transmit) {
    let by = Terminator::Host;
    push_term_req(TermReq { by, error }, in_error, transmit);
}

fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("no R2T asks for more")
}
