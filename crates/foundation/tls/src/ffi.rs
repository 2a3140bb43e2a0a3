//! Calls of OpenSSL that the crate `openssl` does not bind. Each is wrapped in a safe function.

use std::ffi::{c_int, c_uchar, c_uint};
use std::ptr;
use std::slice;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslRef, SslSession, SslSessionRef, SslStream};
use openssl_sys::{EVP_MD, SSL, SSL_CIPHER, SSL_CTX, SSL_SESSION};

use crate::held;
use crate::psk::Psk;

/// The number of the extension `pre_shared_key`.
const PRE_SHARED_KEY: c_uint = 41;
const TLS_1_3: c_int = 0x0304;

type FindSession =
    unsafe extern "C" fn(*mut SSL, *const c_uchar, usize, *mut *mut SSL_SESSION) -> c_int;
type UseSession = unsafe extern "C" fn(
    *mut SSL,
    *const EVP_MD,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SSL_SESSION,
) -> c_int;

unsafe extern "C" {
    fn SSL_CTX_set_psk_find_session_callback(context: *mut SSL_CTX, callback: Option<FindSession>);
    fn SSL_CTX_set_psk_use_session_callback(context: *mut SSL_CTX, callback: Option<UseSession>);
    fn SSL_CTX_set_default_read_buffer_len(context: *mut SSL_CTX, length: usize);
    fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_set1_master_key(
        session: *mut SSL_SESSION,
        key: *const c_uchar,
        length: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut SSL_SESSION, cipher: *const SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut SSL, id: *const c_uchar) -> *const SSL_CIPHER;
    fn SSL_free_buffers(ssl: *mut SSL) -> c_int;
    fn SSL_key_update(ssl: *mut SSL, kind: c_int) -> c_int;
}

/// OpenSSL's name is `SSL_KEY_UPDATE_NOT_REQUESTED`.
const KEY_UPDATE_NOT_REQUESTED: c_int = 0;

/// Has connections of the context read up to `length` bytes at a time.
pub(crate) fn set_read_buffer_length(context: &SslContextBuilder, length: usize) {
    // SAFETY: the context is alive for the call, which stores a number.
    unsafe { SSL_CTX_set_default_read_buffer_len(context.as_ptr(), length) }
}

/// Forgets errors that others have left on this thread. OpenSSL takes them for those of the next connection.
pub(crate) fn forget_errors() {
    // SAFETY: no requirements; the queue belongs to the thread.
    unsafe { openssl_sys::ERR_clear_error() }
}

/// Gives back the buffers of records of a connection that has nothing in them; otherwise nothing happens.
pub(crate) fn free_buffers<S>(stream: &mut SslStream<S>) {
    // SAFETY: the connection is alive and exclusively ours for the call, which refuses while a buffer is in use.
    let _ = unsafe { SSL_free_buffers(stream.ssl().as_ptr()) };
}

/// The next record is sent under new keys, after a KeyUpdate that asks for none in return.
pub(crate) fn update_key<S>(stream: &mut SslStream<S>) -> Result<(), ErrorStack> {
    // SAFETY: the connection is alive and exclusively ours for the call.
    match unsafe { SSL_key_update(stream.ssl().as_ptr(), KEY_UPDATE_NOT_REQUESTED) } {
        1 => Ok(()),
        _ => Err(ErrorStack::get()),
    }
}

/// The body of the ClientHello's extension `pre_shared_key`. Only while its callback runs.
pub(crate) fn pre_shared_key_extension(ssl: &SslRef) -> Option<&[u8]> {
    let (mut bytes, mut length) = (ptr::null(), 0);
    // SAFETY: OpenSSL writes a pointer and a length through references of the right types, and returns 0 outside of
    // the callback of a ClientHello.
    let found = unsafe {
        openssl_sys::SSL_client_hello_get0_ext(
            ssl.as_ptr(),
            PRE_SHARED_KEY,
            &raw mut bytes,
            &raw mut length,
        )
    };
    if found != 1 || bytes.is_null() {
        return None;
    }
    // SAFETY: the bytes belong to the ClientHello, which lives as long as the callback that holds `ssl`, and are not
    // written while it runs.
    Some(unsafe { slice::from_raw_parts(bytes, length) })
}

/// A session that stands for a key.
fn session_of(ssl: &SslRef, psk: &Psk) -> Option<SslSession> {
    // SAFETY: no requirements; null when there is no memory.
    let raw = unsafe { SSL_SESSION_new() };
    if raw.is_null() {
        return None;
    }
    // SAFETY: a new session, with one reference that is ours.
    let session = unsafe { SslSession::from_ptr(raw) };
    let id = psk.suite().id();
    // SAFETY: a suite's number has two bytes, which is what the call reads; what it returns lives for ever.
    let cipher = unsafe { SSL_CIPHER_find(ssl.as_ptr(), id.as_ptr()) };
    if cipher.is_null() {
        return None;
    }
    let key = psk.key();
    // SAFETY: the session is alive and not shared yet; the key is copied by its length; the cipher is not null.
    let all = unsafe {
        SSL_SESSION_set1_master_key(session.as_ptr(), key.as_ptr(), key.len()) == 1
            && SSL_SESSION_set_cipher(session.as_ptr(), cipher) == 1
            && SSL_SESSION_set_protocol_version(session.as_ptr(), TLS_1_3) == 1
    };
    all.then_some(session)
}

/// Gives a reference away.
fn into_raw(session: SslSession) -> *mut SSL_SESSION {
    let raw = SslSessionRef::as_ptr(&session);
    std::mem::forget(session);
    raw
}

/// Has a server's connections of the context take the key that was [given](held::give) to them.
pub(crate) fn set_find(context: &mut SslContextBuilder) {
    // SAFETY: the context is alive; the callback has the type that OpenSSL declares.
    unsafe { SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(find)) }
}

unsafe extern "C" fn find(
    ssl: *mut SSL,
    identity: *const c_uchar,
    length: usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL passes a place for the result.
    unsafe { *session = ptr::null_mut() };
    if identity.is_null() {
        return 1;
    }
    // SAFETY: OpenSSL passes the connection that it works on, and an identity of that length.
    let (ssl, identity) = unsafe {
        (
            SslRef::from_ptr(ssl),
            slice::from_raw_parts(identity, length),
        )
    };
    if let Some(found) = held::key_of(ssl)
        .filter(|psk| psk.identity() == identity)
        .and_then(|psk| session_of(ssl, psk))
    {
        // SAFETY: as above; the reference goes to OpenSSL, which frees it.
        unsafe { *session = into_raw(found) };
    }
    1
}

/// Has clients of a context offer the key that belongs to their connection.
pub(crate) fn set_use(context: &mut SslContextBuilder) {
    // SAFETY: the context is alive; the callback has the type that OpenSSL declares.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(use_session)) }
}

unsafe extern "C" fn use_session(
    ssl: *mut SSL,
    digest: *const EVP_MD,
    identity: *mut *const c_uchar,
    length: *mut usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL passes the connection that it works on.
    let ssl = unsafe { SslRef::from_ptr(ssl) };
    // SAFETY: OpenSSL passes places for the results.
    unsafe {
        (*identity, *length, *session) = (ptr::null(), 0, ptr::null_mut());
    }
    let Some(psk) = held::key_of(ssl) else {
        return 1;
    };
    // After a HelloRetryRequest only keys of the chosen hash may be offered.
    // SAFETY: a digest that is not null is one of OpenSSL's, which live for ever.
    let is_other = !digest.is_null()
        && usize::try_from(unsafe { openssl_sys::EVP_MD_size(digest) })
            != Ok(psk.suite().hash_length());
    if is_other {
        return 1;
    }
    let Some(found) = session_of(ssl, psk) else {
        return 0;
    };
    // SAFETY: as above. The identity belongs to the connection, and stays until that is freed.
    unsafe {
        *identity = psk.identity().as_ptr();
        *length = psk.identity().len();
        *session = into_raw(found);
    }
    1
}
