//! The key that belongs to a connection of OpenSSL.

use std::sync::OnceLock;

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslRef};

use crate::psk::Psk;

fn index() -> Result<Index<Ssl, Psk>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Psk>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let index = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| index))
}

/// Gives a key to a connection, which keeps it until it ends.
pub(crate) fn give(ssl: &mut SslRef, psk: Psk) -> Result<(), ErrorStack> {
    ssl.set_ex_data(index()?, psk);
    Ok(())
}

/// The key that a client offers, or a server has chosen.
pub(crate) fn key_of(ssl: &SslRef) -> Option<&Psk> {
    ssl.ex_data(index().ok()?)
}
