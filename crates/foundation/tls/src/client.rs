//! The client's role.

use std::io::{Read, Write};

use openssl::ssl::{Ssl, SslContext, SslVerifyMode};

use crate::context::{SetUpError, context};
use crate::psk::Psk;
use crate::session::Session;
use crate::{ffi, held};

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
        let mut context = context()?;
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
        held::give(&mut ssl, psk)?;
        ssl.set_connect_state();
        Session::new(ssl, stream)
    }
}
