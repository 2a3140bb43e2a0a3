//! `longshore import`

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use longshore_daemon::config::Arguments;
use longshore_daemon::config::check::check;
use longshore_daemon::config::file::ConfigFile;
use longshore_import::{
    Format, ImportError, Imported, Options, Report, SOURCE_BYTES_MAX, SecretFile, Source,
};
use serde::Serialize;

use crate::exit::{fail, print};
use crate::output::{self, OutputFormat};

/// A setting was refused.
const REFUSED: u8 = 3;

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Server whose configuration it is; auto: told by the text
    #[arg(value_name = "FORMAT", value_parser = PossibleValuesParser::new(
        ["auto"].into_iter().chain(Format::ALL.into_iter().map(Format::word))
    ))]
    format: String,

    /// Its file: scst.conf, targets.conf, saveconfig.json, nvmet's config.json, SPDK's JSON, istgt.conf
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE", default_value = "longshore.toml")]
    output: PathBuf,

    /// Form of the report
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    report: OutputFormat,

    /// Write what can be taken over although settings are refused
    #[arg(long)]
    partial: bool,

    /// Print the report, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Take over what was unsafe on purpose, and serve it safely: `unsafe-cache`; repeatable
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(["unsafe-cache"]))]
    accept: Vec<String>,

    /// scst: name of a target, where its file is of the procfs era and has none; repeatable
    #[arg(long, value_name = "IQN")]
    target: Vec<String>,

    /// istgt: the file with the secrets, auth.conf
    #[arg(long, value_name = "FILE")]
    auth: Option<PathBuf>,
}

/// Why there is no import.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot read {}: {source}; correct the path or its permissions", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has more than {SOURCE_BYTES_MAX} bytes, so it is no configuration", path.display())]
    TooLong { path: PathBuf },
    #[error(
        "{} is of no format that is known; name it: {}", path.display(),
        Format::ALL.map(Format::word).join(", ")
    )]
    Unknown { path: PathBuf },
    #[error("cannot write {}: {source}; nothing was written; choose another file by --output", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Import(#[from] ImportError),
}

pub fn run(arguments: &ImportArguments) -> ExitCode {
    match arguments.import() {
        Ok(imported) => arguments
            .end(&imported)
            .unwrap_or_else(|failure| fail(&failure)),
        Err(failure) => fail(&failure),
    }
}

/// The report as JSON.
#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    /// The file that was written.
    output: Option<String>,
    secrets: Vec<String>,
    #[serde(flatten)]
    report: &'a Report,
}

impl ImportArguments {
    fn import(&self) -> Result<(Format, Imported), Failure> {
        let source = read(&self.file)?;
        let format = Format::ALL
            .into_iter()
            .find(|format| format.word() == self.format);
        let format = format.or_else(|| Format::recognise(&source.text));
        let format = format.ok_or_else(|| Failure::Unknown {
            path: self.file.clone(),
        })?;
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let include = |pattern: &str| included(&folder.join(pattern));
        let options = Options {
            targets: self.target.clone(),
            authentication: self.auth.as_deref().map(read).transpose()?,
            accept_unsafe_cache: self.accept.iter().any(|what| what == "unsafe-cache"),
            include: Some(&include),
        };
        let imported = longshore_import::import(format, &source, &options)?;
        Ok((format, imported))
    }

    fn end(&self, (format, imported): &(Format, Imported)) -> Result<ExitCode, Failure> {
        let report = &imported.report;
        let refused = report.refused().count();
        let folder = secrets_folder(&self.output);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let (toml, secrets) = imported.configuration.to_toml(&name);
        let writes = !self.dry_run && (refused == 0 || self.partial);
        if writes {
            write_all(&self.output, &toml, &folder, &secrets)?;
        }
        let shown = match self.report {
            OutputFormat::Text => print(report.to_text().as_bytes()),
            OutputFormat::Json => print(&output::json(&Document {
                format: format.word(),
                output: writes.then(|| self.output.display().to_string()),
                secrets: match writes {
                    true => secrets
                        .iter()
                        .map(|file| format!("{name}/{}", file.name))
                        .collect(),
                    false => Vec::new(),
                },
                report,
            })),
        };
        if writes {
            self.tell(imported, secrets.len());
        } else if refused > 0 && !self.dry_run {
            eprintln!(
                "error: {refused} settings are refused, so nothing was written; change the source, or take over the rest \
                 by --partial"
            );
        }
        Ok(match refused {
            0 => shown,
            _ => ExitCode::from(REFUSED),
        })
    }

    /// What was written, whether it is in order, and what comes next.
    fn tell(&self, imported: &Imported, secrets: usize) {
        let output = self.output.display();
        let (volumes, targets, subsystems) = imported.configuration.counts();
        eprintln!(
            "{output}: {volumes} volumes, {targets} targets, {subsystems} subsystems, {secrets} secret files"
        );
        match ConfigFile::load(&self.output) {
            Ok(file) => {
                for problem in check(Some(&file), Arguments::default()).problems {
                    eprintln!("warning: {problem}");
                }
            }
            Err(problem) => eprintln!("warning: {problem}"),
        }
        eprintln!("next: longshore serve --config {output} --check, or longshore plan {output}");
    }
}

/// A directory beside the file, with its name.
fn secrets_folder(output: &Path) -> PathBuf {
    output.with_extension("secrets")
}

fn read(path: &Path) -> Result<Source, Failure> {
    let wrong = |source| Failure::Read {
        path: path.to_owned(),
        source,
    };
    let length = fs::metadata(path).map_err(wrong)?.len();
    if length > SOURCE_BYTES_MAX as u64 {
        return Err(Failure::TooLong {
            path: path.to_owned(),
        });
    }
    let text = fs::read(path).map_err(wrong)?;
    Ok(Source {
        name: path.display().to_string(),
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// The files that a pattern of `include` means.
fn included(pattern: &Path) -> Result<Vec<Source>, String> {
    let text = pattern.to_string_lossy();
    let paths = glob::glob(&text).map_err(|error| error.to_string())?;
    let mut sources = Vec::new();
    for path in paths {
        let path = path.map_err(|error| error.to_string())?;
        sources.push(read(&path).map_err(|failure| failure.to_string())?);
    }
    Ok(sources)
}

fn write_all(
    path: &Path,
    text: &str,
    folder: &Path,
    secrets: &[SecretFile],
) -> Result<(), Failure> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::Write { path, source }
    };
    if path.exists() {
        let exists = io::Error::new(io::ErrorKind::AlreadyExists, "it exists");
        return Err(wrong(path)(exists));
    }
    if !secrets.is_empty() {
        let made = DirBuilder::new().mode(0o700).create(folder);
        made.map_err(wrong(folder))?;
        for secret in secrets {
            let file = folder.join(&secret.name);
            write_new(&file, secret.secret.as_bytes()).map_err(wrong(&file))?;
        }
    }
    write_new(path, text.as_bytes()).map_err(wrong(path))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
