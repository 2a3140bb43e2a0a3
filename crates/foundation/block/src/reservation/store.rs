//! Reservations as bytes that survive a restart (APTPL). The format is described, with offsets, in
//! `docs/formats/reservations.md`.
//!
//! All fields are big-endian. A CRC32C over everything stands at the end, so that a file cut short,
//! mixed up or damaged is refused as a whole: half a reservation would let in who must stay out.

use longshore_wire::{OutOfBytes, Reader, crc32c};

use super::table::{NexusIdentity, Registration, Reservation, ReservationTable, ReservationType};

const MAGIC: [u8; 8] = *b"LSRESERV";
const VERSION: u16 = 1;
const FLAG_PERSISTS: u16 = 1;
const HEADER_LENGTH: usize = 28;
const CHECKSUM_LENGTH: usize = 4;
/// HOLDER of no reservation, and of the All Registrants types.
const NO_HOLDER: u32 = u32::MAX;
const IDENTITY_ISCSI: u8 = 1;
const IDENTITY_NVME_HOST: u8 = 2;

/// Stored reservations that cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationFormatError {
    /// The magic at the start is missing.
    #[error("not a reservations file: it does not start with \"LSRESERV\"")]
    NotReservations,
    /// Written by another version of the program.
    #[error("reservations file of version {found}, this program knows version {VERSION}")]
    UnsupportedVersion {
        /// What the file says.
        found: u16,
    },
    /// Cut short, or something was appended.
    #[error("reservations file has {found} bytes and should have {expected}")]
    WrongLength {
        /// Bytes there should be.
        expected: usize,
        found: usize,
    },
    /// The CRC32C does not match: the file was torn or altered.
    #[error("reservations file is damaged: checksum {computed:#010x}, stored {stored:#010x}")]
    ChecksumMismatch {
        /// What the file says.
        stored: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// The checksum is right and the content cannot be: it was not written by us.
    #[error("reservations file contradicts itself")]
    Inconsistent,
}

impl From<OutOfBytes> for ReservationFormatError {
    fn from(_: OutOfBytes) -> Self {
        Self::Inconsistent
    }
}

impl ReservationTable {
    /// What has to survive a restart: everything but the generation if the table persists, nothing
    /// otherwise.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (flags, registrations) = if self.persists() {
            (FLAG_PERSISTS, self.registrations())
        } else {
            (0, &[][..])
        };
        let reservation = self.reservation().filter(|_| self.persists());
        let position =
            |holder: &NexusIdentity| registrations.iter().position(|one| one.identity == *holder);
        let holder = reservation
            .and_then(|held| held.holder.as_ref())
            .and_then(position);

        let mut out = Vec::with_capacity(HEADER_LENGTH + 64 * registrations.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&[0; 4]); // the length, known at the end
        out.extend_from_slice(&count(registrations.len()).to_be_bytes());
        out.extend_from_slice(&[reservation.map_or(0, |held| held.kind.scsi_code()), 0, 0, 0]);
        out.extend_from_slice(&holder.map_or(NO_HOLDER, count).to_be_bytes());
        for registration in registrations {
            encode(registration, &mut out);
        }
        let length = count(out.len() + CHECKSUM_LENGTH);
        out[12..16].copy_from_slice(&length.to_be_bytes());
        let checksum = crc32c(&out).value();
        out.extend_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Decodes what [`Self::to_bytes`] gave.
    ///
    /// # Errors
    /// The bytes are not exactly that.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ReservationFormatError> {
        let mut header = Reader::new(check(bytes)?);
        header.take(MAGIC.len())?;
        header.be16()?;
        let flags = header.be16()?;
        header.be32()?;
        let registration_count = header.be32()?;
        let [type_code, ..] = header.array::<4>()?;
        let holder = header.be32()?;

        let mut body = header;
        let mut registrations = Vec::new();
        for _ in 0..registration_count {
            registrations.push(decode(&mut body)?);
        }
        if !body.is_empty() {
            return Err(ReservationFormatError::Inconsistent);
        }
        let reservation = decode_reservation(type_code, holder, &registrations)?;
        match flags {
            0 if registrations.is_empty() && reservation.is_none() => Ok(Self::default()),
            FLAG_PERSISTS => Self::restored(registrations, reservation)
                .ok_or(ReservationFormatError::Inconsistent),
            _ => Err(ReservationFormatError::Inconsistent),
        }
    }
}

fn count(value: usize) -> u32 {
    u32::try_from(value).expect("registrations are limited in number")
}

/// Checks what frames the content, and returns it without the checksum.
fn check(bytes: &[u8]) -> Result<&[u8], ReservationFormatError> {
    use ReservationFormatError as Error;

    let mut reader = Reader::new(bytes);
    if reader.array().ok() != Some(MAGIC) {
        return Err(Error::NotReservations);
    }
    let wrong_length = |expected| Error::WrongLength {
        expected,
        found: bytes.len(),
    };
    let version = reader
        .be16()
        .map_err(|_| wrong_length(HEADER_LENGTH + CHECKSUM_LENGTH))?;
    if version != VERSION {
        return Err(Error::UnsupportedVersion { found: version });
    }
    let Some((content, checksum)) = bytes
        .split_last_chunk::<CHECKSUM_LENGTH>()
        .filter(|(content, _)| content.len() >= HEADER_LENGTH)
    else {
        return Err(wrong_length(HEADER_LENGTH + CHECKSUM_LENGTH));
    };
    let length = u32::from_be_bytes([content[12], content[13], content[14], content[15]]);
    if usize::try_from(length) != Ok(bytes.len()) {
        return Err(wrong_length(usize::try_from(length).unwrap_or(usize::MAX)));
    }
    let (stored, computed) = (u32::from_be_bytes(*checksum), crc32c(content).value());
    if stored != computed {
        return Err(Error::ChecksumMismatch { stored, computed });
    }
    Ok(content)
}

fn encode(registration: &Registration, out: &mut Vec<u8>) {
    let key = registration.key.to_be_bytes();
    match &registration.identity {
        NexusIdentity::Iscsi {
            initiator_name,
            isid,
            relative_target_port,
        } => {
            let name_length =
                u16::try_from(initiator_name.len()).expect("iSCSI names have at most 223 bytes");
            out.extend_from_slice(&[IDENTITY_ISCSI, 0]);
            out.extend_from_slice(&name_length.to_be_bytes());
            out.extend_from_slice(&key);
            out.extend_from_slice(isid);
            out.extend_from_slice(&relative_target_port.to_be_bytes());
            out.extend_from_slice(initiator_name.as_bytes());
        }
        NexusIdentity::NvmeHost { host_identifier } => {
            out.extend_from_slice(&[IDENTITY_NVME_HOST, 0, 0, 0]);
            out.extend_from_slice(&key);
            out.extend_from_slice(host_identifier);
        }
    }
}

fn decode(body: &mut Reader<'_>) -> Result<Registration, ReservationFormatError> {
    let [protocol, _, high, low] = body.array()?;
    let key = body.be64()?;
    let identity = match protocol {
        IDENTITY_ISCSI => {
            let isid = body.array()?;
            let relative_target_port = body.be16()?;
            let name = body.take(usize::from(u16::from_be_bytes([high, low])))?;
            let initiator_name = std::str::from_utf8(name)
                .map_err(|_| ReservationFormatError::Inconsistent)?
                .to_owned();
            NexusIdentity::Iscsi {
                initiator_name,
                isid,
                relative_target_port,
            }
        }
        IDENTITY_NVME_HOST => NexusIdentity::NvmeHost {
            host_identifier: body.array()?,
        },
        _ => return Err(ReservationFormatError::Inconsistent),
    };
    Ok(Registration { identity, key })
}

fn decode_reservation(
    type_code: u8,
    holder: u32,
    registrations: &[Registration],
) -> Result<Option<Reservation>, ReservationFormatError> {
    let holder = match holder {
        NO_HOLDER => None,
        index => {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let registration = registrations
                .get(index)
                .ok_or(ReservationFormatError::Inconsistent)?;
            Some(registration.identity.clone())
        }
    };
    match (type_code, ReservationType::from_scsi_code(type_code)) {
        (0, _) if holder.is_none() => Ok(None),
        (_, Some(kind)) => Ok(Some(Reservation { kind, holder })),
        (_, None) => Err(ReservationFormatError::Inconsistent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn iscsi(name: &str, last: u8) -> NexusIdentity {
        NexusIdentity::Iscsi {
            initiator_name: name.into(),
            isid: [0x80, 0, 0, 0, 0, last],
            relative_target_port: 1,
        }
    }

    fn example() -> ReservationTable {
        let mut table = ReservationTable::default();
        table
            .register(&iscsi("iqn.a:1", 1), 0x1122_3344_5566_7788)
            .unwrap();
        table
            .register(
                &NexusIdentity::NvmeHost {
                    host_identifier: [7; 16],
                },
                9,
            )
            .unwrap();
        table.reserve(&iscsi("iqn.a:1", 1), ReservationType::ExclusiveAccess);
        table.set_persists(true);
        table
    }

    /// Made by version 1 and checked by hand against docs/formats/reservations.md: it must keep
    /// being read.
    const VERSION_1: &[u8] = b"LSRESERV\x00\x01\x00\x01\x00\x00\x00\x57\x00\x00\x00\x02\
        \x03\x00\x00\x00\x00\x00\x00\x00\
        \x01\x00\x00\x07\x11\x22\x33\x44\x55\x66\x77\x88\x80\x00\x00\x00\x00\x01\x00\x01iqn.a:1\
        \x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\
        \x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07";

    #[test]
    fn version_1_is_byte_exact_and_keeps_being_read() {
        let bytes = example().to_bytes();
        assert_eq!(bytes[..bytes.len() - CHECKSUM_LENGTH], *VERSION_1);
        assert_eq!(ReservationTable::from_bytes(&bytes), Ok(example()));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let good = example().to_bytes();
        for position in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[position / 8] ^= 1 << (position % 8);
            assert!(
                ReservationTable::from_bytes(&bytes).is_err(),
                "bit {position}"
            );
        }
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_detected() {
        let good = example().to_bytes();
        for position in 0..good.len() {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[position] = value;
                let same = bytes == good;
                assert_eq!(
                    ReservationTable::from_bytes(&bytes).is_ok(),
                    same,
                    "byte {position}"
                );
            }
            assert!(ReservationTable::from_bytes(&good[..position]).is_err());
        }
        let mut longer = good;
        longer.push(0);
        assert!(matches!(
            ReservationTable::from_bytes(&longer),
            Err(ReservationFormatError::WrongLength { .. })
        ));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = example().to_bytes();
        bytes[9] = 2;
        assert_eq!(
            ReservationTable::from_bytes(&bytes),
            Err(ReservationFormatError::UnsupportedVersion { found: 2 })
        );
        assert_eq!(
            ReservationTable::from_bytes(b"garbage!"),
            Err(ReservationFormatError::NotReservations)
        );
    }

    #[test]
    fn a_table_that_does_not_persist_is_stored_empty() {
        let mut table = example();
        table.set_persists(false);
        let bytes = table.to_bytes();
        assert_eq!(
            ReservationTable::from_bytes(&bytes),
            Ok(ReservationTable::default())
        );
    }

    /// Rightly framed and wrong inside.
    fn framed(mut content: Vec<u8>) -> Vec<u8> {
        let length = count(content.len() + CHECKSUM_LENGTH);
        content[12..16].copy_from_slice(&length.to_be_bytes());
        let checksum = crc32c(&content).value();
        content.extend_from_slice(&checksum.to_be_bytes());
        content
    }

    #[test]
    fn contradictions_inside_are_refused() {
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut content = VERSION_1.to_vec();
            change(&mut content);
            ReservationTable::from_bytes(&framed(content))
        };
        assert!(change(&|_| {}).is_ok());
        let refused = Err(ReservationFormatError::Inconsistent);
        assert_eq!(
            change(&|bytes| bytes[11] = 0),
            refused,
            "content without the flag"
        );
        assert_eq!(change(&|bytes| bytes[11] = 3), refused, "unknown flag");
        assert_eq!(
            change(&|bytes| bytes[19] = 3),
            refused,
            "more registrations than there are"
        );
        assert_eq!(
            change(&|bytes| bytes[19] = 1),
            refused,
            "fewer registrations than there are"
        );
        assert_eq!(change(&|bytes| bytes[20] = 2), refused, "unknown type");
        assert_eq!(
            change(&|bytes| bytes[20] = 0),
            refused,
            "holder without reservation"
        );
        assert_eq!(
            change(&|bytes| bytes[27] = 2),
            refused,
            "holder does not exist"
        );
        assert_eq!(
            change(&|bytes| bytes[20] = 8),
            refused,
            "sole holder of an AR type"
        );
        assert_eq!(change(&|bytes| bytes[28] = 9), refused, "unknown protocol");
        assert_eq!(
            change(&|bytes| bytes[32..40].fill(0)),
            refused,
            "key of zero"
        );
    }

    proptest! {
        #[test]
        fn every_table_comes_back(
            hosts in proptest::collection::btree_map(any::<(u8, bool)>(), 1u64.., 1..20),
            kind in 0usize..7,
        ) {
            let mut table = ReservationTable::default();
            for ((number, nvme), key) in hosts {
                let identity = if nvme {
                    NexusIdentity::NvmeHost { host_identifier: [number; 16] }
                } else {
                    iscsi("iqn.2026-11.local:x", number)
                };
                table.register(&identity, key).unwrap();
            }
            if let Some(kind) = ReservationType::ALL.get(kind) {
                let holder = table.registrations()[0].identity.clone();
                table.reserve(&holder, *kind);
            }
            table.set_persists(true);
            prop_assert_eq!(ReservationTable::from_bytes(&table.to_bytes()), Ok(table));
        }

        #[test]
        fn random_content_never_panics(content in proptest::collection::vec(any::<u8>(), 20..200)) {
            let mut bytes = VERSION_1[..12].to_vec();
            bytes.extend(content);
            let _ = ReservationTable::from_bytes(&framed(bytes));
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ReservationTable::from_bytes(&bytes);
        }
    }
}
