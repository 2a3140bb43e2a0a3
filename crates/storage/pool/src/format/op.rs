//! Changes of the catalogue, as records and checkpoints hold them.

use uuid::Uuid;

use super::record::LayerId;
use super::superblock::{SETTINGS, ZSTD};
use super::{FormatError, Put, Take};
use crate::place::Codec;

/// A change of the catalogue. It was checked before it was written, so it applies without failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    CreateVolume(VolumeRecord),
    /// A volume gets another size, in bytes.
    Resize {
        volume: String,
        size: u64,
    },
    /// The volumes' present layers become a snapshot of each; what is written from now on goes to new ones.
    Snapshot {
        name: String,
        members: Vec<SnapshotMember>,
    },
    /// A new volume on top of a snapshot.
    Clone {
        /// The volume that the snapshot belongs to.
        origin: String,
        snapshot: String,
        volume: VolumeRecord,
    },
    /// A volume becomes what a snapshot of it holds: its present layer is dropped, and `layer` is new.
    RollBack {
        volume: String,
        snapshot: String,
        layer: LayerId,
    },
    DeleteVolume {
        volume: String,
    },
    DeleteSnapshot {
        volume: String,
        name: String,
    },
    /// A volume gets other settings.
    Set {
        volume: String,
        codec: Codec,
        quota: u64,
        reserve: u64,
    },
    /// Segments may be written, in this order, with these generations.
    HandOut {
        segments: Vec<(u32, u64)>,
    },
}

/// Most segments that a change hands out.
pub const HANDED_OUT_MAX: usize = 1024;

/// A volume, as the catalogue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub name: String,
    pub id: Uuid,
    /// How long it is, in bytes.
    pub size: u64,
    /// Either 512 or 4096 bytes.
    pub block_size: u32,
    pub codec: Codec,
    /// Bytes that its layers may take; 0: no limit.
    pub quota: u64,
    /// Bytes that are kept for it; 0: none; all bits: its size.
    pub reserve: u64,
    /// The layer that it writes to.
    pub head: LayerId,
}

/// What a snapshot does to one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMember {
    pub volume: String,
    /// Identifier of the volume's snapshot.
    pub id: Uuid,
    /// Where the volume writes from now on.
    pub head: LayerId,
}

impl VolumeRecord {
    /// Incompatible features that a pool has to name to keep it.
    pub(crate) const fn features(&self) -> u64 {
        let codec = match self.codec {
            Codec::Raw | Codec::Lz4 => 0,
            Codec::Zstd => ZSTD,
        };
        codec | if self.reserve > 0 { SETTINGS } else { 0 }
    }

    /// Without the reserved space, which stands by itself.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.text(&self.name);
        into.extend_from_slice(self.id.as_bytes());
        into.u64(self.size);
        into.u32(self.block_size);
        into.u8(self.codec.code());
        into.u64(self.quota);
        into.u32(self.head.0);
    }

    pub(crate) fn decode(take: &mut Take<'_>) -> Result<Self, FormatError> {
        let volume = Self {
            name: take.text()?,
            id: Uuid::from_bytes(take.array()?),
            size: take.u64()?,
            block_size: take.u32()?,
            codec: Codec::of(take.u8()?).ok_or(FormatError::Field("a codec"))?,
            quota: take.u64()?,
            reserve: 0,
            head: LayerId(take.u32()?),
        };
        let sizes_fit = matches!(volume.block_size, 512 | 4096)
            && volume.size > 0
            && volume.size <= super::super::SIZE_MAX
            && volume.size.is_multiple_of(u64::from(volume.block_size));
        if !sizes_fit {
            return Err(FormatError::Field("the size of a volume"));
        }
        Ok(volume)
    }
}

impl Op {
    /// The bytes of the change.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::CreateVolume(volume) => {
                bytes.u8(if volume.reserve > 0 { 9 } else { 1 });
                volume.encode(&mut bytes);
                if volume.reserve > 0 {
                    bytes.u64(volume.reserve);
                }
            }
            Self::Resize { volume, size } => {
                bytes.u8(2);
                bytes.text(volume);
                bytes.u64(*size);
            }
            Self::Snapshot { name, members } => {
                bytes.u8(3);
                bytes.text(name);
                bytes.u16(u16::try_from(members.len()).expect("checked before"));
                for member in members {
                    bytes.text(&member.volume);
                    bytes.extend_from_slice(member.id.as_bytes());
                    bytes.u32(member.head.0);
                }
            }
            Self::Clone {
                origin,
                snapshot,
                volume,
            } => {
                bytes.u8(4);
                bytes.text(origin);
                bytes.text(snapshot);
                volume.encode(&mut bytes);
            }
            Self::RollBack {
                volume,
                snapshot,
                layer,
            } => {
                bytes.u8(5);
                bytes.text(volume);
                bytes.text(snapshot);
                bytes.u32(layer.0);
            }
            Self::DeleteVolume { volume } => {
                bytes.u8(6);
                bytes.text(volume);
            }
            Self::DeleteSnapshot { volume, name } => {
                bytes.u8(7);
                bytes.text(volume);
                bytes.text(name);
            }
            Self::Set {
                volume,
                codec,
                quota,
                reserve,
            } => {
                bytes.u8(8);
                bytes.text(volume);
                bytes.u8(codec.code());
                bytes.u64(*quota);
                bytes.u64(*reserve);
            }
            Self::HandOut { segments } => {
                bytes.u8(10);
                bytes.u16(u16::try_from(segments.len()).expect("at most 1024"));
                for (number, generation) in segments {
                    bytes.u32(*number);
                    bytes.u64(*generation);
                }
            }
        }
        bytes
    }

    /// # Errors
    /// The bytes are no change that this version knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut take = Take::new(bytes);
        let op = match take.u8()? {
            1 => Self::CreateVolume(VolumeRecord::decode(&mut take)?),
            2 => {
                let (volume, size) = (take.text()?, take.u64()?);
                if size == 0 || size > super::super::SIZE_MAX {
                    return Err(FormatError::Field("the size of a volume"));
                }
                Self::Resize { volume, size }
            }
            3 => {
                let name = take.text()?;
                let count = take.u16()?;
                let members = (0..count).map(|_| {
                    Ok(SnapshotMember {
                        volume: take.text()?,
                        id: Uuid::from_bytes(take.array()?),
                        head: LayerId(take.u32()?),
                    })
                });
                let members = members.collect::<Result<_, FormatError>>()?;
                Self::Snapshot { name, members }
            }
            4 => Self::Clone {
                origin: take.text()?,
                snapshot: take.text()?,
                volume: VolumeRecord::decode(&mut take)?,
            },
            5 => Self::RollBack {
                volume: take.text()?,
                snapshot: take.text()?,
                layer: LayerId(take.u32()?),
            },
            6 => Self::DeleteVolume {
                volume: take.text()?,
            },
            7 => Self::DeleteSnapshot {
                volume: take.text()?,
                name: take.text()?,
            },
            8 => Self::Set {
                volume: take.text()?,
                codec: Codec::of(take.u8()?).ok_or(FormatError::Field("a codec"))?,
                quota: take.u64()?,
                reserve: take.u64()?,
            },
            9 => {
                let volume = VolumeRecord::decode(&mut take)?;
                let reserve = take.u64()?;
                Self::CreateVolume(VolumeRecord { reserve, ..volume })
            }
            10 => {
                let count = take.u16()?;
                if usize::from(count) > HANDED_OUT_MAX {
                    return Err(FormatError::Field("the number of segments"));
                }
                let segments = (0..count).map(|_| Ok((take.u32()?, take.u64()?)));
                let segments = segments.collect::<Result<_, FormatError>>()?;
                Self::HandOut { segments }
            }
            _ => return Err(FormatError::Field("the kind of a change")),
        };
        if !take.is_empty() {
            return Err(FormatError::Field("the length of a change"));
        }
        Ok(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_and_cut_ones_do_not() {
        let volume = VolumeRecord {
            name: "disk0".into(),
            id: Uuid::from_u128(1),
            size: 1 << 40,
            block_size: 512,
            codec: Codec::Lz4,
            quota: 0,
            reserve: 0,
            head: LayerId(4),
        };
        let all = [
            Op::CreateVolume(volume.clone()),
            Op::CreateVolume(VolumeRecord {
                codec: Codec::Zstd,
                reserve: u64::MAX,
                ..volume.clone()
            }),
            Op::Set {
                volume: "disk0".into(),
                codec: Codec::Zstd,
                quota: 5,
                reserve: 6,
            },
            Op::Resize {
                volume: "disk0".into(),
                size: 1 << 41,
            },
            Op::Snapshot {
                name: "monday".into(),
                members: vec![SnapshotMember {
                    volume: "disk0".into(),
                    id: Uuid::from_u128(2),
                    head: LayerId(5),
                }],
            },
            Op::Clone {
                origin: "disk0".into(),
                snapshot: "monday".into(),
                volume,
            },
            Op::RollBack {
                volume: "disk0".into(),
                snapshot: "monday".into(),
                layer: LayerId(6),
            },
            Op::DeleteVolume {
                volume: "disk0".into(),
            },
            Op::DeleteSnapshot {
                volume: "disk0".into(),
                name: "monday".into(),
            },
            Op::HandOut {
                segments: vec![(7, 12), (3, 13)],
            },
        ];
        for op in all {
            let bytes = op.encode();
            assert_eq!(Op::decode(&bytes), Ok(op));
            for length in 0..bytes.len() {
                assert!(Op::decode(&bytes[..length]).is_err());
            }
        }
    }
}
