//! `longshore session`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::state::Session;
use serde_json::json;

use crate::output::{Table, columns, printable};
use crate::server::client::{Ask, ClientError};
use crate::server::path::path;
use crate::server::{ServerArguments, ended, names};

#[derive(Debug, Args)]
pub struct SessionArguments {
    #[command(flatten)]
    server: ServerArguments,

    #[command(subcommand)]
    verb: SessionVerb,
}

#[derive(Debug, Subcommand)]
enum SessionVerb {
    /// List iSCSI sessions and NVMe controllers
    List,
    /// Show one of them
    Show {
        #[arg(add = names::sessions())]
        id: String,
    },
    /// Ask its client to log out, then drop it; the client may come back
    Close {
        #[arg(add = names::sessions())]
        id: String,
    },
}

pub fn run(arguments: &SessionArguments) -> ExitCode {
    ended(act(&arguments.server, &arguments.verb))
}

fn act(server: &ServerArguments, verb: &SessionVerb) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    match verb {
        SessionVerb::List => {
            let sessions: Listing<Session> = client.get(&path(&["sessions"]))?.read()?;
            Ok(server.print(&sessions, |sessions| table(&sessions.items)))
        }
        SessionVerb::Show { id } => {
            let session: Versioned<Session> = client.get(&path(&["sessions", id]))?.read()?;
            Ok(server.print(&session, |session| detail(&session.body)))
        }
        SessionVerb::Close { id } => {
            client.ask(Ask {
                method: "DELETE",
                path: path(&["sessions", id]),
                ..Ask::default()
            })?;
            let closed = Versioned::new(json!({ "id": id }));
            Ok(server.print(&closed, |_| String::new()))
        }
    }
}

fn table(sessions: &[Session]) -> String {
    let rows = sessions.iter().map(|session| {
        vec![
            printable(&session.id),
            session.protocol.clone(),
            printable(&session.peer_name),
            session.addresses.join(" "),
            session.connections.to_string(),
            printable(&session.target),
        ]
    });
    columns(
        &[
            "ID",
            "PROTOCOL",
            "CLIENT",
            "ADDRESS",
            "CONNECTIONS",
            "TARGET",
        ],
        rows.collect(),
    )
}

fn detail(session: &Session) -> String {
    let mut table = Table::default();
    table.row("id", printable(&session.id));
    table.row("protocol", &session.protocol);
    table.row("client", printable(&session.peer_name));
    table.row("addresses", session.addresses.join(" "));
    table.row("target", printable(&session.target));
    table.row("connections", session.connections);
    table.row("since", crate::output::time(session.since_ms));
    table.row("volumes", printable(&session.volumes.join(" ")));
    table.to_string()
}
