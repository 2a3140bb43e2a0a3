//! The `longshore` command: arguments in, exit status out.
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | success, or there was nothing to do |
//! | 1 | failure; standard error says why and what to do next |
//! | 2 | the command line is wrong; standard error shows where |
//! | 3 | `import`: a setting is refused; `pool check`: the pool is damaged |
//! | 10 | `plan`: there are changes |
//! | 130, 143 | SIGINT or SIGTERM: a client verb stopped early, or a second signal ended the server at once |

#![forbid(unsafe_code)]

mod advise;
mod arguments;
mod bench;
mod config;
mod connection;
mod copy;
mod dashboard;
mod discover;
mod events;
mod exit;
mod explain;
mod import;
mod info;
mod key;
mod manual;
mod output;
mod plan;
mod pool;
mod predict;
mod probe;
mod scst;
mod server;
mod session;
mod setting;
mod status;
mod target;
mod token;
mod top;
mod volume;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use longshore_daemon::config::check::check;
use longshore_daemon::config::file::ConfigFile;
use longshore_daemon::config::target::UnknownVolumes;
use longshore_daemon::config::{Arguments, Config, Parts};
use longshore_daemon::{Output, ServerEnd, Sources, logging};
use longshore_reactor::allocator::Reserving;

use arguments::{Command, Longshore, ManualArguments, Serve};
use exit::{fail, print, usage};

/// A server goes on where payload has taken all of a bounded address space.
#[global_allocator]
static ALLOCATOR: Reserving = Reserving;

fn main() -> ExitCode {
    // A shell asks for candidates: this answers, and ends the process.
    CompleteEnv::with_factory(arguments::completing)
        .var(arguments::COMPLETIONS)
        .complete();
    exit::set_command(Longshore::command);
    let longshore = Longshore::parse();
    match longshore.command {
        Command::Serve(serve) => run_serve(*serve),
        Command::Discover(arguments) => discover::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Copy(arguments) => copy::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(&arguments),
        Command::Volume(arguments) => volume::run(&arguments),
        Command::Pool(arguments) => pool::run(&arguments),
        Command::Target(arguments) => target::run(&arguments),
        Command::Setting(arguments) => setting::run(&arguments),
        Command::Session(arguments) => session::run(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Apply(arguments) => plan::apply(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Events(arguments) => events::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Scst(arguments) => scst::run(&arguments),
        Command::Completions { shell } => print(&arguments::completions(shell)),
        Command::Manual(arguments) => run_manual(&arguments),
    }
}

fn run_manual(arguments: &ManualArguments) -> ExitCode {
    let command = Longshore::command();
    let Some(directory) = &arguments.directory else {
        return match manual::page(&command, &arguments.page) {
            Ok((page, _)) => print(&page),
            Err(error) => fail(&error),
        };
    };
    match manual::write_all(&command, directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: cannot write to {}: {error}; correct the path or its permissions",
                directory.display()
            );
            ExitCode::FAILURE
        }
    }
}

fn run_serve(serve: Serve) -> ExitCode {
    let file = match serve.config.as_deref().map(ConfigFile::load).transpose() {
        Ok(file) => file,
        Err(problem) => return fail(&problem),
    };
    let (check, output) = (
        serve.check,
        Output {
            connect: serve.print_connect,
        },
    );
    if check {
        return run_check(file.as_ref(), serve.into_arguments());
    }
    let arguments = serve.into_arguments();
    let parts = Parts {
        file: file.as_ref(),
        arguments: &arguments,
        objects: &[],
        unknown: UnknownVolumes::Refused,
    };
    let config = match Config::assemble_all(parts) {
        Ok(config) => config,
        Err(problems) => {
            if let Some(problem) = problems.iter().find(|problem| problem.is_usage()) {
                usage(problem);
            }
            for problem in &problems {
                eprintln!("error: {problem}");
            }
            return ExitCode::FAILURE;
        }
    };
    match longshore_daemon::serve(&config, Sources { file, arguments }, output) {
        Ok(ServerEnd::Stopped) => ExitCode::SUCCESS,
        Ok(ServerEnd::Failed) => ExitCode::FAILURE,
        // Shells and service managers expect 128 and the number of the signal.
        Ok(ServerEnd::Forced(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
        Err(error) => {
            logging::flush();
            fail(&error)
        }
    }
}

fn run_check(file: Option<&ConfigFile>, arguments: Arguments) -> ExitCode {
    let found = check(file, arguments);
    if let Some(problem) = found.problems.iter().find(|problem| problem.is_usage()) {
        usage(problem);
    }
    for warning in &found.warnings {
        eprintln!("warning: {warning}");
    }
    for problem in &found.problems {
        eprintln!("error: {problem}");
    }
    if found.problems.is_empty() {
        print(b"the configuration is in order\n")
    } else {
        ExitCode::FAILURE
    }
}
