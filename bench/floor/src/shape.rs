//! How long requests and answers of a connection are. The client says so first, and once.
//!
//! ```text
//! bytes 0..4 "LSF1"   4..8 request   8..12 data behind it   12..16 answer   16..20 data behind it
//! ```
//! Integers are big endian.

/// Bytes of a shape on the wire.
pub const SHAPE_BYTES: usize = 20;

/// Data of one request or answer.
const PAYLOAD_MAX: u32 = 16 << 20;
/// A request or an answer without its data.
const HEADER_MAX: u32 = 4096;

const MAGIC: &[u8] = b"LSF1";

/// Lengths of the messages of one operation, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of a request without its data. At least 1.
    pub request_bytes: u32,
    /// Of the data behind a request.
    pub payload_in: u32,
    /// Of an answer without its data. At least 1.
    pub answer_bytes: u32,
    /// Of the data behind an answer.
    pub payload_out: u32,
}

impl Shape {
    pub fn encode(self) -> [u8; SHAPE_BYTES] {
        let mut bytes = [0; SHAPE_BYTES];
        let fields = [
            self.request_bytes,
            self.payload_in,
            self.answer_bytes,
            self.payload_out,
        ];
        bytes[..4].copy_from_slice(MAGIC);
        for (place, field) in bytes[4..].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// `None`: not a shape, or of more bytes than anyone asks for.
    pub fn decode(bytes: &[u8; SHAPE_BYTES]) -> Option<Self> {
        let field = |at: usize| {
            let bytes = bytes[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("a slice of four"))
        };
        let shape = Self {
            request_bytes: field(4),
            payload_in: field(8),
            answer_bytes: field(12),
            payload_out: field(16),
        };
        (bytes.starts_with(MAGIC) && shape.is_sane()).then_some(shape)
    }

    pub fn is_sane(self) -> bool {
        let header = 1..=HEADER_MAX;
        header.contains(&self.request_bytes)
            && header.contains(&self.answer_bytes)
            && self.payload_in <= PAYLOAD_MAX
            && self.payload_out <= PAYLOAD_MAX
    }

    /// Of a request with its data.
    pub fn request(self) -> usize {
        size(self.request_bytes) + size(self.payload_in)
    }

    /// Of an answer with its data.
    pub fn answer(self) -> usize {
        size(self.answer_bytes) + size(self.payload_out)
    }
}

pub fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("pointers have at least 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        request_bytes: 72,
        payload_in: 0,
        answer_bytes: 24,
        payload_out: 4096,
    };

    #[test]
    fn a_shape_decodes_to_what_was_encoded() {
        assert_eq!(Shape::decode(&SHAPE.encode()), Some(SHAPE));
        assert_eq!(
            SHAPE.encode(),
            *b"LSF1\0\0\0\x48\0\0\0\0\0\0\0\x18\0\0\x10\0"
        );
    }

    #[test]
    fn what_is_no_shape_is_refused() {
        assert_eq!(Shape::decode(&[0; SHAPE_BYTES]), None);
        let without_request = Shape {
            request_bytes: 0,
            ..SHAPE
        };
        assert_eq!(Shape::decode(&without_request.encode()), None);
        let huge = Shape {
            payload_in: u32::MAX,
            ..SHAPE
        };
        assert_eq!(Shape::decode(&huge.encode()), None);
    }
}
