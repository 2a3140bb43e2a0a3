//! Which hosts may use a subsystem, and what each of them sees there.

use std::sync::Arc;

use longshore_wire::pattern::NamePattern;

use super::secure::TlsKeys;
use crate::auth::Credentials;
use crate::command::NamespaceId;
use crate::nqn::Nqn;

/// One namespace in the map of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceGrant {
    /// NSID; one identifier is one namespace in all maps of a subsystem.
    pub id: NamespaceId,
    /// This host must not write.
    pub read_only: bool,
}

/// What a group of hosts may do.
#[derive(Clone, Debug)]
pub struct HostRule {
    /// Their names, or patterns of them.
    pub hosts: Vec<NamePattern<Nqn>>,
    /// What they see. Hosts may connect to a subsystem in which they see nothing.
    pub namespaces: Vec<NamespaceGrant>,
    /// By what they prove who they are; `None`: they do not.
    pub credentials: Option<Arc<Credentials>>,
    /// With what they open TLS; `None`: they do not.
    pub tls: Option<Arc<TlsKeys>>,
}

/// Who may connect to a subsystem, by name.
#[derive(Clone, Debug, Default)]
pub struct HostAccess {
    /// The first rule that matches a host decides.
    pub rules: Vec<HostRule>,
    /// The map of hosts that no rule names; `None`: they are refused.
    pub default_namespaces: Option<Vec<NamespaceGrant>>,
}

impl HostAccess {
    /// What a host sees; `None` when it must not connect.
    #[must_use]
    pub fn namespaces_of(&self, host: &Nqn) -> Option<&[NamespaceGrant]> {
        self.rule_of(host)
            .map(|rule| &rule.namespaces)
            .or(self.default_namespaces.as_ref())
            .map(Vec::as_slice)
    }

    /// By what a host proves who it is; `None`: it does not.
    #[must_use]
    pub fn credentials_of(&self, host: &Nqn) -> Option<Arc<Credentials>> {
        self.rule_of(host)?.credentials.clone()
    }

    /// With what a host opens TLS; `None`: it does not.
    #[must_use]
    pub fn tls_of(&self, host: &Nqn) -> Option<Arc<TlsKeys>> {
        self.rule_of(host)?.tls.clone()
    }

    fn rule_of(&self, host: &Nqn) -> Option<&HostRule> {
        self.rules
            .iter()
            .find(|rule| rule.hosts.iter().any(|named| named.matches(host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nqn(name: &str) -> Nqn {
        Nqn::new(&format!("nqn.2026-11.test:{name}")).unwrap()
    }

    fn grant(id: u32, read_only: bool) -> NamespaceGrant {
        NamespaceGrant {
            id: NamespaceId(id),
            read_only,
        }
    }

    #[test]
    fn the_first_rule_that_matches_a_host_decides() {
        let access = HostAccess {
            rules: vec![
                HostRule {
                    hosts: vec![nqn("a").into(), nqn("b").into()],
                    namespaces: vec![grant(1, false)],
                    credentials: None,
                    tls: None,
                },
                HostRule {
                    hosts: vec![NamePattern::Pattern(Nqn::pattern("nqn.*:?").unwrap())],
                    namespaces: vec![grant(2, false)],
                    credentials: None,
                    tls: None,
                },
            ],
            default_namespaces: Some(vec![grant(1, true)]),
        };
        assert_eq!(access.namespaces_of(&nqn("b")).unwrap(), [grant(1, false)]);
        assert_eq!(access.namespaces_of(&nqn("c")).unwrap(), [grant(2, false)]);
        assert_eq!(access.namespaces_of(&nqn("cc")).unwrap(), [grant(1, true)]);
    }

    #[test]
    fn without_a_default_hosts_that_no_rule_names_are_refused() {
        assert!(HostAccess::default().namespaces_of(&nqn("a")).is_none());
    }
}
