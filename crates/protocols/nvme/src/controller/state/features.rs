//! Values of features that hosts set.

/// Values that hosts set.
#[derive(Debug)]
pub(in crate::controller) struct Features {
    pub(in crate::controller) io_queues_max: u16,
    /// I/O queues the host may connect.
    pub(in crate::controller) io_queues: u16,
    /// Over and under temperature thresholds in kelvins.
    pub(in crate::controller) temperature: [u16; 2],
    /// TLER: errors are reported when the storage behind us gives up, however much time a host allows
    /// for that.
    pub(in crate::controller) recovery_limit: u16,
    /// DN of Write Atomicity Normal: AWUN and NAWUN do not hold, AWUPF and NAWUPF do.
    pub(in crate::controller) atomicity_disabled: bool,
    pub(in crate::controller) timestamp: Timestamp,
    pub(in crate::controller) advanced_retry: bool,
}

/// Over temperature: never. Under temperature: never.
const TEMPERATURE_DEFAULT: [u16; 2] = [0xffff, 0];

/// A clock that the host sets, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) struct Timestamp {
    pub(in crate::controller) value_ms: u64,
    /// When it was so.
    pub(in crate::controller) at_ms: u64,
    pub(in crate::controller) by_host: bool,
}

impl Timestamp {
    pub(in crate::controller) const MASK: u64 = 0xffff_ffff_ffff;

    pub(in crate::controller) const fn reset(now_ms: u64) -> Self {
        Self {
            value_ms: 0,
            at_ms: now_ms,
            by_host: false,
        }
    }

    /// The Timestamp data structure: 48 bits of milliseconds, Synch 0, and its origin in bits 3:1.
    pub(in crate::controller) fn encode(self, now_ms: u64) -> [u8; 8] {
        let elapsed = now_ms.saturating_sub(self.at_ms);
        let value = self.value_ms.wrapping_add(elapsed) & Self::MASK;
        let origin = u64::from(self.by_host) << 1;
        (value | origin << 48).to_le_bytes()
    }
}

impl Features {
    pub(in crate::controller) fn new(io_queues_max: u16, now_ms: u64) -> Self {
        Self {
            io_queues_max,
            io_queues: io_queues_max,
            temperature: TEMPERATURE_DEFAULT,
            recovery_limit: 0,
            atomicity_disabled: false,
            timestamp: Timestamp::reset(now_ms),
            advanced_retry: false,
        }
    }

    /// After a controller reset.
    pub(in crate::controller) fn reset(&mut self, now_ms: u64) {
        *self = Self::new(self.io_queues_max, now_ms);
    }

    /// I/O queues the host may connect.
    pub(in crate::controller) const fn io_queues(&self) -> u16 {
        self.io_queues
    }
}
