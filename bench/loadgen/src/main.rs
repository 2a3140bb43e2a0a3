//! `longshore-loadgen`: reads or writes at a given depth for a while, over iSCSI or NVMe/TCP, and
//! prints one line of `name=value` with what the client saw and what the server's processor paid.
//!
//! It is lean so that the server is what limits: one thread, one receive call for whatever has
//! come, one send call for all that follows from it. It checks that every command succeeds and
//! every byte arrives, but looks at no data.
#![forbid(unsafe_code)]

mod address;
mod figures;
mod iscsi;
mod load;
mod nvme;
mod options;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use longshore_tests::process::Process;

use load::Load;
use options::{Length, Options};

fn main() -> ExitCode {
    match Options::from_process().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longshore-loadgen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> std::io::Result<()> {
    let mut load = Load::start(options)?;
    if let Length::Time(duration) = options.length {
        // Caches, windows and buffers settle first.
        load.run_until(Instant::now() + duration / 5)?;
        load.figures.forget();
    }
    let server = options.pid.map(Process::new);
    let cpu_before = server.map(Process::cpu_time).transpose()?;
    let started = Instant::now();
    match options.length {
        Length::Time(duration) => load.run_until(started + duration)?,
        Length::Operations(count) => load.run_operations(count)?,
    }
    let elapsed = started.elapsed();
    let cpu_after = server.map(Process::cpu_time).transpose()?;
    let cpu = cpu_after
        .zip(cpu_before)
        .map(|(after, before)| after.saturating_sub(before));
    report(options, &load, elapsed, cpu);
    Ok(())
}

fn report(options: &Options, load: &Load, elapsed: Duration, cpu: Option<Duration>) {
    #[allow(clippy::cast_precision_loss)] // Counts of operations are far below 2^52.
    let operations = load.figures.operations as f64;
    let per_second = operations / elapsed.as_secs_f64();
    let megabytes = per_second * f64::from(options.size) / 1e6;
    let latency = &load.figures.latency_ns;
    let micros =
        |quantile| Duration::from_nanos(latency.value_at_quantile(quantile)).as_secs_f64() * 1e6;
    print!(
        "operations={operations} seconds={:.3} iops={per_second:.0} megabytes_per_second={megabytes:.1} \
         p50_us={:.1} p99_us={:.1}",
        elapsed.as_secs_f64(),
        micros(0.5),
        micros(0.99)
    );
    if let Some(cpu) = cpu {
        print!(
            " server_cpu_us_per_operation={:.2}",
            cpu.as_secs_f64() * 1e6 / operations
        );
    }
    println!();
}
