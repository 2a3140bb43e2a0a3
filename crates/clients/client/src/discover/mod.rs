//! `longshore discover`: what a server offers, over both protocols.
//!
//! Every port that may answer is asked at the same time. Then each target and each subsystem that was
//! told of is visited, a few at a time, and asked for its volumes. What cannot be visited (no
//! permission, or an address that is not reachable from here) is listed with the reason.

mod found;
mod iscsi;
mod nvme;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use longshore_initiator::error::Error;
use longshore_initiator::info::Protocol;
use longshore_initiator::options::Options;
use longshore_initiator::url::{HostPort, ISCSI_PORT, NVME_DISCOVERY_PORT, NVME_PORT};
use serde::Serialize;

pub use found::{FoundTarget, FoundVolume, Portal};

/// Targets and subsystems that are visited.
const VISITS_MAX: usize = 1024;

/// Visits under way at a time.
const VISITORS: usize = 8;

/// How long a portal that has answered in one protocol gets to answer in the other too, which hardly
/// any does: one that is spoken to in the wrong way mostly says nothing.
const SECOND_PROTOCOL: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address; that of IPv6 without brackets.
    pub host: String,
    /// The port, if only one is to be asked.
    pub port: Option<u16>,
}

impl Server {
    /// What is asked, and for what.
    fn questions(&self) -> Vec<(Protocol, HostPort)> {
        let at = |port| HostPort {
            host: self.host.clone(),
            port,
        };
        match self.port {
            Some(port) => vec![(Protocol::Iscsi, at(port)), (Protocol::NvmeTcp, at(port))],
            None => vec![
                (Protocol::Iscsi, at(ISCSI_PORT)),
                (Protocol::NvmeTcp, at(NVME_DISCOVERY_PORT)),
                (Protocol::NvmeTcp, at(NVME_PORT)),
            ],
        }
    }
}

/// A portal that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Silence {
    /// What was asked for.
    pub protocol: Protocol,
    pub portal: String,
    /// Why there is no answer.
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Discovery {
    /// Portals that answered, with the protocol they speak.
    pub answered: Vec<Answered>,
    pub targets: Vec<FoundTarget>,
    /// Portals that did not answer.
    pub silent: Vec<Silence>,
}

/// A portal that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    pub protocol: Protocol,
    pub portal: String,
}

/// A target or subsystem that was told of, to be visited.
enum Lead {
    Iscsi(iscsi::Lead),
    NvmeTcp(nvme::Lead),
}

impl Lead {
    fn visit(&self, options: &Options) -> FoundTarget {
        match self {
            Self::Iscsi(lead) => lead.visit(options),
            Self::NvmeTcp(lead) => lead.visit(options),
        }
    }

    /// What can be said without a visit.
    fn not_visited(&self) -> FoundTarget {
        let mut found = match self {
            Self::Iscsi(lead) => lead.found(),
            Self::NvmeTcp(lead) => lead.found(),
        };
        found.problem = Some(format!(
            "not queried: discovery found more than {VISITS_MAX}"
        ));
        found
    }
}

type Answer = Result<Vec<Lead>, Error>;

/// Asks a server what it offers. Blocks, within the time-outs.
#[must_use]
pub fn discover(server: &Server, options: &Options) -> Discovery {
    let questions = server.questions();
    let answers = ask_all(&questions, options);
    let mut discovery = Discovery::default();
    let mut leads = Vec::new();
    for ((protocol, portal), answer) in questions.into_iter().zip(answers) {
        let portal = portal.to_string();
        let reason = match answer {
            Some(Ok(found)) => {
                discovery.answered.push(Answered { protocol, portal });
                merge(&mut leads, found);
                continue;
            }
            Some(Err(error)) => error.to_string(),
            None => format!("{portal}: speaks the other protocol"),
        };
        discovery.silent.push(Silence {
            protocol,
            portal,
            reason,
        });
    }
    discovery.targets = visit_all(&leads, options);
    discovery
}

/// Asks all questions at the same time. `None`: not waited for, because that portal has answered in the
/// other protocol.
fn ask_all(questions: &[(Protocol, HostPort)], options: &Options) -> Vec<Option<Answer>> {
    let (sender, receiver) = mpsc::channel();
    for (number, (protocol, portal)) in questions.iter().enumerate() {
        let (protocol, portal) = (*protocol, portal.clone());
        let (options, sender) = (options.clone(), sender.clone());
        // Ends by its time-outs, wanted or not.
        thread::spawn(move || {
            let answer = ask(protocol, &portal, &options);
            let _ = sender.send((number, answer));
        });
    }
    drop(sender);
    let mut answers: Vec<Option<Answer>> = questions.iter().map(|_| None).collect();
    let mut deadline: Option<Instant> = None;
    let one_portal = questions.windows(2).all(|pair| pair[0].1 == pair[1].1);
    loop {
        let next = match deadline {
            None => receiver.recv().ok(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                receiver.recv_timeout(left).ok()
            }
        };
        let Some((number, answer)) = next else {
            return answers;
        };
        if answer.is_ok() && one_portal {
            deadline = Some(Instant::now() + SECOND_PROTOCOL);
        }
        answers[number] = Some(answer);
    }
}

fn ask(protocol: Protocol, portal: &HostPort, options: &Options) -> Answer {
    Ok(match protocol {
        Protocol::Iscsi => {
            let leads = iscsi::ask(portal, options)?;
            leads.into_iter().map(Lead::Iscsi).collect()
        }
        Protocol::NvmeTcp => {
            let leads = nvme::ask(portal, options)?;
            leads.into_iter().map(Lead::NvmeTcp).collect()
        }
    })
}

/// Several portals of a server tell of the same things.
fn merge(leads: &mut Vec<Lead>, found: Vec<Lead>) {
    for lead in found {
        let known = leads.iter_mut().find_map(|known| match (known, &lead) {
            (Lead::NvmeTcp(known), Lead::NvmeTcp(lead)) if known.is_same(lead) => Some(known),
            _ => None,
        });
        match (known, lead) {
            (Some(known), Lead::NvmeTcp(lead)) => known.add(lead),
            (_, lead) => leads.push(lead),
        }
    }
}

fn visit_all(leads: &[Lead], options: &Options) -> Vec<FoundTarget> {
    let (visited, rest) = leads.split_at(leads.len().min(VISITS_MAX));
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, FoundTarget)> = thread::scope(|scope| {
        let visitor = || {
            let mut found = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(lead) = visited.get(number) else {
                    return found;
                };
                found.push((number, lead.visit(options)));
            }
        };
        let visitors: Vec<_> = (0..visited.len().min(VISITORS))
            .map(|_| scope.spawn(visitor))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<_>>| {
            thread.join().expect("a visit does not panic")
        };
        visitors.into_iter().flat_map(join).collect()
    });
    found.sort_by_key(|(number, _)| *number);
    let visited = found.into_iter().map(|(_, target)| target);
    visited.chain(rest.iter().map(Lead::not_visited)).collect()
}

#[cfg(test)]
mod tests {
    use super::found::reachable;
    use super::*;

    fn host_port(text: &str) -> HostPort {
        HostPort::parse(text, 1).unwrap()
    }

    #[test]
    fn without_a_port_the_usual_ones_are_asked() {
        let mut server = Server {
            host: "fe80::1".to_owned(),
            port: None,
        };
        let text = |server: &Server| {
            let questions = server.questions();
            let texts = questions
                .iter()
                .map(|(protocol, at)| format!("{protocol} {at}"));
            texts.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            text(&server),
            "iSCSI [fe80::1]:3260, NVMe/TCP [fe80::1]:8009, NVMe/TCP [fe80::1]:4420"
        );
        server.port = Some(77);
        assert_eq!(text(&server), "iSCSI [fe80::1]:77, NVMe/TCP [fe80::1]:77");
    }

    #[test]
    fn no_address_is_taken_for_the_one_that_was_asked() {
        let asked = host_port("192.0.2.1:3260");
        for (told, expected) in [
            ("0.0.0.0:3261", "192.0.2.1:3261"),
            ("[::]:3261", "192.0.2.1:3261"),
            ("192.0.2.9:3261", "192.0.2.9:3261"),
            ("storage:3261", "storage:3261"),
        ] {
            assert_eq!(reachable(&host_port(told), &asked), host_port(expected));
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_silent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let server = Server {
            host: "127.0.0.1".to_owned(),
            port: Some(port),
        };
        let discovery = discover(&server, &Options::default());
        assert_eq!((discovery.answered.len(), discovery.silent.len()), (0, 2));
        assert!(discovery.silent[0].reason.contains("cannot connect"));
    }
}
