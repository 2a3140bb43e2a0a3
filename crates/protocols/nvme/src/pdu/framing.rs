//! Cuts the byte stream into headers and data, and checks digests; both roles.
//!
//! ```text
//! take_header ──► data.take … ──► data.take_trailer ──► take_header
//!  (header,        (padding,       (data digest)
//!   its digest)     payload)
//!              └──► data.skip ─────────────────────────┘
//! ```
//!
//! Headers are copied, at most 128 bytes, and kept for the answer to a bad one; a header cut by the end of
//! the input is completed later, so the input need not be kept.

use longshore_wire::pdu_data::PduData;

use super::capsule::CapsuleCmd;
use super::fatal_error::{FatalError, FatalErrorStatus};
use super::header::{CommonHeader, DIGEST_LENGTH, PduType};

/// The longest header and its digest.
const STAGED_MAX: usize = 128 + DIGEST_LENGTH;

/// Whose receiving side it is: which PDU types can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// ICResp, C2HTermReq, CapsuleResp, C2HData, R2T.
    Host,
    /// ICReq, H2CTermReq, CapsuleCmd, H2CData.
    Controller,
}

impl Receiver {
    #[inline]
    const fn takes(self, pdu_type: PduType) -> bool {
        match self {
            Self::Host => matches!(
                pdu_type,
                PduType::IC_RESP
                    | PduType::C2H_TERM_REQ
                    | PduType::CAPSULE_RESP
                    | PduType::C2H_DATA
                    | PduType::R2T
            ),
            Self::Controller => matches!(
                pdu_type,
                PduType::IC_REQ | PduType::H2C_TERM_REQ | PduType::CAPSULE_CMD | PduType::H2C_DATA
            ),
        }
    }
}

/// The receiving side of a connection. See the module documentation.
#[derive(Debug)]
pub(crate) struct Framing {
    receiver: Receiver,
    /// ICReq and ICResp have been exchanged.
    initialized: bool,
    header_digest: bool,
    data_digest: bool,
    /// Data begins at a multiple of this many bytes.
    alignment: u32,
    /// The header being received, or received last.
    staged: [u8; STAGED_MAX],
    staged_length: usize,
    /// The staged header is whole: the next one starts over.
    taken: bool,
    /// The data of the PDU.
    pub(crate) data: PduData,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderStep {
    /// The input is used up.
    NeedMore,
    /// A header; [`Framing::header`] has it. Its data come next: [`Framing::data`].
    Header(CommonHeader),
    /// The peer is to be told, and nothing after it can be found.
    Fault(FatalError),
}

impl Framing {
    /// At the start of a connection: no digests, and nothing but ICReq or ICResp may come.
    pub(crate) const fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            initialized: false,
            header_digest: false,
            data_digest: false,
            alignment: 4,
            staged: [0; STAGED_MAX],
            staged_length: 0,
            taken: false,
            data: PduData::new(),
        }
    }

    /// ICReq and ICResp have been exchanged. `alignment`: HPDA or CPDA of this side, as it travels.
    pub(crate) fn initialized(&mut self, header_digest: bool, data_digest: bool, alignment: u8) {
        self.initialized = true;
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.alignment = (u32::from(alignment) + 1) * 4;
    }

    /// Whether part of a header has arrived.
    pub(crate) const fn is_inside_header(&self) -> bool {
        !self.taken && self.staged_length > 0
    }

    /// The header taken last, without its digest; of a faulty one, what of it can be trusted to be header.
    pub(crate) fn header_bytes(&self) -> &[u8] {
        let hlen = usize::from(self.staged[2]);
        let length = self.staged_length.min(if self.taken {
            hlen.max(CommonHeader::LENGTH)
        } else {
            CommonHeader::LENGTH
        });
        &self.staged[..length]
    }

    /// The header taken last, of a type whose headers have `N` bytes.
    #[inline]
    pub(crate) fn header<const N: usize>(&self) -> &[u8; N] {
        self.staged
            .first_chunk()
            .expect("no header is longer than the stage")
    }

    /// Takes the next header off the front of `input`.
    #[inline]
    pub(crate) fn take_header(&mut self, input: &mut &[u8]) -> HeaderStep {
        if self.taken {
            self.taken = false;
            self.staged_length = 0;
        }
        if self.staged_length == 0
            && let Some(common) = self.stage_command(input)
        {
            return self.whole(common);
        }
        if self.staged_length < CommonHeader::LENGTH {
            self.stage_up_to(CommonHeader::LENGTH, input);
            if self.staged_length < CommonHeader::LENGTH {
                return HeaderStep::NeedMore;
            }
            if let Err(fault) = self.check_common(CommonHeader::decode(&self.staged)) {
                return HeaderStep::Fault(fault);
            }
        }
        let common = CommonHeader::decode(&self.staged);
        let length = common.header_end() as usize;
        self.stage_up_to(length, input);
        if self.staged_length < length {
            return HeaderStep::NeedMore;
        }
        self.whole(common)
    }

    /// A header is staged whole.
    #[inline]
    fn whole(&mut self, common: CommonHeader) -> HeaderStep {
        self.taken = true;
        match self.check_whole(common) {
            Ok(()) => HeaderStep::Header(common),
            Err(fault) => HeaderStep::Fault(fault),
        }
    }

    /// By far the most frequent header is that of a command, in one piece and without a digest: stages it with one
    /// copy. What is anything else, or faulty, goes the long way.
    #[inline]
    fn stage_command(&mut self, input: &mut &[u8]) -> Option<CommonHeader> {
        let (header, rest) = input.split_first_chunk::<{ CapsuleCmd::LENGTH }>()?;
        let common = CommonHeader::decode(header);
        if common.pdu_type != PduType::CAPSULE_CMD
            || self.header_digest
            || self.check_common(common).is_err()
        {
            return None;
        }
        *self.staged.first_chunk_mut()? = *header;
        self.staged_length = header.len();
        *input = rest;
        Some(common)
    }

    #[inline]
    fn stage_up_to(&mut self, length: usize, input: &mut &[u8]) {
        let have = self.staged_length;
        let wanted = length.saturating_sub(have).min(input.len());
        let (taken, rest) = input.split_at(wanted);
        self.staged[have..have + wanted].copy_from_slice(taken);
        self.staged_length = have + wanted;
        *input = rest;
    }

    /// Whether such a PDU may come now, and the end of its header is known.
    #[inline]
    fn check_common(&self, common: CommonHeader) -> Result<(), FatalError> {
        if !self.receiver.takes(common.pdu_type) {
            return Err(FatalError::invalid_field(0));
        }
        if common.pdu_type.initializes() == self.initialized && !common.pdu_type.terminates() {
            return Err(FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR));
        }
        common.check_header(self.header_digest)
    }

    #[inline]
    fn check_whole(&mut self, common: CommonHeader) -> Result<(), FatalError> {
        if self.header_digest && common.pdu_type.has_digests() {
            let (header, digest) =
                self.staged[..self.staged_length].split_at(usize::from(common.hlen));
            if longshore_wire::crc32c(header).to_bytes() != digest {
                let mut received = [0; DIGEST_LENGTH];
                received.copy_from_slice(digest);
                return Err(FatalError::header_digest(received));
            }
        }
        let layout = common.layout(self.data_digest, self.alignment)?;
        self.data.begin(layout);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandId, NamespaceId, SubmissionEntry};
    use crate::opcode::io;
    use crate::pdu::encoder::Encoder;
    use crate::pdu::{CapsuleCmd, Flags, H2cData, IcReq, TransferTag};
    use longshore_wire::pdu_data::TrailerStep;
    use longshore_wire::transmit::{Chunk, Transmit};

    fn digesting() -> Framing {
        let mut framing = Framing::new(Receiver::Controller);
        framing.initialized(true, true, 15);
        framing
    }

    fn command() -> SubmissionEntry {
        SubmissionEntry::new(io::WRITE, CommandId(7), NamespaceId(1))
    }

    /// Header, its digest, padding up to 128, five bytes, digest.
    fn stream() -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.initialized(true, true, 15);
        let mut transmit = Transmit::new();
        let capsule = CapsuleCmd { entry: command() };
        encoder.push_data(
            capsule.encode(),
            Chunk::Bytes(&[1, 2, 3, 4, 5]),
            &mut transmit,
        );
        assert_eq!(transmit.pending_bytes(), 128 + 5 + 4);
        transmit.arena().to_vec()
    }

    #[test]
    fn a_pdu_may_be_cut_at_any_byte() {
        let stream = stream();
        for cut in 0..=stream.len() {
            let mut framing = digesting();
            let mut data = Vec::new();
            let mut header = None;
            let mut done = false;
            for mut piece in [&stream[..cut], &stream[cut..]] {
                if header.is_none() {
                    match framing.take_header(&mut piece) {
                        HeaderStep::NeedMore => continue,
                        HeaderStep::Fault(fault) => panic!("{fault:?} at cut {cut}"),
                        HeaderStep::Header(common) => header = Some(common),
                    }
                }
                data.extend_from_slice(framing.data.take(u32::MAX, &mut piece));
                if framing.data.remaining() == 0 && !done {
                    done = framing.data.take_trailer(&mut piece)
                        == TrailerStep::Done { digest_ok: true };
                }
                assert!(piece.is_empty());
            }
            let common = header.expect("all of it was there");
            assert_eq!(common.pdu_type, PduType::CAPSULE_CMD);
            assert_eq!(CapsuleCmd::decode(framing.header()).entry, command());
            assert_eq!(data, [1, 2, 3, 4, 5]);
            assert!(done, "cut at {cut}");
        }
    }

    #[test]
    fn commands_without_digests_may_be_cut_at_any_byte() {
        let mut encoder = Encoder::default();
        encoder.initialized(false, false, 0);
        let mut transmit = Transmit::new();
        let entries =
            [7, 8].map(|id| SubmissionEntry::new(io::READ, CommandId(id), NamespaceId(1)));
        for entry in entries {
            encoder.push(CapsuleCmd { entry }.encode(), &mut transmit);
        }
        let stream = transmit.arena().to_vec();
        for cut in 0..=stream.len() {
            let mut framing = Framing::new(Receiver::Controller);
            framing.initialized(false, false, 0);
            let mut found = Vec::new();
            for mut piece in [&stream[..cut], &stream[cut..]] {
                loop {
                    match framing.take_header(&mut piece) {
                        HeaderStep::NeedMore => break,
                        HeaderStep::Fault(fault) => panic!("{fault:?} at cut {cut}"),
                        HeaderStep::Header(_) => {}
                    }
                    found.push(CapsuleCmd::decode(framing.header()).entry);
                    assert!(!framing.is_inside_header());
                }
                assert!(piece.is_empty());
            }
            assert_eq!(found, entries, "cut at {cut}");
        }
    }

    #[test]
    fn a_pdu_can_be_skipped_from_any_byte() {
        let stream = stream();
        let header = CapsuleCmd::LENGTH + DIGEST_LENGTH;
        for cut in header..=stream.len() {
            let mut framing = digesting();
            let mut input = &stream[..cut];
            assert!(matches!(
                framing.take_header(&mut input),
                HeaderStep::Header(_)
            ));
            assert_eq!(framing.data.skip(&mut input), cut == stream.len());
            let mut rest = &stream[cut..];
            assert!(framing.data.skip(&mut rest));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_flipped_bit_is_found_by_the_digest_that_covers_it() {
        let stream = stream();
        let header = CapsuleCmd::LENGTH + DIGEST_LENGTH;
        for at in 0..stream.len() {
            let mut damaged = stream.clone();
            damaged[at] ^= 0x20;
            let mut framing = digesting();
            let mut input = &damaged[..];
            let step = framing.take_header(&mut input);
            if at < header {
                assert!(matches!(step, HeaderStep::Fault(_)), "flip at {at}");
                continue;
            }
            assert!(matches!(step, HeaderStep::Header(_)), "flip at {at}");
            framing.data.take(u32::MAX, &mut input);
            let digest_ok = at < 128;
            let trailer = framing.data.take_trailer(&mut input);
            assert_eq!(trailer, TrailerStep::Done { digest_ok }, "flip at {at}");
        }
    }

    #[test]
    fn a_header_digest_that_does_not_match_is_reported_with_its_value() {
        let mut stream = stream();
        let digest = &mut stream[72..76];
        digest.copy_from_slice(&[1, 2, 3, 4]);
        let step = digesting().take_header(&mut &stream[..]);
        let fault = FatalError {
            status: FatalErrorStatus::HEADER_DIGEST_ERROR,
            information: 0x0403_0201,
        };
        assert_eq!(step, HeaderStep::Fault(fault));
    }

    #[test]
    fn nothing_but_an_initialization_comes_first_and_only_then() {
        let sequence_error =
            HeaderStep::Fault(FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR));
        let capsule = CapsuleCmd { entry: command() }.encode();
        let ic_req = IcReq {
            pfv: 0,
            hpda: 0,
            digests: crate::pdu::Digests::default(),
            max_r2t: 1,
        }
        .encode();
        let mut framing = Framing::new(Receiver::Controller);
        assert_eq!(framing.take_header(&mut &capsule[..]), sequence_error);
        let mut framing = Framing::new(Receiver::Controller);
        assert!(matches!(
            framing.take_header(&mut &ic_req[..]),
            HeaderStep::Header(_)
        ));
        framing.initialized(false, false, 0);
        assert!(matches!(
            framing.take_header(&mut &capsule[..]),
            HeaderStep::Header(_)
        ));
        assert_eq!(framing.take_header(&mut &ic_req[..]), sequence_error);
        assert_eq!(framing.header_bytes(), &ic_req[..8]);
    }

    #[test]
    fn each_role_takes_what_the_other_sends() {
        let data = H2cData {
            last: true,
            command: CommandId(1),
            tag: TransferTag(2),
            offset: 0,
            length: 0,
        };
        for (receiver, taken) in [(Receiver::Controller, true), (Receiver::Host, false)] {
            let mut framing = Framing::new(receiver);
            framing.initialized(false, false, 0);
            let step = framing.take_header(&mut &data.encode()[..]);
            assert_eq!(matches!(step, HeaderStep::Header(_)), taken);
        }
    }

    #[test]
    fn a_digest_flag_must_say_what_was_agreed() {
        let fault = HeaderStep::Fault(FatalError::invalid_field(1));
        let mut capsule = CapsuleCmd { entry: command() }.encode();
        let mut framing = digesting();
        assert_eq!(framing.take_header(&mut &capsule[..]), fault);
        let mut framing = Framing::new(Receiver::Controller);
        framing.initialized(false, false, 0);
        capsule[1] = Flags::HDGSTF.0;
        assert_eq!(framing.take_header(&mut &capsule[..]), fault);
    }
}
