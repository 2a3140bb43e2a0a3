//! `longshore status`

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use longshore_api::envelope::Versioned;
use longshore_api::state::Status;

use crate::output::Table;
use crate::server::client::ClientError;
use crate::server::{ServerArguments, ended};

#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    server: ServerArguments,
}

pub fn run(arguments: &StatusArguments) -> ExitCode {
    ended(show(&arguments.server))
}

fn show(server: &ServerArguments) -> Result<ExitCode, ClientError> {
    let client = server.client()?;
    let status: Versioned<Status> = client.get("/api/v1/")?.read()?;
    let health = &status.body.health;
    let is_well = health.alive && health.ready;
    let printed = server.print(&status, |status| text(&status.body));
    Ok(if is_well { printed } else { ExitCode::FAILURE })
}

fn text(status: &Status) -> String {
    let mut table = Table::default();
    let health = &status.health;
    let state = match (health.alive, health.ready) {
        (true, true) => "serves",
        (true, false) => "does not serve all enabled objects",
        (false, _) => "does not answer",
    };
    table.row("state", state);
    table.row("version", &status.version);
    table.row("process", status.pid);
    table.row("revision", status.revision.0);
    table.row("engine", &status.engine);
    table.row("sandbox", &status.sandbox);
    for listener in &status.listeners {
        table.row(&listener.service, &listener.address);
    }
    table.row("volumes", status.volumes);
    table.row("targets", status.targets);
    table.row("subsystems", status.subsystems);
    table.row("sessions", status.sessions);
    if !status.needs_restart.is_empty() {
        table.row("needs a restart", status.needs_restart.join(", "));
    }
    let mut text = table.to_string();
    for reason in &health.reasons {
        let _ = writeln!(text, "  ! {reason}");
    }
    text
}
