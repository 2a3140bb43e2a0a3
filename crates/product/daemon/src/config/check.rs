//! A configuration against this machine, for `serve --check`: all that would keep the server from starting,
//! as far as that can be told without opening a volume or a socket and without creating anything.

use std::io;
use std::path::Path;

use longshore_reactor::affinity;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::document::AccountTable;
use super::engine::CoreList;
use super::file::ConfigFile;
use super::problem::{Problem, ProblemKind};
use super::secret_file;
use super::target::UnknownVolumes;
use super::warning::Warning;
use super::{Arguments, Config, Parts, Problems, volumes};
use crate::backends::backends;
use crate::state;

#[derive(Debug, Default)]
pub struct Findings {
    /// What would keep the server from starting, in the order of the file.
    pub problems: Vec<Problem>,
    /// What is worth a line in the log.
    pub warnings: Vec<Warning>,
}

/// Checks everything, and does not stop at the first problem.
///
/// A mistake in what the file says hides what depends on it; files that are missing hide nothing.
#[must_use]
pub fn check(file: Option<&ConfigFile>, arguments: Arguments) -> Findings {
    let mut found = Findings::default();
    let parts = Parts {
        file,
        arguments: &arguments,
        objects: &[],
        unknown: UnknownVolumes::Refused,
    };
    let mut unsound = Problems::default();
    let pools = unsound.pools(file);
    let (volumes, _) = volumes(parts, &pools, &mut unsound);
    if unsound.0.is_empty() {
        for volume in volumes {
            if let Err(error) = backends().survey(&volume.spec) {
                found.problems.push(Problem {
                    location: volume.location.map(Box::new),
                    kind: ProblemKind::Volume(error),
                });
            }
        }
    }
    if let Some(file) = file {
        found.problems.extend(missing_secrets(file));
    }
    match Config::assemble_all(parts) {
        Ok(config) => {
            // Volumes can come later by the API.
            if !config.api.is_asked_for() {
                found.problems.extend(config.check_volumes().err());
            }
            found.examine(config);
        }
        Err(problems) => {
            // Secrets that cannot be read are among the problems already.
            let others = problems
                .into_iter()
                .filter(|problem| !matches!(problem.kind, ProblemKind::SecretUnreadable { .. }));
            found.problems.extend(others);
        }
    }
    let place = |problem: &Problem| problem.location.as_ref().map(|at| (at.line, at.column));
    found
        .problems
        .sort_by_key(|problem| place(problem).unwrap_or((usize::MAX, 0)));
    found
}

impl Findings {
    fn examine(&mut self, config: Config) {
        self.warnings.extend(config.warnings.iter().cloned());
        match config.check_reach(&config.addresses()) {
            Ok(warnings) => self.warnings.extend(warnings),
            Err(problem) => self.problems.push(problem),
        }
        self.problems.extend(config.check_cores().err());
        let mut add = |kind| self.problems.push(Problem::general(kind));
        if let Some(Err(error)) = config.state_dir.as_deref().map(state::examine) {
            add(ProblemKind::State(error));
        }
        if let Some(path) = config.log.statistics
            && let Err(source) = may_write(&path)
        {
            add(ProblemKind::Unwritable { path, source });
        }
    }
}

impl Config {
    /// Checks that this process may run on the cores that are asked for.
    ///
    /// # Errors
    /// The first core that it may not use.
    pub fn check_cores(&self) -> Result<(), Problem> {
        let (Some(asked_for), Ok(allowed)) = (&self.engine.cores, affinity::allowed_cores()) else {
            return Ok(());
        };
        match asked_for.0.iter().find(|core| !allowed.contains(core)) {
            Some(core) => Err(Problem::general(ProblemKind::Core {
                core: *core,
                allowed: CoreList(allowed),
            })),
            None => Ok(()),
        }
    }
}

/// The secret files of accounts that cannot be read.
fn missing_secrets(file: &ConfigFile) -> Vec<Problem> {
    let document = &file.document;
    let discovery = document.discovery.iter();
    let mut accounts: Vec<&AccountTable> = discovery
        .flat_map(|table| table.accounts.iter().chain(&table.mutual))
        .collect();
    for target in &document.target {
        accounts.extend(target.accounts.iter().chain(&target.mutual));
        for rule in &target.access {
            let rule = rule.get_ref();
            accounts.extend(rule.accounts.iter().flatten().chain(&rule.mutual));
        }
    }
    let rules = document.subsystem.iter().flat_map(|it| &it.access);
    let of_hosts = rules.flat_map(|rule| {
        let rule = rule.get_ref();
        let both = [&rule.dhchap_secret_file, &rule.dhchap_ctrl_secret_file];
        let keys = rule.tls_key_files.iter().flat_map(|it| it.get_ref());
        both.into_iter().flatten().chain(keys)
    });
    let secrets = accounts
        .into_iter()
        .filter_map(|it| it.secret_file.as_ref())
        .chain(of_hosts);
    let missing = secrets.filter_map(|secret| {
        let path = secret_file::place(file, secret.get_ref());
        let source = std::fs::File::open(&path).err()?;
        let kind = ProblemKind::SecretUnreadable { path, source };
        Some(file.problem(secret.span(), kind))
    });
    missing.collect()
}

/// Whether a file can be written, or created.
fn may_write(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let (object, wanted) = if path.exists() {
        (path, Access::WRITE_OK)
    } else {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        (directory, Access::WRITE_OK | Access::EXEC_OK)
    };
    Ok(accessat(CWD, object, wanted, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(folder: &Path, text: &str) -> Vec<String> {
        let file = ConfigFile::parse(&folder.join("x.toml"), text.to_owned());
        let file = file.unwrap_or_else(|problem| panic!("{problem}"));
        let found = check(Some(&file), Arguments::default());
        let first_lines = found.problems.iter().map(ToString::to_string);
        let name = format!("{}/", folder.display());
        first_lines
            .map(|text| text.lines().next().unwrap_or_default().replace(&name, ""))
            .collect()
    }

    #[test]
    fn all_files_that_are_missing_are_named_at_once_and_none_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let text = "\
[[volume]]
name = \"a\"
backend = \"file\"
path = \"a.img\"
[[volume]]
name = \"b\"
backend = \"block\"
path = \"/dev/none\"
[[volume]]
name = \"new\"
backend = \"file\"
path = \"new.img\"
size = \"1M\"
[[volume]]
name = \"r\"
backend = \"iscsi\"
url = \"iscsi://ann@192.0.2.7/iqn.2026-11.x:y/0\"
secret-file = \"r.secret\"
[[target]]
name = \"iqn.2026-11.x:t\"
accounts = [{ user = \"one\", secret-file = \"one.secret\" }]
[[target.access]]
initiators = [\"*\"]
accounts = [{ user = \"two\", secret-file = \"two.secret\" }]
[log]
statistics = \"none/report.json\"
";
        std::fs::write(folder.path().join("x.toml"), text).unwrap();
        let before: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        let missing = "No such file or directory (os error 2)";
        assert_eq!(
            findings(folder.path(), text),
            [
                "x.toml:2:8: a.img: no such file; give size=… to create it, or correct the path",
                "x.toml:6:8: /dev/none: no such device; correct the path",
                &format!("x.toml:15:8: volume r: cannot read the secret file r.secret: {missing}"),
                &format!(
                    "x.toml:21:43: cannot read secret file one.secret: {missing}; correct \
                     the path or its permissions"
                ),
                &format!(
                    "x.toml:24:43: cannot read secret file two.secret: {missing}; correct \
                     the path or its permissions"
                ),
            ]
        );
        let after = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(after, before.len(), "nothing is created");
    }

    #[test]
    fn directories_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let text = "\
state-dir = \"file/state\"
[[volume]]
name = \"a\"
backend = \"mem\"
size = \"1M\"
[log]
statistics = \"none/report.json\"
[engine]
cores = \"1023\"
";
        let found = findings(folder.path(), text);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].starts_with("this process may not use core 1023"));
        assert!(found[1].starts_with("cannot use state directory file/state"));
        assert!(found[2].starts_with("cannot write none/report.json"));
    }
}
