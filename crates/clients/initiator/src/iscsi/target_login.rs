//! Login at the target of a URL. If there is no such target, the error lists those of the portal.

use longshore_iscsi::initiator::login::{LoginConfig, LoginError};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{Isid, LoginStatus};

use super::discovery::discover_as;
use super::identity::initiator_name;
use super::login::{Credentials, NotLoggedIn, log_in};
use super::session::Session;
use crate::error::Error;
use crate::options::Options;
use crate::url::{HostPort, IscsiUrl, Url};

impl Session {
    /// Logs in at the target of a URL, over the portal with this number in it. Options as in
    /// [`attach`](crate::attach::attach); the session has an ISID of its own.
    ///
    /// # Errors
    /// Says where, why, and what to do next.
    ///
    /// # Panics
    /// When there is no such portal.
    pub fn open(url: &IscsiUrl, portal: usize, options: &Options) -> Result<Self, Error> {
        let isid = super::fresh_isid();
        let options = &options.for_url(&Url::Iscsi(url.clone()));
        log_in_to_target(url, portal, isid, 8, options)
    }
}

/// A normal session to the target of a URL, over one of its portals, with so many commands at a time. The
/// options have in them what the URL says ([`Options::for_url`]).
pub(super) fn log_in_to_target(
    url: &IscsiUrl,
    portal: usize,
    isid: Isid,
    commands: u16,
    options: &Options,
) -> Result<Session, Error> {
    let credentials = Credentials::of(options);
    let mut config = LoginConfig::normal(initiator_name(options), url.target.clone(), isid);
    config.security = Some(credentials.clone().offer()?);
    let session = log_in(&url.portals[portal], config, commands, options);
    session.map_err(|failure| {
        if let NotLoggedIn::Login(portal, LoginError::Refused { status, .. }) = &failure
            && *status == LoginStatus::NOT_FOUND
        {
            return not_found(portal.clone(), &url.target, credentials, options);
        }
        failure.explain(credentials.has_own())
    })
}

/// The target is not there; a list of those that are helps. Who may not see the list gets none.
fn not_found(
    portal: HostPort,
    wanted: &IscsiName,
    credentials: Credentials,
    options: &Options,
) -> Error {
    let targets = discover_as(&portal, credentials, options);
    let available = targets.unwrap_or_default().into_iter();
    Error::NotFound {
        wanted: format!("target {wanted}"),
        available: available
            .map(|target| target.name.as_str().to_owned())
            .collect(),
        portal,
    }
}
