//! What `longshore import` makes of files, beside what their own programs make of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use longshore_tests::scratch::Scratch;
use longshore_tests::server::program;

/// Names of disks by their files: those that tgt makes of the numbers of target and LUN.
type Names = BTreeMap<String, String>;

/// The calls of tgtadm that tgt-admin would make.
fn of_tgt_admin(file: &Path) -> Names {
    let mut command = Command::new("tgt-admin");
    command.args(["--pretend", "--execute", "--conf"]).arg(file);
    let output = command.output().expect("tgt-admin is in Debian's tgt");
    let output = String::from_utf8(output.stdout).unwrap();
    let mut names = Names::new();
    for line in output
        .lines()
        .filter(|line| line.contains("--op new --mode logicalunit"))
    {
        let behind = |option: &str| {
            let (_, rest) = line.split_once(option).expect(option);
            rest.split_whitespace().next().unwrap().to_owned()
        };
        let (tid, lun): (u32, u32) = (
            behind("--tid ").parse().unwrap(),
            behind("--lun ").parse().unwrap(),
        );
        let path = behind("-b ").trim_matches('"').to_owned();
        names.insert(path, format!("naa.60000000000000000e{tid:010x}{lun:04x}"));
    }
    names
}

/// The volumes of what was imported.
fn imported(file: &Path, scratch: &Scratch) -> Names {
    let target = scratch.join("longshore.toml");
    let mut command = Command::new(program());
    command.args(["import", "tgt"]).arg(file);
    let output = command.arg("--output").arg(&target).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let text = fs::read_to_string(&target).unwrap();
    let volumes = text.split("[[volume]]").skip(1);
    let value = |volume: &str, key: &str| {
        let line = volume.lines().find_map(|line| line.strip_prefix(key));
        let line = line.unwrap_or_else(|| panic!("{key} in {volume}"));
        line.trim_start_matches([' ', '='])
            .trim_matches('"')
            .to_owned()
    };
    volumes
        .map(|volume| (value(volume, "path"), value(volume, "naa")))
        .collect()
}

#[test]
fn disks_of_tgt_keep_the_names_that_tgt_admin_gives_them() {
    let scratch = Scratch::new("imports");
    let mut paths = Vec::new();
    for number in 0..10 {
        let path = scratch.join(&format!("disk{number}"));
        fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        paths.push(path.display().to_string());
    }
    // Neither targets nor stores are in the order of their names, and some numbers are given.
    let block =
        |path: &str, inner: &str| format!("<backing-store {path}>\n{inner}\n</backing-store>\n");
    let target = |name: &str, inner: &str| {
        format!("<target iqn.2026-11.com.example:{name}>\n{inner}</target>\n")
    };
    let text = [
        target(
            "zeta",
            &format!(
                "controller_tid 7\nbacking-store {}\nbacking-store {}\n",
                paths[9], paths[0]
            ),
        ),
        target(
            "alpha",
            &[
                block(&paths[5], "lun 2"),
                block(&paths[4], ""),
                block(&paths[3], "write-cache off"),
            ]
            .concat(),
        ),
        target("zz", &format!("backing-store {}\n", paths[1])),
        target("middle", &format!("backing-store {}\n", paths[8])),
        target("alpha", &block(&paths[2], "")),
    ]
    .concat();
    let file = scratch.join("targets.conf");
    fs::write(&file, text).unwrap();
    let wanted = of_tgt_admin(&file);
    assert_eq!(wanted.len(), 8, "{wanted:?}");
    assert_eq!(imported(&file, &scratch), wanted);
}
