//! What a host receives.

use super::state::{
    CloseReason, CommandOutcome, CommandSlot, Connection, ConnectionEvent, Incoming, PayloadWanted,
    Phase, R2tRequest, Receiving,
};
use longshore_wire::pdu_data::TrailerStep;

use crate::host::Transfer;
use crate::pdu::{
    C2hData, CapsuleResp, CommonHeader, FatalError, FatalErrorStatus, IcReq, IcResp, PduType, R2t,
    TermReq,
};
use crate::status::Status;

type Step<'a> = Result<Option<ConnectionEvent<'a>>, FatalError>;

/// Where fields stand that are named in an answer.
const FLAGS: u32 = 1;
const COMMAND: u32 = 8;
const ALIGNMENT: u32 = 10;
const DIGESTS: u32 = 11;
const MAX_H2C_DATA: u32 = 12;
const LENGTH: u32 = 16;
const RESPONSE_COMMAND: u32 = 20;

impl Connection {
    #[inline]
    pub(super) fn header(&mut self, common: &CommonHeader) -> Step<'static> {
        match common.pdu_type {
            PduType::CAPSULE_RESP => self.capsule_resp(),
            PduType::C2H_DATA => self.c2h_data(),
            PduType::R2T => self.r2t(),
            PduType::IC_RESP => self.ic_resp(),
            // The framing lets nothing else pass.
            _ => {
                let request = TermReq::decode(self.framing.header());
                self.receiving = Receiving::Echo(request.error);
                Ok(None)
            }
        }
    }

    fn ic_resp(&mut self) -> Step<'static> {
        let response = IcResp::decode(self.framing.header());
        if response.pfv != 0 {
            return Err(FatalError {
                status: FatalErrorStatus::UNSUPPORTED_PARAMETER,
                information: COMMAND,
            });
        }
        if response.cpda > IcReq::ALIGNMENT_MAX {
            return Err(FatalError::invalid_field(ALIGNMENT));
        }
        // A controller may do without a digest, but not demand one.
        let (digests, asked) = (response.digests, self.config.digests);
        if digests.header && !asked.header || digests.data && !asked.data {
            return Err(FatalError::invalid_field(DIGESTS));
        }
        let max_h2c_data = response.max_h2c_data;
        if max_h2c_data < IcResp::MAX_H2C_DATA_MIN || !max_h2c_data.is_multiple_of(4) {
            return Err(FatalError::invalid_field(MAX_H2C_DATA));
        }
        let (header, data) = (digests.header, digests.data);
        self.framing.initialized(header, data, self.config.hpda);
        self.encoder.initialized(header, data, response.cpda);
        self.digests = digests;
        self.max_h2c_data = max_h2c_data;
        self.phase = Phase::Ready;
        Ok(Some(ConnectionEvent::Ready))
    }

    #[inline]
    fn capsule_resp(&mut self) -> Step<'static> {
        let entry = CapsuleResp::decode(self.framing.header()).entry;
        let Some((slot, _)) = self.slot_of(entry.id) else {
            return Err(FatalError::invalid_field(RESPONSE_COMMAND));
        };
        let sq_head = Some(entry.sq_head);
        Ok(Some(self.complete(
            slot,
            entry.status,
            entry.result,
            sq_head,
        )))
    }

    #[inline]
    fn complete(
        &mut self,
        slot: CommandSlot,
        mut status: Status,
        result: u64,
        sq_head: Option<u16>,
    ) -> ConnectionEvent<'static> {
        let state = self.slots[usize::from(slot.0)];
        if state.data_digest_error && status.is_success() {
            status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        self.release(slot);
        let outcome = CommandOutcome {
            status,
            result,
            sq_head,
            data_in_length: state.received,
            data_out_length: state.sent,
            data_digest_error: state.data_digest_error,
        };
        ConnectionEvent::Completed { slot, outcome }
    }

    /// Checks a C2HData against its command.
    #[inline]
    fn c2h_data(&mut self) -> Step<'static> {
        let data = C2hData::decode(self.framing.header());
        let carried = self.framing.data.remaining();
        let Some((slot, state)) = self.slot_of(data.command) else {
            return Err(FatalError::invalid_field(COMMAND));
        };
        let Transfer::ToHost(expected) = state.transfer else {
            return Err(FatalError::invalid_field(COMMAND));
        };
        if data.success && !data.last {
            return Err(FatalError::invalid_field(FLAGS));
        }
        if data.length != carried || data.length == 0 {
            return Err(FatalError::invalid_field(LENGTH));
        }
        if state.data_over {
            return Err(FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR));
        }
        // Data come in order, so that none is missing and none comes twice.
        if data.offset != state.received || data.length > expected - state.received {
            let status = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
            return Err(FatalError::plain(status));
        }
        state.received += data.length;
        state.data_over = data.last;
        self.data_pdus += 1;
        self.receiving = Receiving::Data(Incoming {
            slot,
            offset: data.offset,
            success: data.success,
        });
        Ok(None)
    }

    /// Takes what the input has of the data under way.
    #[inline]
    pub(super) fn take_data<'a>(
        &mut self,
        mut incoming: Incoming,
        input: &mut &'a [u8],
    ) -> Option<ConnectionEvent<'a>> {
        if self.framing.data.remaining() > 0 {
            let bytes = self.framing.data.take(u32::MAX, input);
            if bytes.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            let buffer_offset = incoming.offset;
            incoming.advance(bytes);
            self.receiving = Receiving::Data(incoming);
            return Some(ConnectionEvent::DataIn {
                slot: incoming.slot,
                buffer_offset,
                bytes,
            });
        }
        match self.framing.data.take_trailer(input) {
            TrailerStep::NeedMore => return Some(ConnectionEvent::NeedMore),
            TrailerStep::Done { digest_ok: true } => {}
            TrailerStep::Done { digest_ok: false } => {
                self.slots[usize::from(incoming.slot.0)].data_digest_error = true;
            }
        }
        self.receiving = Receiving::Header;
        incoming
            .success
            .then(|| self.complete(incoming.slot, Status::SUCCESS, 0, None))
    }

    /// Where the next bytes of the stream belong, when they are data: the driver may receive them
    /// there rather than pass them to [`Self::next`], and calls [`Self::payload_received`].
    #[inline]
    #[must_use]
    pub fn payload_wanted(&self) -> Option<PayloadWanted> {
        match (self.phase, self.receiving) {
            (Phase::Ready, Receiving::Data(incoming)) if self.framing.data.is_at_payload() => {
                Some(PayloadWanted {
                    slot: incoming.slot,
                    buffer_offset: incoming.offset,
                    length: self.framing.data.remaining(),
                })
            }
            _ => None,
        }
    }

    /// The driver has received `bytes`, no more than [were wanted](Self::payload_wanted), and they are in
    /// their place. What happens by it comes with the next [`Self::next`], whose input may be empty.
    ///
    /// Bytes that were not wanted close the connection: the driver has lost its place in the stream.
    pub fn payload_received(&mut self, bytes: &[u8]) {
        let wanted = self.payload_wanted();
        match (self.receiving, wanted) {
            (Receiving::Data(mut incoming), Some(wanted))
                if bytes.len() <= wanted.length as usize =>
            {
                self.framing.data.placed(bytes);
                incoming.advance(bytes);
                self.receiving = Receiving::Data(incoming);
            }
            _ => self.close_by_host(),
        }
    }

    /// Checks an R2T against its command.
    fn r2t(&mut self) -> Step<'static> {
        let r2t = R2t::decode(self.framing.header());
        let max_r2t = self.config.max_r2t;
        let Some((slot, state)) = self.slot_of(r2t.command) else {
            return Err(FatalError::invalid_field(COMMAND));
        };
        let Transfer::ToController(length) = state.transfer else {
            return Err(FatalError::invalid_field(COMMAND));
        };
        if r2t.length == 0 {
            return Err(FatalError::invalid_field(LENGTH));
        }
        let end = r2t.offset.checked_add(r2t.length);
        // Each byte is asked for once.
        if end.is_none_or(|end| end > length) || r2t.length > length - state.requested {
            let status = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
            return Err(FatalError::plain(status));
        }
        if state.r2ts == max_r2t {
            let status = FatalErrorStatus::R2T_LIMIT_EXCEEDED;
            return Err(FatalError::plain(status));
        }
        state.requested += r2t.length;
        state.r2ts += 1;
        Ok(Some(ConnectionEvent::R2t(R2tRequest {
            slot,
            buffer_offset: r2t.offset,
            length: r2t.length,
            tag: r2t.tag,
            command: r2t.command,
        })))
    }

    /// Passes over the header that a C2HTermReq gives back.
    pub(super) fn take_echo(
        &mut self,
        error: FatalError,
        input: &mut &[u8],
    ) -> ConnectionEvent<'static> {
        if self.framing.data.skip(input) {
            self.close(CloseReason::Terminated(error))
        } else {
            ConnectionEvent::NeedMore
        }
    }
}
