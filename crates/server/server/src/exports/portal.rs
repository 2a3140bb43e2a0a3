//! Listening sockets, as initiators know them.

use std::net::{IpAddr, SocketAddr};

use longshore_iscsi::server::directory::PortalAddress;

/// One listening socket, as peers know it.
#[derive(Debug)]
pub(crate) struct Portal {
    pub local: SocketAddr,
    pub advertise: Option<String>,
    pub portal_group_tag: u16,
}

impl Portal {
    /// What an initiator that reached us at `reached` should connect to. An unspecified address
    /// helps nobody, so it is replaced by the one the initiator used itself.
    pub(super) fn address(&self, reached: SocketAddr) -> PortalAddress {
        if let Some(advertise) = &self.advertise {
            return PortalAddress(advertise.clone());
        }
        let mut address = self.local;
        if address.ip().is_unspecified() {
            address.set_ip(unmapped(reached.ip()));
        }
        PortalAddress(address.to_string())
    }
}

/// An IPv4 address that came in on an IPv6 socket is told as IPv4.
pub(crate) fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}
