//! The data of a PDU while they arrive: where the next bytes belong, and whether their digest matches.
//!
//! ```text
//!  begin ──► lead ──► payload ──► padding, digest
//!            take, or placed      take_trailer
//!            └───────────── skip ─────────────┘
//! ```
//!
//! NVMe/TCP aligns data by a lead before them (PDO), iSCSI by padding behind them, which its digest covers.
//! Payload passes by and is only counted and digested, whether it is taken off the input or the driver lets
//! the kernel put it into its place.

use crate::Crc32c;

/// Bytes of a CRC32C.
const DIGEST: usize = 4;

/// Up to three bytes of padding and a digest.
const TRAILER_MAX: usize = 3 + DIGEST;

/// What comes after a header, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataLayout {
    /// Before the payload; no digest covers it.
    pub lead: u32,
    /// Bytes of data without padding and digest.
    pub length: u32,
    /// Behind the payload: 0 to 3. The digest covers it, whatever is in it.
    pub padding: usize,
    /// A data digest ends the PDU.
    pub has_digest: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailerStep {
    /// The input is used up.
    NeedMore,
    /// The PDU is over.
    Done {
        /// Whether the data digest matches; true without one.
        digest_ok: bool,
    },
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct PduData {
    /// Bytes of the lead that have not arrived.
    lead: u32,
    /// Bytes of payload that have not arrived.
    remaining: u32,
    padding: usize,
    has_digest: bool,
    crc: Crc32c,
    trailer: [u8; TRAILER_MAX],
    trailer_have: usize,
}

impl PduData {
    /// A PDU without data.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lead: 0,
            remaining: 0,
            padding: 0,
            has_digest: false,
            crc: Crc32c::new(),
            trailer: [0; TRAILER_MAX],
            trailer_have: 0,
        }
    }

    /// A header was taken, and these data come next.
    #[inline]
    pub fn begin(&mut self, layout: DataLayout) {
        debug_assert_eq!((self.lead, self.remaining), (0, 0));
        debug_assert!(layout.padding <= TRAILER_MAX - DIGEST);
        self.lead = layout.lead;
        self.remaining = layout.length;
        self.padding = layout.padding;
        self.has_digest = layout.has_digest;
        self.trailer_have = 0;
        self.crc = Crc32c::new();
    }

    /// Payload bytes of the PDU that have not arrived.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Whether the next byte to arrive is payload.
    #[inline]
    #[must_use]
    pub const fn is_at_payload(&self) -> bool {
        self.lead == 0 && self.remaining > 0
    }

    #[inline]
    const fn trailer_length(&self) -> usize {
        self.padding + if self.has_digest { DIGEST } else { 0 }
    }

    /// Takes payload off the front of `input`, at most `most` bytes, and the lead before it.
    #[inline]
    pub fn take<'a>(&mut self, most: u32, input: &mut &'a [u8]) -> &'a [u8] {
        if self.lead > 0 {
            self.lead -= drop_front(self.lead, input);
        }
        let length = input.len().min(most.min(self.remaining) as usize);
        let (taken, rest) = input.split_at(length);
        *input = rest;
        self.placed(taken);
        taken
    }

    /// The payload of a PDU of which none has been taken, if `input` has all of it and its digest matches.
    /// Takes nothing; [`Self::take_whole`] does.
    #[inline]
    #[must_use]
    pub fn whole<'a>(&self, input: &'a [u8]) -> Option<&'a [u8]> {
        let input = input.get(self.lead as usize..)?;
        let (data, rest) = input.split_at_checked(self.remaining as usize)?;
        if rest.len() < self.trailer_length() {
            return None;
        }
        if self.has_digest {
            let (covered, digest) = input.split_at(data.len() + self.padding);
            if crate::crc32c(covered).to_bytes() != digest[..DIGEST] {
                return None;
            }
        }
        Some(data)
    }

    /// Takes the data that [`Self::whole`] showed.
    #[inline]
    pub fn take_whole(&mut self, input: &mut &[u8]) {
        let payload_end = self.lead as usize + self.remaining as usize;
        *input = &input[payload_end + self.trailer_length()..];
        self.lead = 0;
        self.remaining = 0;
    }

    /// Counts payload that arrived by another way than [`Self::take`].
    ///
    /// # Panics
    /// When it is more than what remains.
    #[inline]
    pub fn placed(&mut self, bytes: &[u8]) {
        if self.has_digest {
            self.crc.update(bytes);
        }
        let length = u32::try_from(bytes.len()).expect("payload fits its PDU");
        self.remaining = self
            .remaining
            .checked_sub(length)
            .expect("payload fits its PDU");
    }

    /// Takes padding and digest after all payload has been taken.
    #[inline]
    pub fn take_trailer(&mut self, input: &mut &[u8]) -> TrailerStep {
        debug_assert_eq!(self.remaining, 0);
        let trailer_length = self.trailer_length();
        if trailer_length == 0 {
            return TrailerStep::Done { digest_ok: true };
        }
        let length = input.len().min(trailer_length - self.trailer_have);
        let (taken, rest) = input.split_at(length);
        self.trailer[self.trailer_have..self.trailer_have + length].copy_from_slice(taken);
        self.trailer_have += length;
        *input = rest;
        if self.trailer_have < trailer_length {
            return TrailerStep::NeedMore;
        }
        let (padding, digest) = self.trailer[..trailer_length].split_at(self.padding);
        if digest.is_empty() {
            return TrailerStep::Done { digest_ok: true };
        }
        self.crc.update(padding);
        TrailerStep::Done {
            digest_ok: self.crc.to_bytes() == digest,
        }
    }

    /// Takes the rest of the PDU, unchecked. Returns whether all of it was there.
    pub fn skip(&mut self, input: &mut &[u8]) -> bool {
        self.lead -= drop_front(self.lead, input);
        self.remaining -= drop_front(self.remaining, input);
        let trailer = input.len().min(self.trailer_length() - self.trailer_have);
        *input = &input[trailer..];
        self.trailer_have += trailer;
        self.lead == 0 && self.remaining == 0 && self.trailer_have == self.trailer_length()
    }
}

/// Drops up to `most` bytes off the front of `input`; returns how many.
fn drop_front(most: u32, input: &mut &[u8]) -> u32 {
    let length = most.min(u32::try_from(input.len()).unwrap_or(u32::MAX));
    *input = &input[length as usize..];
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: [u8; 5] = [1, 2, 3, 4, 5];

    const LAYOUTS: [DataLayout; 3] = [
        // iSCSI.
        DataLayout {
            lead: 0,
            length: 5,
            padding: 3,
            has_digest: true,
        },
        // NVMe/TCP.
        DataLayout {
            lead: 7,
            length: 5,
            padding: 0,
            has_digest: true,
        },
        DataLayout {
            lead: 0,
            length: 5,
            padding: 3,
            has_digest: false,
        },
    ];

    fn stream(layout: DataLayout) -> Vec<u8> {
        let mut stream = vec![0xee; layout.lead as usize];
        let mut covered = PAYLOAD.to_vec();
        covered.resize(PAYLOAD.len() + layout.padding, 0xdd);
        stream.extend(&covered);
        if layout.has_digest {
            stream.extend(crate::crc32c(&covered).to_bytes());
        }
        stream
    }

    fn begun(layout: DataLayout) -> PduData {
        let mut data = PduData::new();
        data.begin(layout);
        data
    }

    #[test]
    fn data_may_be_cut_at_any_byte() {
        for layout in LAYOUTS {
            let stream = stream(layout);
            for cut in 0..=stream.len() {
                let mut data = begun(layout);
                let mut taken = Vec::new();
                let mut end = TrailerStep::NeedMore;
                for mut piece in [&stream[..cut], &stream[cut..]] {
                    taken.extend_from_slice(data.take(u32::MAX, &mut piece));
                    if data.remaining() == 0 && end == TrailerStep::NeedMore {
                        end = data.take_trailer(&mut piece);
                    }
                    assert!(piece.is_empty());
                }
                assert_eq!(taken, PAYLOAD, "{layout:?} cut at {cut}");
                assert_eq!(end, TrailerStep::Done { digest_ok: true });
            }
        }
    }

    #[test]
    fn whole_data_are_shown_when_all_is_there_and_taken_at_once() {
        for layout in LAYOUTS {
            let stream = stream(layout);
            let mut data = begun(layout);
            for cut in 0..stream.len() {
                assert_eq!(data.whole(&stream[..cut]), None, "{layout:?} cut at {cut}");
            }
            let behind = [&stream[..], b"next"].concat();
            assert_eq!(data.whole(&behind), Some(&PAYLOAD[..]));
            let mut input = &behind[..];
            data.take_whole(&mut input);
            assert_eq!((input, data.remaining()), (&b"next"[..], 0));
        }
    }

    #[test]
    fn the_rest_can_be_skipped_from_any_byte() {
        for layout in LAYOUTS {
            let stream = stream(layout);
            for cut in 0..=stream.len() {
                let mut data = begun(layout);
                let (mut first, mut second) = stream.split_at(cut);
                assert_eq!(data.skip(&mut first), cut == stream.len());
                assert!(data.skip(&mut second) && second.is_empty());
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_if_the_digest_covers_it() {
        for layout in LAYOUTS {
            let stream = stream(layout);
            for at in 0..stream.len() {
                let mut damaged = stream.clone();
                damaged[at] ^= 0x10;
                let digest_ok = at < layout.lead as usize || !layout.has_digest;
                assert_eq!(begun(layout).whole(&damaged).is_some(), digest_ok);
                let mut data = begun(layout);
                let mut input = &damaged[..];
                data.take(u32::MAX, &mut input);
                let end = data.take_trailer(&mut input);
                assert_eq!(
                    end,
                    TrailerStep::Done { digest_ok },
                    "{layout:?} flip at {at}"
                );
            }
        }
    }
}
