//! The submission queue entry: one command, 64 bytes (NVMe base 2.0 §3.3.3.1).

use std::fmt;

use longshore_wire::field::{le16, le32, le64, set_le16, set_le32, set_le64};

use crate::opcode::Opcode;
use crate::sgl::SglDescriptor;

/// Command Identifier: names a command among those of its queue until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u16);

/// Namespace Identifier, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// The command uses no namespace.
    pub const NONE: Self = Self(0);
    /// All namespaces of the controller.
    pub const BROADCAST: Self = Self(u32::MAX);

    /// Whether it can name one namespace.
    #[must_use]
    pub const fn is_single(self) -> bool {
        self.0 != 0 && self.0 != u32::MAX
    }
}

/// Fused Operation (FUSE): whether the command is half of a pair that is carried out as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// Not part of a fused operation (FUSE 00b).
    Normal,
    /// The first of two.
    First,
    /// The second of two.
    Second,
    /// FUSE 11b, which the standard reserves.
    Reserved,
}

/// PRP or SGL for Data Transfer (PSDT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointerKind {
    /// PRPs; not for fabrics.
    Prp,
    /// SGLs; metadata by address.
    Sgl,
    SglMetadata,
    /// PSDT 11b, which the standard reserves.
    Reserved,
}

/// A submission queue entry, as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubmissionEntry(pub [u8; Self::LENGTH]);

impl SubmissionEntry {
    /// Bytes of an entry.
    pub const LENGTH: usize = 64;

    /// A command whose other fields are zero, with PSDT of SGLs as fabrics demand.
    #[must_use]
    pub fn new(opcode: Opcode, id: CommandId, namespace: NamespaceId) -> Self {
        let mut entry = Self([0; Self::LENGTH]);
        entry.0[0] = opcode.0;
        entry.0[1] = 0b01 << 6;
        set_le16(&mut entry.0, 2, id.0);
        set_le32(&mut entry.0, 4, namespace.0);
        entry
    }

    /// OPC, in bits 7:0 of dword 0.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.0[0])
    }

    /// FUSE, in bits 9:8 of dword 0.
    #[inline]
    #[must_use]
    pub const fn fuse(&self) -> Fuse {
        match self.0[1] & 3 {
            0 => Fuse::Normal,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    pub fn set_fuse(&mut self, fuse: Fuse) {
        let code = match fuse {
            Fuse::Normal => 0,
            Fuse::First => 1,
            Fuse::Second => 2,
            Fuse::Reserved => 3,
        };
        self.0[1] = self.0[1] & !3 | code;
    }

    /// PSDT, in bits 15:14 of dword 0; fabrics commands use SGLs only.
    #[inline]
    #[must_use]
    pub const fn data_pointer_kind(&self) -> DataPointerKind {
        match self.0[1] >> 6 {
            0 => DataPointerKind::Prp,
            1 => DataPointerKind::Sgl,
            2 => DataPointerKind::SglMetadata,
            _ => DataPointerKind::Reserved,
        }
    }

    /// CID, in bits 31:16 of dword 0.
    #[inline]
    #[must_use]
    pub fn id(&self) -> CommandId {
        CommandId(le16(&self.0, 2))
    }

    #[inline]
    pub fn set_id(&mut self, id: CommandId) {
        set_le16(&mut self.0, 2, id.0);
    }

    /// NSID, dword 1; FFFFFFFFh addresses all namespaces where a command allows it.
    #[inline]
    #[must_use]
    pub fn namespace(&self) -> NamespaceId {
        NamespaceId(le32(&self.0, 4))
    }

    /// FCTYPE of a Fabrics command, which stands where others have their NSID.
    #[inline]
    #[must_use]
    pub const fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    /// SGL entry 1, or the first PRP.
    #[inline]
    #[must_use]
    pub fn sgl(&self) -> SglDescriptor {
        SglDescriptor::decode(longshore_wire::field::bytes(&self.0, 24))
    }

    /// Sets SGL entry 1.
    pub fn set_sgl(&mut self, sgl: SglDescriptor) {
        longshore_wire::field::set_bytes(&mut self.0, 24, sgl.encode());
    }

    /// Command Dword `number`, 0 to 15.
    ///
    /// # Panics
    /// When there is no such dword.
    #[inline]
    #[must_use]
    pub fn dword(&self, number: usize) -> u32 {
        le32(&self.0, number * 4)
    }

    /// Sets Command Dword `number`.
    ///
    /// # Panics
    /// When there is no such dword.
    #[inline]
    pub fn set_dword(&mut self, number: usize, value: u32) {
        set_le32(&mut self.0, number * 4, value);
    }

    /// Command Dwords `number` and `number + 1` as one integer: SLBA is that of 10 and 11.
    ///
    /// # Panics
    /// When there are no such dwords.
    #[inline]
    #[must_use]
    pub fn qword(&self, number: usize) -> u64 {
        le64(&self.0, number * 4)
    }

    /// Sets Command Dwords `number` and `number + 1`.
    ///
    /// # Panics
    /// When there are no such dwords.
    #[inline]
    pub fn set_qword(&mut self, number: usize, value: u64) {
        set_le64(&mut self.0, number * 4, value);
    }
}

impl fmt::Debug for SubmissionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmissionEntry")
            .field("opcode", &self.opcode())
            .field("id", &self.id())
            .field("namespace", &self.namespace())
            .field("sgl", &self.sgl())
            .field("cdw10_15", &[10, 11, 12, 13, 14, 15].map(|n| self.dword(n)))
            .finish()
    }
}
