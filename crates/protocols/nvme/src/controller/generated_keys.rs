//! Keys for TLS that hosts have had made when they authenticated (secure channel concatenation).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::auth::Credentials;
use crate::nqn::Nqn;
use crate::psk::{Identity, TlsPsk};

/// A host that has another key made may be on its way with the one before.
const KEYS_PER_HOST: usize = 2;
/// Hosts with keys; beyond, the one whose last key is oldest makes room.
const HOSTS_MAX: usize = 4096;

/// The keys of a subsystem. They are in memory only: after a restart hosts authenticate anew.
#[derive(Debug, Default)]
pub(super) struct GeneratedKeys(Mutex<Hosts>);

#[derive(Debug, Default)]
struct Hosts {
    keys: HashMap<Nqn, Keys>,
    made: u64,
}

#[derive(Debug, Default)]
struct Keys {
    /// The last one first.
    keys: VecDeque<Key>,
    /// Number of the last.
    number: u64,
}

#[derive(Debug)]
struct Key {
    psk: TlsPsk,
    /// It counts as long as these do.
    credentials: Arc<Credentials>,
}

impl GeneratedKeys {
    pub(super) fn keep(&self, psk: TlsPsk, credentials: Arc<Credentials>) {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let host = psk.identity.host.clone();
        if hosts.keys.len() >= HOSTS_MAX && !hosts.keys.contains_key(&host) {
            let oldest = hosts.keys.iter().min_by_key(|(_, keys)| keys.number);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                hosts.keys.remove(&oldest);
            }
        }
        hosts.made += 1;
        let number = hosts.made;
        let keys = hosts.keys.entry(host).or_default();
        keys.number = number;
        keys.keys.push_front(Key { psk, credentials });
        keys.keys.truncate(KEYS_PER_HOST);
    }

    /// The key of an identity, if it was made of what the host proves itself with now.
    pub(super) fn find(&self, identity: &Identity, now: &Credentials) -> Option<TlsPsk> {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = hosts.keys.get(&identity.host)?.keys.iter();
        let found = keys.find(|key| key.psk.identity == *identity)?;
        (*found.credentials == *now).then(|| found.psk.clone())
    }
}
