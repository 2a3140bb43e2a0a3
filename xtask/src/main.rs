//! `cargo xtask`: what contributors and CI run beyond `cargo build`. Each suite is one subcommand
//! and one module; `ci` runs them all in order.
#![forbid(unsafe_code)]

mod api_client;
mod apt;
mod arguments;
mod bench;
mod ci;
mod circles;
mod command;
mod comments;
mod conformance;
mod counts;
mod dashboard;
mod dependencies;
mod family;
mod figures;
mod fuzz;
mod kernel;
mod linked;
mod outcome;
mod package;
mod peers;
mod powercut;
mod programs;
mod prometheus;
mod publish;
mod python;
mod qemu;
mod rotation;
mod scst_perl;
mod served;
mod servers;
mod setup;
mod siege;
mod sim;
mod small_figures;
#[cfg(test)]
mod specification;
mod vm;
mod workspace;

use std::process::ExitCode;

use arguments::Arguments;
use counts::Counts;
use outcome::StepResult;

const USAGE: &str = "\
usage: cargo xtask <command> [options]; suites run in full, or a part of them with --part 1 to 4

  check         what each step of the work needs: format, lints, quick tests
  ci            what decides a landing, with the part of each matrix whose turn it is
                [--part N|all] [--only STEP,STEP…]; everything, and for longer: --all
  build         what the suites share: --tests, --release
  format        the layout of the sources
  circles       files of a crate that use each other in a circle [--only CRATE]
  comments      doc comments of at most three words [--list]
  lints         clippy, warnings denied
  documentation rustdoc, warnings denied
  crates        the libraries are packed as a registry wants them [--verify: and built from that]
  dependencies  licences, sources and reviews of the packages used [--advisories FOLDER]
  tests         the test programs of the workspace, side by side [--only PROGRAM] [--jobs N] [--quick]
                [--alone | --together] [--exhaustive]
  setup         install the Debian packages the suites need
  conformance   iscsi-test-cu [--server tgt] [--only TEST] [--configuration NAME]
  kernel        Linux as initiator and host in virtual machines [--only JOB] [--server tgt] [--verbose]
  qemu          QEMU's block driver [--server tgt]
  peers         the initiators against tgt, LIO and nvmet [--only PEER] [--test NAME] [--exhaustive]
                [--verbose]; with --stay they are left up for tests by hand
  powercut      the server in a machine whose power fails [--only NAME] [--rounds N] [--seed N]
  prometheus    Prometheus reads a server under load; every query of the dashboard finds data
  api-client    a client generated from the served OpenAPI document, in Python, uses the API
  dashboard     the dashboard in a real browser; --pictures FOLDER: all pages in all sizes; --update: the
                picture of the README
  package       packages of a release, each tried in an empty root [--no-trials]; with a static program that
                is built in a third of the time: --quick; fails if that is too large: --check-size
  scst-perl     the tests of SCST's Perl module and scstadmin: --source scstadmin/scstadmin.sysfs [--only NN|config]
  sim           simulation with new seeds [--seed N] [--seeds COUNT]
  siege         faults on purpose, with hosts that check every block [--minutes N] [--seed N] [--report FILE]
                [--only FAULT,FAULT…] [--backend pool]
  fuzz          each fuzz target for a while [--only TARGET] [--seconds N]; --update: adds the inputs to the table of
                docs/security/fuzzing.md
  bench         beside tgt, NVMe beside iSCSI, and the numbers to reach (these alone: --targets;
                user and kernel time of both protocols alone: --parts)
                [--quick] [--update] [--engine E] [--only POINT] [--rounds N] [--seconds S];
                beside an earlier server: --before PROGRAM [--label TEXT]
  instructions  user-mode instructions per operation against their limits [--update] [--only POINT];
                with --files, the files that a 4 KiB read passes through
  small-figures every benchmark and figure for a moment, to see that it works
  figures       fujita, queue-maps, fairness, clients, polling, many-volumes, changes, adaptive-nagle,
                adaptive-nagle-model or netlab [--update] [--rounds N] [--seconds S] [--quick]
                [--fio PROGRAM] [--spdk PROGRAM] [--network loopback|mtu-1500|mtu-9000] [--size BYTES]
                netlab: [--part limits|loopback|advice|stages] [--seed N] [--set-ups N]
";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_process();
    let command = arguments.next_word();
    if matches!(command.as_deref(), Some("--help" | "-h" | "help")) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let result = run(command.as_deref(), arguments);
    if let Err(error) = StepResult::of(&result).leave() {
        eprintln!("error: leave the result: {error:#}");
        return ExitCode::FAILURE;
    }
    match result {
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
        Some("check") => ci::check(arguments),
        Some("ci") => ci::run(arguments),
        Some("build") => ci::source::build(arguments),
        Some("format") => ci::source::format(arguments),
        Some("circles") => circles::run(arguments),
        Some("comments") => comments::run(arguments),
        Some("lints") => ci::source::lints(arguments),
        Some("documentation") => ci::source::documentation(arguments),
        Some("crates") => publish::run(arguments),
        Some("dependencies") => dependencies::run(arguments),
        Some("tests") => programs::run(arguments),
        Some("small-figures") => small_figures::run(arguments),
        Some("setup") => setup::run(arguments),
        Some("conformance") => conformance::run(arguments),
        Some("kernel") => kernel::run(arguments),
        Some("qemu") => qemu::run(arguments),
        Some("peers") => peers::run(arguments),
        Some("powercut") => powercut::run(arguments),
        Some("scst-perl") => scst_perl::run(arguments),
        Some("prometheus") => prometheus::run(arguments),
        Some("dashboard") => dashboard::run(arguments),
        Some("api-client") => api_client::run(arguments),
        Some("package") => package::run(arguments),
        Some("sim") => sim::run(arguments),
        Some("siege") => siege::run(arguments),
        Some("fuzz") => fuzz::run(arguments),
        Some("bench") => bench::run(arguments),
        Some("instructions") => bench::gate::run(arguments),
        Some("figures") => figures::run(arguments),
        Some(other) => anyhow::bail!("no command {other:?}\n{USAGE}"),
        None => anyhow::bail!("a command is needed\n{USAGE}"),
    }
}
