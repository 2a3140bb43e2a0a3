//! The form in which tools hand secrets on: `PREFIX:HH:<base64 of key ‖ CRC-32 of the key, little-endian>:`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::auth::Hash;

const CRC_BYTES: usize = 4;
/// Bytes of the longest key.
const KEY_MAX: usize = 64;
/// Characters of its base64, the checksum included.
const BASE64_MAX: usize = (KEY_MAX + CRC_BYTES).div_ceil(3) * 4;

/// Why a text is not in this form. The text is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Form,
    Base64,
    Checksum,
    /// Bytes of the key.
    Length(usize),
}

/// The identifier HH and the key.
pub(crate) fn read(
    text: &str,
    prefix: &str,
    lengths: &[usize],
) -> Result<(u8, Zeroizing<Vec<u8>>), Malformed> {
    let rest = text.strip_prefix(prefix).ok_or(Malformed::Form)?;
    let (id, rest) = rest.split_once(':').ok_or(Malformed::Form)?;
    let encoded = rest.strip_suffix(':').ok_or(Malformed::Form)?;
    let is_number = id.len() == 2 && id.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number || encoded.len() > BASE64_MAX {
        return Err(Malformed::Form);
    }
    let id = id.parse().map_err(|_| Malformed::Form)?;
    let decoded = BASE64.decode(encoded).map_err(|_| Malformed::Base64)?;
    let mut key = Zeroizing::new(decoded);
    let length = key.len().saturating_sub(CRC_BYTES);
    if !lengths.contains(&length) {
        return Err(Malformed::Length(length));
    }
    let is_whole = crc32(&key[..length]).to_le_bytes() == key[length..];
    key.truncate(length);
    if !is_whole {
        return Err(Malformed::Checksum);
    }
    Ok((id, key))
}

/// The reverse of [`read`].
pub(crate) fn write(prefix: &str, id: u8, key: &[u8]) -> Zeroizing<String> {
    let crc = crc32(key).to_le_bytes();
    let whole = Zeroizing::new([key, &crc].concat());
    let encoded = Zeroizing::new(BASE64.encode(&*whole));
    Zeroizing::new(format!("{prefix}{id:02}:{}:", *encoded))
}

/// Sixteen digits by which people compare keys. It is of no use for guesses at random keys.
pub(crate) fn fingerprint(key: &[u8]) -> String {
    let digest = Hash::Sha256.hmac(key, &[b"longshore key fingerprint"]);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// CRC-32 of IEEE 802.3, as zlib computes it.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL * (crc & 1))
        })
    });
    !crc
}
