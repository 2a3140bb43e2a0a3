//! Files of a crate that use each other in a circle. None of them can be read, tested or changed without the others, so
//! there are to be none: shared types belong into a file below, and the dispatch into a file above.
//!
//! A file uses another where its code names what the other defines, by whatever re-export. Methods are not followed.

mod graph;
mod modules;
mod names;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;
use modules::Modules;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let only = arguments.value("--only")?;
    arguments.finish()?;
    let top = workspace::root();
    let mut crates = crates(&top)?;
    if let Some(only) = &only {
        crates.retain(|name| Path::new(name).ends_with(only));
        if crates.is_empty() {
            bail!("no crate lies in a folder {only:?}");
        }
    }
    let mut counts = Counts::default();
    for name in &crates {
        let circles = of_crate(&top, name)?;
        match judge(&circles) {
            Ok(()) => counts += Counts::PASSED,
            Err(problem) => {
                println!("FAIL {name}: {problem}");
                counts += Counts::FAILED;
            }
        }
    }
    Ok(counts)
}

#[derive(Debug, PartialEq, Eq)]
struct Circle {
    files: Vec<PathBuf>,
    /// What ties it: a line for each file that uses another.
    ties: Vec<String>,
}

/// The folders of all crates, from the top folder.
fn crates(top: &Path) -> Result<Vec<String>> {
    let mut crates = vec!["xtask".to_owned()];
    for floor in std::fs::read_dir(top.join("crates"))? {
        for entry in std::fs::read_dir(floor?.path())? {
            let folder = entry?.path();
            if folder.join("Cargo.toml").exists() {
                let name = folder.strip_prefix(top)?.to_str();
                crates.push(name.context("a folder with a strange name")?.to_owned());
            }
        }
    }
    crates.sort();
    Ok(crates)
}

/// The circles of the library and of the program in a folder.
fn of_crate(top: &Path, name: &str) -> Result<Vec<Circle>> {
    let read = |path: &Path| std::fs::read_to_string(top.join(path)).ok();
    let mut circles = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let root = Path::new(name).join(root);
        if read(&root).is_some() {
            circles.extend(of_modules(&Modules::read(&root, &read)?));
        }
    }
    Ok(circles)
}

fn of_modules(crate_: &Modules) -> Vec<Circle> {
    let uses = crate_.uses();
    let path = |file: usize| crate_.files.get(file).cloned().unwrap_or_default();
    let mut circles = Vec::new();
    for files in graph::circles(uses.keys().copied()) {
        let mut ties = Vec::new();
        for ((from, to), names) in &uses {
            if files.contains(from) && files.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let (from, to) = (path(*from), path(*to));
                ties.push(format!(
                    "{} -> {}: {}",
                    from.display(),
                    to.display(),
                    names.join(", ")
                ));
            }
        }
        circles.push(Circle {
            files: files.into_iter().map(path).collect(),
            ties,
        });
    }
    circles
}

/// Whether no files of a crate are in a circle.
fn judge(circles: &[Circle]) -> Result<(), String> {
    if circles.is_empty() {
        return Ok(());
    }
    let files: usize = circles.iter().map(|circle| circle.files.len()).sum();
    Err(format!(
        "{files} files use each other in circles\n{}",
        described(circles)
    ))
}

fn described(circles: &[Circle]) -> String {
    let mut text = String::new();
    for circle in circles {
        let _ = writeln!(text, "  a circle of {} files", circle.files.len());
        for tie in &circle.ties {
            let _ = writeln!(text, "    {tie}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ties of a crate with these files below `src`.
    fn ties(files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let mut files = files.iter();
            let file = files.find(|(name, _)| Path::new("src").join(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let crate_ = Modules::read(Path::new("src/lib.rs"), &read).unwrap();
        let circles = of_modules(&crate_);
        circles.into_iter().flat_map(|circle| circle.ties).collect()
    }

    #[test]
    fn a_parent_and_its_child_make_a_circle() {
        let found = ties(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; pub struct A; fn f() { b::g() }"),
            ("a/b.rs", "use super::A; pub fn g(_: A) {}"),
        ]);
        assert_eq!(
            found,
            ["src/a.rs -> src/a/b.rs: g", "src/a/b.rs -> src/a.rs: A"]
        );
    }

    #[test]
    fn a_parent_that_only_passes_names_on_makes_none() {
        let found = ties(&[
            ("lib.rs", "mod a; mod c; pub use a::{B, C};"),
            (
                "a/mod.rs",
                "mod b; mod c; pub use b::B; pub(crate) use c::*;",
            ),
            ("a/b.rs", "use super::C; pub struct B(C);"),
            ("a/c.rs", "pub struct C;"),
            ("c.rs", "use crate::a::B; fn f(_: B) {}"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn names_are_followed_through_re_exports() {
        let found = ties(&[
            ("lib.rs", "mod a; mod b; pub use b::Bee as Other;"),
            ("a.rs", "pub struct A; fn f(_: crate::Other) {}"),
            ("b.rs", "use crate::a; pub struct Bee(a::A);"),
        ]);
        assert_eq!(
            found,
            ["src/a.rs -> src/b.rs: Bee", "src/b.rs -> src/a.rs: A"]
        );
    }

    #[test]
    fn names_in_functions_and_macros_count() {
        let found = ties(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub enum A { X } fn f() { use super::b::g; g(); }"),
            (
                "b.rs",
                "pub fn g() { assert!(matches!(1, crate::a::A::X), \"{}\", [1]); }",
            ),
        ]);
        assert_eq!(
            found,
            ["src/a.rs -> src/b.rs: g", "src/b.rs -> src/a.rs: A"]
        );
    }

    #[test]
    fn tests_may_use_what_they_test() {
        let found = ties(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod no_such_file;"),
            (
                "a.rs",
                "pub struct A; #[cfg(test)] use crate::b::B; #[cfg(any(test, feature = \"x\"))] fn f(_: B) {}
                 impl A { #[cfg(test)] fn g(_: crate::b::B) {} }
                 #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ]);
        assert_eq!(found, [""; 0]);
        let not_for_tests = ties(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "pub struct A; #[cfg(not(test))] fn f(_: crate::b::B) {}",
            ),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ]);
        assert_eq!(not_for_tests.len(), 2);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let found = ties(&[
            (
                "lib.rs",
                "mod a { pub mod deep; pub mod in_line { pub fn f() { super::deep::g() } } }",
            ),
            ("a/deep.rs", "pub fn g() { crate::a::in_line::f() }"),
        ]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_circle_fails_and_names_its_ties() {
        let circles = [Circle {
            files: vec!["a.rs".into(), "b.rs".into()],
            ties: vec!["a.rs -> b.rs: B".to_owned()],
        }];
        let problem = judge(&circles).unwrap_err();
        assert!(problem.contains("2 files"), "{problem}");
        assert!(problem.contains("a.rs -> b.rs: B"), "{problem}");
        assert_eq!(judge(&[]), Ok(()));
    }
}
