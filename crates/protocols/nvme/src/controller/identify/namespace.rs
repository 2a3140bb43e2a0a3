//! What a namespace is: Identify Namespace of the NVM command set (NVM command set 1.0 §4.1.5.1), its
//! identifiers and what all command sets share.

use super::Page;
use crate::command::NamespaceId;
use crate::controller::failure::Failure;
use crate::controller::namespace::ANA_GROUP;
use crate::controller::namespace::{AttachedNamespace, Namespace};
use crate::controller::state::Controller;
use crate::io::limits;

/// NMIC: several controllers, of several hosts, may share it.
const SHARED: u8 = 1;
/// NSATTR: it cannot be written at the moment.
const WRITE_PROTECTED: u8 = 1;
/// RESCAP without PTPL: all six kinds of reservation, and IEKEY as version 1.3 defines it.
const RESERVATIONS: u8 = 0xfe;
/// RESCAP: registrations survive a power loss if asked to (PTPL).
const RESERVATIONS_PERSIST: u8 = 1;

impl Controller {
    /// A namespace; `None` for an identifier that none has, whose data structures are all zeros.
    fn look_up(&self, id: NamespaceId) -> Result<Option<AttachedNamespace>, Failure> {
        if (1..=limits::NAMESPACES_MAX).contains(&id.0) {
            Ok(self.attached(id))
        } else {
            Err(Failure::INVALID_NAMESPACE)
        }
    }

    /// CNS 00h and 11h. The broadcast identifier names what all namespaces have in common, for controllers with
    /// Namespace Management only; here it is invalid like any other beyond NN.
    pub(super) fn identify_namespace(
        &self,
        id: NamespaceId,
        page: &mut Page,
    ) -> Result<(), Failure> {
        if let Some(attached) = self.look_up(id)? {
            put_namespace(&attached, page);
        }
        Ok(())
    }

    /// CNS 05h of the NVM command set: all zeros, without protection information.
    pub(super) fn identify_nvm_namespace(&self, id: NamespaceId) -> Result<(), Failure> {
        self.look_up(id).map(|_| ())
    }

    /// Identifiers (CNS 03h): type, length, two reserved bytes, identifier; a type of 0 ends it.
    pub(super) fn describe_namespace(
        &self,
        id: NamespaceId,
        page: &mut Page,
    ) -> Result<(), Failure> {
        const EUI64: u8 = 1;
        const NGUID: u8 = 2;
        const UUID: u8 = 3;
        const COMMAND_SET: u8 = 4;
        let attached = self.look_up(id)?.ok_or(Failure::INVALID_NAMESPACE)?;
        let namespace = &attached.namespace;
        let mut at = 0;
        let mut put = |kind: u8, identifier: &[u8]| {
            page[at] = kind;
            page[at + 1] = u8::try_from(identifier.len()).expect("identifiers are short");
            at += 4;
            page[at..at + identifier.len()].copy_from_slice(identifier);
            at += identifier.len();
        };
        if let Some(eui64) = namespace.eui64() {
            put(EUI64, &eui64);
        }
        if let Some(nguid) = namespace.nguid() {
            put(NGUID, &nguid);
        }
        put(UUID, namespace.parameters().uuid.as_bytes());
        put(COMMAND_SET, &[super::NVM_COMMAND_SET]);
        Ok(())
    }

    /// CNS 08h (§5.17.2.8).
    ///
    /// ```text
    /// 0 NSFEAT   1 NMIC   2 RESCAP   3 FPI   4 ANAGRPID   8 NSATTR   10 NVMSETID   12 ENDGID   14 NSTAT
    /// ```
    pub(super) fn identify_independent(
        &self,
        id: NamespaceId,
        page: &mut Page,
    ) -> Result<(), Failure> {
        const ROTATIONAL: u8 = 1 << 4;
        const READY: u8 = 1;
        let Some(attached) = self.look_up(id)? else {
            return Ok(());
        };
        let parameters = attached.namespace.parameters();
        page[0] = if parameters.rotational { ROTATIONAL } else { 0 };
        page[1] = SHARED;
        page[2] = reservation_capabilities(&attached.namespace);
        page[4..8].copy_from_slice(&ANA_GROUP.to_le_bytes());
        page[8] = attributes(&attached);
        page[14] = READY;
        Ok(())
    }
}

fn reservation_capabilities(namespace: &Namespace) -> u8 {
    if namespace.parameters().can_store_reservations {
        RESERVATIONS | RESERVATIONS_PERSIST
    } else {
        RESERVATIONS
    }
}

fn attributes(attached: &AttachedNamespace) -> u8 {
    if attached.read_only {
        WRITE_PROTECTED
    } else {
        0
    }
}

/// ```text
///   0 NSZE     8 NCAP    16 NUSE    24 NSFEAT  25 NLBAF   26 FLBAS   30 NMIC    31 RESCAP
///  33 DLFEAT  38 NACWU   48 NVMCAP  64 NPWG    66 NPWA    68 NPDG    70 NPDA    72 NOWS
///  74 MSSRL   76 MCL     80 MSRC    92 ANAGRPID  99 NSATTR  104 NGUID  120 EUI64  128 LBAF0
/// ```
fn put_namespace(attached: &AttachedNamespace, page: &mut Page) {
    let namespace = &attached.namespace;
    let blocks = namespace.block_count();
    // NSZE, NCAP and NUSE: how much is allocated is not told, so all of it.
    for at in [0, 8, 16] {
        page[at..at + 8].copy_from_slice(&blocks.to_le_bytes());
    }
    put_format(namespace, page);
    page[30] = SHARED;
    page[31] = reservation_capabilities(namespace);
    page[33] = deallocation(namespace);
    let bytes = u128::from(blocks) * u128::from(namespace.block_size());
    page[48..64].copy_from_slice(&bytes.to_le_bytes());
    put_granularities(namespace, page);
    page[74..76].copy_from_slice(&limits::COPY_RANGE_BLOCKS.to_le_bytes());
    page[76..80].copy_from_slice(&limits::COPY_BLOCKS.to_le_bytes());
    page[80] = u8::try_from(limits::COPY_RANGES - 1).expect("counted in a byte");
    page[92..96].copy_from_slice(&ANA_GROUP.to_le_bytes());
    page[99] = attributes(attached);
    page[104..120].copy_from_slice(&namespace.nguid().unwrap_or_default());
    page[120..128].copy_from_slice(&namespace.eui64().unwrap_or_default());
}

/// LBAF0, the only format: no metadata, LBADS in bits 23:16. NLBAF and FLBAS are 0.
fn put_format(namespace: &Namespace, page: &mut Page) {
    let exponent = namespace.block_size().ilog2();
    page[128..132].copy_from_slice(&(exponent << 16).to_le_bytes());
}

/// DLFEAT: what deallocated blocks read as, and that Write Zeroes can deallocate.
fn deallocation(namespace: &Namespace) -> u8 {
    const READS_ZEROS: u8 = 0b001;
    const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
    let parameters = namespace.parameters();
    match parameters.unmap_granularity_blocks {
        Some(_) if parameters.unmapped_reads_zeros => READS_ZEROS | WRITE_ZEROES_DEALLOCATES,
        // Nothing ever is deallocated, or nothing is known.
        _ => 0,
    }
}

/// OPTPERF of NSFEAT, and the five granularities, all less one.
fn put_granularities(namespace: &Namespace, page: &mut Page) {
    const OPTIMAL_PERFORMANCE: u8 = 1 << 4;
    let less_one = |blocks: u32| {
        let blocks = u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX);
        blocks.to_le_bytes()
    };
    let write = namespace.parameters().physical_block_size / namespace.block_size();
    let deallocate = namespace
        .parameters()
        .unmap_granularity_blocks
        .unwrap_or(write);
    page[24] |= OPTIMAL_PERFORMANCE;
    // NPWG and NPWA.
    page[64..66].copy_from_slice(&less_one(write));
    page[66..68].copy_from_slice(&less_one(write));
    // NPDG and NPDA.
    page[68..70].copy_from_slice(&less_one(deallocate));
    page[70..72].copy_from_slice(&less_one(deallocate));
    // NOWS.
    page[72..74].copy_from_slice(&less_one(write));
}
