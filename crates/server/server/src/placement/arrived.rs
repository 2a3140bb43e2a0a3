//! Connections of a shard that came from others.

use std::collections::HashMap;

use crate::address::ConnectionAddress;

/// Their addresses here, by their names.
#[derive(Debug)]
pub(crate) struct ArrivedConnections {
    shard: u32,
    addresses: HashMap<ConnectionAddress, ConnectionAddress>,
}

impl ArrivedConnections {
    /// Those of that shard: none.
    pub(crate) fn new(shard: usize) -> Self {
        Self {
            shard: u32::try_from(shard).expect("fewer shards than cores"),
            addresses: HashMap::new(),
        }
    }

    /// A connection has come.
    pub(crate) fn enter(&mut self, name: ConnectionAddress, address: ConnectionAddress) {
        self.addresses.insert(name, address);
    }

    /// A connection has gone or ended. Returns whether it came from another shard.
    pub(crate) fn leave(&mut self, name: ConnectionAddress) -> bool {
        self.addresses.remove(&name).is_some()
    }

    /// Where mail to that name, or to an address here, belongs. `None`: to one that came from another shard and has ended
    /// since. Its name is an address of another shard, and says nothing of slots here.
    pub(crate) fn find(&self, name: ConnectionAddress) -> Option<ConnectionAddress> {
        let own = || (name.shard == self.shard).then_some(name);
        self.addresses.get(&name).copied().or_else(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(shard: u32) -> ConnectionAddress {
        ConnectionAddress {
            shard,
            slot: 3,
            generation: 0,
        }
    }

    #[test]
    fn mail_to_a_guest_that_ended_is_not_mail_to_the_connection_in_the_same_slot() {
        let mut arrived = ArrivedConnections::new(1);
        let arrived_connection = ConnectionAddress {
            slot: 7,
            ..address(1)
        };
        arrived.enter(address(0), arrived_connection);
        assert_eq!(arrived.find(address(0)), Some(arrived_connection));
        assert!(arrived.leave(address(0)));
        assert_eq!(arrived.find(address(0)), None);
        assert_eq!(arrived.find(address(1)), Some(address(1)));
        assert!(!arrived.leave(address(1)));
    }
}
