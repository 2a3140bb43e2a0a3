//! `longshore token`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use longshore_api::access::{NewToken, Role, TokenInfo, TokenRequest};
use longshore_api::envelope::{Listing, Versioned};
use longshore_daemon::config::size::Span;
use serde_json::json;

use crate::output::{Table, columns, time};
use crate::server::client::{Ask, ClientError};
use crate::server::path::path;
use crate::server::{ServerArguments, ended, names};

#[derive(Debug, Args)]
pub struct TokenArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List tokens: names, roles, expiry
    List,
    /// Show one of them, without its secret
    Show {
        #[arg(add = names::tokens())]
        name: String,
    },
    /// Make a token, and print its secret this once
    Create {
        name: String,
        /// Role of its bearer
        #[arg(long, value_name = "read|operate|admin|metrics")]
        role: Role,
        /// Time to its expiry, such as 12h or 30d [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse_expiry)]
        expires: Option<u64>,
    },
    /// Refuse a token from now on
    Remove {
        #[arg(add = names::tokens())]
        name: String,
    },
}

/// Seconds of a time with a unit; days and weeks too.
fn parse_expiry(text: &str) -> Result<u64, String> {
    let days = [("d", 86_400), ("w", 7 * 86_400)];
    for (unit, seconds) in days {
        if let Some(number) = text.strip_suffix(unit) {
            let number: u64 = number
                .parse()
                .map_err(|_| format!("`{text}` is not a time; write for example 30d"))?;
            return Ok(number.saturating_mul(seconds));
        }
    }
    let span = Span::parse(text).map_err(|error| error.to_string())?;
    Ok(span.0.as_secs())
}

pub fn run(arguments: &TokenArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

fn act(server: &ServerArguments, verb: &TokenVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    match verb {
        TokenVerb::List => {
            let tokens: Listing<TokenInfo> = client.get(&path(&["tokens"]))?.read()?;
            Ok(server.print(&tokens, |tokens| table(&tokens.items)))
        }
        TokenVerb::Show { name } => {
            let token: Versioned<TokenInfo> = client.get(&path(&["tokens", name]))?.read()?;
            Ok(server.print(&token, |token| detail(&token.body)))
        }
        TokenVerb::Create {
            name,
            role,
            expires,
        } => {
            let request = TokenRequest {
                name: name.clone(),
                role: *role,
                expires_in_seconds: *expires,
            };
            let answer = client.ask(Ask {
                method: "POST",
                path: path(&["tokens"]),
                body: serde_json::to_value(request).ok(),
                ..Ask::default()
            })?;
            let token: Versioned<NewToken> = answer.read()?;
            Ok(server.print(&token, |token| format!("{}\n", token.body.token)))
        }
        TokenVerb::Remove { name } => {
            client.ask(Ask {
                method: "DELETE",
                path: path(&["tokens", name]),
                ..Ask::default()
            })?;
            let removed = Versioned::new(json!({ "name": name }));
            Ok(server.print(&removed, |_| String::new()))
        }
    }
}

fn detail(token: &TokenInfo) -> String {
    let mut table = Table::default();
    table.row("name", &token.name);
    table.row("role", token.role);
    table.row("created", time(token.created_ms));
    table.row("expires", expiry(token));
    table.to_string()
}

fn expiry(token: &TokenInfo) -> String {
    token.expires_ms.map_or_else(|| "never".to_owned(), time)
}

fn table(tokens: &[TokenInfo]) -> String {
    let rows = tokens.iter().map(|token| {
        vec![
            token.name.clone(),
            token.role.to_string(),
            time(token.created_ms),
            expiry(token),
        ]
    });
    columns(&["NAME", "ROLE", "CREATED", "EXPIRES"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_with_a_unit() {
        assert_eq!(parse_expiry("30d"), Ok(30 * 86_400));
        assert_eq!(parse_expiry("2w"), Ok(14 * 86_400));
        assert_eq!(parse_expiry("12h"), Ok(12 * 3600));
        assert!(parse_expiry("soon").is_err());
    }
}
