//! The running server that a verb speaks to.

mod address;
pub mod change;
pub mod client;
mod error;
pub mod keys;
pub mod names;
pub mod path;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use self::address::ServerAddress;
use self::client::{Access, Client, ClientError};
use crate::output::OutputFormat;

/// How a running server is reached.
#[derive(Clone, Debug, Args)]
pub struct AccessArguments {
    /// The server: the path of its socket, or a URL such as http://127.0.0.1:9260
    ///
    /// [default: $LONGSHORE_SERVER, $XDG_RUNTIME_DIR/longshore.sock or /run/longshore/longshore.sock]
    #[arg(long, value_name = "PATH|URL", global = true)]
    server: Option<ServerAddress>,

    /// Read the token for a URL from this file [default: $LONGSHORE_TOKEN]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,

    /// Trust certificates of these issuers (PEM) instead of those of the system
    #[arg(long, value_name = "FILE", global = true)]
    ca_file: Option<PathBuf>,
}

/// Options of all verbs that speak to a running server.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    #[command(flatten)]
    access: AccessArguments,

    /// Format of the output
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true,
        global = true
    )]
    pub output: OutputFormat,
}

impl AccessArguments {
    pub fn client(&self) -> Result<Client, ClientError> {
        Client::new(&Access {
            server: self.server.clone(),
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
        })
    }

    /// Whether a server is named, here or by the environment's variable, rather than looked for.
    pub fn is_named(&self) -> bool {
        self.server.is_some() || address::is_named()
    }
}

impl ServerArguments {
    pub fn client(&self) -> Result<Client, ClientError> {
        self.access.client()
    }

    /// Whether a server is named, here or by the environment's variable, rather than looked for.
    pub fn is_named(&self) -> bool {
        self.access.is_named()
    }

    /// Prints an answer as JSON, as it came, or as a text.
    pub fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> ExitCode {
        match self.output {
            OutputFormat::Text => crate::exit::print(text(answer).as_bytes()),
            OutputFormat::Json => {
                let mut bytes = serde_json::to_vec_pretty(answer).unwrap_or_default();
                bytes.push(b'\n');
                crate::exit::print(&bytes)
            }
        }
    }
}

/// Ends with why there was no answer.
pub fn ended(outcome: Result<ExitCode, ClientError>) -> ExitCode {
    outcome.unwrap_or_else(|error| crate::exit::fail(&error))
}
