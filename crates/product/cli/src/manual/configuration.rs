//! `docs/configuration.md` as the manual page `longshore.toml(5)`.
//!
//! Rows of tables become paragraphs: the first cell in front, the other cells below, because a terminal has no
//! room for columns of text.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

use super::blocks::{CONFIGURATION, DATE, code, section, see_also, source};

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

const FILES: &[(&str, &str)] = &[
    (
        "/etc/longshore/longshore.toml",
        "The file that the unit `longshore.service` reads.",
    ),
    (
        "/usr/local/share/doc/longshore/longshore.toml",
        "A complete example, installed by `make install` (PREFIX is /usr/local).",
    ),
];

pub(super) fn page() -> Roff {
    let mut roff = Roff::new();
    let title = CONFIGURATION.to_uppercase();
    roff.control(
        "TH",
        [title.as_str(), "5", DATE, source().as_str(), "Longshore"],
    );
    roff.control("SH", ["NAME"])
        .text([roman("longshore.toml - configuration of longshore serve")]);
    roff.control("SH", ["SYNOPSIS"]).text([
        bold("longshore serve --config"),
        roman(" "),
        italic("FILE"),
    ]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut writer = Writer::default();
    for event in Parser::new_ext(PAGE, Options::ENABLE_TABLES) {
        writer.take(event, &mut roff);
    }
    section(&mut roff, "FILES", FILES);
    let pages = [("longshore", "1"), ("longshore-serve", "1")];
    see_also(&mut roff, &pages);
    roff
}

/// The state of the conversion.
#[derive(Default)]
struct Writer {
    /// The text of the paragraph, cell or heading.
    text: Vec<Inline>,
    /// How the next text looks.
    strong: bool,
    emphasis: bool,
    /// Cells of the first row of a table, as plain text.
    header: Vec<String>,
    /// Cells of the row under way.
    row: Vec<Vec<Inline>>,
    in_head: bool,
    in_item: bool,
    /// Nothing stands below the heading yet.
    begins: bool,
    /// Where the link under way leads to.
    link: String,
    code: Option<String>,
}

impl Writer {
    fn take(&mut self, event: Event<'_>, roff: &mut Roff) {
        match event {
            Event::Start(tag) => self.start(&tag, roff),
            Event::End(tag) => self.end(tag, roff),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.word(&text),
            },
            Event::Code(text) => self.text.push(bold(text.to_string())),
            Event::SoftBreak | Event::HardBreak => self.word(" "),
            _ => {}
        }
    }

    fn word(&mut self, text: &str) {
        self.text.push(match (self.strong, self.emphasis) {
            (true, _) => bold(text),
            (_, true) => italic(text),
            _ => roman(text),
        });
    }

    fn start(&mut self, tag: &Tag<'_>, roff: &mut Roff) {
        if matches!(tag, Tag::Item | Tag::Table(_) | Tag::CodeBlock(_)) {
            self.begins = false;
        }
        match tag {
            Tag::Strong => self.strong = true,
            Tag::Emphasis => self.emphasis = true,
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.code = Some(String::new());
            }
            Tag::Item => {
                roff.control("IP", ["\\(bu", "2"]);
                self.in_item = true;
            }
            Tag::Link { dest_url, .. } => self.link = dest_url.to_string(),
            Tag::Table(_) => self.header.clear(),
            Tag::TableHead => self.in_head = true,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd, roff: &mut Roff) {
        match tag {
            TagEnd::Strong => self.strong = false,
            // Other pages of the documentation are files, as far as a terminal goes.
            TagEnd::Link => {
                let file = self.link.split('#').next().unwrap_or_default();
                if file.ends_with(".md") {
                    let file = format!(" (docs/{file})");
                    self.word(&file);
                }
            }
            TagEnd::Emphasis => self.emphasis = false,
            TagEnd::Heading(level) => {
                let title = plain(&std::mem::take(&mut self.text));
                match level {
                    // The name of the page.
                    HeadingLevel::H1 => {}
                    HeadingLevel::H2 if title.contains('[') => {
                        roff.control("SH", [title.as_str()]);
                    }
                    HeadingLevel::H2 => drop(roff.control("SH", [title.to_uppercase().as_str()])),
                    _ => drop(roff.control("SS", [title.as_str()])),
                }
                self.begins = true;
            }
            TagEnd::Paragraph => {
                let text = std::mem::take(&mut self.text);
                if !self.in_item && !self.begins {
                    roff.control("PP", []);
                }
                self.begins = false;
                roff.text(text);
            }
            TagEnd::Item => {
                let text = std::mem::take(&mut self.text);
                if !text.is_empty() {
                    roff.text(text);
                }
                self.in_item = false;
            }
            TagEnd::CodeBlock => code(roff, &self.code.take().unwrap_or_default()),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if self.in_head {
                    self.header.push(plain(&cell));
                } else {
                    self.row.push(cell);
                }
            }
            TagEnd::TableHead => self.in_head = false,
            TagEnd::TableRow => self.row(roff),
            _ => {}
        }
    }

    /// A row: its subject, its meaning, and its other cells with the names of their columns.
    fn row(&mut self, roff: &mut Roff) {
        let mut cells = std::mem::take(&mut self.row).into_iter();
        roff.control("TP", [])
            .text(cells.next().unwrap_or_default());
        let mut text: Vec<Inline> = Vec::new();
        let mut facts: Vec<Inline> = Vec::new();
        for (cell, name) in cells.zip(self.header.iter().skip(1)) {
            let gap = if facts.is_empty() { "" } else { "; " };
            match (name.as_str(), plain(&cell).as_str()) {
                (_, "") => {}
                ("meaning", _) => text.extend(cell),
                (_, "required") => facts.push(roman(format!("{gap}required"))),
                (name, _) => {
                    facts.push(roman(format!("{gap}{name}: ")));
                    facts.extend(cell);
                }
            }
        }
        if !facts.is_empty() && !text.is_empty() {
            facts.insert(0, roman(" ["));
            facts.push(roman("]"));
        }
        text.extend(facts);
        roff.text(text);
    }
}

fn plain(text: &[Inline]) -> String {
    let parts = text.iter().map(|part| match part {
        Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.as_str(),
        Inline::LineBreak => " ",
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(markdown: &str) -> String {
        let (mut roff, mut writer) = (Roff::new(), Writer::default());
        for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
            writer.take(event, &mut roff);
        }
        roff.to_roff()
    }

    #[test]
    fn rows_become_paragraphs_and_text_behind_a_table_stands_apart() {
        let page = "## Limits\n\n| key | default | meaning |\n|---|---|---|\n| `memory` | 1 GiB | of all |\n\n\
                    Some text, see [more](operating/memory.md#all).\n";
        assert_eq!(
            rendered(page),
            ".SH LIMITS\n.TP\n\\fBmemory\\fR\nof all [default: 1 GiB]\n.PP\n\
             Some text, see more (docs/operating/memory.md).\n"
        );
    }

    #[test]
    fn names_of_tables_keep_their_case_and_lists_their_marks() {
        assert_eq!(
            rendered("## `[[volume]]`: what\n\n- one **two**\n"),
            ".SH \"[[volume]]: what\"\n.IP \\(bu 2\none \\fBtwo\\fR\n"
        );
    }
}
