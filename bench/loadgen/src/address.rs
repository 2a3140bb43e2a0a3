//! Where the volume is: a protocol, a server and a name.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

/// One volume of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `iscsi://ADDR:PORT/IQN/LUN`
    Iscsi {
        /// Where the server listens.
        portal: SocketAddr,
        /// The target's name.
        target: String,
        /// Which unit.
        lun: u8,
    },
    /// `nvme+tcp://ADDR:PORT/NQN/NSID`
    Nvme {
        /// Where the server listens.
        portal: SocketAddr,
        /// The subsystem's name.
        subsystem: String,
        /// Which namespace.
        namespace: u32,
    },
}

impl FromStr for Address {
    type Err = io::Error;

    fn from_str(url: &str) -> io::Result<Self> {
        Self::parse(url).ok_or_else(|| {
            io::Error::other(format!(
                "{url:?} is neither iscsi://ADDR:PORT/IQN/LUN nor nvme+tcp://ADDR:PORT/NQN/NSID"
            ))
        })
    }
}

impl Address {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (portal, rest) = rest.split_once('/')?;
        let (name, number) = rest.rsplit_once('/')?;
        let portal = portal.parse().ok()?;
        match scheme {
            "iscsi" => Some(Self::Iscsi {
                portal,
                target: name.to_owned(),
                lun: number.parse().ok()?,
            }),
            "nvme+tcp" => Some(Self::Nvme {
                portal,
                subsystem: name.to_owned(),
                namespace: number.parse().ok().filter(|id| *id > 0)?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_protocols_have_their_form() {
        let iscsi: Address = "iscsi://127.0.0.1:3260/iqn.2026-11.local:a/0"
            .parse()
            .unwrap();
        assert_eq!(
            iscsi,
            Address::Iscsi {
                portal: "127.0.0.1:3260".parse().unwrap(),
                target: "iqn.2026-11.local:a".to_owned(),
                lun: 0
            }
        );
        let nvme: Address = "nvme+tcp://[::1]:4420/nqn.2026-11.local:a/1"
            .parse()
            .unwrap();
        assert_eq!(
            nvme,
            Address::Nvme {
                portal: "[::1]:4420".parse().unwrap(),
                subsystem: "nqn.2026-11.local:a".to_owned(),
                namespace: 1
            }
        );
    }

    #[test]
    fn what_lacks_a_part_is_refused() {
        for url in [
            "iscsi://127.0.0.1:3260/iqn.2026-11.local:a",
            "nvme+tcp://127.0.0.1/nqn.2026-11.local:a/1",
            "nvme+tcp://127.0.0.1:4420/nqn.2026-11.local:a/0",
            "nvme://127.0.0.1:4420/nqn.2026-11.local:a/1",
        ] {
            assert!(url.parse::<Address>().is_err(), "{url}");
        }
    }
}
