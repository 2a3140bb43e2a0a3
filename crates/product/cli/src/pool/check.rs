//! `longshore pool check`

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use longshore_api::envelope::Versioned;
use longshore_pool::{Pool, PoolError, Rebuild, Rebuilt, Report};
use serde_json::{Value, json};

use super::place::{PoolVerbError, drives_of};
use crate::output::Bytes;
use crate::server::ServerArguments;

/// The exit status of a check that found something.
pub const FINDINGS: u8 = 3;

/// Checks a pool. One that does not open is looked through for what is left of it.
pub fn run(
    server: &ServerArguments,
    config: Option<&Path>,
    pool: &str,
    with_data: bool,
    wanted: Rebuild,
) -> Result<ExitCode, PoolVerbError> {
    let drives = drives_of(pool, config)?;
    let drives = drives.ok_or_else(|| PoolVerbError::NoDrives {
        pool: pool.to_owned(),
    })?;
    let refusal = match Pool::check(&drives, with_data, progress()) {
        Ok(report) => {
            let printed = server.print(&opened(pool, &report), |_| {
                opened_text(pool, &report, wanted != Rebuild::Look)
            });
            return Ok(match report.is_sound() {
                true => printed,
                false => ExitCode::from(FINDINGS),
            });
        }
        Err(refusal) if refusal.is_damage() => refusal,
        Err(error) => return Err(error.into()),
    };
    let rebuilt = Pool::rebuild(&drives, wanted, with_data, progress())?;
    let printed = server.print(&looked_through(pool, &refusal, &rebuilt), |_| {
        rebuilt_text(pool, &refusal, &rebuilt, wanted)
    });
    Ok(
        match rebuilt.is_whole && rebuilt.is_written && rebuilt.is_sound {
            true => printed,
            false => ExitCode::from(FINDINGS),
        },
    )
}

/// What documents of all checks have.
fn document(pool: &str, report: &Report) -> Value {
    let findings = report.findings.iter();
    let findings: Vec<Value> = findings
        .map(|finding| json!({ "subject": finding.subject, "text": finding.text }))
        .collect();
    json!({
        "pool": pool,
        "sound": report.is_sound(),
        "opens": true,
        "findings": findings,
        "more-findings": report.more,
        "volumes": report.volumes,
        "snapshots": report.snapshots,
        "pages": report.pages,
        "data-bytes": report.data_bytes,
    })
}

fn opened(pool: &str, report: &Report) -> Versioned<Value> {
    Versioned::new(document(pool, report))
}

fn looked_through(pool: &str, refusal: &PoolError, rebuilt: &Rebuilt) -> Versioned<Value> {
    let mut document = document(pool, &rebuilt.report);
    document["sound"] = false.into();
    document["opens"] = false.into();
    document["refusal"] = refusal.to_string().into();
    document["whole"] = rebuilt.is_whole.into();
    document["rebuilt"] = rebuilt.is_written.into();
    Versioned::new(document)
}

fn findings(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &format!("{finding}\n");
    }
    if report.more > 0 {
        text += &format!("and {} more\n", report.more);
    }
    text
}

fn contents(report: &Report) -> String {
    let mut text = format!(
        "{} volumes, {} snapshots, {} pages",
        report.volumes, report.snapshots, report.pages
    );
    if report.data_bytes > 0 {
        text += &format!(", {} of data read", Bytes(report.data_bytes));
    }
    text
}

fn opened_text(pool: &str, report: &Report, is_rebuild: bool) -> String {
    let verdict = match report.is_sound() {
        true => "sound",
        false => "damaged",
    };
    let mut text = findings(report);
    text += &format!("{pool}: {verdict}; {}\n", contents(report));
    if is_rebuild {
        text += &format!("{pool}: opens, so nothing was rebuilt\n");
    }
    text
}

fn rebuilt_text(pool: &str, refusal: &PoolError, rebuilt: &Rebuilt, wanted: Rebuild) -> String {
    let mut text = format!("{pool}: does not open: {refusal}\n");
    text += &findings(&rebuilt.report);
    text += &format!("{pool}: there are {}\n", contents(&rebuilt.report));
    text += &match (rebuilt.is_whole, rebuilt.is_written) {
        (true, true) => format!("{pool}: is put together again; nothing was lost\n"),
        (false, true) => format!("{pool}: is put together of what is left\n"),
        (_, false) if wanted == Rebuild::Rest => format!("{pool}: could not be written\n"),
        (true, false) if wanted == Rebuild::Whole => format!("{pool}: could not be written\n"),
        (true, false) => {
            format!("{pool}: nothing is lost; put it together by: longshore pool check --rebuild\n")
        }
        (false, false) if wanted == Rebuild::Look => {
            format!(
                "{pool}: some of it is lost; to keep the rest: longshore pool check --rebuild --force\n"
            )
        }
        (false, false) => format!(
            "{pool}: was not written, as some of it is lost; to keep the rest, add --force\n"
        ),
    };
    text
}

/// Tells a person how far the check has come.
fn progress() -> impl FnMut(u64, u64) + 'static {
    let is_watched = io::stderr().is_terminal();
    let mut told = None;
    move |done, sum| {
        let percent = done * 100 / sum.max(1);
        if is_watched && told != Some(percent) {
            told = Some(percent);
            let end = if done == sum { "\n" } else { "" };
            let _ = write!(io::stderr(), "\r{percent:3} % of {}{end}", Bytes(sum));
        }
    }
}
