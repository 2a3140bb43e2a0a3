//! Cuts the byte stream into headers and data segments, and checks digests; both roles.
//!
//! ```text
//! take_header ──► header ──► begin_segment ──► data.take … ──► data.take_trailer ──► take_header
//!  (BHS, AHS, header digest)                   (payload)       (padding, data digest)
//! ```
//!
//! Whole headers are read where they lie; one cut by the end of the input is staged, so the input
//! need not be kept. Bytes that need buffering are bounded by the header's own limit: 48, 255 words and a
//! digest.

use longshore_wire::pdu_data::{DataLayout, PduData};

use crate::pdu::{BHS_LENGTH, Bhs, padding};
use crate::session_parameters::Digest;

/// BHS, 255 words of additional headers, digest.
const STAGED_MAX: usize = BHS_LENGTH + 255 * 4 + DIGEST_LENGTH;

/// Bytes of a digest.
pub(crate) const DIGEST_LENGTH: usize = 4;

/// The receiving side of a connection. See the module documentation.
#[derive(Debug)]
pub(crate) struct Framing {
    header_digest: bool,
    data_digest: bool,
    /// A header whose end has not arrived.
    staged: Vec<u8>,
    /// Additional header segments of the header taken last.
    ahs: Vec<u8>,
    /// Progress of the data segment of the current PDU.
    pub(crate) data: PduData,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderStep {
    /// The input is used up.
    NeedMore,
    /// A header. Its data segment comes next: call [`Framing::begin_segment`].
    Header(Bhs),
    /// The header digest does not match, so nothing after it can be found.
    DigestError,
}

impl Framing {
    /// At the start of a connection, where there are no digests (RFC 7143 §13.1).
    pub(crate) fn new() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            staged: Vec::new(),
            ahs: Vec::new(),
            data: PduData::new(),
        }
    }

    /// From the next header on, digests are as given.
    pub(crate) fn set_digests(&mut self, header: Digest, data: Digest) {
        self.header_digest = header == Digest::Crc32c;
        self.data_digest = data == Digest::Crc32c;
    }

    /// Additional header segments of the header taken last.
    pub(crate) fn ahs(&self) -> &[u8] {
        &self.ahs
    }

    /// Whether part of a header has arrived.
    pub(crate) fn is_inside_header(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Bytes from the start of a header to the start of its data segment.
    #[inline]
    fn header_length(&self, bhs: &Bhs) -> usize {
        let digest = if self.header_digest { DIGEST_LENGTH } else { 0 };
        BHS_LENGTH + bhs.total_ahs_length_bytes() + digest
    }

    /// Takes the next header off the front of `input`.
    #[inline]
    pub(crate) fn take_header(&mut self, input: &mut &[u8]) -> HeaderStep {
        if self.staged.is_empty()
            && let Some(bhs) = input.first_chunk::<BHS_LENGTH>()
        {
            let bhs = Bhs(*bhs);
            if let Some((header, rest)) = input.split_at_checked(self.header_length(&bhs)) {
                *input = rest;
                return self.check_header(bhs, header);
            }
        }
        self.stage_header(input)
    }

    /// As [`Self::take_header`] for a header in pieces.
    #[cold]
    fn stage_header(&mut self, input: &mut &[u8]) -> HeaderStep {
        self.stage_up_to(BHS_LENGTH, input);
        let Some(bhs) = self.staged.first_chunk::<BHS_LENGTH>() else {
            return HeaderStep::NeedMore;
        };
        let bhs = Bhs(*bhs);
        let length = self.header_length(&bhs);
        self.stage_up_to(length, input);
        if self.staged.len() < length {
            return HeaderStep::NeedMore;
        }
        let mut header = std::mem::take(&mut self.staged);
        let step = self.check_header(bhs, &header);
        header.clear();
        self.staged = header;
        step
    }

    fn stage_up_to(&mut self, length: usize, input: &mut &[u8]) {
        debug_assert!(length <= STAGED_MAX);
        let wanted = length.saturating_sub(self.staged.len()).min(input.len());
        let (taken, rest) = input.split_at(wanted);
        self.staged.extend_from_slice(taken);
        *input = rest;
    }

    #[inline]
    fn check_header(&mut self, bhs: Bhs, header: &[u8]) -> HeaderStep {
        let covered = BHS_LENGTH + bhs.total_ahs_length_bytes();
        self.ahs.clear();
        if covered > BHS_LENGTH {
            self.ahs.extend_from_slice(&header[BHS_LENGTH..covered]);
        }
        if self.header_digest
            && longshore_wire::crc32c(&header[..covered]).to_bytes() != header[covered..]
        {
            return HeaderStep::DigestError;
        }
        HeaderStep::Header(bhs)
    }

    /// A data segment of `length` payload bytes comes next; none if that is 0.
    #[inline]
    pub(crate) fn begin_segment(&mut self, length: u32) {
        self.data.begin(DataLayout {
            lead: 0,
            length,
            padding: padding(length as usize),
            has_digest: self.data_digest && length > 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use longshore_wire::pdu_data::TrailerStep;

    use super::*;
    use crate::pdu::{CmdSn, InitiatorTaskTag, Lun, NopOut, StatSn, TargetTransferTag};

    fn ping(length: u32) -> Bhs {
        let mut bhs = NopOut {
            immediate: false,
            lun: Lun::ZERO,
            initiator_task_tag: InitiatorTaskTag(1),
            target_transfer_tag: TargetTransferTag::RESERVED,
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
        }
        .encode();
        bhs.set_data_segment_length(length);
        bhs
    }

    /// Header with digest, five bytes, three of padding, digest.
    fn stream() -> Vec<u8> {
        let header = ping(5).0;
        let data = [1, 2, 3, 4, 5, 0, 0, 0];
        let mut bytes = header.to_vec();
        bytes.extend(longshore_wire::crc32c(&header).to_bytes());
        bytes.extend(data);
        bytes.extend(longshore_wire::crc32c(&data).to_bytes());
        bytes
    }

    fn digesting() -> Framing {
        let mut framing = Framing::new();
        framing.set_digests(Digest::Crc32c, Digest::Crc32c);
        framing
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
                        HeaderStep::DigestError => panic!("digest error at cut {cut}"),
                        HeaderStep::Header(bhs) => {
                            framing.begin_segment(bhs.data_segment_length());
                            header = Some(bhs);
                        }
                    }
                }
                data.extend_from_slice(framing.data.take(u32::MAX, &mut piece));
                if framing.data.remaining() == 0 && !done {
                    done = framing.data.take_trailer(&mut piece)
                        == TrailerStep::Done { digest_ok: true };
                }
                assert!(piece.is_empty());
            }
            assert_eq!(header, Some(ping(5)));
            assert_eq!(data, [1, 2, 3, 4, 5]);
            assert!(done, "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_by_the_digest_that_covers_it() {
        let stream = stream();
        for at in 0..stream.len() {
            let mut damaged = stream.clone();
            damaged[at] ^= 0x10;
            let mut framing = digesting();
            let mut input = &damaged[..];
            let step = framing.take_header(&mut input);
            if at < BHS_LENGTH + DIGEST_LENGTH {
                // A length that grew makes the header end later than the input does.
                assert!(!matches!(step, HeaderStep::Header(_)), "flip at {at}");
                continue;
            }
            framing.begin_segment(5);
            framing.data.take(u32::MAX, &mut input);
            let trailer = framing.data.take_trailer(&mut input);
            assert_eq!(
                trailer,
                TrailerStep::Done { digest_ok: false },
                "flip at {at}"
            );
        }
    }
}
