//! Puts PDUs into the transmit queue, with flags, lengths, padding and digests; both roles.

use longshore_wire::transmit::{Chunk, OpenPdu, Transmit};

use super::capsule::CapsuleCmd;
use super::data::C2hData;
use super::header::{CommonHeader, DIGEST_LENGTH, Flags};
use super::terminate::TermReq;

/// The sending side of a connection: which digests are on, where data begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    header_digest: bool,
    pub(crate) data_digest: bool,
    /// PDO of capsules with data, and of data PDUs.
    capsule_data_start: usize,
    data_start: usize,
}

/// The headers that data can follow.
const CAPSULE_HLEN: usize = CapsuleCmd::LENGTH;
const DATA_HLEN: usize = C2hData::LENGTH;

impl Default for Encoder {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            capsule_data_start: CAPSULE_HLEN,
            data_start: DATA_HLEN,
        }
    }
}

impl Encoder {
    /// ICReq and ICResp have been exchanged. `alignment`: CPDA or HPDA of the peer, as it travels.
    pub(crate) fn initialized(&mut self, header_digest: bool, data_digest: bool, alignment: u8) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        let alignment = (usize::from(alignment) + 1) * 4;
        self.capsule_data_start = self.header_end(CAPSULE_HLEN).next_multiple_of(alignment);
        self.data_start = self.header_end(DATA_HLEN).next_multiple_of(alignment);
    }

    #[inline]
    const fn header_end(self, hlen: usize) -> usize {
        hlen + if self.header_digest { DIGEST_LENGTH } else { 0 }
    }

    /// PDO of a PDU with data.
    #[inline]
    const fn data_start(self, hlen: usize) -> usize {
        if hlen == CAPSULE_HLEN {
            self.capsule_data_start
        } else {
            self.data_start
        }
    }

    #[inline]
    const fn trailer_length(self) -> usize {
        if self.data_digest { DIGEST_LENGTH } else { 0 }
    }

    /// Sets digest flags, PDO and PLEN, and writes the header, its digest and the padding.
    #[inline]
    fn write_header<const N: usize>(
        self,
        header: &mut [u8; N],
        data_length: usize,
        place: &mut [u8],
    ) {
        let mut common = CommonHeader::decode(header);
        common.flags = common.flags.with(Flags::HDGSTF, self.header_digest);
        let plen = if data_length == 0 {
            self.header_end(N)
        } else {
            let data_start = self.data_start(N);
            common.flags = common.flags.with(Flags::DDGSTF, self.data_digest);
            common.pdo = u8::try_from(data_start).expect("at most 128");
            data_start + data_length + self.trailer_length()
        };
        common.plen = u32::try_from(plen).expect("no PDU is this long");
        common.encode_into(header);
        let (start, rest) = place
            .split_first_chunk_mut::<N>()
            .expect("the place has room for the header");
        *start = *header;
        if !rest.is_empty() {
            self.write_behind_header(header, rest);
        }
    }

    /// Writes header digest and padding.
    fn write_behind_header(self, header: &[u8], place: &mut [u8]) {
        let mut padding = place;
        if self.header_digest {
            let digest;
            (digest, padding) = padding.split_at_mut(DIGEST_LENGTH);
            digest.copy_from_slice(&longshore_wire::crc32c(header).to_bytes());
        }
        padding.fill(0);
    }

    /// Queues a PDU without data.
    #[inline]
    pub(crate) fn push<const N: usize>(self, mut header: [u8; N], transmit: &mut Transmit) {
        let range = transmit.reserve_arena(self.header_end(N));
        self.write_header(&mut header, 0, transmit.arena_bytes_mut(range));
    }

    /// Queues a PDU with data, of which there is at least a byte.
    pub(crate) fn push_data<const N: usize>(
        self,
        mut header: [u8; N],
        chunk: Chunk<'_>,
        transmit: &mut Transmit,
    ) {
        let length = chunk.len();
        debug_assert!(length > 0);
        if let Chunk::Bytes(bytes) = chunk {
            let open = self.open::<N>(length, transmit);
            open.payload_mut(transmit).copy_from_slice(bytes);
            return self.close(open, header, transmit);
        }
        let range = transmit.reserve_arena(self.data_start(N));
        self.write_header(&mut header, length, transmit.arena_bytes_mut(range));
        transmit.push_chunk(chunk);
        if self.data_digest {
            transmit.push_bytes(&chunk.crc().to_bytes());
        }
    }

    /// Reserves room for a PDU with a header of `N` bytes and `data_length` bytes of payload.
    #[inline]
    pub(crate) fn open<const N: usize>(
        self,
        data_length: usize,
        transmit: &mut Transmit,
    ) -> OpenPdu {
        let data_start = self.data_start(N);
        OpenPdu {
            range: transmit.reserve_arena(data_start + data_length + self.trailer_length()),
            data_start,
            data_length,
        }
    }

    /// Writes the header, and what follows the payload, of a PDU whose payload is in place.
    #[inline]
    pub(crate) fn close<const N: usize>(
        self,
        open: OpenPdu,
        mut header: [u8; N],
        transmit: &mut Transmit,
    ) {
        let place = transmit.arena_bytes_mut(open.range);
        let (start, rest) = place.split_at_mut(open.data_start);
        let (data, trailer) = rest.split_at_mut(open.data_length);
        self.write_header(&mut header, open.data_length, start);
        if self.data_digest {
            trailer.copy_from_slice(&longshore_wire::crc32c(data).to_bytes());
        }
    }
}

/// Queues a TermReq that repeats the start of the PDU in error.
pub(crate) fn push_term_req(request: TermReq, in_error: &[u8], transmit: &mut Transmit) {
    let in_error = &in_error[..in_error.len().min(TermReq::DATA_LENGTH_MAX)];
    transmit.push_bytes(&request.encode(in_error.len()));
    transmit.push_bytes(in_error);
}
