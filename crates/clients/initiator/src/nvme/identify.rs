//! What Identify returns (NVMe base 2.0 §5.17.2, NVM command set 1.0 §4.1.5), as far as a host acts on it or
//! shows it. Every field may be anything: what makes no sense is taken as "not reported".

use longshore_nvme::command::NamespaceId;

use super::page::Page;

/// Bytes of every data structure of Identify.
pub(super) const IDENTIFY_BYTES: usize = 4096;

pub(super) mod cns {
    /// Identify Namespace of the NVM command set.
    pub(in super::super) const NAMESPACE: u8 = 0x00;
    /// Data structure of the controller that is asked.
    pub(in super::super) const CONTROLLER: u8 = 0x01;
    /// NSIDs of active namespaces, in ascending order: 1024 from the given one on.
    pub(in super::super) const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptors: EUI64, NGUID and UUID.
    pub(in super::super) const DESCRIPTORS: u8 = 0x03;
    /// Identify Controller of an I/O command set.
    pub(in super::super) const COMMAND_SET_CONTROLLER: u8 = 0x06;
}

/// Identify Controller (NVMe base §5.17.2.1), without what no caller needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyController {
    /// SN, without the spaces that pad it.
    pub serial: String,
    /// MN, without the spaces that pad it.
    pub model: String,
    /// FR, without the spaces that pad it.
    pub firmware: String,
    /// VER: major in bits 31:16, minor in 15:8.
    pub version: u32,
    /// CNTLID, one of the subsystem's controllers.
    pub controller_id: u16,
    /// SUBNQN: the NVM subsystem NQN.
    pub subsystem: String,
    /// CMIC: the subsystem can have several ports, or several controllers.
    pub is_shared: bool,
    /// CMIC: asymmetric namespace access is reported.
    pub reports_ana: bool,
    /// MDTS: longest transfer of a command in units of the smallest page, as a power of two; `None`: no limit.
    pub max_transfer_exponent: Option<u8>,
    /// OAES: which asynchronous events there are.
    pub async_events: u32,
    /// CTRATT.TBKAS: any command keeps the association alive.
    pub traffic_keeps_alive: bool,
    /// CRDT1 to CRDT3: what the retry delays of a status stand for, in units of 100 ms.
    pub retry_delays: [u16; 3],
    /// AERL: Asynchronous Event Requests that may be outstanding.
    pub async_event_requests: u16,
    /// LPA: log pages can be read in parts.
    pub log_pages_in_parts: bool,
    /// KAS: granularity of the keep-alive timer in units of 100 ms; 0: there is none.
    pub keep_alive_granularity: u16,
    /// MAXCMD: commands a queue takes at a time; 0: not reported.
    pub max_commands: u16,
    /// NN: the highest NSID, not the number of namespaces.
    pub namespaces: u32,
    /// ONCS: the optional commands of the NVM command set.
    pub optional_commands: OptionalCommands,
    /// FUSES: Compare and Write can be fused.
    pub fused_compare_and_write: bool,
    /// VWC: there is a volatile write cache.
    pub write_cache: bool,
    /// AWUN: blocks that are written in one piece.
    pub atomic_write_blocks: u32,
    /// AWUPF: the same, over a power failure.
    pub atomic_write_power_fail_blocks: u32,
    /// ACWU: blocks of the longest fused Compare and Write.
    pub compare_and_write_blocks: u32,
    /// NANAGRPID: number of ANA groups.
    pub ana_groups: u32,
    /// ANATT: longest transition between states, in seconds.
    pub ana_transition_s: u8,
    /// IOCCSZ: size of the command capsule of I/O queues, in bytes.
    pub command_capsule_bytes: u32,
    /// ICDOFF: where data begins in it behind the command, in bytes.
    pub in_capsule_data_offset: u32,
    /// OFCS: Disconnect is understood.
    pub disconnect: bool,
    /// CNTRLTYPE: it is a discovery controller.
    pub is_discovery: bool,
}

/// ONCS: commands that a controller may leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalCommands(pub u16);

impl OptionalCommands {
    /// Bit 0: Compare, alone and fused.
    #[must_use]
    pub const fn compare(self) -> bool {
        self.0 & 1 != 0
    }

    /// Bit 2: Dataset Management, and with it Deallocate.
    #[must_use]
    pub const fn dataset_management(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// Bit 3: Write Zeroes of any range up to WZSL.
    #[must_use]
    pub const fn write_zeroes(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// Bit 5: the four Reservation commands.
    #[must_use]
    pub const fn reservations(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

impl IdentifyController {
    /// From the data structure.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        const DISCOVERY: u8 = 2;
        let page = Page(bytes);
        Self {
            serial: page.text(4, 20),
            model: page.text(24, 40),
            firmware: page.text(64, 8),
            version: page.u32(80),
            controller_id: page.u16(78),
            subsystem: page.text(768, 256),
            is_shared: page.u8(76) & 0b11 != 0,
            reports_ana: page.u8(76) & 1 << 3 != 0,
            max_transfer_exponent: Some(page.u8(77)).filter(|exponent| *exponent != 0),
            async_events: page.u32(92),
            traffic_keeps_alive: page.u32(96) & 1 << 6 != 0,
            retry_delays: [page.u16(128), page.u16(130), page.u16(132)],
            async_event_requests: u16::from(page.u8(259)) + 1,
            log_pages_in_parts: page.u8(261) & 1 << 2 != 0,
            keep_alive_granularity: page.u16(320),
            max_commands: page.u16(514),
            namespaces: page.u32(516),
            optional_commands: OptionalCommands(page.u16(520)),
            fused_compare_and_write: page.u16(522) & 1 != 0,
            write_cache: page.u8(525) & 1 != 0,
            atomic_write_blocks: u32::from(page.u16(526)) + 1,
            atomic_write_power_fail_blocks: u32::from(page.u16(528)) + 1,
            compare_and_write_blocks: u32::from(page.u16(532)) + 1,
            ana_groups: page.u32(348),
            ana_transition_s: page.u8(342),
            command_capsule_bytes: page.u32(1792).saturating_mul(16),
            in_capsule_data_offset: u32::from(page.u16(1800)) * 16,
            disconnect: page.u16(1804) & 1 != 0,
            is_discovery: page.u8(111) == DISCOVERY,
        }
    }

    /// Data that goes in the capsule of a command of an I/O queue. Controllers that want data elsewhere than
    /// right behind the command get none there.
    #[must_use]
    pub fn in_capsule_data_bytes(&self) -> u32 {
        /// What is copied into a capsule is short. More would only cost memory.
        const SENSIBLE: u32 = 1 << 20;
        if self.in_capsule_data_offset != 0 {
            return 0;
        }
        self.command_capsule_bytes.saturating_sub(64).min(SENSIBLE)
    }

    /// MDTS in bytes. `page_exponent`: CAP.MPSMIN, a page has 2^(12 + it) bytes.
    #[must_use]
    pub fn max_transfer_bytes(&self, page_exponent: u8) -> Option<u64> {
        let exponent = u32::from(self.max_transfer_exponent?) + u32::from(page_exponent & 15) + 12;
        1_u64.checked_shl(exponent).filter(|_| exponent < 40)
    }
}

/// DLFEAT: what deallocated blocks read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeallocatedBlocks {
    /// The controller says nothing, so that any data may come.
    #[default]
    Unknown,
    /// All bytes are 00h.
    Zeros,
    /// All bytes are FFh.
    Ones,
}

/// Identify Namespace, of the NVM command set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// NSZE, in blocks. 0: there is no such namespace.
    pub block_count: u64,
    /// LBADS of the format in use: bytes of a block as a power of two.
    pub block_exponent: u8,
    /// MS of the format in use: bytes of metadata of a block.
    pub metadata_bytes: u16,
    /// FLBAS: metadata lies behind each block, in the same buffer.
    pub metadata_extends_blocks: bool,
    /// DPS: type of protection information, 0: none.
    pub protection_type: u8,
    /// NMIC: other controllers may have it, too.
    pub is_shared: bool,
    /// RESCAP: kinds of reservation there are. Bit 0: they can outlast a power loss.
    pub reservation_capabilities: u8,
    /// NSATTR: it cannot be written.
    pub write_protected: bool,
    /// DLFEAT, bits 2:0: what deallocated blocks read as.
    pub deallocated_blocks: DeallocatedBlocks,
    /// DLFEAT: Write Zeroes can deallocate.
    pub write_zeroes_deallocates: bool,
    /// NAWUN, or `None` where that of the controller holds.
    pub atomic_write_blocks: Option<u32>,
    /// NAWUPF: blocks that a power loss leaves all old or all new, or `None` where that of the controller holds.
    pub atomic_write_power_fail_blocks: Option<u32>,
    /// NACWU: blocks of an atomic Compare and Write, or `None` where that of the controller holds.
    pub compare_and_write_blocks: Option<u32>,
    /// NPWG: blocks in which writes are fast.
    pub preferred_write_blocks: Option<u32>,
    /// NPDG: blocks in which deallocating frees anything.
    pub preferred_deallocate_blocks: Option<u32>,
    /// NOWS: the best length of a write, in blocks.
    pub optimal_write_blocks: Option<u32>,
    /// NOIOB: commands should not cross multiples of it.
    pub optimal_boundary_blocks: Option<u32>,
    /// ANAGRPID: the ANA group whose state holds for this namespace.
    pub ana_group: u32,
    /// NGUID, big endian; all zeros are `None`.
    pub nguid: Option<[u8; 16]>,
    /// EUI64, big endian; all zeros are `None`.
    pub eui64: Option<[u8; 8]>,
    /// NVMCAP: bytes of the medium that the namespace can use.
    pub capacity_bytes: u128,
}

impl IdentifyNamespace {
    /// From the data structure.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let page = Page(bytes);
        // FLBAS: bits 3:0, and above them 6:5 where there are more than 16 formats.
        let flbas = page.u8(26);
        let more = if page.u8(25) >= 16 {
            flbas >> 5 & 0b11
        } else {
            0
        };
        let format = usize::from(more << 4 | flbas & 15);
        let format = page.u32(128 + format * 4);
        let has_atomics = page.u8(24) & 1 << 1 != 0;
        let has_preferences = page.u8(24) & 1 << 4 != 0;
        let blocks = |is_reported: bool, at| is_reported.then(|| u32::from(page.u16(at)) + 1);
        Self {
            block_count: page.u64(0),
            block_exponent: u8::try_from(format >> 16 & 0xff).expect("eight bits"),
            metadata_bytes: u16::try_from(format & 0xffff).expect("sixteen bits"),
            metadata_extends_blocks: flbas & 1 << 4 != 0,
            protection_type: page.u8(29) & 7,
            is_shared: page.u8(30) & 1 != 0,
            reservation_capabilities: page.u8(31),
            write_protected: page.u8(99) & 1 != 0,
            deallocated_blocks: match page.u8(33) & 7 {
                1 => DeallocatedBlocks::Zeros,
                2 => DeallocatedBlocks::Ones,
                _ => DeallocatedBlocks::Unknown,
            },
            write_zeroes_deallocates: page.u8(33) & 1 << 3 != 0,
            atomic_write_blocks: blocks(has_atomics, 34),
            atomic_write_power_fail_blocks: blocks(has_atomics, 36),
            compare_and_write_blocks: blocks(has_atomics, 38),
            preferred_write_blocks: blocks(has_preferences, 64),
            preferred_deallocate_blocks: blocks(has_preferences, 68),
            optimal_write_blocks: blocks(has_preferences, 72),
            optimal_boundary_blocks: Some(u32::from(page.u16(46))).filter(|blocks| *blocks != 0),
            ana_group: page.u32(92),
            nguid: page.identifier(104),
            eui64: page.identifier(120),
            capacity_bytes: page.u128(48),
        }
    }

    /// Bytes of a block, when they are something a host can deal with.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        (9..=16)
            .contains(&self.block_exponent)
            .then(|| 1 << self.block_exponent)
    }

    /// RESCAP: whether there are reservations.
    #[must_use]
    pub const fn has_reservations(&self) -> bool {
        self.reservation_capabilities & 0x7e != 0
    }
}

/// Namespace identification descriptors (CNS 03h).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceDescriptors {
    /// EUI64, big endian, from the descriptor of type 1.
    pub eui64: Option<[u8; 8]>,
    /// NGUID, big endian, from the descriptor of type 2.
    pub nguid: Option<[u8; 16]>,
    /// UUID in its byte order (RFC 9562), from the descriptor of type 3.
    pub uuid: Option<[u8; 16]>,
    /// CSI: which I/O command set it is of; 0 is NVM.
    pub command_set: Option<u8>,
}

impl NamespaceDescriptors {
    /// From the data structure: type, length, two reserved bytes, identifier; a length of 0 ends the list.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let mut rest = bytes;
        while let Some((&[kind, length, _, _], after)) = rest.split_first_chunk() {
            let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
                break;
            };
            if length == 0 {
                break;
            }
            rest = after;
            match kind {
                1 => found.eui64 = value.try_into().ok(),
                2 => found.nguid = value.try_into().ok(),
                3 => found.uuid = value.try_into().ok(),
                4 => found.command_set = value.first().copied(),
                _ => {}
            }
        }
        found
    }
}

/// The identifiers in a namespace list (CNS 02h, log page 04h): up to 1024, a zero ends them.
#[must_use]
pub fn namespace_list(bytes: &[u8]) -> Vec<NamespaceId> {
    let (entries, _) = bytes.as_chunks::<4>();
    let ids = entries.iter().take(1024).copied().map(u32::from_le_bytes);
    ids.take_while(|id| *id != 0).map(NamespaceId).collect()
}

/// What of the Identify Controller data structure of the NVM command set (CNS 06h, CSI 0) matters: the longest Write
/// Zeroes and Dataset Management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// WZSL as a power of two of pages; `None`: not reported.
    pub write_zeroes_exponent: Option<u8>,
    /// DMRL: ranges of a Dataset Management.
    pub dataset_ranges: Option<u8>,
    /// DMRSL: blocks of one range.
    pub dataset_range_blocks: Option<u32>,
    /// DMSL: blocks of all ranges.
    pub dataset_blocks: Option<u64>,
}

impl CommandLimits {
    /// From the data structure.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let page = Page(bytes);
        let reported = |exponent: u8| Some(exponent).filter(|exponent| *exponent != 0);
        Self {
            write_zeroes_exponent: reported(page.u8(1)),
            dataset_ranges: reported(page.u8(3)),
            dataset_range_blocks: Some(page.u32(4)).filter(|blocks| *blocks != 0),
            dataset_blocks: Some(page.u64(8)).filter(|blocks| *blocks != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut page = vec![0; IDENTIFY_BYTES];
        for (at, bytes) in fields {
            page[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        page
    }

    #[test]
    fn a_controller_says_what_it_can_do() {
        let controller = IdentifyController::decode(&page(&[
            (4, b"S123                "),
            (24, b"Model                                   "),
            (76, &[1 << 3 | 1 << 1]),
            (77, &[5]),
            (78, &[7, 1]),
            (96, &[1 << 6]),
            (128, &[1, 0, 10, 0, 50, 0]),
            (259, &[3]),
            (261, &[1 << 2]),
            (320, &[1, 0]),
            (514, &[128, 0]),
            (520, &[1 | 1 << 2 | 1 << 3 | 1 << 5, 0]),
            (522, &[1]),
            (525, &[1]),
            (532, &[127, 0]),
            (1792, &[0x04, 0x02]),
            (1804, &[1]),
        ]));
        assert_eq!(controller.serial, "S123");
        assert_eq!(controller.model, "Model");
        assert_eq!(controller.controller_id, 0x107);
        assert!(controller.is_shared && controller.reports_ana && controller.traffic_keeps_alive);
        assert_eq!(controller.max_transfer_bytes(0), Some(128 << 10));
        assert_eq!(controller.max_transfer_bytes(4), Some(2 << 20));
        assert_eq!(controller.retry_delays, [1, 10, 50]);
        assert_eq!(controller.async_event_requests, 4);
        assert_eq!(controller.in_capsule_data_bytes(), 8192);
        assert_eq!(controller.compare_and_write_blocks, 128);
        let commands = controller.optional_commands;
        assert!(commands.compare() && commands.dataset_management());
        assert!(commands.write_zeroes() && commands.reservations());
        assert!(controller.disconnect && controller.fused_compare_and_write);
    }

    #[test]
    fn capsules_that_hold_no_data_or_hold_it_elsewhere_get_none() {
        let sizes = [
            (4_u32, 0_u16, 0),
            (0, 0, 0),
            (260, 0, 4096),
            (260, 1, 0),
            (u32::MAX, 0, 1 << 20),
        ];
        for (ioccsz, icdoff, expected) in sizes {
            let controller = IdentifyController::decode(&page(&[
                (1792, &ioccsz.to_le_bytes()),
                (1800, &icdoff.to_le_bytes()),
            ]));
            assert_eq!(
                controller.in_capsule_data_bytes(),
                expected,
                "{ioccsz} {icdoff}"
            );
        }
    }

    #[test]
    fn a_namespace_says_what_it_is() {
        let blocks = (1_u64 << 33).to_le_bytes();
        let namespace = IdentifyNamespace::decode(&page(&[
            (0, &blocks),
            (24, &[1 << 4]),
            (25, &[1]),
            (26, &[1]),
            (30, &[1]),
            (31, &[0xff]),
            (33, &[0b1001]),
            (64, &[7, 0]),
            (68, &[15, 0]),
            (72, &[31, 0]),
            (92, &[3, 0, 0, 0]),
            (99, &[1]),
            (104, &[9; 16]),
            (128, &[0, 0, 9, 0, 0, 0, 12, 0]),
        ]));
        assert_eq!(namespace.block_count, 1 << 33);
        assert_eq!(namespace.block_size(), Some(4096));
        assert_eq!(namespace.deallocated_blocks, DeallocatedBlocks::Zeros);
        assert!(namespace.write_zeroes_deallocates && namespace.write_protected);
        assert!(namespace.has_reservations() && namespace.is_shared);
        assert_eq!(namespace.preferred_write_blocks, Some(8));
        assert_eq!(namespace.preferred_deallocate_blocks, Some(16));
        assert_eq!(namespace.optimal_write_blocks, Some(32));
        assert_eq!((namespace.ana_group, namespace.nguid), (3, Some([9; 16])));
        assert_eq!(
            (namespace.eui64, namespace.compare_and_write_blocks),
            (None, None)
        );
    }

    #[test]
    fn descriptors_end_at_a_length_of_zero_or_at_the_end() {
        let mut bytes = vec![2, 16, 0, 0];
        bytes.extend([0xaa; 16]);
        bytes.extend([9, 3, 0, 0, 1, 2, 3]);
        bytes.extend([3, 16, 0, 0]);
        bytes.extend([0xbb; 16]);
        bytes.extend([4, 1, 0, 0, 0]);
        let found = NamespaceDescriptors::decode(&bytes);
        assert_eq!(found.nguid, Some([0xaa; 16]));
        assert_eq!(found.uuid, Some([0xbb; 16]));
        assert_eq!(found.command_set, Some(0));
        bytes.extend([1, 200, 0, 0, 1]);
        assert_eq!(NamespaceDescriptors::decode(&bytes), found);
    }

    #[test]
    fn a_list_ends_at_its_first_zero() {
        let list = [1_u32, 7, 0, 9].map(u32::to_le_bytes).concat();
        assert_eq!(namespace_list(&list), [NamespaceId(1), NamespaceId(7)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_page_makes_a_host_panic(bytes in prop::collection::vec(any::<u8>(), 0..=4096)) {
            let controller = IdentifyController::decode(&bytes);
            let _ = controller.in_capsule_data_bytes();
            let _ = controller.max_transfer_bytes(15);
            let _ = IdentifyNamespace::decode(&bytes).block_size();
            let _ = NamespaceDescriptors::decode(&bytes);
            let _ = namespace_list(&bytes);
            let _ = CommandLimits::decode(&bytes);
        }
    }
}
