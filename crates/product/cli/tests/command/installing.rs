//! Files of `make install`: manual pages that other programs can read, and completions.

use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_tests::scratch::Scratch;
use longshore_tests::skip::skip;

/// The files below `share`, beside the pages of the verbs.
const SHARED: &[&str] = &[
    "man/man1/longshore.1",
    "man/man5/longshore.toml.5",
    "bash-completion/completions/longshore",
    "zsh/site-functions/_longshore",
    "fish/vendor_completions.d/longshore.fish",
    "doc/longshore/longshore.toml",
];

const VERBS: &[&str] = &[
    "serve",
    "discover",
    "info",
    "copy",
    "bench",
    "probe",
    "predict",
    "status",
    "top",
    "dashboard",
    "volume",
    "target",
    "session",
    "plan",
    "apply",
    "config",
    "events",
    "token",
    "key",
    "completions",
    "manual",
];

/// Installs the program under test and gives the `share` directory.
fn install(scratch: &Scratch) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let folder = program.parent().expect("a directory of the program");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let ran = Command::new("make")
        // The program is built already.
        .args(["--silent", "--old-file=build", "install"])
        .arg(format!("RELEASE={}", folder.display()))
        .arg(format!("DESTDIR={}", scratch.path().display()))
        .arg("PREFIX=/usr")
        .current_dir(root)
        .env_remove("MAKEFLAGS")
        .output()
        .expect("run make");
    assert!(ran.status.success(), "{ran:?}");
    scratch.join("usr/share")
}

/// Runs a checker over a file: it must say nothing. A checker that is not installed is skipped.
fn check(program: &str, options: &[&str], file: &Path) {
    let ran = Command::new(program).args(options).arg(file).output();
    match ran {
        Ok(ran) => {
            let said = [ran.stdout.as_slice(), ran.stderr.as_slice()].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(ran.status.success() && said.is_empty(), "{program}: {said}");
        }
        Err(error) => skip(format!("{program} {}: {error}", file.display())),
    }
}

#[test]
fn manual_pages_and_completions_are_installed_and_in_order() {
    let scratch = Scratch::new("install");
    let share = install(&scratch);
    for file in SHARED {
        assert!(share.join(file).is_file(), "{file}");
    }
    let verbs = VERBS
        .iter()
        .map(|verb| format!("man/man1/longshore-{verb}.1"));
    let pages = SHARED[..2]
        .iter()
        .map(|page| (*page).to_owned())
        .chain(verbs);
    for page in pages {
        check("mandoc", &["-Tlint", "-Wwarning"], &share.join(page));
    }
    for (shell, file) in [("bash", SHARED[2]), ("zsh", SHARED[3]), ("fish", SHARED[4])] {
        check(shell, &["-n"], &share.join(file));
    }
}
