//! JSON whose values know their lines and whether anybody has looked at them.

use std::cell::Cell;
use std::collections::HashSet;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::report::{At, Ledger, Verdict};
use crate::source::{DEPTH_MAX, ImportError, Source};
use crate::words::syntax;

/// A value, its place and its name: `targets[0].tpgs[1].tag`.
#[derive(Debug)]
pub(crate) struct Node {
    pub at: At,
    pub value: Value,
    taken: Cell<bool>,
}

#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Switch(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// Parts of names whose values no report shows.
const SECRETS: [&str; 5] = ["password", "secret", "psk", "dhchap", "credential"];

fn is_secret(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    SECRETS.iter().any(|part| path.contains(part))
}

pub(crate) fn parse(source: &Source) -> Result<Node, ImportError> {
    if let Some(line) = too_deep(&source.text) {
        let what = format!("values lie more than {DEPTH_MAX} deep in each other");
        return Err(syntax(&source.name, line, what));
    }
    let options = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        ..ParseOptions::default()
    };
    let parsed = parse_to_ast(&source.text, &CollectOptions::default(), &options);
    let parsed = parsed.map_err(|error| {
        let line = u32::try_from(error.line_display()).unwrap_or(u32::MAX);
        syntax(&source.name, line, error.kind().to_string())
    })?;
    let Some(value) = parsed.value else {
        return Err(syntax(&source.name, 1, "the file is empty"));
    };
    let lines = Lines::new(&source.text);
    Reader {
        name: &source.name,
        lines,
    }
    .node(&value, String::new())
}

/// The line where brackets lie too deep.
fn too_deep(text: &str) -> Option<u32> {
    let (mut depth, mut line, mut quoted, mut escaped) = (0_usize, 1, false, false);
    for byte in text.bytes() {
        match byte {
            b'\n' => line += 1,
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Some(line);
        }
    }
    None
}

struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self([0].into_iter().chain(ends.map(|(at, _)| at + 1)).collect())
    }

    fn of(&self, offset: usize) -> u32 {
        let line = self.0.partition_point(|start| *start <= offset);
        u32::try_from(line).unwrap_or(u32::MAX)
    }
}

struct Reader<'a> {
    name: &'a str,
    lines: Lines,
}

impl Reader<'_> {
    fn node(&self, value: &ast::Value<'_>, path: String) -> Result<Node, ImportError> {
        let line = self.lines.of(value.start());
        let read = match value {
            ast::Value::NullKeyword(_) => Value::Null,
            ast::Value::BooleanLit(it) => Value::Switch(it.value),
            ast::Value::NumberLit(it) => Value::Number(it.value.to_string()),
            ast::Value::StringLit(it) => Value::Text(it.value.to_string()),
            ast::Value::Array(it) => {
                let elements = it.elements.iter().enumerate();
                let node = |(index, element)| self.node(element, format!("{path}[{index}]"));
                Value::List(elements.map(node).collect::<Result<_, _>>()?)
            }
            ast::Value::Object(it) => {
                let mut names = HashSet::new();
                let mut members = Vec::new();
                for property in &it.properties {
                    let name = property.name.as_str().to_owned();
                    if !names.insert(name.clone()) {
                        let line = self.lines.of(property.start());
                        return Err(syntax(
                            self.name,
                            line,
                            format!("`{name}` stands here twice"),
                        ));
                    }
                    let path = match path.is_empty() {
                        true => name.clone(),
                        false => format!("{path}.{name}"),
                    };
                    members.push((name, self.node(&property.value, path)?));
                }
                Value::Object(members)
            }
        };
        let setting = match &read {
            Value::List(_) | Value::Object(_) => path.clone(),
            _ if is_secret(&path) => format!("{path} = (secret)"),
            Value::Null => format!("{path} = null"),
            Value::Switch(on) => format!("{path} = {on}"),
            Value::Number(text) => format!("{path} = {text}"),
            Value::Text(text) => format!("{path} = {:?}", shortened(text)),
        };
        Ok(Node {
            at: At {
                file: self.name.to_owned(),
                line,
                setting,
            },
            value: read,
            taken: Cell::new(false),
        })
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Node {
    /// A member of an object; what is looked at counts as handled.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Value::Object(members) = &self.value else {
            return None;
        };
        let (_, node) = members.iter().find(|(member, _)| member == name)?;
        node.taken.set(true);
        Some(node)
    }

    /// The elements of a list; nothing for other values.
    pub fn items(&self) -> &[Self] {
        self.taken.set(true);
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The elements of a list that is a member.
    pub fn list(&self, name: &str) -> &[Self] {
        self.get(name).map_or(&[], Self::items)
    }

    /// Text, or a number or a switch as it is written: these tools write all of them as text here and there.
    pub fn text(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text.clone()),
            Value::Switch(on) => Some(on.to_string()),
            Value::Null | Value::List(_) | Value::Object(_) => None,
        }
    }

    pub fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    pub fn switch(&self) -> Option<bool> {
        crate::values::switch(&self.text()?)
    }

    pub fn is_object(&self) -> bool {
        matches!(self.value, Value::Object(_))
    }

    /// Whether nothing stands here.
    pub fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Switch(_) | Value::Number(_) => false,
        }
    }

    pub fn members(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// Ends all below with one verdict, except what has one already.
    fn whole(&self, verdict: &Verdict, ledger: &mut Ledger) {
        self.taken.set(true);
        match &self.value {
            Value::List(items) if !items.is_empty() => {
                items.iter().for_each(|item| item.whole(verdict, ledger));
            }
            Value::Object(members) if !members.is_empty() => {
                members
                    .iter()
                    .for_each(|(_, node)| node.whole(verdict, ledger));
            }
            _ if ledger.has(&self.at) => {}
            _ => ledger.note_verdict(&self.at, verdict.clone()),
        }
    }

    pub fn mapped_whole(&self, to: &str, ledger: &mut Ledger) {
        let to = to.to_owned();
        self.whole(&Verdict::Mapped { to }, ledger);
    }

    /// The same of all below that was looked at.
    pub fn mapped_where_taken(&self, to: &str, ledger: &mut Ledger) {
        match &self.value {
            Value::List(items) if !items.is_empty() => {
                items
                    .iter()
                    .for_each(|item| item.mapped_where_taken(to, ledger));
            }
            Value::Object(members) if !members.is_empty() => {
                let taken = members.iter().filter(|(_, node)| node.taken.get());
                taken.for_each(|(_, node)| node.mapped_where_taken(to, ledger));
            }
            _ if ledger.has(&self.at) => {}
            _ => ledger.mapped(&self.at, to.to_owned()),
        }
    }

    /// Refuses a member that has another value than this one, which says what is so here anyway.
    pub fn refuse_unless(&self, name: &str, value: &str, why: &str, ledger: &mut Ledger) {
        let Some(node) = self.get(name) else { return };
        if node.is_nothing() || node.text().as_deref() == Some(value) {
            node.default_whole(ledger);
        } else {
            node.refused_whole(why, ledger);
        }
    }

    pub fn default_whole(&self, ledger: &mut Ledger) {
        self.whole(&Verdict::SameAsDefault, ledger);
    }

    pub fn ignored_whole(&self, why: &str, ledger: &mut Ledger) {
        let why = why.to_owned();
        self.whole(&Verdict::Ignored { why }, ledger);
    }

    pub fn refused_whole(&self, why: &str, ledger: &mut Ledger) {
        let why = why.to_owned();
        self.whole(&Verdict::Refused { why }, ledger);
    }

    /// Ignores a member and all below it, where it is there.
    pub fn ignore(&self, name: &str, why: &str, ledger: &mut Ledger) {
        if let Some(node) = self.get(name) {
            node.ignored_whole(why, ledger);
        }
    }

    /// Refuses a member and all below it, where something stands there.
    pub fn refuse(&self, name: &str, why: &str, ledger: &mut Ledger) {
        if let Some(node) = self.get(name) {
            match node.is_nothing() {
                true => node.default_whole(ledger),
                false => node.refused_whole(why, ledger),
            }
        }
    }

    /// Refuses all that nobody has looked at.
    pub fn finish(&self, ledger: &mut Ledger) {
        let unknown = "this key is not known here; it may matter to hosts";
        match &self.value {
            Value::List(items) if !items.is_empty() => {
                items.iter().for_each(|item| item.finish(ledger));
            }
            Value::Object(members) if !members.is_empty() => {
                for (_, node) in members {
                    match node.taken.get() {
                        true => node.finish(ledger),
                        false if node.is_nothing() => node.default_whole(ledger),
                        false => node.refused_whole(unknown, ledger),
                    }
                }
            }
            _ => self.mapped_whole("read together with what stands beside it", ledger),
        }
    }
}
