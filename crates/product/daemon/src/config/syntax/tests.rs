use std::path::Path;

use super::super::file::ConfigFile;

/// What is said about a file, in front of the excerpt.
fn said(text: &str) -> String {
    let problem = ConfigFile::parse(Path::new("x.toml"), text.to_owned()).unwrap_err();
    let problem = problem.to_string();
    problem.lines().next().unwrap_or_default().to_owned()
}

#[track_caller]
fn says(table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(said(text), *expected, "{text}");
    }
}

#[test]
fn a_value_without_quotes_is_shown_with_them() {
    says(&[
        (
            "[[volume]]\nname = \"a\"\nsize = 10G\n",
            "x.toml:3:8: the value has no quotes; write \"10G\" in quotes",
        ),
        (
            "[[volume]]\nname = disk0 # the first\n",
            "x.toml:2:8: the value has no quotes; write \"disk0\" in quotes",
        ),
        (
            "[[volume]]\nname = \"a\"\npath = /srv/my disk.img\n",
            "x.toml:3:8: the value has no quotes; write \"/srv/my disk.img\" in quotes",
        ),
        (
            "[listen]\niscsi = [\"127.0.0.1\", 192.0.2.7:3260]\n",
            "x.toml:2:23: the value has no quotes; write \"192.0.2.7:3260\" in quotes",
        ),
        (
            "[limits]\nlogin-timeout = 15s\n",
            "x.toml:2:17: the value has no quotes; write \"15s\" in quotes",
        ),
        (
            "[engine]\ncores = 0,2-3\n",
            "x.toml:2:9: the value has no quotes; write \"0,2-3\" in quotes",
        ),
        (
            "[engine]\nspin = off\n",
            "x.toml:2:8: the value has no quotes; write \"off\" in quotes",
        ),
        (
            "[[volume]]\nname = \"a\"\nuuid = 4b0c7e6e-5a77-4a52-9f0b-0a2b8f6d1c11\n",
            "x.toml:3:8: the value has no quotes; write \"4b0c7e6e-5a77-4a52-9f0b-0a2b8f6d1c11\" \
             in quotes",
        ),
        (
            "[[target]]\nname = \"a\"\nluns = [{ lun = 0, volume = disk0 }]\n",
            "x.toml:3:29: the value has no quotes; write \"disk0\" in quotes",
        ),
        (
            "[[volume]]\nname = “a”\n",
            "x.toml:2:8: the value has no quotes; write \"a\" in quotes",
        ),
    ]);
}

#[test]
fn a_switch_is_true_or_false() {
    says(&[
        (
            "[listen]\nallow-open = yes\n",
            "x.toml:2:14: `yes` is not a value; write true",
        ),
        (
            "[listen]\nallow-open = False\n",
            "x.toml:2:14: `False` is not a value; write false",
        ),
        (
            "[listen]\nallow-open = \"no\"\n",
            "x.toml:2:14: expected true or false, found a text; write false",
        ),
        (
            "[listen]\nallow-open = 1\n",
            "x.toml:2:14: expected true or false, found 1; write true",
        ),
    ]);
}

#[test]
fn a_value_of_another_kind_is_shown_as_it_is_to_be() {
    says(&[
        (
            "[engine]\nnagle-margin = \"5\"\n",
            "x.toml:2:16: expected a number from 0 to 4294967295, found a text; write 5",
        ),
        (
            "[engine]\ncores = 0\n",
            "x.toml:2:9: expected a text in quotes, found 0; write \"0\"",
        ),
        (
            "[iscsi]\nheader-digest = \"crc32c\"\n",
            "x.toml:2:17: expected a list in brackets, found a text; write [\"crc32c\"]",
        ),
        (
            "[[target]]\nname = \"a\"\nportal-groups = 1\n",
            "x.toml:3:17: expected a list in brackets, found 1; write [1]",
        ),
        (
            "[[target]]\nname = \"a\"\nportal-groups = [70000]\n",
            "x.toml:3:18: expected a number from 0 to 65535, found 70000",
        ),
        ("engine = 5\n", "x.toml:1:10: expected a table, found 5"),
        (
            "[engine]\nspin = true\n",
            "x.toml:2:8: expected a word in quotes or a number, found true",
        ),
    ]);
}

#[test]
fn tables_have_as_many_brackets_as_there_can_be_tables() {
    says(&[
        (
            "[volume]\nname = \"a\"\n",
            "x.toml:1:1: there can be several tables `volume`; write [[volume]] in double brackets",
        ),
        (
            "[[engine]]\nkind = \"epoll\"\n",
            "x.toml:1:1: there is one table `engine`; write [engine] in single brackets",
        ),
    ]);
}

#[test]
fn an_unknown_name_brings_the_one_that_was_meant() {
    says(&[
        (
            "[limits]\nqueue-dept = 1\n",
            "x.toml:2:1: unknown key `queue-dept`; did you mean `queue-depth`?",
        ),
        (
            "[[volume]]\nname = \"a\"\nblock_size = 512\n",
            "x.toml:3:1: unknown key `block_size`; did you mean `block-size`?",
        ),
        (
            "[engine]\nlogin-timeout = 5\n",
            "x.toml:2:1: unknown key `login-timeout`; it belongs in [limits]",
        ),
        (
            "allow-open = true\n",
            "x.toml:1:1: unknown key `allow-open`; it belongs in [listen]",
        ),
        (
            "[[volumes]]\nname = \"a\"\n",
            "x.toml:1:3: unknown table `volumes`; did you mean [[volume]]?",
        ),
        (
            "[limit]\nmemory = 1\n",
            "x.toml:1:2: unknown table `limit`; did you mean [limits]?",
        ),
        (
            "[colour]\nred = 1\n",
            "x.toml:1:2: unknown table `colour`; known are [[pool]], [[volume]], [[target]], [[subsystem]], \
             [discovery], [listen], [api], [engine], [limits], [iscsi], [log]",
        ),
        (
            "[[target]]\nname = \"a\"\n[[target.acces]]\n",
            "x.toml:3:10: unknown key `acces`; did you mean `access`?",
        ),
        (
            "[[target]]\nname = \"a\"\nluns = [{ lun = 0, volum = \"d\" }]\n",
            "x.toml:3:20: unknown key `volum`; did you mean `volume`?",
        ),
        (
            "[[volume]]\nbackend = \"mem\"\n",
            "x.toml:1:1: the key `name` is missing here",
        ),
    ]);
}

#[test]
fn an_unknown_word_brings_the_one_that_was_meant() {
    for (line, word) in [
        ("[engine]\nkind = \"epol\"", "epoll"),
        ("[engine]\ntransmit = \"no-delay\"", "nodelay"),
        ("[engine]\nnagle-cycles = \"corected\"", "corrected"),
        ("[engine]\nsend = \"respons\"", "response"),
        ("[engine]\nsplice = \"alway\"", "always"),
        ("[engine]\nregistered = \"of\"", "off"),
        ("[engine]\nspread = \"alwys\"", "always"),
        ("[engine]\nspin = \"aut\"", "auto"),
        ("[log]\nformat = \"jsn\"", "json"),
        ("[log]\nlevel = \"debgu\"", "debug"),
        ("[iscsi]\ndata-digest = [\"crc32\"]", "crc32c"),
        ("[[volume]]\nname = \"a\"\nbackend = \"fil\"", "file"),
        (
            "[[volume]]\nname = \"a\"\ninline-writes = \"nevr\"",
            "never",
        ),
    ] {
        let said = said(&format!("{line}\n"));
        assert!(
            said.ends_with(&format!("did you mean `{word}`?")),
            "{line}: {said}"
        );
    }
}

#[test]
fn other_mistakes_are_named_where_they_are() {
    says(&[
        (
            "[[volume]]\nname: \"a\"\n",
            "x.toml:2:7: an `=` is missing; write key = value",
        ),
        (
            "[[volume]]\nname =\n",
            "x.toml:2:7: there is no value behind the `=`",
        ),
        ("[limits\n", "x.toml:1:8: unclosed table, expected `]`"),
        (
            "[engine]\n[engine]\n",
            "x.toml:2:2: `engine` is given twice",
        ),
    ]);
}

#[test]
fn no_message_shows_a_secret() {
    for text in [
        "[[target]]\nname = \"a\"\naccounts = [{ user = \"u\", secret = hush-hush }]\n",
        "[[target]]\nname = \"a\"\naccounts = [{ user = \"u\", secret = [\"hush-hush\"] }]\n",
        "[[target]]\nname = \"a\"\naccounts = [{ user = \"u\", secrt = hush-hush }] # secret\n",
        "[[volume]]\nname = \"r\"\nurl = iscsi://ann%hush-hush@h/iqn.2026-11.x:y/0\n",
    ] {
        let problem = ConfigFile::parse(Path::new("x.toml"), text.to_owned()).unwrap_err();
        let problem = problem.to_string();
        assert!(!problem.contains("hush"), "{problem}");
    }
}

#[test]
fn any_text_is_answered_without_panic() {
    use proptest::prelude::*;
    proptest!(|(text in "[\\[\\]{}a-z=\",'#\\n é“0-9.:-]{0,60}")| {
        let _ = ConfigFile::parse(Path::new("x.toml"), text);
    });
}
