//! Figures that are to be reached.

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Processor time per operation, first way over second.
    Cpu,
    /// Operations per second, first over second.
    Iops,
    /// 99th percentile of latency, first over second.
    P99,
    /// Operations per second of one way, as they were measured.
    Measured,
    /// Bytes per second of server's processor time, first over second.
    BytesPerCpu,
}

/// A figure that is to be reached.
#[derive(Debug, Clone)]
pub struct Test {
    /// The row of the list of numbers to reach.
    pub group: &'static str,
    pub quantity: Quantity,
    /// Index of the way that is judged.
    pub first: usize,
    /// Index of the one it is compared with.
    pub second: usize,
    pub bound: Bound,
}

/// Where a median has to lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing is known to compare with.
    Reported,
}
