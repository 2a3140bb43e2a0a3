//! The subset of Config::General that `targets.conf` uses: `<kind name>` blocks, `key value` lines, comments, `include`
//! and lines that `\` continues. Here-documents are refused.

use crate::report::{At, Ledger};
use crate::source::{DEPTH_MAX, ImportError, Options, Source};
use crate::words::{lines, syntax};

/// Files that one source may include, those of included ones too.
const INCLUDED_MAX: usize = 256;

pub(super) enum Item {
    Directive(Directive),
    Block(Block),
}

pub(super) struct Directive {
    pub at: At,
    pub key: String,
    pub value: String,
}

pub(super) struct Block {
    pub at: At,
    /// Name of the directive, in lower case.
    pub kind: String,
    pub name: String,
    pub items: Vec<Item>,
}

impl Block {
    /// Itself and all that it holds.
    pub fn each(&self, visit: &mut dyn FnMut(&At)) {
        visit(&self.at);
        for item in &self.items {
            match item {
                Item::Directive(directive) => visit(&directive.at),
                Item::Block(block) => block.each(visit),
            }
        }
    }
}

/// Directives whose values are secrets.
const SECRETS: &[&str] = &[
    "incominguser",
    "outgoinguser",
    "incomingdiscoveryuser",
    "outgoingdiscoveryuser",
];

pub(super) fn parse(
    source: &Source,
    options: &Options<'_>,
    ledger: &mut Ledger,
) -> Result<Vec<Item>, ImportError> {
    let mut parser = Parser {
        options,
        ledger,
        included: 0,
    };
    parser.file(source, 0)
}

struct Parser<'a, 'o> {
    options: &'a Options<'o>,
    ledger: &'a mut Ledger,
    included: usize,
}

impl Parser<'_, '_> {
    fn file(&mut self, source: &Source, depth: usize) -> Result<Vec<Item>, ImportError> {
        let mut open: Vec<Block> = Vec::new();
        let mut items = Vec::new();
        for (number, text) in logical_lines(&source.text) {
            let wrong = |what: String| syntax(&source.name, number, what);
            let at = |setting: String| At {
                file: source.name.clone(),
                line: number,
                setting,
            };
            if let Some(rest) = text.strip_prefix("</") {
                let block = open.pop();
                let block = block.ok_or_else(|| wrong(format!("`{text}` ends no block")))?;
                let kind = rest.trim_end_matches('>').trim();
                if !kind.eq_ignore_ascii_case(&block.kind) {
                    return Err(wrong(format!("`{text}` ends <{}>", block.kind)));
                }
                into(&mut open, &mut items).push(Item::Block(block));
            } else if let Some(rest) = text.strip_prefix('<') {
                let inner = rest
                    .strip_suffix('>')
                    .ok_or_else(|| wrong("`<` without `>`".to_owned()))?;
                if open.len() >= DEPTH_MAX {
                    return Err(wrong(format!(
                        "blocks lie more than {DEPTH_MAX} deep in each other"
                    )));
                }
                let (kind, name) = split(inner);
                open.push(Block {
                    at: at(format!("<{inner}>")),
                    kind: kind.to_ascii_lowercase(),
                    name: unquoted(name).to_owned(),
                    items: Vec::new(),
                });
            } else {
                let (key, value) = split(&text);
                let shown = match SECRETS.iter().any(|it| it.eq_ignore_ascii_case(key)) {
                    true => format!("{key} {} (secret)", split(value).0),
                    false => format!("{key} {value}"),
                };
                let at = at(shown);
                if key == "include" && open.is_empty() {
                    let included = self.include(value, &at, depth)?;
                    items.extend(included);
                } else if value.starts_with("<<") {
                    self.ledger.refused(
                        &at,
                        "here-documents are not read; write the value on the line",
                    );
                } else {
                    let directive = Directive {
                        at,
                        key: key.to_owned(),
                        value: unquoted(value).to_owned(),
                    };
                    into(&mut open, &mut items).push(Item::Directive(directive));
                }
            }
        }
        match open.pop() {
            Some(block) => Err(syntax(
                &source.name,
                block.at.line,
                format!("<{}> has no end", block.kind),
            )),
            None => Ok(items),
        }
    }

    fn include(&mut self, pattern: &str, at: &At, depth: usize) -> Result<Vec<Item>, ImportError> {
        let Some(read) = self.options.include else {
            self.ledger.refused(at, "other files are not read here");
            return Ok(Vec::new());
        };
        if depth >= DEPTH_MAX {
            return Err(syntax(
                &at.file,
                at.line,
                "files include each other without an end",
            ));
        }
        let sources = match read(unquoted(pattern)) {
            Ok(sources) => sources,
            Err(why) => {
                self.ledger.refused(at, why);
                return Ok(Vec::new());
            }
        };
        self.included += sources.len();
        if self.included > INCLUDED_MAX {
            let what = format!("more than {INCLUDED_MAX} files are included");
            return Err(syntax(&at.file, at.line, what));
        }
        self.ledger.mapped(at, format!("{} files", sources.len()));
        let mut items = Vec::new();
        for source in &sources {
            items.extend(self.file(source, depth + 1)?);
        }
        Ok(items)
    }
}

/// Where the next item belongs.
fn into<'a>(open: &'a mut [Block], items: &'a mut Vec<Item>) -> &'a mut Vec<Item> {
    match open.last_mut() {
        Some(block) => &mut block.items,
        None => items,
    }
}

/// Lines without comments; one that ends in `\` goes on in the next.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let mut logical: Vec<(u32, String)> = Vec::new();
    // The line that belongs to the one before.
    let mut next = None;
    for line in lines(text) {
        let bare = without_comment(line.text);
        let (bare, more) = match bare.strip_suffix('\\') {
            Some(bare) => (bare.trim_end(), true),
            None => (bare, false),
        };
        match logical.last_mut() {
            Some((_, text)) if next == Some(line.number) => {
                text.push(' ');
                text.push_str(bare);
            }
            _ => logical.push((line.number, bare.to_owned())),
        }
        next = more.then_some(line.number + 1);
    }
    logical.retain(|(_, text)| !text.is_empty());
    logical
}

/// `#` begins a comment unless `\` stands in front of it.
fn without_comment(text: &str) -> &str {
    let hashes = text.match_indices('#');
    let comment = hashes
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with('\\'));
    comment.map_or(text, |at| &text[..at]).trim_end()
}

/// Key and value, with blanks or `=` between them.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| c.is_whitespace() || c == '=');
    let (key, value) = text.split_at(end.unwrap_or(text.len()));
    let value = value.trim_start();
    (key, value.strip_prefix('=').unwrap_or(value).trim())
}

fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(text)
}
