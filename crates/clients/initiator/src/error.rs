//! Failures of operations, ends of connections, and obstacles on the way to a volume.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::info::Protocol;
use crate::url::{HostPort, UrlError};

mod failure;
mod lost;

pub use failure::{Failure, Retry, Sense};
pub use lost::{CloseCause, Lost};

/// Why a volume or its peer cannot be reached or used. Each says where and what to do next.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The name has no address.
    #[error(
        "{portal}: cannot find the address of this host: {source}; check the name, or use an address"
    )]
    Resolve {
        /// The name of the URL that has no address.
        portal: HostPort,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// The kernel refused or gave up the TCP connection.
    #[error(
        "{portal}: cannot connect{}: {source}; check that the server runs there and that no \
         firewall blocks it", Elsewhere { portal, address }
    )]
    Connect {
        /// Portal of the URL or of the discovery.
        portal: HostPort,
        /// The address that was tried last; a name can have several.
        address: SocketAddr,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// No answer in time.
    #[error("{portal}: no answer to {step} within {} s; check that it speaks the protocol of the URL, or allow more time", .after.as_secs_f32())]
    TimedOut {
        /// Portal whose answer did not come.
        portal: HostPort,
        /// What was waited for: "login", "Connect", …
        step: &'static str,
        /// The time-out of the step, from its start.
        after: Duration,
    },
    /// The server understands the other protocol.
    #[error(
        "{portal}: the server there speaks {spoken}, not {asked}; use {}, as `longshore discover {portal}` lists it",
        Form { protocol: *.spoken, portal }
    )]
    OtherProtocol {
        /// Portal with a server of the other protocol.
        portal: HostPort,
        /// That of the URL.
        asked: Protocol,
        /// That of the server.
        spoken: Protocol,
    },
    /// The connection ended while it was set up, or during a command on the control path.
    #[error("{portal}: the connection was lost during {step}: {lost}")]
    Lost {
        /// Portal whose connection ended.
        portal: HostPort,
        /// The exchange that had no answer yet: "login", "Connect", …
        step: &'static str,
        /// The end of the connection, as this side saw it.
        lost: Lost,
    },
    /// The peer refuses us: login status, Connect status.
    #[error("{portal}: {step} was refused: {reason}; {advice}")]
    Refused {
        /// Portal of the server that refused.
        portal: HostPort,
        /// The exchange that was refused: "login", "Connect", …
        step: &'static str,
        /// What the peer says, in the standard's words.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// Names or secrets do not match, on either side.
    #[error("{portal}: authentication failed: {reason}; {advice}")]
    Authentication {
        /// Portal where authentication was tried.
        portal: HostPort,
        /// What went wrong. No secrets.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// There is no such target, LUN, subsystem or namespace.
    #[error("{portal}: there is no {wanted}{}", Available(.available))]
    NotFound {
        /// Portal of the server, which answers for other names.
        portal: HostPort,
        /// What the URL names, for example `LUN 3`.
        wanted: String,
        /// What there is instead.
        available: Vec<String>,
    },
    /// What was required is not granted: a digest, mutual authentication, a number of queues.
    #[error("{portal}: the server does not grant {what}; {advice}")]
    NotGranted {
        /// Portal of the server that does not grant it.
        portal: HostPort,
        /// What was asked for.
        what: String,
        /// What to do next.
        advice: &'static str,
    },
    /// The peer broke a rule.
    #[error("{portal}: the server broke a rule during {step}: {reason}")]
    Protocol {
        /// Portal of the server at fault.
        portal: HostPort,
        /// The exchange in which it did: "login", "Identify", …
        step: &'static str,
        /// The broken rule, in the standard's words.
        reason: String,
    },
    /// A command of the control path failed.
    #[error("{portal}: {step} failed: {failure}")]
    Command {
        /// Portal to which the command went.
        portal: HostPort,
        /// Name of the command in its standard.
        step: &'static str,
        /// The status of the command, or its loss.
        failure: Failure,
    },
    /// The volume is nothing we can use: no disk, a block size of odd length, metadata in the data.
    #[error("{portal}: the volume cannot be used: {reason}")]
    Unusable {
        /// Portal that leads to the volume.
        portal: HostPort,
        /// The property of the volume that rules it out.
        reason: String,
    },
    /// Several portals, and none works.
    #[error("none of {} portals works: {}", .0.len(), Joined(.0))]
    AllPortals(Vec<Error>),
    /// The options contradict each other or the peer.
    #[error("{0}")]
    Options(String),
    /// The system gives no random numbers, sockets or the like.
    #[error("{what}: {source}")]
    System {
        /// The system call, or the resource that was asked for.
        what: &'static str,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Whether trying again later may go well without anybody changing anything: the peer may be starting.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::Lost { .. }
            | Self::Resolve { .. }
            | Self::System { .. } => true,
            Self::Command { failure, .. } => failure.retry() != Retry::Never,
            Self::AllPortals(errors) => errors.iter().any(Self::is_transient),
            Self::Url(_)
            | Self::Refused { .. }
            | Self::Authentication { .. }
            | Self::NotFound { .. }
            | Self::NotGranted { .. }
            | Self::Protocol { .. }
            | Self::OtherProtocol { .. }
            | Self::Unusable { .. }
            | Self::Options(_) => false,
        }
    }
}

/// The form of URLs of a protocol.
struct Form<'a> {
    protocol: Protocol,
    portal: &'a HostPort,
}

impl fmt::Display for Form<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Iscsi => write!(f, "iscsi://{}/IQN/LUN", self.portal),
            Protocol::NvmeTcp => write!(f, "nvme+tcp://{}/NQN/NSID", self.portal),
        }
    }
}

/// The address of a portal, where it differs from its name.
struct Elsewhere<'a> {
    portal: &'a HostPort,
    address: &'a SocketAddr,
}

impl fmt::Display for Elsewhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.portal.to_string() == self.address.to_string() {
            return Ok(());
        }
        write!(f, " to {}", self.address)
    }
}

struct Available<'a>(&'a [String]);

impl fmt::Display for Available<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        if self.0.is_empty() {
            return f.write_str("; `longshore discover` lists what there is");
        }
        write!(
            f,
            "; use one of {}",
            self.0[..self.0.len().min(SHOWN)].join(", ")
        )?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

struct Joined<'a>(&'a [Error]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "; " })?;
            error.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal() -> HostPort {
        HostPort {
            host: "::1".to_owned(),
            port: 3260,
        }
    }

    #[test]
    fn what_is_missing_is_told_with_what_there_is() {
        let error = |count: usize| {
            let available = (0..count).map(|lun| format!("LUN {lun}")).collect();
            let wanted = "LUN 99".to_owned();
            let portal = portal();
            Error::NotFound {
                portal,
                wanted,
                available,
            }
            .to_string()
        };
        assert_eq!(
            error(2),
            "[::1]:3260: there is no LUN 99; use one of LUN 0, LUN 1"
        );
        assert!(error(20).ends_with("LUN 15 and 4 more"), "{}", error(20));
        assert!(error(0).contains("`longshore discover`"), "{}", error(0));
    }

    #[test]
    fn only_what_may_change_by_itself_is_worth_another_attempt() {
        let lost = |lost| Error::Lost {
            portal: portal(),
            step: "login",
            lost,
        };
        let refused = Error::Refused {
            portal: portal(),
            step: "login",
            reason: "forbidden".to_owned(),
            advice: "ask for access",
        };
        assert!(lost(Lost::HungUp).is_transient());
        assert!(!refused.is_transient());
        let all = Error::AllPortals(vec![refused.clone(), lost(Lost::Silent)]);
        assert!(all.is_transient());
        assert!(
            all.to_string().starts_with("none of 2 portals works: "),
            "{all}"
        );
    }

    #[test]
    fn errors_of_sockets_keep_their_number() {
        let reset = io::Error::from_raw_os_error(104);
        assert_eq!(Lost::from_io(&reset), Lost::Socket(104));
        let text = Lost::from_io(&reset).to_string();
        assert!(text.contains("reset by peer"), "{text}");
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(Lost::from_io(&end), Lost::HungUp);
    }
}
