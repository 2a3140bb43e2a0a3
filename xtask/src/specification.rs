//! SPECIFICATION.md names what holds each promise. All of that must be in the tree: who renames a test, a suite or
//! a command learns here that a promise stands on it.
//!
//! Not checked: whether a test proves the promise and runs (it may be ignored, not compiled, or skip itself); the arguments of
//! programs; whether a setting or a program of others does what is said of it; what columns but the last say. A name with `…` is held by any
//! one test that fits.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::workspace;

/// Programs of other projects that a promise may name as its test.
const OUTSIDE: &[&str] = &["iscsi-test-cu", "fio"];
/// Values of settings that look like a test's name in SPECIFICATION.md.
const SETTINGS: &[&str] = &["nagle"];
/// Tests that are programs by themselves (`harness = false`), and so have no attribute.
const PROGRAMS: &[&str] = &["reads_and_writes_do_not_allocate_once_warm"];
/// Fewer citations mean that the tables are not read as they are written.
const CITATIONS_LEAST: usize = 120;

/// What can be cited.
#[derive(Debug, Default)]
struct Tree {
    /// Files by their path from the top folder.
    files: Vec<String>,
    /// Functions with the attribute, and those that are [`PROGRAMS`].
    tests: HashSet<String>,
    commands: Vec<String>,
    /// Jobs of `cargo xtask kernel`.
    jobs: Vec<String>,
    goals: Vec<String>,
    packages: Vec<String>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.walk(root, "");
        for file in &tree.files {
            let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
            let path = root.join(file);
            if name.ends_with(".rs") {
                tree.tests.extend(tests(&text(&path)));
            } else if name == "Cargo.toml" {
                let manifest: toml::Table = text(&path).parse().unwrap();
                let package = manifest.get("package").and_then(|it| it.get("name"));
                tree.packages
                    .extend(package.and_then(|name| Some(name.as_str()?.to_owned())));
            } else if folder == "tests/kernel/jobs"
                && let Some(job) = name.strip_suffix(".sh")
            {
                tree.jobs.push(job.to_owned());
            }
        }
        tree.commands = crate::USAGE
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
            .collect();
        tree.goals = text(&root.join("Makefile"))
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
            .collect();
        tree
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // Build output and the files of tools are not source.
            if name == "target" || name.starts_with('.') {
                continue;
            }
            let path = format!("{prefix}{name}");
            if entry.file_type().unwrap().is_dir() {
                self.walk(&entry.path(), &format!("{path}/"));
            } else {
                self.files.push(path);
            }
        }
    }

    /// Whether what the specification cites is there.
    fn has(&self, cited: &str) -> bool {
        let words: Vec<&str> = cited.split(' ').collect();
        match words[..] {
            ["cargo", "xtask", command] => self.has_command(command),
            ["cargo", "xtask", command, "--only", job] => {
                self.has_command(command) && self.has_job(job)
            }
            ["--only", job] => self.has_job(job),
            ["make", goal] => self.goals.iter().any(|it| it == goal),
            [program, ..] if OUTSIDE.contains(&program) => true,
            [path] if path.contains('/') || path.ends_with(".rs") => self.has_path(path),
            [name] if name.contains(['_', '…']) => self.has_test(name) || self.has_suite(name),
            [name] if name.contains('-') => {
                self.packages.iter().any(|it| it == name) || self.has_job(name)
            }
            [name] => SETTINGS.contains(&name),
            _ => false,
        }
    }

    fn has_command(&self, name: &str) -> bool {
        self.commands.iter().any(|it| it == name)
    }

    fn has_job(&self, name: &str) -> bool {
        self.jobs.iter().any(|it| it == name)
    }

    /// A file or folder, or the end of its path.
    fn has_path(&self, path: &str) -> bool {
        let file = |it: &String| it == path || it.ends_with(&format!("/{path}"));
        let folder = |it: &String| it.starts_with(&format!("{path}/"));
        self.files.iter().any(|it| file(it) || folder(it))
    }

    /// `…` stands for the rest of a name.
    fn has_test(&self, name: &str) -> bool {
        if let Some(end) = name.strip_prefix('…') {
            self.tests.iter().any(|it| it.ends_with(end))
        } else if let Some(begin) = name.strip_suffix('…') {
            self.tests.iter().any(|it| it.starts_with(begin))
        } else {
            self.tests.contains(name)
        }
    }

    /// A program of tests: a file or folder among those of a package.
    fn has_suite(&self, name: &str) -> bool {
        self.has_path(&format!("tests/{name}.rs"))
            || self.has_path(&format!("tests/{name}/main.rs"))
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the tests of a file. Attributes stand on lines of their own before the function, as rustfmt puts them.
fn tests(text: &str) -> Vec<String> {
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            if is_test || PROGRAMS.contains(&name) {
                tests.push(name.to_owned());
            }
            is_test = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    tests
}

/// What the rows of the tables say in backquotes in their last column, with the number of the line.
fn citations(text: &str) -> Vec<(usize, &str)> {
    let mut citations = Vec::new();
    for (line, row) in (1..).zip(text.lines()) {
        let Some((_, held_by)) = row
            .strip_suffix(" |")
            .and_then(|row| row.rsplit_once(" | "))
        else {
            continue;
        };
        let odd = held_by.split('`').skip(1).step_by(2);
        citations.extend(odd.map(|cited| (line, cited)));
    }
    citations
}

#[test]
fn all_that_the_specification_cites_is_in_the_tree() {
    let root = workspace::root();
    let tree = Tree::read(&root);
    let specification = text(&root.join("SPECIFICATION.md"));
    let citations = citations(&specification);
    assert!(citations.len() >= CITATIONS_LEAST, "{}", citations.len());
    let missing: Vec<String> = citations
        .into_iter()
        .filter(|(_, cited)| !tree.has(cited))
        .map(|(line, cited)| format!("SPECIFICATION.md:{line}: no {cited}"))
        .collect();
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn what_was_renamed_is_missed() {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let tree = Tree {
        files: owned(&[
            "tests/rude_peers/main.rs",
            "crates/storage/volume/src/testing/suite.rs",
        ]),
        tests: ["a_write_stays".to_owned()].into(),
        commands: owned(&["kernel"]),
        jobs: owned(&["nvme-recovery"]),
        goals: owned(&["bench"]),
        packages: owned(&["longshore-sim"]),
    };
    for (cited, renamed) in [
        ("a_write_stays", "a_write_goes"),
        ("a_write_…", "a_read_…"),
        ("…_stays", "…_goes"),
        ("rude_peers", "polite_peers"),
        ("testing/suite.rs", "testing/suites.rs"),
        ("tests/rude_peers", "tests/rude"),
        ("cargo xtask kernel", "cargo xtask kernels"),
        (
            "cargo xtask kernel --only nvme-recovery",
            "cargo xtask kernel --only recovery",
        ),
        ("--only nvme-recovery", "--only nvme-recover"),
        ("nvme-recovery", "nvme-recover"),
        ("make bench", "make benches"),
        ("longshore-sim", "longshore-simulator"),
        ("iscsi-test-cu --dataloss", "iscsi-test --dataloss"),
        ("fio", "fios"),
        ("nagle", "nagles"),
    ] {
        assert!(tree.has(cited), "{cited}");
        assert!(!tree.has(renamed), "{renamed}");
    }
}

#[test]
fn tests_and_citations_are_found() {
    let text = "    #[test]\n    fn first() {\n#[test]\n#[ignore]\n// Why.\nfn second() {\nfn third() {\n\
                #[test]\n// fn fourth() {\n}\nfn fifth() {\n";
    assert_eq!(tests(text), ["first", "second"]);
    let text = "`before`\n| promise of `x` | held by |\n| p | `a_b`, `c_d` and `e` |\n";
    assert_eq!(citations(text), [(3, "a_b"), (3, "c_d"), (3, "e")]);
}
