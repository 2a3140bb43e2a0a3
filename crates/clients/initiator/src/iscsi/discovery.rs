//! The list of targets: SendTargets=All in a discovery session (RFC 7143 appendix C).
//!
//! ```text
//! TargetName=iqn.2026-11.local.longshore:default
//! TargetAddress=192.0.2.7:3260,1
//! TargetAddress=[2001:db8::7]:3260,1
//! TargetName=…
//! ```
//!
//! A target without an address is at the portal that was asked. What makes no sense is left out: one odd
//! record should not hide the others.

use longshore_iscsi::keys::Key;
use longshore_iscsi::name::IscsiName;
use serde::{Serialize, Serializer};

use super::login::{Credentials, log_in_for_discovery, split_portal_group};
use crate::error::Error;
use crate::options::Options;
use crate::url::{HostPort, ISCSI_PORT};

/// Targets that are listed.
const TARGETS_MAX: usize = 16_384;
/// Portals of one target that are listed.
const PORTALS_MAX: usize = 256;

/// A target and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveredTarget {
    /// TargetName of the SendTargets answer.
    #[serde(serialize_with = "as_text")]
    pub name: IscsiName,
    /// Its portals; at least one.
    pub portals: Vec<DiscoveredPortal>,
}

/// One portal of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveredPortal {
    /// Host and port of TargetAddress; port 3260 where it names none.
    #[serde(serialize_with = "as_text")]
    pub address: HostPort,
    /// Portals with the same tag share sessions.
    pub portal_group_tag: Option<u16>,
}

fn as_text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

/// The targets that a portal tells of, in its order. Of the options, names, CHAP and time-outs matter.
///
/// # Errors
/// Says where, why, and what to do next.
pub fn discover(portal: &HostPort, options: &Options) -> Result<Vec<DiscoveredTarget>, Error> {
    discover_as(
        portal,
        Credentials::of_options_or_environment(options),
        options,
    )
}

/// Logs in for discovery without credentials, and out again.
pub(crate) fn greet(portal: &HostPort, options: &Options) -> Result<(), Error> {
    let session = log_in_for_discovery(portal, Credentials::default(), options)?;
    session.close();
    Ok(())
}

pub(super) fn discover_as(
    portal: &HostPort,
    credentials: Credentials,
    options: &Options,
) -> Result<Vec<DiscoveredTarget>, Error> {
    let mut session = log_in_for_discovery(portal, credentials, options)?;
    let answer = session.text(b"SendTargets=All\0")?;
    // A redirection may have taken us elsewhere.
    let asked = session.portal().clone();
    session.close();
    Ok(parse(&answer, &asked))
}

/// Reads the answer to SendTargets.
fn parse(answer: &[u8], asked: &HostPort) -> Vec<DiscoveredTarget> {
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    // Addresses behind a name that is none belong to nobody.
    let mut named = false;
    for pair in answer.split(|byte| *byte == 0) {
        let Some((key, value)) = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| pair.split_once('='))
        else {
            continue;
        };
        if key == Key::TargetName.name() {
            let name = IscsiName::from_peer(value).ok();
            named = name.is_some() && targets.len() < TARGETS_MAX;
            if let Some(name) = name.filter(|_| named) {
                targets.push(DiscoveredTarget {
                    name,
                    portals: Vec::new(),
                });
            }
        } else if key == Key::TargetAddress.name()
            && named
            && let Some(target) = targets.last_mut()
            && target.portals.len() < PORTALS_MAX
            && let Some(portal) = parse_portal(value)
        {
            target.portals.push(portal);
        }
    }
    for target in &mut targets {
        if target.portals.is_empty() {
            target.portals.push(DiscoveredPortal {
                address: asked.clone(),
                portal_group_tag: None,
            });
        }
    }
    targets
}

fn parse_portal(text: &str) -> Option<DiscoveredPortal> {
    let (address, portal_group_tag) = split_portal_group(text);
    Some(DiscoveredPortal {
        address: HostPort::parse(address, ISCSI_PORT).ok()?,
        portal_group_tag,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked() -> HostPort {
        HostPort::parse("192.0.2.1", ISCSI_PORT).unwrap()
    }

    #[test]
    fn each_target_has_the_addresses_that_follow_its_name() {
        let answer = b"TargetName=iqn.2001-04.com.example:a\0TargetAddress=192.0.2.7:3261,1\0\
            TargetAddress=[2001:db8::7]:3260,2\0TargetName=iqn.2001-04.com.example:b\0\
            TargetName=iqn.2001-04.com.example:c\0TargetAddress=storage.example\0\0";
        let targets = parse(answer, &asked());
        let text: Vec<String> = targets
            .iter()
            .map(|target| {
                let portals = target.portals.iter();
                let portals = portals.map(|it| format!("{} {:?}", it.address, it.portal_group_tag));
                format!("{} {}", target.name, portals.collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(
            text,
            [
                "iqn.2001-04.com.example:a 192.0.2.7:3261 Some(1) [2001:db8::7]:3260 Some(2)",
                "iqn.2001-04.com.example:b 192.0.2.1:3260 None",
                "iqn.2001-04.com.example:c storage.example:3260 None",
            ]
        );
    }

    #[test]
    fn odd_records_do_not_hide_others() {
        let answer = b"TargetAddress=192.0.2.9\0nonsense\0TargetName=\0TargetAddress=192.0.2.8\0\
            X-other=1\0TargetName=iqn.2001-04.com.example:a\0TargetAddress=:::\0\xff\xff=\xff\0\
            TargetAddress=192.0.2.7,99999";
        let targets = parse(answer, &asked());
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].portals.len(), 1);
        assert_eq!(targets[0].portals[0].address.host, "192.0.2.7");
        assert_eq!(targets[0].portals[0].portal_group_tag, None);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just(b"TargetName=".to_vec()),
                    Just(b"TargetAddress=".to_vec()),
                    Just(b"iqn.2001-04.com.example:x".to_vec()),
                    Just(b"[2001:db8::1]:1,1".to_vec()),
                    Just(vec![0]),
                    prop::collection::vec(any::<u8>(), 0..8),
                ],
                0..40,
            ),
        ) {
            for target in parse(&pieces.concat(), &asked()) {
                prop_assert!(!target.portals.is_empty());
            }
        }
    }
}
