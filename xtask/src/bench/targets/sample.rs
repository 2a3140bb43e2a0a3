//! What one run of a load measured.

/// What one run saw.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    pub iops: f64,
    /// Processor time of the server for one operation.
    pub cpu_us: f64,
    /// The same of the client.
    pub client_us: f64,
    pub p99_us: f64,
}

impl Sample {
    /// How much of its processor the server used.
    pub fn busy(&self) -> f64 {
        self.iops * self.cpu_us / 1e6
    }

    /// How much of its processor the client used.
    pub fn client_busy(&self) -> f64 {
        self.iops * self.client_us / 1e6
    }
}

/// The server's processor cannot be used for more than this: the rest is the kernel's own.
pub const SATURATED: f64 = 0.95;

impl Sample {
    /// Operations per second that the server's whole processor would allow at this processor time for each.
    /// Computed: what keeps a server waiting changes its batches, and with them that time.
    pub fn capacity(&self) -> f64 {
        1e6 / self.cpu_us
    }
}
