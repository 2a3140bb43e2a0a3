//! What every request has to pass before its handler: Host, Origin, then who calls.
//!
//! A browser runs foreign pages, and any of them can send requests to loopback. A page under another name that
//! resolves to this address (DNS rebinding) still says that name in `Host`; a page of another origin says so in
//! `Origin` or `Sec-Fetch-Site`. Both are refused, with any token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longshore_api::access::Role;
use longshore_api::change::Caller;
use longshore_api::problem::{Problem, ProblemCode};

use crate::answer::Failure;
use crate::app::App;
use crate::caller::{Grant, Known, Peer};
use crate::cookies;
use crate::logins::{Holder, LoginKey};

/// What a route needs. `None`: nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs(pub Option<Role>);

/// Lets a request through if its caller may do what the route does.
pub(crate) async fn guard(
    State((app, Needs(needed))): State<(Arc<App>, Needs)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return refuse("the connection is not known").into_response();
    };
    if let Some(needed) = needed {
        match known(&app, &peer, request.method(), request.headers()) {
            Ok(known) if known.role.allows(needed) => {
                request.extensions_mut().insert(known);
            }
            Ok(known) => {
                let title = format!(
                    "this needs the role {needed}, and {} has the role {}",
                    known.caller.name, known.role
                );
                return refuse(&title).into_response();
            }
            Err(failure) => return failure.into_response(),
        }
    }
    next.run(request).await
}

/// Refuses what pages of strangers can send. They reach the socket, too, where somebody forwards a port to it.
pub(crate) async fn same_origin(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let host = host_of(&request);
    let is_known = match request.extensions().get::<Peer>() {
        Some(Peer::Tcp { local, .. }) => host
            .as_deref()
            .is_some_and(|host| is_ours(host, local.port(), &app.names)),
        Some(Peer::Unix { .. }) | None => {
            host.as_deref().is_none_or(|host| is_near(host, &app.names))
        }
    };
    if !is_known {
        return refuse_host(host.as_deref()).into_response();
    }
    if is_write(request.method())
        && let Err(title) = check_origin(request.headers(), host.as_deref().unwrap_or_default())
    {
        return refuse(&title).into_response();
    }
    next.run(request).await
}

fn is_write(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// `Host`, or the authority of an absolute request target.
fn host_of(request: &Request) -> Option<String> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return None;
    }
    match (host, request.uri().authority()) {
        (_, Some(authority)) => Some(authority.as_str().to_owned()),
        (Some(host), None) => host.to_str().ok().map(str::to_owned),
        (None, None) => None,
    }
}

/// Whether a `Host` names this listener by an address, as `localhost`, or by a configured name.
fn is_ours(host: &str, port: u16, names: &[String]) -> bool {
    let (name, its_port) = match host.rsplit_once(':') {
        Some((name, digits)) if !name.ends_with(':') && !digits.contains(']') => {
            (name, digits.parse().ok())
        }
        _ => (host, Some(if port == 443 { 443 } else { 80 })),
    };
    // A proxy may listen on another port under a name that is configured.
    if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return true;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_local = name.eq_ignore_ascii_case("localhost");
    (is_local || name.parse::<IpAddr>().is_ok()) && its_port == Some(port)
}

/// Whether a `Host` may be said over the socket: an address, `localhost` or a configured name. Any other name, also one
/// without a dot, may be one of the network that leads to this machine. A forwarded port can be any.
fn is_near(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, digits)) if digits.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
        || address.parse::<IpAddr>().is_ok()
}

/// Whether a write comes from a page of this very server, or from no page.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), String> {
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        if authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(host)) {
            return Err("pages of another origin cannot change this server".to_owned());
        }
    }
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match (said("sec-fetch-site"), said("sec-fetch-mode")) {
        (Some("cross-site" | "same-site"), _) | (_, Some("no-cors" | "websocket")) => {
            Err("pages of another origin cannot change this server".to_owned())
        }
        _ => Ok(()),
    }
}

pub(crate) fn known(
    app: &App,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Known, Failure> {
    match peer {
        Peer::Unix { uid, role, .. } => match role {
            Some(role) => Ok(Known {
                caller: Caller {
                    name: format!("uid {uid}"),
                    from: peer.from(),
                },
                role: *role,
                grant: Grant::Socket,
            }),
            None => {
                let title = format!("the user with uid {uid} may not use this socket");
                let problem = Problem::new(ProblemCode::Forbidden, title);
                let advice = "become the user of the server or root, join the group longshore, or use TCP with a \
                              token";
                Err(problem.advise(advice).into())
            }
        },
        Peer::Tcp {
            admission, local, ..
        } => {
            if !headers.contains_key(header::AUTHORIZATION)
                && let Some(secret) = cookies::session(headers, local.port(), app.is_encrypted())
            {
                let known = of_browser(app, peer, method, headers, LoginKey::of(secret))?;
                admission.admit();
                return Ok(known);
            }
            let value = headers.get(header::AUTHORIZATION);
            let value = value.and_then(|value| value.to_str().ok());
            let secret = value.and_then(bearer).ok_or_else(|| {
                unauthenticated("this needs a token: send `Authorization: Bearer TOKEN`")
            })?;
            let found = app
                .tokens
                .find(secret)
                .ok_or_else(|| unauthenticated("this token is not known here, or has expired"))?;
            admission.admit();
            Ok(Known {
                caller: Caller {
                    name: format!("token {}", found.name),
                    from: peer.from(),
                },
                role: found.role,
                grant: Grant::Token(found.sha256),
            })
        }
    }
}

/// Who logged a browser in. Browsers send cookies with requests of any page, so a request has to come from a page of this
/// server: a write says so in `Origin`, and a read must not say otherwise.
fn of_browser(
    app: &App,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
    key: LoginKey,
) -> Result<Known, Failure> {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if is_write(method) && !headers.contains_key(header::ORIGIN) {
        return Err(refuse("a change by a browser has to name its Origin"));
    }
    if matches!(said("sec-fetch-site"), Some("cross-site" | "same-site"))
        && said("sec-fetch-mode") != Some("navigate")
    {
        return Err(refuse("pages of another origin cannot use this log-in"));
    }
    let holder = app.logins.find(key, Instant::now());
    let holder =
        holder.ok_or_else(|| unauthenticated("this log-in is not known here, or has ended"))?;
    let role = role_of(app, &holder);
    let role =
        role.ok_or_else(|| unauthenticated("the token of this log-in is gone, or has expired"))?;
    Ok(Known {
        caller: Caller {
            name: holder.name,
            from: peer.from(),
        },
        role,
        grant: Grant::Login(key),
    })
}

/// A log-in is worth what the token is worth that it was asked for with.
fn role_of(app: &App, holder: &Holder) -> Option<Role> {
    match &holder.token {
        None => Some(holder.role),
        Some(sha256) => app.tokens.role_of(sha256),
    }
}

/// Whether a caller who was let in may still read: the token or the log-in may be gone by now.
pub(crate) fn may_still_read(app: &App, grant: &Grant) -> bool {
    let role = match grant {
        Grant::Socket => return true,
        Grant::Token(sha256) => app.tokens.role_of(sha256),
        Grant::Login(key) => {
            let holder = app.logins.find(*key, Instant::now());
            holder.and_then(|holder| role_of(app, &holder))
        }
    };
    role.is_some_and(|role| role.allows(Role::Read))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn unauthenticated(title: &str) -> Failure {
    let advice = "the first token is in the file admin-token of the server's state directory; make others there with \
                  longshore token create";
    let problem = Problem::new(ProblemCode::Unauthenticated, title);
    problem.advise(advice).into()
}

fn refuse(title: &str) -> Failure {
    Problem::new(ProblemCode::Forbidden, title).into()
}

fn refuse_host(host: Option<&str>) -> Failure {
    let title = match host {
        Some(_) => "the Host of this request is not a name of this server",
        None => "a request needs one Host",
    };
    let problem = Problem::new(ProblemCode::Forbidden, title);
    let advice = "use its address, localhost, or a name of [api] names";
    problem.advise(advice).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_configured_names_are_ours_and_no_others() {
        let names = ["storage.example".to_owned()];
        for (host, ours) in [
            ("127.0.0.1:9260", true),
            ("192.0.2.7:9260", true),
            ("[::1]:9260", true),
            ("localhost:9260", true),
            ("LOCALHOST:9260", true),
            ("storage.example", true),
            ("Storage.Example:443", true),
            ("127.0.0.1", false),
            ("127.0.0.1:80", false),
            ("localhost.evil.example:9260", false),
            ("evil.example:9260", false),
            ("evil.example", false),
            ("", false),
            ("[::1", false),
        ] {
            assert_eq!(is_ours(host, 9260, &names), ours, "{host}");
        }
    }

    #[test]
    fn a_name_that_others_can_give_to_this_machine_is_refused_over_the_socket() {
        let names = ["storage.example".to_owned()];
        for (host, near) in [
            ("localhost", true),
            ("localhost:9260", true),
            ("127.0.0.1:1", true),
            ("[::1]:9260", true),
            ("LocalHost:8080", true),
            ("unix", false),
            ("evil", false),
            ("evil:9260", false),
            ("", false),
            ("storage.example:8443", true),
            ("evil.example", false),
            ("evil.example:9260", false),
            ("localhost.evil.example:80", false),
        ] {
            assert_eq!(is_near(host, &names), near, "{host}");
        }
    }

    #[test]
    fn writes_of_other_origins_are_refused() {
        let check = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            check_origin(&headers, "127.0.0.1:9260").is_ok()
        };
        assert!(check_origin(&HeaderMap::new(), "127.0.0.1:9260").is_ok());
        assert!(check("origin", "http://127.0.0.1:9260"));
        assert!(check("sec-fetch-site", "same-origin"));
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:9261"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-mode", "no-cors"),
        ] {
            assert!(!check(name, value), "{name}: {value}");
        }
    }

    #[test]
    fn a_token_stands_behind_the_word_bearer() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer abc"), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("abc"), None);
    }
}
