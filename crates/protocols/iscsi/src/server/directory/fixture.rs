//! A directory for tests: everything settable, everything that was asked for kept.

use super::{
    Authentication, ChapAccount, ChapAuthentication, Directory, LoginConfig, LoginRefusal,
    PortalAddress, PortalRecord, SessionIdentity, SessionRequest, TargetLogin, TargetRecord,
};
use crate::chap::Secret;
use crate::name::IscsiName;
use crate::pdu::{LoginStatus, Tsih};
use crate::session_parameters::{OperationalParameters, PortalGroupTag};

pub(crate) const INITIATOR: &str = "iqn.1999-07.com.os:hostid.77";
pub(crate) const TARGET: &str = "iqn.1999-07.com.example:diskarray.sn.88";

/// The name of what [`INITIATOR`] and [`TARGET`] are.
pub(crate) fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

/// Initiator `alice`, and target `storage` where mutual.
pub(crate) fn chap(mutual: bool) -> ChapAuthentication {
    ChapAuthentication {
        accounts: vec![
            account("bob", "another secret of bob"),
            account("alice", "the secret of alice"),
        ],
        mutual: mutual.then(|| account("storage", "the secret of storage")),
        algorithms: Vec::new(),
    }
}

pub(crate) fn account(name: &str, secret: &str) -> ChapAccount {
    ChapAccount {
        name: name.to_owned(),
        secret: Secret::from(secret),
    }
}

/// One target, [`TARGET`], in portal group 1, and whatever a test changes of it.
pub(crate) struct TestDirectory {
    pub(crate) authentication: Authentication,
    pub(crate) discovery_authentication: Authentication,
    pub(crate) config: LoginConfig,
    /// Said instead of letting anybody in.
    pub(crate) refusal: Option<LoginRefusal>,
    /// Said instead of establishing anything.
    pub(crate) not_established: Option<LoginStatus>,
    /// The session that exists.
    pub(crate) existing: Option<(Tsih, OperationalParameters)>,
    pub(crate) records: Vec<TargetRecord>,
    /// What has been established.
    pub(crate) established: Vec<(Tsih, Option<String>)>,
    /// The next byte that is not random at all.
    pub(crate) next_byte: u8,
}

impl Default for TestDirectory {
    fn default() -> Self {
        let portal = |address: &str, tag: u16| PortalRecord {
            address: PortalAddress(address.to_owned()),
            portal_group_tag: PortalGroupTag(tag),
        };
        let record = |target: &str, portals: Vec<PortalRecord>| TargetRecord {
            name: name(target),
            portals,
        };
        Self {
            authentication: Authentication::none(),
            discovery_authentication: Authentication::none(),
            config: LoginConfig::default(),
            refusal: None,
            not_established: None,
            existing: None,
            records: vec![
                record(
                    TARGET,
                    vec![portal("10.1.0.45:3000", 1), portal("[2001:db8::1]:3260", 2)],
                ),
                record(
                    "iqn.1999-07.com.example:diskarray.sn.99",
                    vec![portal("10.1.0.45:3000", 1)],
                ),
            ],
            established: Vec::new(),
            next_byte: 1,
        }
    }
}

impl Directory for TestDirectory {
    fn discovery_authentication(&self, _: &IscsiName) -> Authentication {
        self.discovery_authentication.clone()
    }

    fn target_login(&self, _: &IscsiName, target: &str) -> Result<TargetLogin, LoginRefusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if target != TARGET {
            return Err(LoginStatus::NOT_FOUND.into());
        }
        Ok(TargetLogin {
            name: name(TARGET),
            portal_group_tag: PortalGroupTag(1),
            authentication: self.authentication.clone(),
            config: self.config.clone(),
        })
    }

    fn visible_targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        self.records.clone()
    }

    fn existing_session(
        &self,
        session: &SessionIdentity<'_>,
    ) -> Result<OperationalParameters, LoginStatus> {
        match &self.existing {
            Some((tsih, parameters)) if *tsih == session.tsih => Ok(parameters.clone()),
            _ => Err(LoginStatus::SESSION_DOES_NOT_EXIST),
        }
    }

    fn establish(&mut self, session: SessionRequest<'_>) -> Result<Tsih, LoginStatus> {
        if let Some(status) = self.not_established {
            return Err(status);
        }
        let tsih = match session.identity.tsih {
            Tsih::NEW_SESSION => Tsih(0x1234),
            existing => existing,
        };
        self.established
            .push((tsih, session.authenticated_as.map(str::to_owned)));
        Ok(tsih)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next_byte;
            self.next_byte = self.next_byte.wrapping_add(1);
        }
    }
}
