//! The server's role.

use std::io::{Read, Write};
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{ClientHelloResponse, Ssl, SslContext, SslRef};
use zeroize::Zeroizing;

use crate::context::{SetUpError, context};
use crate::hello::{self, Offer};
use crate::psk::{Psk, PskStore, Suite};
use crate::session::Session;
use crate::{ffi, held};

/// What all connections of a server share.
pub struct Server {
    context: SslContext,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// # Errors
    /// See [`SetUpError`].
    pub fn new(store: Arc<dyn PskStore>) -> Result<Self, SetUpError> {
        let mut context = context()?;
        context.set_client_hello_callback(move |ssl, _| {
            if let Some(psk) = choose(ssl, &*store)? {
                // OpenSSL chooses a suite before it looks at keys, and a key goes with one suite.
                ssl.set_ciphersuites(psk.suite().name())?;
                held::give(ssl, psk)?;
            }
            Ok(ClientHelloResponse::SUCCESS)
        });
        ffi::set_find(&mut context);
        Ok(Self {
            context: context.build(),
        })
    }

    /// A connection that a client has opened.
    ///
    /// # Errors
    /// See [`SetUpError`].
    pub fn accept<S: Read + Write>(&self, stream: S) -> Result<Session<S>, SetUpError> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_accept_state();
        Session::new(ssl, stream)
    }
}

/// The first offered key that the store knows; if it knows none, a random one. The handshake then fails as it does with a
/// wrong key, and the client cannot find out which identities exist.
fn choose(ssl: &SslRef, store: &dyn PskStore) -> Result<Option<Psk>, ErrorStack> {
    let Some(offers) = ffi::pre_shared_key_extension(ssl).and_then(hello::offers) else {
        return Ok(None);
    };
    let suites = ssl.client_hello_ciphers().unwrap_or_default();
    let usable = |offer: &Offer<'_>| {
        let suite = Suite::ALL
            .into_iter()
            .find(|suite| suite.hash_length() == offer.binder_length)?;
        hello::has_suite(suites, suite.id()).then_some(suite)
    };
    let offers = offers
        .into_iter()
        .filter_map(|offer| Some((usable(&offer)?, offer.identity)));
    let mut unknown = None;
    for (suite, identity) in offers {
        match store.find(identity) {
            Some(psk) if psk.suite() == suite => return Ok(Some(psk)),
            _ => unknown = unknown.or(Some((suite, identity))),
        }
    }
    let Some((suite, identity)) = unknown else {
        return Ok(None);
    };
    let mut key = Zeroizing::new(vec![0; suite.hash_length()]);
    openssl::rand::rand_bytes(&mut key)?;
    Ok(Psk::new(identity, suite, &key).ok())
}
