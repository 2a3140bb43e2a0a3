//! Today's grammar: `KEY [value [value]] [{ … }]`, a statement a line.
//!
//! As scstadmin reads it: `#` without `\` in front of it eats the rest of the line and the character before it, `\x` is
//! `x`, and braces count anywhere, in quotes too.

use crate::report::At;
use crate::source::{DEPTH_MAX, ImportError, Source};
use crate::words::syntax;

pub(super) struct Statement {
    pub at: At,
    pub key: String,
    pub values: Vec<String>,
    pub block: Option<Vec<Self>>,
    /// Of how many words the line has: scstadmin loses those behind the third.
    pub lost: bool,
}

impl Statement {
    pub fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    pub fn statements(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Itself and all in its block.
    pub fn each(&self, visit: &mut dyn FnMut(&At)) {
        visit(&self.at);
        for statement in self.statements() {
            statement.each(visit);
        }
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Beginnings of keys whose values are secrets, in lower case.
const SECRETS: [&str; 2] = ["incominguser", "outgoinguser"];

pub(super) fn parse(source: &Source) -> Result<Vec<Statement>, ImportError> {
    // The statements of the file, and of each block that is open.
    let mut levels: Vec<Vec<Statement>> = vec![Vec::new()];
    for (line, number) in source.text.lines().zip(1_u32..) {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| syntax(&source.name, number, what);
        let mut words: Vec<String> = Vec::new();
        for token in tokens(line) {
            match token {
                Token::Word(word) => words.push(word),
                Token::Open => {
                    if levels.len() > DEPTH_MAX {
                        return Err(wrong("blocks lie too deep in each other"));
                    }
                    let statement = statement(source, number, &mut words)
                        .ok_or_else(|| wrong("`{` without a name in front of it"))?;
                    let innermost = levels.last_mut().expect("the file is always there");
                    innermost.push(Statement {
                        block: Some(Vec::new()),
                        ..statement
                    });
                    levels.push(Vec::new());
                }
                Token::Close => {
                    let last = statement(source, number, &mut words);
                    let mut inner = levels.pop().expect("the file is always there");
                    inner.extend(last);
                    let outer = levels.last_mut().and_then(|level| level.last_mut());
                    let outer = outer.ok_or_else(|| wrong("`}` closes nothing"))?;
                    outer.block = Some(inner);
                }
                Token::End => {
                    let innermost = levels.last_mut().expect("the file is always there");
                    innermost.extend(statement(source, number, &mut words));
                }
            }
        }
    }
    let statements = levels.swap_remove(0);
    match levels.is_empty() {
        true => Ok(statements),
        false => {
            let open = statements.last().map_or(1, |statement| statement.at.line);
            Err(syntax(&source.name, open, "this block has no `}`"))
        }
    }
}

fn statement(source: &Source, line: u32, words: &mut Vec<String>) -> Option<Statement> {
    let mut taken = std::mem::take(words).into_iter();
    let key = taken.next()?;
    let values: Vec<String> = taken.collect();
    let lower = key.to_ascii_lowercase();
    let secret = SECRETS.iter().find(|secret| lower.starts_with(**secret));
    let shown = match secret {
        Some(secret) if lower.len() > secret.len() => format!("{} (secret)", &key[..secret.len()]),
        Some(_) => {
            let user = values.first().and_then(|it| it.split_whitespace().next());
            format!("{key} {} (secret)", user.unwrap_or_default())
        }
        None => format!("{key} {}", values.join(" ")).trim_end().to_owned(),
    };
    Some(Statement {
        at: At {
            file: source.name.clone(),
            line,
            setting: shown,
        },
        lost: values.len() > 2,
        key,
        values,
        block: None,
    })
}

fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut word, mut begun, mut quoted) = (String::new(), false, false);
    let line = unescaped(line);
    let end = |word: &mut String, begun: &mut bool, tokens: &mut Vec<Token>| {
        if std::mem::take(begun) {
            tokens.push(Token::Word(std::mem::take(word)));
        }
    };
    for c in line.chars() {
        match c {
            '{' | '}' => {
                end(&mut word, &mut begun, &mut tokens);
                tokens.push(if c == '{' { Token::Open } else { Token::Close });
            }
            '"' => {
                quoted = !quoted;
                begun = true;
            }
            c if c.is_whitespace() && !quoted => end(&mut word, &mut begun, &mut tokens),
            c => {
                begun = true;
                word.push(c);
            }
        }
    }
    end(&mut word, &mut begun, &mut tokens);
    tokens.push(Token::End);
    tokens
}

/// Without its comment, and with `x` for `\x`.
fn unescaped(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => text.extend(characters.next()),
            '#' => {
                text.pop();
                break;
            }
            c => text.push(c),
        }
    }
    text
}
