//! The client's role.

use std::io::{Read, Write};
use std::sync::OnceLock;

use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContext, SslRef, SslVerifyMode};

use crate::psk::Psk;
use crate::session::{Role, Session};
use crate::{SetUpError, ffi};

/// What all connections of a client share.
pub struct Client {
    context: SslContext,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// # Errors
    /// See [`SetUpError`].
    pub fn new() -> Result<Self, SetUpError> {
        offered_index()?;
        let mut context = crate::context()?;
        // A server that shows a certificate, whosever it is, has not proved that it knows the key.
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| false);
        ffi::set_use(&mut context);
        Ok(Self {
            context: context.build(),
        })
    }

    /// A connection on which this key is offered, with its suite and no other.
    ///
    /// # Errors
    /// See [`SetUpError`].
    pub fn connect<S: Read + Write>(&self, stream: S, psk: Psk) -> Result<Session<S>, SetUpError> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_ciphersuites(psk.suite().name())?;
        ssl.set_ex_data(offered_index()?, psk);
        Session::new(ssl, stream, Role::Client)
    }
}

fn offered_index() -> Result<Index<Ssl, Psk>, SetUpError> {
    static INDEX: OnceLock<Index<Ssl, Psk>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let index = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| index))
}

/// The key that the connection offers.
pub(crate) fn offered(ssl: &SslRef) -> Option<&Psk> {
    ssl.ex_data(offered_index().ok()?)
}
