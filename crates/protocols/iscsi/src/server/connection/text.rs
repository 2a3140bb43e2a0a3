//! Text requests (RFC 7143 §11.10, §11.11): joining texts that come in pieces, cutting long answers.
//!
//! ```text
//! idle ──request──► gathering ──last piece──► answering ──last segment, F──► idle
//!                    │  ▲ C bit, or F=0         │  ▲ empty request with our tag
//!                    └──┘                       └──┘
//! ```
//!
//! There is at most one exchange on a connection (§11.10); a request without a target transfer tag
//! starts a new one. What the text means is [`crate::server::discovery`]'s business.

use super::reject::Refusal;
use super::state::{Connection, TextExchange};
use crate::pdu::{Bhs, Lun, TargetTransferTag, TextRequest, TextResponse};
use crate::server::directory::Directory;
use crate::server::discovery::answer_text;
use crate::text::TextSegments;
use longshore_wire::transmit::Transmit;

impl Connection {
    /// A text request has come in and it is its turn.
    pub(super) fn text(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        directory: &dyn Directory,
        transmit: &mut Transmit,
    ) {
        let request = TextRequest::decode(bhs);
        if let Err(refusal) = self.take_text(&request, data, directory) {
            self.text = TextExchange::default();
            return self.refuse(bhs, &[], refusal, transmit);
        }
        self.receive_numbered(request.immediate);
        self.give_back_numbered(request.immediate);
        self.send_text(&request, transmit);
    }

    /// Takes in the text; when it is complete, its answer is in `outgoing` afterwards.
    fn take_text(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        directory: &dyn Directory,
    ) -> Result<(), Refusal> {
        let tag = request.initiator_task_tag;
        if tag.is_reserved() {
            return Err(Refusal::UnknownTag);
        }
        if request.continues && request.is_final {
            return Err(Refusal::ContradictoryFields);
        }
        if request.target_transfer_tag.is_reserved() {
            if self.tag_in_use(tag) {
                return Err(Refusal::TagInUse);
            }
            self.text = TextExchange::default();
        } else if self.text.open != Some((tag, request.target_transfer_tag)) {
            return Err(Refusal::UnknownTag);
        }
        if !self.text.outgoing.is_empty() {
            // §6.2: what continues a long answer is an empty request.
            return if data.is_empty() {
                Ok(())
            } else {
                Err(Refusal::BadText)
            };
        }
        self.text
            .incoming
            .push(data)
            .map_err(|_| Refusal::TextTooLong)?;
        if request.continues {
            return Ok(());
        }
        let text = self.text.incoming.take();
        let session = self
            .session
            .as_ref()
            .expect("there is a session in full feature phase");
        let reply = answer_text(session, &text, directory).map_err(|_| Refusal::BadText)?;
        self.text.outgoing = TextSegments::new(reply.text);
        if reply.initiator_max_recv_data_segment_length.is_some() {
            self.text.initiator_max_recv_data_segment_length =
                reply.initiator_max_recv_data_segment_length;
        }
        Ok(())
    }

    /// Sends the next piece of the answer, empty while the request is not complete.
    fn send_text(&mut self, request: &TextRequest, transmit: &mut Transmit) {
        let limit = self.limits.initiator_max_recv_data_segment_length as usize;
        let stat_sn = self.next_stat_sn();
        let segment = self.text.outgoing.next_segment(limit).to_vec();
        let continues = !self.text.outgoing.is_empty();
        let is_final = request.is_final && !continues;
        let target_transfer_tag = if is_final {
            TargetTransferTag::RESERVED
        } else {
            self.transfer_tags.next()
        };
        self.text.open = (!is_final).then_some((request.initiator_task_tag, target_transfer_tag));
        let response = TextResponse {
            is_final,
            continues,
            lun: Lun::ZERO,
            initiator_task_tag: request.initiator_task_tag,
            target_transfer_tag,
            stat_sn,
            window: self.window.announced(),
        };
        self.encoder.push(response.encode(), &segment, transmit);
        if is_final && let Some(length) = self.text.initiator_max_recv_data_segment_length.take() {
            self.set_initiator_max_recv_data_segment_length(length);
        }
    }
}
