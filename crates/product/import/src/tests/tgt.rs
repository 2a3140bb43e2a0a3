//! tgt's `targets.conf`.

use super::*;

pub(super) const TGT: &str = "\
# targets.conf
default-driver iscsi
ignore-errors no
<target iqn.2026-11.com.example:first>
    <backing-store /srv/a.img>
    </backing-store>
    <backing-store /srv/b.img>
        lun 1
        write-cache off
        vendor_id MyCompany Inc.
        scsi_sn 4711
    </backing-store>
    <backing-store /dev/vg/c>   # a device
    </backing-store>
    incominguser ann secret-of-twelve
    initiator-name iqn.1993-08.org.debian:01:web1
    MaxOutstandingR2T 8
</target>
<target iqn.2026-11.com.example:second>
    backing-store /srv/d.img
</target>
";

#[test]
fn tgt_numbers_disks_from_one_and_names_them_by_target_and_lun() {
    let (config, secrets, report) = taken(Format::Tgt, TGT);
    let target = &config["target"][0];
    let rows = target["luns"].as_array().unwrap().iter();
    let rows: Vec<_> = rows
        .map(|row| {
            (
                row["lun"].as_integer().unwrap(),
                row["volume"].as_str().unwrap(),
            )
        })
        .collect();
    // /srv/b.img has LUN 1, so the others have what is free, in the order of their paths.
    assert_eq!(rows, [(2, "first-2"), (3, "first-3"), (1, "first-1")]);
    let volumes = config["volume"].as_array().unwrap();
    assert_eq!(
        volumes[0]["serial"].as_str(),
        Some("                              beaf12")
    );
    assert_eq!(
        volumes[0]["naa"].as_str(),
        Some("naa.60000000000000000e00000000010002")
    );
    assert_eq!(volumes[0]["vendor"].as_str(), Some("IET"));
    assert_eq!(volumes[0]["backend"].as_str(), Some("block"));
    assert_eq!(volumes[1]["path"].as_str(), Some("/srv/a.img"));
    assert_eq!(volumes[2]["write-through"].as_bool(), Some(true));
    assert_eq!(volumes[2]["vendor"].as_str(), Some("MyCompan"));
    assert_eq!(
        volumes[3]["naa"].as_str(),
        Some("naa.60000000000000000e00000000020001")
    );
    assert_eq!(secrets.len(), 1);
    let silent = ["</backing-store>", "</target>"];
    assert_eq!(unaccounted(TGT, &report, &silent), Vec::<String>::new());
}

#[test]
fn tgt_blocks_of_one_name_are_one_target() {
    let text = "<target iqn.2026-11.x:t>\nbacking-store /a\n</target>\n<target iqn.2026-11.x:t>\n\
                incominguser u secretsecretsecret\noutgoinguser me othersecretsecret\n\
                backing-store /b\n</target>\n";
    let (config, _, _) = taken(Format::Tgt, text);
    let targets = config["target"].as_array().unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!(targets[0]["accounts"][0]["user"].as_str(), Some("u"));
    assert_eq!(targets[0]["mutual"]["user"].as_str(), Some("me"));
    let luns = targets[0]["luns"].as_array().unwrap().iter();
    let luns: Vec<_> = luns.map(|row| row["lun"].as_integer().unwrap()).collect();
    assert_eq!(luns, [1, 2]);
}

#[test]
fn a_file_of_tgt_with_includes_alone_is_recognised() {
    let text = "# Empty targets configuration file\n\ninclude /etc/tgt/conf.d/*.conf\n";
    assert_eq!(Format::recognise(text), Some(Format::Tgt));
    assert_eq!(Format::recognise("# nothing\n"), None);
}

#[test]
fn a_line_of_tgt_goes_on_in_the_next_one_alone() {
    let text = "<target iqn.2026-11.x:t>\nbacking-store \\\n  /a\nincominguser u \\\n\n\
                initiator-name iqn.2026-11.x:h\n</target>\n";
    let found = refused(Format::Tgt, text);
    let lines: Vec<u32> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [4], "a user without a secret, and no more");
}

#[test]
fn tgt_numbers_targets_by_their_names_and_as_they_say() {
    let target = |name: &str, inner: &str| {
        format!("<target iqn.2026-11.x:{name}>\n{inner}backing-store /{name}\n</target>\n")
    };
    let text = [
        target("z", "controller_tid 7\n"),
        target("b", ""),
        target("zz", ""),
        target("a", ""),
    ]
    .concat();
    let (config, _, _) = taken(Format::Tgt, &text);
    let volumes = config["volume"].as_array().unwrap().iter();
    let serials: Vec<_> = volumes
        .map(|it| it["serial"].as_str().unwrap().trim_start())
        .collect();
    assert_eq!(serials, ["beaf11", "beaf21", "beaf71", "beaf81"]);
}

#[test]
fn what_tgt_does_not_take_or_does_not_dump_is_refused() {
    let text = "<target iqn.2026-11.x:t>\nbacking-store /a\n<backing-store /b>\n</backing-store>\n\
                incominguser u PLEASE_CORRECT_THE_PASSWORD\ncontroller_tid none\n</target>\n";
    let found = refused(Format::Tgt, text);
    let lines: Vec<u32> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 5, 6]);
    assert!(found[2].1.contains("/etc/tgt"), "{found:?}");
}

#[test]
fn what_tgt_serves_beyond_disks_is_refused() {
    let text = "include /etc/tgt/conf.d/*.conf\n<target iqn:2018-04.x>\nbacking-store /a\n</target>\n\
                <target iqn.2026-11.x:t>\n<backing-store /b>\ndevice-type tape\n</backing-store>\n\
                initiator-address 192.0.2.1\nparams x\n</target>\n";
    let lines: Vec<u32> = refused(Format::Tgt, text)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    assert_eq!(lines, [1, 2, 3, 7, 9, 10]);
}

#[test]
fn tgt_includes_are_read_where_they_may_be() {
    let read = |pattern: &str| match pattern {
        "/etc/more" => Ok(vec![Source {
            name: "more".to_owned(),
            text: "<target iqn.2026-11.x:more>\nbacking-store /m\n</target>\n".to_owned(),
        }]),
        "/etc/loop" => Ok(vec![Source {
            name: "loop".to_owned(),
            text: "include /etc/loop\n".to_owned(),
        }]),
        _ => Err("no such file".to_owned()),
    };
    let options = Options {
        include: Some(&read),
        ..Options::default()
    };
    let found = import(Format::Tgt, &source("include /etc/more\n"), &options).unwrap();
    assert_eq!(found.configuration.counts(), (1, 1, 0));
    assert!(import(Format::Tgt, &source("include /etc/loop\n"), &options).is_err());
}
