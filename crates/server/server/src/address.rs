//! Addresses of connections and tasks across shards.

use longshore_nvme::controller::QueueHandle;

/// A connection, wherever it lives. The generation keeps a reused slot from being mistaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionAddress {
    pub shard: u32,
    pub slot: u32,
    pub generation: u32,
}

impl ConnectionAddress {
    /// As NVMe controllers know it.
    pub(crate) fn to_handle(self) -> QueueHandle {
        let [shard, slot, generation] = [self.shard, self.slot, self.generation].map(u128::from);
        QueueHandle(shard << 64 | slot << 32 | generation)
    }

    pub(crate) fn from_handle(handle: QueueHandle) -> Self {
        let part = |shift: u32| {
            u32::try_from(handle.0 >> shift & u128::from(u32::MAX)).expect("masked to 32 bits")
        };
        Self {
            shard: part(64),
            slot: part(32),
            generation: part(0),
        }
    }
}

/// An iSCSI target. No other one ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TargetId(pub u32);

/// A task of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskAddress {
    pub connection: ConnectionAddress,
    pub slot: u32,
    pub generation: u32,
}
