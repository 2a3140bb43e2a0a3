//! Manual pages: one for the command, one for each verb, one for the configuration file.
//!
//! Synopsis and options come from the table of the command line, the other sections from [`sections`], which
//! `--help` shows as well. The page of the configuration file is `docs/configuration.md`, which a test holds
//! against the keys that are read.

mod blocks;
mod configuration;
mod sections;

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold};

use blocks::{CONFIGURATION, DATE, code, inlines, section, see_also, source};
use sections::Page;

/// The beginning of every roff document of the library. A page takes one.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Where the options of `serve` are that its help does not show. The last line of that help.
pub const OTHER_OPTIONS: &str = "All options: man longshore-serve (or longshore manual serve | man -l -), docs/configuration.md";

/// Names of all pages, for the command line.
pub fn names() -> impl Iterator<Item = &'static str> {
    let written = sections::PAGES.iter().map(|(name, _)| *name);
    written.chain([CONFIGURATION])
}

/// The end of `--help` of a verb, below its options: notes, signals, exit status, examples.
pub fn help(verb: &str) -> String {
    let page = sections::page(verb);
    let mut text = String::new();
    for note in page.notes {
        text += &wrapped(note, 0);
        text += "\n\n";
    }
    for (title, rows) in [("Signals", page.signals), ("Exit status", page.exit_status)] {
        if rows.is_empty() {
            continue;
        }
        text += &format!("{title}:\n");
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, meaning) in rows {
            let meaning = wrapped(&meaning.replace('`', ""), width + 4);
            text += &format!("  {name:width$}  {}\n", meaning.trim_start());
        }
        text.push('\n');
    }
    text += "Examples:";
    for (_, example) in page.examples {
        text += &format!("\n  {}", example.replace('\n', "\n  "));
    }
    if verb == "serve" {
        text += &format!("\n\n{OTHER_OPTIONS}");
    }
    text
}

/// A text in lines of at most 100 characters, all but the first indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut length = indent;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > indent && length + 1 + letters > 98 {
            lines += &format!("\n{:indent$}", "");
            length = indent;
        } else if length > indent {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += letters;
    }
    lines
}

/// The source of a page, by one of the [`names`], and its section. `command` is the whole command line.
pub fn page(command: &Command, name: &str) -> io::Result<(Vec<u8>, u8)> {
    if name == CONFIGURATION {
        return Ok((finished(configuration::page().render().as_bytes()), 5));
    }
    let whole = command.clone().disable_help_subcommand(true);
    let mut built = whole.clone();
    built.build();
    let of_name = built.find_subcommand(name).cloned().unwrap_or(built);
    Ok((finished(&verb(whole, of_name, name)?), 1))
}

/// Writes all pages into `man1` and `man5` below a directory.
pub fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    for name in names() {
        let (source, section) = page(command, name)?;
        let folder = directory.join(format!("man{section}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{}.{section}", title(name))), source)?;
    }
    Ok(())
}

fn title(name: &str) -> String {
    match name {
        "longshore" | CONFIGURATION => name.to_owned(),
        verb => format!("longshore-{verb}"),
    }
}

/// The page of a verb, or of the command. `whole` is the whole command line.
fn verb(whole: Command, command: Command, name: &str) -> io::Result<Vec<u8>> {
    let written = sections::page(name);
    let has_verbs = command.has_subcommands();
    // The notes are sections of their own here. Options that help does not show have their text here.
    let command = command
        .mut_args(|argument| argument.hide_short_help(false).hide_long_help(false))
        .after_long_help(None::<&str>)
        .after_help(None::<&str>);
    let man = Man::new(command)
        .title(title(name).to_uppercase())
        .section("1")
        .date(DATE)
        .source(source())
        .manual("Longshore");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    let mut notes = Roff::new();
    for note in written.notes {
        notes.control("PP", []).text(inlines(note));
    }
    notes.to_writer(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_verbs && name != "longshore" {
        verbs_of(whole, name).to_writer(&mut out)?;
    } else if has_verbs {
        let mut verbs = Vec::new();
        man.render_subcommands_section(&mut verbs)?;
        out.extend(
            String::from_utf8_lossy(&verbs)
                .replace("SUBCOMMANDS", "VERBS")
                .bytes(),
        );
    }
    own_sections(written).to_writer(&mut out)?;
    Ok(out)
}

/// The verbs of a noun (`volume list`), with their own arguments.
fn verbs_of(mut command: Command, noun: &str) -> Roff {
    command.build();
    let mut roff = Roff::new();
    roff.control("SH", ["VERBS"]);
    let Some(command) = command.find_subcommand(noun) else {
        return roff;
    };
    for (words, verb) in leaves(format!("longshore {noun}"), command) {
        let mut usage = words;
        for argument in verb.get_positionals() {
            usage += &format!(" {argument}");
        }
        let about = verb.get_about().map(ToString::to_string);
        roff.control("TP", []).text([bold(usage)]);
        roff.text(inlines(&about.unwrap_or_default()));
        let options = verb
            .get_opts()
            .filter(|it| !it.is_global_set() && !it.is_hide_set());
        let positionals = verb.get_positionals().filter(|it| it.get_help().is_some());
        let mut arguments = positionals.chain(options).peekable();
        if arguments.peek().is_none() {
            continue;
        }
        roff.control("RS", []);
        for argument in arguments {
            let help = argument.get_help().map(ToString::to_string);
            roff.control("TP", []).text([bold(argument.to_string())]);
            roff.text(inlines(&help.unwrap_or_default()));
        }
        roff.control("RE", []);
    }
    roff
}

/// The verbs of a noun, with their words. Verbs may have verbs themselves (`pool volume create`).
fn leaves(words: String, command: &Command) -> Vec<(String, &Command)> {
    let verbs = command.get_subcommands().flat_map(|verb| {
        let words = format!("{words} {}", verb.get_name());
        match verb.has_subcommands() {
            true => leaves(words, verb),
            false => vec![(words, verb)],
        }
    });
    verbs
        .filter(|(_, verb)| verb.get_name() != "help")
        .collect()
}

/// The sections that the table of the command line does not have.
fn own_sections(page: &Page) -> Roff {
    let mut roff = Roff::new();
    for (title, rows) in [
        ("SIGNALS", page.signals),
        ("EXIT STATUS", page.exit_status),
        ("ENVIRONMENT", page.environment),
        ("FILES", page.files),
    ] {
        section(&mut roff, title, rows);
    }
    roff.control("SH", ["EXAMPLES"]);
    for (number, (purpose, command)) in page.examples.iter().enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text(inlines(purpose));
        code(&mut roff, command);
    }
    see_also(&mut roff, page.see_also);
    roff
}

/// One preamble, and no characters that an old formatter does not know.
fn finished(source: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(source).replace(PREAMBLE, "");
    // An empty line between two breaks, as the library writes paragraphs, is a space alone.
    let text = text.replace("\n.br\n\n.br\n", "\n.sp\n");
    let mut page = PREAMBLE.to_owned();
    for letter in text.chars() {
        if letter.is_ascii() {
            page.push(letter);
        } else {
            page += &format!("\\[u{:04X}]", u32::from(letter));
        }
    }
    page.into_bytes()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Longshore;

    fn text(name: &str) -> String {
        String::from_utf8(page(&Longshore::command(), name).unwrap().0).unwrap()
    }

    #[test]
    fn there_is_a_page_for_each_verb() {
        let command = Longshore::command();
        let verbs = command.get_subcommands().map(Command::get_name);
        let expected: Vec<&str> = ["longshore"].into_iter().chain(verbs).collect();
        let pages: Vec<&str> = names().filter(|name| *name != CONFIGURATION).collect();
        assert_eq!(pages, expected);
    }

    #[test]
    fn every_page_has_the_sections_that_readers_look_for() {
        for name in names() {
            let page = text(name);
            assert_eq!(page.matches("\n.TH ").count(), 1, "{name}");
            assert!(!page.contains("EXTRA"), "{name}");
            assert!(page.is_ascii(), "{name}");
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
                let heading = format!("\n.SH {section}\n");
                let quoted = format!("\n.SH \"{section}\"\n");
                assert!(
                    page.contains(&heading) || page.contains(&quoted),
                    "{name}: {section}"
                );
            }
            if name != CONFIGURATION {
                let verb =
                    page.contains("\n.SH \"EXIT STATUS\"\n") && page.contains("\n.SH EXAMPLES\n");
                assert!(verb, "{name}");
            }
        }
    }

    #[test]
    fn a_page_has_every_option_of_its_verb() {
        let mut command = Longshore::command();
        command.build();
        for verb in command
            .get_subcommands()
            .filter(|verb| verb.get_name() != "help")
        {
            let page = text(verb.get_name());
            let shown = verb
                .get_arguments()
                .filter(|argument| !argument.is_hide_set());
            for option in shown.filter_map(|argument| argument.get_long()) {
                let heading = format!("\\fB\\-\\-{}\\fR", option.replace('-', "\\-"));
                let mut lines = page.lines();
                let found =
                    lines.any(|line| line.starts_with("\\fB\\-") && line.contains(&heading));
                assert!(found, "{}: {option}", verb.get_name());
                let text = lines.next().unwrap_or_default();
                let is_text = text.starts_with(|c: char| c.is_ascii_alphabetic());
                assert!(is_text, "{}: {option}: {text:?}", verb.get_name());
            }
        }
    }

    #[test]
    fn the_page_of_the_file_has_every_key() {
        let page = text(CONFIGURATION).replace("\\-", "-");
        for table in longshore_daemon::config::schema::tables() {
            for key in table.keys.iter().filter(|key| **key != "api") {
                assert!(page.contains(key), "{} {key}", table.header);
            }
        }
        assert!(page.contains("10G") && !page.contains("](") && !page.contains("|---"));
    }

    #[test]
    fn help_shows_exit_status_and_examples() {
        for verb in names().filter(|name| *name != CONFIGURATION) {
            let help = help(verb);
            assert!(help.contains("Exit status:\n  0"), "{verb}: {help}");
            // Commands are not broken.
            let text = help.split("Examples:").next().unwrap_or_default();
            assert!(help.contains("Examples:\n  longshore"), "{verb}: {help}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{help}"
            );
        }
    }
}
