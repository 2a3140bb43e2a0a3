//! `longshore dashboard`

use std::process::ExitCode;

use clap::Args;
use longshore_api::access::NewLogin;
use longshore_api::envelope::Versioned;

use crate::server::client::{Ask, ClientError};
use crate::server::path::path;
use crate::server::{ServerArguments, ended};

#[derive(Debug, Args)]
pub struct DashboardArguments {
    #[command(flatten)]
    server: ServerArguments,
}

pub fn run(arguments: &DashboardArguments) -> ExitCode {
    ended(act(&arguments.server))
}

fn act(server: &ServerArguments) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    let answer = client.ask(Ask {
        method: "POST",
        path: path(&["logins"]),
        ..Ask::default()
    })?;
    let mut login: Versioned<NewLogin> = answer.read()?;
    login.body.url = reached(&login.body.url, &client.address());
    Ok(server.print(&login, |login| format!("{}\n", login.body.url)))
}

/// The URL by the name that the server was reached by, where that is one of HTTP.
fn reached(url: &str, place: &str) -> String {
    match url.split_once("/login#") {
        Some((_, code)) if place.starts_with("http") => format!("{place}/login#{code}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_reached_by_a_name_is_opened_by_that_name() {
        let url = "http://127.0.0.1:9260/login#code";
        assert_eq!(reached(url, "/run/longshore/longshore.sock"), url);
        let named = reached(url, "https://storage.example:443");
        assert_eq!(named, "https://storage.example:443/login#code");
    }
}
