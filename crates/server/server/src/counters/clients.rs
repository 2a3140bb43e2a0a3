//! Logins, the ends of sessions, and limits that clients ran into. Of the whole server, since all of these are rare.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::ProtocolKind;

/// How a session or controller came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its client logged out, or shut its controller down.
    Logout,
    /// Its connection was closed or lost.
    Lost,
    /// Its client broke the rules of the protocol, or did not answer in time.
    Error,
    /// Somebody asked the server for it.
    Request,
    /// Its target, its subsystem or its access is gone.
    Access,
}

impl Ending {
    const ALL: [Self; 5] = [
        Self::Logout,
        Self::Lost,
        Self::Error,
        Self::Request,
        Self::Access,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Logout => "logout",
            Self::Lost => "lost",
            Self::Error => "error",
            Self::Request => "request",
            Self::Access => "access",
        }
    }
}

/// What there is no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Connections at a time.
    Connections,
    /// Connections that have not finished their login.
    PendingLogins,
    /// File descriptors of the process.
    Descriptors,
    Sessions,
    Controllers,
    /// Memory for what clients read and write.
    Memory,
    /// Wrong CHAP responses in a short time.
    LoginAttempts,
}

impl Limit {
    const ALL: [Self; 7] = [
        Self::Connections,
        Self::PendingLogins,
        Self::Descriptors,
        Self::Sessions,
        Self::Controllers,
        Self::Memory,
        Self::LoginAttempts,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::PendingLogins => "pending-logins",
            Self::Descriptors => "descriptors",
            Self::Sessions => "sessions",
            Self::Controllers => "controllers",
            Self::Memory => "memory",
            Self::LoginAttempts => "login-attempts",
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    protocols: [OfProtocol; PROTOCOLS.len()],
    limits: [AtomicU64; Limit::ALL.len()],
}

const PROTOCOLS: [ProtocolKind; 2] = [ProtocolKind::Iscsi, ProtocolKind::NvmeTcp];

#[derive(Debug, Default)]
struct OfProtocol {
    logins: AtomicU64,
    failures: AtomicU64,
    ends: [AtomicU64; Ending::ALL.len()],
}

impl ClientCounters {
    const fn of(&self, protocol: ProtocolKind) -> &OfProtocol {
        &self.protocols[protocol as usize]
    }

    /// A session or controller begins.
    pub(crate) fn logged_in(&self, protocol: ProtocolKind) {
        add(&self.of(protocol).logins);
    }

    /// A login or Connect was refused, or did not come to its end.
    pub(crate) fn login_failed(&self, protocol: ProtocolKind) {
        add(&self.of(protocol).failures);
    }

    /// A session or controller has ended.
    pub(crate) fn ended(&self, protocol: ProtocolKind, ending: Ending) {
        add(&self.of(protocol).ends[ending as usize]);
    }

    pub(crate) fn reached(&self, limit: Limit) {
        add(&self.limits[limit as usize]);
    }

    pub(crate) fn report(&self) -> ClientStatistics {
        let of_protocol = |protocol: ProtocolKind| {
            let of = self.of(protocol);
            let ends = Ending::ALL.iter().zip(&of.ends);
            ProtocolClients {
                protocol,
                logins: get(&of.logins),
                login_failures: get(&of.failures),
                ends: ends
                    .map(|(it, count)| (it.name(), get(count)).into())
                    .collect(),
            }
        };
        let limits = Limit::ALL.iter().zip(&self.limits);
        ClientStatistics {
            protocols: PROTOCOLS.map(of_protocol).to_vec(),
            limits: limits
                .map(|(it, count)| (it.name(), get(count)).into())
                .collect(),
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What clients did, and what they ran into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientStatistics {
    pub protocols: Vec<ProtocolClients>,
    /// How often there was no more: `connections`, `pending-logins`, `descriptors`, `sessions`, `controllers`, `memory`.
    pub limits: Vec<NamedCount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtocolClients {
    pub protocol: ProtocolKind,
    /// Sessions and controllers that began.
    pub logins: u64,
    /// Logins and Connects that were refused, and connections that ended before.
    pub login_failures: u64,
    /// How they ended: `logout`, `lost`, `error`, `request`, `access`.
    pub ends: Vec<NamedCount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NamedCount {
    pub name: &'static str,
    pub count: u64,
}

impl From<(&'static str, u64)> for NamedCount {
    fn from((name, count): (&'static str, u64)) -> Self {
        Self { name, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_count_are_those_of_their_names() {
        let counters = ClientCounters::default();
        for (number, ending) in Ending::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| counters.ended(ProtocolKind::NvmeTcp, ending));
        }
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| counters.reached(limit));
        }
        counters.logged_in(ProtocolKind::Iscsi);
        counters.login_failed(ProtocolKind::NvmeTcp);
        let report = counters.report();
        let counts = |them: &[NamedCount]| them.iter().map(|it| it.count).collect::<Vec<_>>();
        assert_eq!(counts(&report.protocols[1].ends), [1, 2, 3, 4, 5]);
        assert_eq!(counts(&report.protocols[0].ends), [0; 5]);
        assert_eq!(counts(&report.limits), [1, 2, 3, 4, 5, 6, 7]);
        let [iscsi, nvme] = &report.protocols[..] else {
            panic!("two protocols");
        };
        assert_eq!((iscsi.logins, iscsi.login_failures), (1, 0));
        assert_eq!((nvme.logins, nvme.login_failures), (0, 1));
        assert_eq!(report.protocols[1].protocol, ProtocolKind::NvmeTcp);
    }
}
