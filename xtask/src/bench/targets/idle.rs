//! What a hundred connections cost that do nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::nvme::{Host, HostOptions};

use super::judge::Judged;
use super::lab::Lab;
use crate::bench::server::VOLUME_SIZE;

/// What `--only` selects it by.
pub const NAME: &str = "idle";

const CONNECTIONS: u16 = 100;
const WATCHED: Duration = Duration::from_secs(10);

/// 0.2 % of a core.
const CPU_LIMIT: Duration = Duration::from_millis(20);
const RESIDENT_LIMIT: u64 = 64 << 20;

/// Both protocols in the same ten seconds, each with a server of its own.
pub fn measure(lab: &Lab<'_>) -> Result<Vec<Judged>> {
    let volume = format!("disk0,backend=null,size={VOLUME_SIZE}");
    let start = || {
        lab.builder("idle")?
            .volume(&volume)
            .iscsi()
            .nvme()
            .start()
            .context("start")
    };
    let (iscsi, nvme) = (start()?, start()?);
    let sessions = (0..CONNECTIONS)
        .map(|isid| Initiator::log_in(iscsi.portal(0), &Login::numbered(isid)))
        .collect::<Result<Vec<_>, _>>()
        .context("log in")?;
    let hosts = (0..CONNECTIONS)
        .map(|_| Host::connect(nvme.nvme(0), &HostOptions::default()))
        .collect::<Result<Vec<_>, _>>()
        .context("connect a host")?;
    std::thread::sleep(Duration::from_millis(500));
    let servers = [("100 iSCSI sessions", &iscsi), ("100 NVMe hosts", &nvme)];
    let mut before = Vec::new();
    for (_, server) in &servers {
        before.push(server.process().cpu_time()?);
    }
    std::thread::sleep(WATCHED);
    let mut judged = Vec::new();
    for ((what, server), before) in servers.iter().zip(before) {
        let used = server.process().cpu_time()?.saturating_sub(before);
        let resident = server.process().resident_bytes()?;
        let mut row = |wanted: &str, measured, reached| {
            judged.push(Judged {
                group: "idle, 100 connections",
                what: (*what).to_owned(),
                wanted: wanted.to_owned(),
                measured,
                figures: String::new(),
                reached: Some(reached),
            });
        };
        let percent = used.as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
        row(
            "< 0.2 % of a core",
            format!("{percent:.3} %"),
            used < CPU_LIMIT,
        );
        #[allow(clippy::cast_precision_loss)] // Memory is far below 2^52 bytes.
        let mib = resident as f64 / f64::from(1 << 20);
        row(
            "< 64 MiB resident",
            format!("{mib:.1} MiB"),
            resident < RESIDENT_LIMIT,
        );
    }
    drop((sessions, hosts));
    Ok(judged)
}
