//! PDUs as a peer writes and reads them, independently of the machines that are tried.

use longshore_nvme::pdu::{CommonHeader, Digests, Flags, PduType};
use longshore_wire::crc32c;

/// What ICReq and ICResp settled for one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Format {
    pub(super) digests: Digests,
    /// CPDA or HPDA as it travels.
    pub(super) alignment: u8,
}

impl Format {
    fn alignment(self) -> usize {
        (usize::from(self.alignment) + 1) * 4
    }

    /// A PDU of a header and data. `spoil` sees it before digests are made.
    pub(super) fn pdu(
        self,
        header: &[u8],
        data: &[u8],
        spoil: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut pdu = header.to_vec();
        let pdu_type = PduType(header[0]);
        let header_digest = self.digests.header && pdu_type.has_digests();
        let data_digest = self.digests.data && pdu_type.has_digests() && !data.is_empty();
        let header_end = header.len() + if header_digest { 4 } else { 0 };
        let mut length = header_end;
        let mut start = 0;
        if !data.is_empty() {
            start = header_end;
            if pdu_type.has_digests() {
                start = start.next_multiple_of(self.alignment());
                pdu[3] = u8::try_from(start).expect("PDO is a byte");
            }
            length = start + data.len() + if data_digest { 4 } else { 0 };
        }
        let flags = Flags(pdu[1])
            .with(Flags::HDGSTF, header_digest)
            .with(Flags::DDGSTF, data_digest);
        pdu[1] = flags.0;
        let plen = u32::try_from(length).expect("PDUs are short");
        pdu[4..8].copy_from_slice(&plen.to_le_bytes());
        spoil(&mut pdu);
        if header_digest {
            pdu.extend(crc32c(&pdu).to_bytes());
        }
        if !data.is_empty() {
            pdu.resize(start, 0);
            pdu.extend(data);
        }
        if data_digest {
            pdu.extend(crc32c(data).to_bytes());
        }
        pdu
    }

    /// Takes a PDU off a stream in which there are only whole ones.
    pub(super) fn take<'a>(self, stream: &mut &'a [u8]) -> Option<Pdu<'a>> {
        if stream.is_empty() {
            return None;
        }
        let start = stream.first_chunk::<8>().expect("a whole PDU");
        let common = CommonHeader::decode(start);
        let checked = common.check_header(self.digests.header);
        checked.expect("HLEN and HDGSTF are right");
        let alignment = u32::try_from(self.alignment()).expect("at most 128");
        let layout = common.layout(self.digests.data, alignment);
        let layout = layout.expect("PDO and PLEN are right");
        let plen = usize::try_from(common.plen).expect("64 bits");
        let (pdu, rest) = stream.split_at_checked(plen).expect("a whole PDU");
        *stream = rest;
        let hlen = usize::from(common.hlen);
        let header_end = usize::try_from(common.header_end()).expect("64 bits");
        if header_end > hlen {
            assert_eq!(pdu[hlen..header_end], crc32c(&pdu[..hlen]).to_bytes());
        }
        let trailer = if layout.has_digest { 4 } else { 0 };
        let length = usize::try_from(layout.length).expect("64 bits");
        let (padded, trailer) = pdu[header_end..].split_at(pdu.len() - header_end - trailer);
        let (padding, data) = padded.split_at(padded.len() - length);
        assert!(padding.iter().all(|byte| *byte == 0), "stale padding");
        if !trailer.is_empty() {
            assert_eq!(trailer, crc32c(data).to_bytes());
        }
        Some(Pdu {
            common,
            header: &pdu[..hlen],
            data,
        })
    }
}

/// What was taken off a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pdu<'a> {
    pub(super) common: CommonHeader,
    header: &'a [u8],
    pub(super) data: &'a [u8],
}

impl Pdu<'_> {
    /// The header, for the decoder of its type.
    pub(super) fn header<const N: usize>(&self) -> &[u8; N] {
        self.header.try_into().expect("HLEN is that of the type")
    }
}
