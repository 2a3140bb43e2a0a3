//! Cookies of the dashboard.
//!
//! Browsers tell cookies apart by host and not by port, so the name of a session has the port in it: two servers of one
//! machine do not log each other's browsers out. Other servers of the machine still see it, as they do all cookies.

use axum::http::{HeaderMap, HeaderValue, header};

/// The value of a cookie.
pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter();
    let all = all.filter_map(|line| line.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn name(port: u16, is_encrypted: bool) -> String {
    // Browsers take this prefix from an encrypted connection only, and from no other host.
    let prefix = if is_encrypted { "__Host-" } else { "" };
    format!("{prefix}longshore_{port}")
}

/// The secret of a session. Only the name that this server gives counts: anybody on the way can set the other one.
pub(crate) fn session(headers: &HeaderMap, port: u16, is_encrypted: bool) -> Option<&str> {
    value(headers, &name(port, is_encrypted))
}

/// Gives a browser its session; an empty secret takes it back.
pub(crate) fn set_session(
    secret: &str,
    port: u16,
    is_encrypted: bool,
    seconds: u64,
) -> Option<HeaderValue> {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text = format!(
        "{}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
        name(port, is_encrypted)
    );
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies_and_not_that_of_another_port() {
        let mut headers = HeaderMap::new();
        let text = "a=b; longshore_9261=other;longshore_9260=this; longshore_92600=x";
        headers.insert(header::COOKIE, HeaderValue::from_static(text));
        assert_eq!(session(&headers, 9260, false), Some("this"));
        assert_eq!(session(&headers, 9262, false), None);
        assert_eq!(value(&headers, "longshore"), None);
        assert_eq!(value(&HeaderMap::new(), "a"), None);
    }

    #[test]
    fn a_server_with_tls_takes_the_cookie_of_an_encrypted_connection_only() {
        let mut headers = HeaderMap::new();
        let text = "longshore_9260=plain; __Host-longshore_9260=encrypted; longshore_1=plain";
        headers.insert(header::COOKIE, HeaderValue::from_static(text));
        assert_eq!(session(&headers, 9260, true), Some("encrypted"));
        assert_eq!(session(&headers, 9260, false), Some("plain"));
        assert_eq!(session(&headers, 1, true), None);
    }

    #[test]
    fn a_cookie_is_hidden_from_scripts_and_other_sites_and_secure_where_it_can_be() {
        let plain = set_session("s", 9260, false, 60).unwrap();
        let expected = "longshore_9260=s; Path=/; Max-Age=60; HttpOnly; SameSite=Strict";
        assert_eq!(plain.to_str().unwrap(), expected);
        let encrypted = set_session("s", 9260, true, 60).unwrap();
        let text = encrypted.to_str().unwrap();
        assert!(text.starts_with("__Host-longshore_9260=s;") && text.ends_with("; Secure"));
    }
}
