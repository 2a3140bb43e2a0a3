//! Bounds on what hosts can make grow.

/// Bounds on what hosts can make grow.
#[derive(Clone, Debug)]
pub struct ControllerLimits {
    /// Entries of a queue (MQES + 1), at least 2.
    pub queue_entries_max: u16,
    /// I/O queues of a controller.
    pub io_queues_max: u16,
    /// Controllers of all subsystems together, those for discovery included.
    pub controllers_max: usize,
    /// Asynchronous Event Requests outstanding on a controller (AERL + 1), at least 1.
    pub async_events_max: u8,
    /// Aborts outstanding on a controller (ACL + 1), at least 1.
    pub aborts_max: u8,
    /// Longest Keep Alive Timeout a host may ask for.
    pub keep_alive_ms_max: u32,
    /// How long a discovery controller without a Keep Alive Timeout may be idle.
    pub discovery_idle_ms: u32,
    /// Data in a command capsule of an I/O queue, a multiple of 16 (IOCCSZ).
    pub in_capsule_data_bytes: u32,
    /// Largest transfer of a command (MDTS), rounded down to a power of two; at least 8 KiB.
    pub transfer_bytes_max: u32,
}

impl ControllerLimits {
    const PAGE_BYTES: u32 = 4096;

    /// MDTS: the exponent of the largest transfer in pages. 0 would mean that there is no limit.
    pub(super) fn transfer_exponent(&self) -> u8 {
        let pages = (self.transfer_bytes_max / Self::PAGE_BYTES).max(2);
        u8::try_from(pages.ilog2()).expect("less than 32")
    }

    /// Largest transfer of a command.
    pub(super) fn transfer_bytes(&self) -> u32 {
        Self::PAGE_BYTES << self.transfer_exponent()
    }
}

impl Default for ControllerLimits {
    fn default() -> Self {
        Self {
            queue_entries_max: 128,
            io_queues_max: 64,
            controllers_max: 1024,
            async_events_max: 4,
            aborts_max: 4,
            keep_alive_ms_max: 600_000,
            discovery_idle_ms: 120_000,
            in_capsule_data_bytes: 8192,
            transfer_bytes_max: 1 << 20,
        }
    }
}
