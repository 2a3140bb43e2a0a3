//! Counters of one shard.

use longshore_volume::AttemptCost;

/// Makes [`Counters`] from one list of what there is to count.
macro_rules! counters {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// What one shard has done since it started. Plain integers: only their shard adds to them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Counters {
            $($(#[$documentation])* pub $name: u64,)*
        }

        impl Counters {
            /// How many there are.
            pub(crate) const COUNT: usize = [$(stringify!($name)),*].len();

            /// All of them, in the order of the list.
            pub(crate) const fn to_array(self) -> [u64; Self::COUNT] {
                [$(self.$name),*]
            }

            /// The inverse of [`Self::to_array`].
            pub(crate) const fn from_array(values: [u64; Self::COUNT]) -> Self {
                let [$($name),*] = values;
                Self { $($name),* }
            }
        }
    };
}

counters! {
    /// Turns of the event loop.
    turns,
    /// SCSI commands that arrived.
    operations_iscsi,
    /// NVMe commands that arrived, of all queues.
    operations_nvme,
    /// Receives that brought bytes.
    receives,
    /// Receives that found nothing, or the end of the stream.
    receives_empty,
    received_bytes,
    /// Sends that took bytes.
    sends,
    /// Sends that found no room.
    sends_blocked,
    sent_bytes,
    /// Reads and writes that the volume did in the turn that asked for them.
    storage_inline,
    /// Attempts of that kind that would have had to sleep.
    storage_declined,
    /// System calls of such attempts.
    attempt_calls,
    /// Requests handed to storage, or to another server.
    storage_submitted,
    /// Requests that storage has completed.
    storage_completed,
    /// Reads answered with shared zeros, without asking the volume for any.
    storage_zeros,
    /// Reads answered with pages of the page cache, taken in the turn that asked for them.
    storage_pages,
    /// System calls that took pages, or found that they cannot be taken.
    page_calls,
    /// Times that TCP_NODELAY was set, or taken back.
    option_calls,
    /// Bytes of write data copied from the receive buffer to where they belong.
    copied_data_out_bytes,
    /// Bytes of read data copied from a buffer into the transmit queue.
    copied_transmit_bytes,
    /// Bytes that volumes in memory copied, in or out.
    copied_volume_bytes,
    /// Bytes copied from or to memory of their own, because O_DIRECT could not use where they belong.
    bounced_bytes,
    /// Bytes of read data sent as pages of the page cache.
    spliced_bytes,
    /// Bytes of write data received straight to where they belong.
    placed_bytes,
    /// Messages from other threads.
    messages,
    /// Connections that came from other shards.
    moved_in,
    /// Connections that went to other shards.
    moved_out,
    /// Connections that were to go to other shards, and were not at rest in time.
    moves_given_up,
    /// Nanoseconds spent looking for events without sleeping, where that was allowed.
    spinning_ns,
    /// Times that something came while it looked.
    spin_hits,
    /// Times that nothing came, and it fell asleep after all.
    spin_misses,
    /// Times that it stopped looking for a while, because somebody else wanted the core.
    spin_contended,
    /// Nanoseconds in turns, and between those that follow each other at once.
    working_ns,
    /// Nanoseconds asleep, waking up included.
    asleep_ns,
}

impl Counters {
    /// The volume did so many bytes at once.
    #[inline]
    pub(crate) const fn attempt_done(&mut self, cost: AttemptCost, bytes: usize) {
        self.storage_inline += 1;
        match cost {
            AttemptCost::Nothing => {}
            AttemptCost::Copy => self.copied_volume_bytes += bytes as u64,
            AttemptCost::SystemCall => self.attempt_calls += 1,
        }
    }

    /// The volume could not read at once.
    #[cold]
    pub(crate) const fn attempt_declined(&mut self, cost: AttemptCost) {
        self.storage_declined += 1;
        if let AttemptCost::SystemCall = cost {
            self.attempt_calls += 1;
        }
    }

    /// Commands of both protocols.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.operations_iscsi + self.operations_nvme
    }

    /// The sum of both shards, counter by counter.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        let mut sum = self.to_array();
        for (sum, more) in sum.iter_mut().zip(other.to_array()) {
            *sum = sum.wrapping_add(more);
        }
        Self::from_array(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_the_way_through_an_array() {
        let mut values = [0; Counters::COUNT];
        for (value, number) in values.iter_mut().zip(1..) {
            *value = number;
        }
        let counters = Counters::from_array(values);
        assert_eq!(counters.to_array(), values);
        assert_eq!((counters.turns, counters.operations()), (1, 5));
        assert_eq!(counters.plus(&counters).operations(), 10);
    }
}
