//! Puts PDUs into the transmit queue, with lengths, padding and digests; both roles.

use longshore_wire::Crc32c;

use crate::framing::DIGEST_LENGTH;
use crate::pdu::{BHS_LENGTH, Bhs, padding};
use crate::session_parameters::Digest;
use longshore_wire::transmit::{Chunk, OpenPdu, Transmit};

/// The sending side of a connection: which digests are on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoder {
    header_digest: bool,
    pub(crate) data_digest: bool,
}

impl Encoder {
    /// From the next PDU on, digests are as given.
    pub(crate) fn set_digests(&mut self, header: Digest, data: Digest) {
        self.header_digest = header == Digest::Crc32c;
        self.data_digest = data == Digest::Crc32c;
    }

    #[inline]
    const fn header_length(self) -> usize {
        BHS_LENGTH + if self.header_digest { DIGEST_LENGTH } else { 0 }
    }

    #[inline]
    const fn trailer_length(self, data_length: usize) -> usize {
        let digest = if self.data_digest && data_length > 0 {
            DIGEST_LENGTH
        } else {
            0
        };
        padding(data_length) + digest
    }

    /// Writes a header, which has its lengths, and its digest.
    #[inline]
    fn write_header(self, bhs: &Bhs, place: &mut [u8]) {
        let (header, digest) = place.split_at_mut(BHS_LENGTH);
        header.copy_from_slice(&bhs.0);
        if self.header_digest {
            digest.copy_from_slice(&longshore_wire::crc32c(header).to_bytes());
        }
    }

    /// Writes padding and digest of a data segment whose payload has this CRC.
    #[inline]
    fn write_trailer(self, data_length: usize, crc: Crc32c, place: &mut [u8]) {
        let (padding, digest) = place.split_at_mut(padding(data_length));
        padding.fill(0);
        if !digest.is_empty() {
            let mut crc = crc;
            crc.update(padding);
            digest.copy_from_slice(&crc.to_bytes());
        }
    }

    #[inline]
    fn crc(self, bytes: &[u8]) -> Crc32c {
        if self.data_digest {
            longshore_wire::crc32c(bytes)
        } else {
            Crc32c::new()
        }
    }

    /// Queues a PDU whose data segment is copied.
    #[inline]
    pub(crate) fn push(self, mut bhs: Bhs, data: &[u8], transmit: &mut Transmit) {
        let open = self.open(data.len(), transmit);
        open.payload_mut(transmit).copy_from_slice(data);
        self.close(open, &mut bhs, transmit);
    }

    /// Queues a PDU with additional header segments.
    pub(crate) fn push_with_ahs(
        self,
        mut bhs: Bhs,
        ahs: &[u8],
        data: Chunk<'_>,
        transmit: &mut Transmit,
    ) {
        bhs.set_total_ahs_length_bytes(ahs.len());
        bhs.set_data_segment_length(length_u32(data.len()));
        transmit.push_bytes(&bhs.0);
        transmit.push_bytes(ahs);
        if self.header_digest {
            let mut crc = longshore_wire::crc32c(&bhs.0);
            crc.update(ahs);
            transmit.push_bytes(&crc.to_bytes());
        }
        self.push_segment(data, transmit);
    }

    /// Queues a PDU whose data segment may be sent by reference.
    #[inline]
    pub(crate) fn push_chunk(self, mut bhs: Bhs, chunk: Chunk<'_>, transmit: &mut Transmit) {
        if let Chunk::Bytes(bytes) = chunk {
            return self.push(bhs, bytes, transmit);
        }
        bhs.set_data_segment_length(length_u32(chunk.len()));
        let range = transmit.reserve_arena(self.header_length());
        self.write_header(&bhs, transmit.arena_bytes_mut(range));
        self.push_segment(chunk, transmit);
    }

    /// Queues a data segment behind its header.
    fn push_segment(self, chunk: Chunk<'_>, transmit: &mut Transmit) {
        let length = chunk.len();
        let crc = if self.data_digest {
            chunk.crc()
        } else {
            Crc32c::new()
        };
        transmit.push_chunk(chunk);
        self.push_trailer(length, crc, transmit);
    }

    fn push_trailer(self, data_length: usize, crc: Crc32c, transmit: &mut Transmit) {
        let trailer = self.trailer_length(data_length);
        if trailer > 0 {
            let range = transmit.reserve_arena(trailer);
            self.write_trailer(data_length, crc, transmit.arena_bytes_mut(range));
        }
    }

    /// Reserves room for a PDU with `data_length` bytes of payload.
    #[inline]
    pub(crate) fn open(self, data_length: usize, transmit: &mut Transmit) -> OpenPdu {
        let data_start = self.header_length();
        let total = data_start + data_length + self.trailer_length(data_length);
        OpenPdu {
            range: transmit.reserve_arena(total),
            data_start,
            data_length,
        }
    }

    /// Writes the header, and what follows the payload, of a PDU whose payload is in place.
    #[inline]
    pub(crate) fn close(self, open: OpenPdu, bhs: &mut Bhs, transmit: &mut Transmit) {
        bhs.set_data_segment_length(length_u32(open.data_length));
        let place = transmit.arena_bytes_mut(open.range);
        let (header, rest) = place.split_at_mut(open.data_start);
        let (data, trailer) = rest.split_at_mut(open.data_length);
        self.write_header(bhs, header);
        if !trailer.is_empty() {
            self.write_trailer(open.data_length, self.crc(data), trailer);
        }
    }
}

fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("data segments are bounded by MaxRecvDataSegmentLength")
}
