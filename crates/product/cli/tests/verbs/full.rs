//! Copies to file systems that are too small, or become full.

use std::fs;
use std::process::Command;

use longshore_tests::skip::skip;

use crate::support::{Desk, Ran, copied_and_flushed};

const MIB: usize = 1 << 20;

/// A file system of its own under a desk, as long as it lives. Takes root.
struct SmallFileSystem {
    path: String,
}

impl SmallFileSystem {
    /// `None`, with a word about it, where nothing can be mounted.
    fn new(desk: &Desk, size: &str) -> Option<Self> {
        let path = desk.path("small");
        fs::create_dir(&path).expect("create a directory");
        let mounted = mount(&path, &format!("size={size}"));
        if !mounted {
            skip("cannot mount a tmpfs here");
        }
        mounted.then_some(Self { path })
    }

    fn grow(&self, size: &str) {
        assert!(mount(&self.path, &format!("remount,size={size}")));
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).expect("read a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn mount(path: &str, options: &str) -> bool {
    let arguments = ["-t", "tmpfs", "-o", options, "tmpfs", path];
    let output = Command::new("mount").args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.path]).status();
    }
}

/// A file system of 8 MiB, and a file of 16 MiB without holes elsewhere.
fn too_small(desk: &Desk) -> Option<(SmallFileSystem, String)> {
    let small = SmallFileSystem::new(desk, "8m")?;
    let bytes: Vec<u8> = (0..16 * MIB)
        .map(|at| u8::try_from(at % 251).expect("a byte") | 1)
        .collect();
    let image = desk.path("image");
    fs::write(&image, bytes).expect("write a file");
    Some((small, image))
}

#[test]
fn a_disk_that_becomes_full_costs_no_progress() {
    let desk = Desk::new();
    let Some((small, image)) = too_small(&desk) else {
        return;
    };
    let new = small.file("new");
    for checkpoint in ["1h", "0s"] {
        let arguments = [
            "copy",
            &image,
            &new,
            "--force",
            "--block-size",
            "64K",
            "--checkpoint",
            checkpoint,
        ];
        let ran = desk.run(&arguments);
        assert!(
            ran.stderr.contains("may need up to 16777216 bytes"),
            "{ran:?}"
        );
        let text = ran.refused(1);
        assert!(text.contains("no space left"), "{text}");
        assert!(text.contains("make room, then continue with:"), "{text}");
        assert!(!text.contains("cannot be resumed"), "{text}");
        assert_eq!(small.names(), ["new", "new.copy-journal"]);
        let journal = fs::read_to_string(small.file("new.copy-journal")).unwrap();
        let done = copied_and_flushed(&journal);
        assert!(done > 0, "{journal}");

        small.grow("32m");
        let command = text.lines().last().unwrap().trim();
        let command = format!("{command} --verify --output json");
        let output = desk.command("sh").args(["-c", &command]).output().unwrap();
        let summary = Ran::new(output).good().json();
        assert_eq!(summary["resumed_from"], done, "{summary}");
        assert_eq!(summary["verified"], true);
        assert_eq!(small.names(), ["new"]);
        fs::remove_file(&new).unwrap();
        small.grow("8m");
    }
}

#[test]
fn a_copy_that_cannot_fit_is_refused_before_it_begins() {
    let desk = Desk::new();
    let Some((small, image)) = too_small(&desk) else {
        return;
    };
    let new = small.file("new");
    let text = desk.run(&["copy", &image, &new]).refused(1);
    for expected in [
        "needs up to 16777216 bytes",
        "nothing was written",
        "--force",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(small.names().is_empty(), "{:?}", small.names());

    // Holes take no space, unless they are asked to.
    let sparse = desk.path("sparse");
    let file = fs::File::create(&sparse).unwrap();
    file.set_len(1 << 30).unwrap();
    drop(file);
    let text = desk.run(&["copy", &sparse, &new, "--thick"]).refused(1);
    assert!(text.contains("remove --thick"), "{text}");
    let ran = desk.run(&["copy", &sparse, &new, "--verify"]).good();
    assert!(!ran.stderr.contains("warning"), "{ran:?}");

    // Space that is allocated already is not needed again.
    let half = vec![3; 5 * MIB];
    fs::write(desk.path("half"), &half).unwrap();
    let there = small.file("there");
    fs::write(&there, vec![9; 5 * MIB]).unwrap();
    desk.run(&["copy", &desk.path("half"), &there]).good();
    assert!(fs::read(&there).unwrap() == half);
}
