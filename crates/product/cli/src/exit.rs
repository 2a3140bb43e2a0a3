//! How the command ends: with a result, or with what went wrong.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Command;
use clap::error::ErrorKind;

use crate::connection::ConnectionError;

/// What the usage in messages is of.
static COMMAND: OnceLock<fn() -> Command> = OnceLock::new();

/// Has messages about the command line show the usage of this command.
pub fn set_command(command: fn() -> Command) {
    // The first stays.
    let _ = COMMAND.set(command);
}

/// Writes a result. A reader that has gone away is not an error.
pub fn print(bytes: &[u8]) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error),
        _ => ExitCode::SUCCESS,
    }
}

/// Ends with what is wrong with the command line.
pub fn usage(error: &dyn std::error::Error) -> ! {
    let mut command = COMMAND
        .get()
        .map_or_else(|| Command::new("longshore"), |command| command());
    command.error(ErrorKind::ValueValidation, error).exit()
}

/// Says what is wrong with the options of a connection, or with a file that they name.
pub fn refuse(error: &ConnectionError) -> ExitCode {
    if error.is_usage() {
        usage(error);
    }
    fail(error)
}

/// Says what went wrong.
pub fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
