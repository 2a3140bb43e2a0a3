//! The floor under a storage target: a server that reads requests of 48 bytes (72 with NVMe/TCP) and
//! answers with as many bytes as a target would, and a client that drives it. No protocol: nothing is
//! parsed, nothing is looked up, nothing is stored.
//!
//! Both ends move bytes as the real ones do. The server runs on the same reactor, with one receive of
//! the same size and one send a turn; the client *is* `longshore bench`, its queues and its worker,
//! with a protocol of counting alone. So what a target costs above this is its protocol.
//!
//! ```text
//! longshore-floor serve --listen 127.0.0.1:7000 &
//! longshore-floor drive 127.0.0.1:7000 --protocol iscsi --read 4096 --iodepth 32 --server-pid $!
//! ```
//!
//! On the wire: a [`Shape`] first, which says how long requests and answers are, then nothing else than
//! these.
#![forbid(unsafe_code)]

mod client;
mod machine;
mod peer;
mod server;
mod shape;
mod source;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use longshore_reactor::EngineChoice;
use shape::Shape;

/// The floor under a storage target: the same bytes in the same batches, without a protocol.
#[derive(Debug, Parser)]
#[command(name = "longshore-floor", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers requests. Prints `ready ADDRESS`, and a line of counters for each connection that ends.
    Serve(Serve),
    /// Drives a server and prints figures as JSON.
    Drive(Drive),
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    engine: EngineName,
    /// Answers come from this file, and writes go to it, one after the other in its order.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    Auto,
    #[value(name = "io_uring")]
    IoUring,
    Epoll,
}

/// Whose lengths requests and answers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// 48 bytes, and 48 before the data.
    Iscsi,
    /// 72 bytes, and 24 before the data.
    Nvme,
}

#[derive(Debug, clap::Args)]
struct Drive {
    address: SocketAddr,
    /// Sets lengths as this protocol has them.
    #[arg(long, value_enum, default_value_t = Protocol::Iscsi)]
    protocol: Protocol,
    /// Bytes of a request, without data.
    #[arg(long)]
    request_bytes: Option<u32>,
    /// Bytes of an answer, without data.
    #[arg(long)]
    answer_bytes: Option<u32>,
    /// Bytes of data behind a request.
    #[arg(long, alias = "write", default_value_t = 0)]
    payload_in: u32,
    /// Bytes of data behind an answer.
    #[arg(long, alias = "read", default_value_t = 0)]
    payload_out: u32,
    /// Requests under way on each connection.
    #[arg(long, default_value_t = 32)]
    iodepth: u16,
    /// Connections, each on a thread of its own.
    #[arg(long, default_value_t = 1)]
    sessions: u16,
    /// Seconds to measure, after a fifth of that to warm up.
    #[arg(long, default_value_t = 1.0)]
    time: f64,
    /// So many requests instead, without a time to warm up.
    #[arg(long)]
    operations: Option<u64>,
    /// The server's process, for its processor time.
    #[arg(long)]
    server_pid: Option<u32>,
}

impl Drive {
    fn shape(&self) -> Shape {
        let (request, answer) = match self.protocol {
            Protocol::Iscsi => (48, 48),
            Protocol::Nvme => (72, 24),
        };
        Shape {
            request_bytes: self.request_bytes.unwrap_or(request),
            payload_in: self.payload_in,
            answer_bytes: self.answer_bytes.unwrap_or(answer),
            payload_out: self.payload_out,
        }
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(serve) => {
            let engine = match serve.engine {
                EngineName::Auto => EngineChoice::Auto,
                EngineName::IoUring => EngineChoice::IoUring,
                EngineName::Epoll => EngineChoice::Epoll,
            };
            server::serve(serve.listen, engine, serve.file.as_deref())
        }
        Command::Drive(drive) => client::drive(&drive),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longshore-floor: {error:#}");
            ExitCode::FAILURE
        }
    }
}
