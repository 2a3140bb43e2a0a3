//! What a host says of itself in Connect, for messages.

use uuid::Uuid;

use crate::nqn::NQN_FIELD_LENGTH;

/// Who the host says it is and what it wants to connect to, as it wrote it: nothing of it has been
/// checked, so it is for messages only, above all for those about a Connect that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// HOSTID of the Connect data.
    pub host_identifier: Uuid,
    /// HOSTNQN of the Connect data, not yet checked.
    pub host: String,
    /// SUBNQN of the Connect data, not yet checked.
    pub subsystem: String,
}

impl Claims {
    /// Those in the data of a Connect, as far as they are there.
    #[must_use]
    pub fn in_connect_data(data: &[u8]) -> Claims {
        let field = |at: usize, length: usize| {
            let end = data.len().min(at + length);
            data.get(at..end).unwrap_or_default()
        };
        let name = |at: usize| {
            let bytes = field(at, NQN_FIELD_LENGTH);
            let end = bytes.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
        };
        let identifier = field(0, 16).first_chunk().copied();
        Claims {
            host_identifier: Uuid::from_bytes(identifier.unwrap_or_default()),
            subsystem: name(256),
            host: name(512),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_field_and_may_be_anything() {
        let mut data = vec![0; 1024];
        data[..16].fill(0xab);
        data[256..259].copy_from_slice(b"nqn");
        data[512..768].fill(b'h');
        data[768..].fill(b'x');
        let claims = Claims::in_connect_data(&data);
        assert_eq!(claims.subsystem, "nqn");
        assert_eq!(claims.host, "h".repeat(256));
        assert_eq!(claims.host_identifier, Uuid::from_bytes([0xab; 16]));
        data[512] = 0xff;
        assert!(Claims::in_connect_data(&data).host.starts_with('\u{fffd}'));
        for length in [0, 15, 257, 600] {
            let _ = Claims::in_connect_data(&data[..length]);
        }
    }
}
