//! Counters of a queue.

/// Counts from the queue's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Operations that the machine has taken.
    pub operations: u64,
    /// Bytes that went to the socket.
    pub bytes_sent: u64,
    /// Bytes that came from it.
    pub bytes_received: u64,
    /// Calls that send, those of zero copy included.
    pub send_calls: u64,
    /// Calls that receive, those that found nothing included.
    pub receive_calls: u64,
    /// Bytes of data sent from where they were, rather than copied into the transmit queue.
    pub bytes_by_reference: u64,
    /// Bytes of data received straight to their place, rather than copied there.
    pub bytes_direct: u64,
    /// Sends that asked for zero copy, and were taken.
    pub zero_copy_sends: u64,
    /// Those of them that the kernel copied nevertheless.
    pub zero_copy_copied: u64,
    /// Sends for which the kernel had no zero copy, by a limit (RLIMIT_MEMLOCK, net.core.optmem_max).
    pub zero_copy_refused: u64,
    /// Times that the peer has asked for data of a write (R2T).
    pub data_requests: u64,
    /// Bytes that it has asked for.
    pub data_requested_bytes: u64,
    /// The most bytes that it has asked for at once.
    pub data_request_bytes_max: u32,
    /// PDUs with read data (Data-In, C2HData) that came, those before the queue's beginning included.
    pub data_pdus: u64,
}

impl std::ops::AddAssign for QueueCounters {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.send_calls += other.send_calls;
        self.receive_calls += other.receive_calls;
        self.bytes_by_reference += other.bytes_by_reference;
        self.bytes_direct += other.bytes_direct;
        self.zero_copy_sends += other.zero_copy_sends;
        self.zero_copy_copied += other.zero_copy_copied;
        self.zero_copy_refused += other.zero_copy_refused;
        self.data_requests += other.data_requests;
        self.data_requested_bytes += other.data_requested_bytes;
        self.data_request_bytes_max = self
            .data_request_bytes_max
            .max(other.data_request_bytes_max);
        self.data_pdus += other.data_pdus;
    }
}
