//! `cargo xtask`: what contributors and CI run beyond `cargo build`. Each suite is one subcommand
//! and one module; `ci` runs them all in order.
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod ci;
mod command;
mod conformance;
mod counts;
mod dependencies;
mod figures;
mod fuzz;
mod kernel;
mod peers;
mod powercut;
mod qemu;
mod servers;
mod setup;
mod sim;
#[cfg(test)]
mod specification;
mod vm;
mod workspace;

use std::process::ExitCode;

use arguments::Arguments;
use counts::Counts;

const USAGE: &str = "\
usage: cargo xtask <command> [options]

  ci            everything below in order, as CI runs it
  setup         install the Debian packages the suites need
  conformance   iscsi-test-cu [--server tgt] [--only TEST] [--configuration NAME]
  kernel        Linux as initiator and host in virtual machines [--only JOB] [--server tgt] [--verbose]
  qemu          QEMU's block driver [--server tgt]
  peers         the initiators against tgt, LIO and nvmet [--only PEER] [--test NAME] [--exhaustive]
                [--verbose]; with --stay they are left up for tests by hand
  powercut      the server in a machine whose power fails [--only NAME] [--rounds N] [--seed N]
  sim           simulation with new seeds [--seed N] [--seeds COUNT]
  fuzz          each fuzz target for a while [--only TARGET] [--seconds N]
  bench         beside tgt, NVMe beside iSCSI, and the numbers to reach (these alone: --targets;
                user and kernel time of both protocols alone: --parts)
                [--quick] [--update] [--engine E] [--only POINT] [--rounds N] [--seconds S];
                beside an earlier server: --before PROGRAM [--label TEXT]
  instructions  user-mode instructions per operation against their limits [--update] [--only POINT]
  figures       fujita, queue-maps, fairness, clients or adaptive-nagle [--update] [--rounds N] [--seconds S] [--quick]
                [--fio PROGRAM] [--network loopback|mtu-1500|mtu-9000] [--size BYTES]
";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_process();
    let command = arguments.next_word();
    match run(command.as_deref(), arguments) {
        Ok(counts) => {
            println!("{counts}");
            if counts.failed == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Option<&str>, arguments: Arguments) -> anyhow::Result<Counts> {
    match command {
        Some("ci") => ci::run(arguments),
        Some("setup") => setup::run(arguments),
        Some("conformance") => conformance::run(arguments),
        Some("kernel") => kernel::run(arguments),
        Some("qemu") => qemu::run(arguments),
        Some("peers") => peers::run(arguments),
        Some("powercut") => powercut::run(arguments),
        Some("sim") => sim::run(arguments),
        Some("fuzz") => fuzz::run(arguments),
        Some("bench") => bench::run(arguments),
        Some("instructions") => bench::gate::run(arguments),
        Some("figures") => figures::run(arguments),
        Some(other) => anyhow::bail!("no command {other:?}\n{USAGE}"),
        None => anyhow::bail!("a command is needed\n{USAGE}"),
    }
}
