//! Damaged pools: what a check finds, and what is put together of them.

use super::*;

#[test]
fn a_check_finds_damaged_data_and_writes_nothing() {
    let scene = Scene::new();
    let volume = format!("disk0,backend=pool,pool={},size=16M", scene.drives());
    let server = ServerBuilder::new()
        .volume(&volume)
        .iscsi()
        .start()
        .unwrap();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    write(&mut initiator, 0, &pattern(7), true);
    ends_well(server);
    let wanted = pattern(7);
    let mut found = 0;
    for name in ["a.img", "b.img"] {
        let path = scene.scratch.join(name);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let places = (0..bytes.len() - wanted.len()).step_by(BLOCK);
        for place in places.filter(|at| bytes[*at..*at + wanted.len()] == wanted[..]) {
            file.write_all_at(&[!wanted[0]], place.try_into().unwrap())
                .unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    scene.verb(&["check", &scene.drives()]).expect(0);
    for _ in 0..2 {
        let checked = scene.verb(&["check", &scene.drives(), "--data", "--output", "json"]);
        let report = checked.expect(3).json();
        assert_eq!(report["sound"], false);
        assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
    }
    std::fs::write(scene.scratch.join("a.img"), []).unwrap();
    scene.verb(&["check", &scene.drives()]).expect(1);
}

/// Puts bytes at places of a file.
fn overwrite(path: &Path, places: &[usize]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for place in places {
        let at = u64::try_from(*place).unwrap();
        file.write_all_at(&[0xa5; 4096], at).unwrap();
    }
}

/// Where a file has these bytes at the begin of a page.
fn pages_with(path: &Path, begin: &[u8]) -> Vec<usize> {
    let bytes = std::fs::read(path).unwrap();
    let pages = (0..bytes.len()).step_by(4096);
    pages.filter(|at| bytes[*at..].starts_with(begin)).collect()
}

#[test]
fn a_pool_that_does_not_open_is_put_together_of_what_is_left() {
    let scene = Scene::new();
    let serve = || {
        let volume = format!("disk0,backend=pool,pool={},size=16M", scene.drives());
        let builder = ServerBuilder::new().volume(&volume).iscsi();
        builder.start().unwrap()
    };
    let reads_as = |server: &Server, seed: u8| {
        let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
        assert_eq!(read(&mut initiator, 0, 0), pattern(seed));
    };
    let server = serve();
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    write(&mut initiator, 0, &pattern(7), true);
    drop(initiator);
    ends_well(server);
    let rebuild = ["check", &scene.drives(), "--rebuild"];
    let text = scene.verb(&rebuild).expect(0).stdout;
    assert!(text.contains("opens, so nothing was rebuilt"), "{text}");

    // The superblocks of a drive.
    let drive = scene.scratch.join("a.img");
    overwrite(&drive, &pages_with(&drive, b"LS-POOL1"));
    let check = |status| {
        let checked = scene.verb(&["check", &scene.drives(), "--output", "json"]);
        checked.expect(status).json()
    };
    let report = check(3);
    assert_eq!(
        (&report["opens"], &report["whole"], &report["rebuilt"]),
        (&false.into(), &true.into(), &false.into()),
        "{report}"
    );
    assert!(report["refusal"].as_str().unwrap().contains("a.img"));
    let text = scene.verb(&rebuild).expect(0).stdout;
    assert!(text.contains("nothing was lost"), "{text}");
    assert_eq!(check(0)["opens"], true);
    let server = serve();
    reads_as(&server, 7);
    ends_well(server);

    // All checkpoints.
    for name in ["a.img", "b.img"] {
        let path = scene.scratch.join(name);
        overwrite(&path, &pages_with(&path, b"LS-CKPT1"));
    }
    assert_eq!(check(3)["whole"], false);
    let text = scene.verb(&rebuild).expect(3).stdout;
    assert!(text.contains("add --force"), "{text}");
    assert_eq!(check(3)["opens"], false, "nothing was written");
    let forced = scene.verb(&[&rebuild[..], &["--force", "--output", "json"]].concat());
    assert_eq!(forced.expect(3).json()["rebuilt"], true);
    assert_eq!(check(0)["opens"], true);
    let server = serve();
    reads_as(&server, 7);
    ends_well(server);
}
