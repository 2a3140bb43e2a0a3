//! Log-ins of browsers: a code that is valid once and for two minutes, and the session that it begins.
//!
//! ```text
//!  longshore dashboard ─► POST /api/v1/logins ─► code, behind the # of a URL
//!  browser ─► POST /login with the code ─► cookie ─► pages and API, with the role of who asked for the code
//! ```
//!
//! Codes and sessions are kept as hashes and in memory: a restart ends them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_api::access::Role;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// So long a code is valid.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(120);
/// So long a browser stays logged in.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Codes, and sessions; one more ends the oldest.
pub(crate) const LOGINS_MAX: usize = 64;
/// Of one holder; one more ends the holder's oldest.
pub(crate) const LOGINS_OF_HOLDER_MAX: usize = 8;

/// SHA-256 of the secret of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginKey([u8; 32]);

impl LoginKey {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

/// Who asked for a log-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// As the audit log calls it: `uid 0, browser`.
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token that it was asked for with.
    pub token: Option<String>,
}

impl Holder {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.token == other.token
    }
}

#[derive(Debug)]
struct Secret {
    key: LoginKey,
    ends: Instant,
    holder: Holder,
}

#[derive(Debug, Default)]
struct Known {
    codes: VecDeque<Secret>,
    sessions: VecDeque<Secret>,
}

#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Known>);

impl Logins {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn offer(&self, holder: Holder, now: Instant) -> String {
        add(&mut self.known().codes, holder, now, CODE_LIFETIME)
    }

    /// Who asked for a code, which stays valid.
    pub(crate) fn who_asked(&self, code: &str, now: Instant) -> Option<Holder> {
        let known = self.known();
        let place = place(&known.codes, LoginKey::of(code), now)?;
        Some(known.codes[place].holder.clone())
    }

    /// Takes a code, which is worthless from now on, and gives the secret of a session.
    pub(crate) fn begin(&self, code: &str, now: Instant) -> Option<String> {
        let mut known = self.known();
        let place = place(&known.codes, LoginKey::of(code), now)?;
        let holder = known.codes.remove(place)?.holder;
        Some(add(&mut known.sessions, holder, now, SESSION_LIFETIME))
    }

    /// Who holds a session.
    pub(crate) fn find(&self, key: LoginKey, now: Instant) -> Option<Holder> {
        let known = self.known();
        let place = place(&known.sessions, key, now)?;
        Some(known.sessions[place].holder.clone())
    }

    pub(crate) fn end(&self, key: LoginKey, now: Instant) {
        let mut known = self.known();
        if let Some(place) = place(&known.sessions, key, now) {
            known.sessions.remove(place);
        }
    }
}

fn add(list: &mut VecDeque<Secret>, holder: Holder, now: Instant, lifetime: Duration) -> String {
    list.retain(|it| now < it.ends);
    while list.iter().filter(|it| it.holder.is_same(&holder)).count() >= LOGINS_OF_HOLDER_MAX {
        let own = list.iter().position(|it| it.holder.is_same(&holder));
        own.and_then(|own| list.remove(own));
    }
    while list.len() >= LOGINS_MAX {
        list.pop_front();
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    list.push_back(Secret {
        key: LoginKey::of(&secret),
        ends: now + lifetime,
        holder,
    });
    secret
}

/// All are compared, so that the time tells nothing.
fn place(list: &VecDeque<Secret>, key: LoginKey, now: Instant) -> Option<usize> {
    let mut found = None;
    for (place, known) in list.iter().enumerate() {
        let is_it: bool = known.key.0.ct_eq(&key.0).into();
        if is_it && now < known.ends {
            found = Some(place);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder {
            name: "uid 0, browser".to_owned(),
            role: Role::Admin,
            token: None,
        }
    }

    #[test]
    fn a_code_is_valid_once_and_for_two_minutes() {
        let (logins, now) = (Logins::default(), Instant::now());
        let code = logins.offer(holder(), now);
        let session = logins.begin(&code, now).unwrap();
        assert_eq!(logins.find(LoginKey::of(&session), now), Some(holder()));
        assert_eq!(logins.begin(&code, now), None);
        let late = logins.offer(holder(), now);
        assert_eq!(logins.begin(&late, now + CODE_LIFETIME), None);
        assert_eq!(logins.begin("", now), None);
    }

    #[test]
    fn a_code_is_no_session_and_a_session_ends() {
        let (logins, now) = (Logins::default(), Instant::now());
        let code = logins.offer(holder(), now);
        assert_eq!(logins.find(LoginKey::of(&code), now), None);
        let session = logins.begin(&code, now).unwrap();
        assert_eq!(logins.begin(&session, now), None);
        assert_eq!(
            logins.find(LoginKey::of(&session), now + SESSION_LIFETIME),
            None
        );
        logins.end(LoginKey::of(&session), now);
        assert_eq!(logins.find(LoginKey::of(&session), now), None);
    }

    #[test]
    fn one_log_in_too_many_ends_the_oldest_and_first_that_of_its_holder() {
        let (logins, now) = (Logins::default(), Instant::now());
        let log_in = |number: usize| {
            let holder = Holder {
                name: format!("uid {number}, browser"),
                ..holder()
            };
            let code = logins.offer(holder, now);
            logins.begin(&code, now).unwrap()
        };
        let is_there = |secret: &String| logins.find(LoginKey::of(secret), now).is_some();
        let other = log_in(1000);
        let own: Vec<String> = (0..=LOGINS_OF_HOLDER_MAX).map(|_| log_in(1)).collect();
        assert!(!is_there(&own[0]) && own[1..].iter().all(is_there));
        assert!(is_there(&other));
        let others: Vec<String> = (0..LOGINS_MAX).map(|it| log_in(2000 + it)).collect();
        assert!(!is_there(&other) && !own.iter().any(is_there));
        assert!(others.iter().all(is_there));
    }
}
