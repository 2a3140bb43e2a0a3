//! Log-ins of browsers to the dashboard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::routing::post;
use longshore_api::access::NewLogin;
use longshore_api::envelope::Versioned;
use longshore_api::problem::{Problem, ProblemCode};

use crate::answer::{Answer, document};
use crate::app::{App, TcpPlace};
use crate::caller::{Grant, Known};
use crate::clock;
use crate::logins::{CODE_LIFETIME, Holder};
use crate::route::{Content, Route, of};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(
        "POST",
        "/api/v1/logins",
        "createLogin",
        "A URL that logs a browser in to the dashboard once, with the role of the caller",
        App::READ,
        Content::Json(of::<Versioned<NewLogin>>),
        post(create),
    )]
}

async fn create(State(app): State<Arc<App>>, Extension(known): Extension<Known>) -> Answer {
    let Some(tcp) = app.tcp else {
        let title = "browsers reach this server over TCP, and it has no address there";
        let problem = Problem::new(ProblemCode::Unavailable, title);
        let advice = "start the server with --api, or forward a port to its socket: ssh -L 9260:SOCKET HOST, then \
                      http://localhost:9260";
        return Err(problem.advise(advice).into());
    };
    let token = match known.grant {
        Grant::Socket => None,
        Grant::Token(sha256) => Some(sha256),
        Grant::Login(_) => {
            // Otherwise a log-in would never end.
            let title = "a browser cannot log another one in";
            return Err(Problem::new(ProblemCode::Forbidden, title).into());
        }
    };
    let (caller, role) = (known.caller, known.role);
    let holder = Holder {
        name: format!("{}, browser", caller.name),
        role,
        token,
    };
    let code = app.record(move |app| {
        let step = format!("create log-in ({role})");
        app.audited(&caller, &step, || {
            Ok(app.logins.offer(holder, Instant::now()))
        })
    });
    let code = code.await??;
    let lifetime = u64::try_from(CODE_LIFETIME.as_millis()).unwrap_or_default();
    Ok(document(NewLogin {
        url: format!("{}/login#{code}", base(tcp, &app.names)),
        role,
        expires_ms: clock::now_ms() + lifetime,
    }))
}

/// Scheme and authority by which a browser of this machine reaches the server; of others, if a name is configured.
fn base(tcp: TcpPlace, names: &[String]) -> String {
    let mut address = tcp.address;
    if address.ip().is_unspecified() {
        let local = match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        address = SocketAddr::new(local, address.port());
    }
    match (tcp.is_encrypted, names.first()) {
        (false, _) => format!("http://{address}"),
        // A certificate is for a name.
        (true, Some(name)) => format!("https://{name}:{}", address.port()),
        (true, None) => format!("https://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_address_that_a_browser_can_open() {
        let place = |address: &str, is_encrypted| TcpPlace {
            address: address.parse().unwrap(),
            is_encrypted,
        };
        let names = ["storage.example".to_owned()];
        for (tcp, names, expected) in [
            (
                place("127.0.0.1:9260", false),
                &names[..],
                "http://127.0.0.1:9260",
            ),
            (place("0.0.0.0:9260", false), &[], "http://127.0.0.1:9260"),
            (place("[::]:9260", false), &[], "http://[::1]:9260"),
            (
                place("0.0.0.0:9260", true),
                &names,
                "https://storage.example:9260",
            ),
            (place("192.0.2.7:9260", true), &[], "https://192.0.2.7:9260"),
        ] {
            assert_eq!(base(tcp, names), expected);
        }
    }
}
