//! A set-up as a TOML file, written by hand.
//!
//! ```toml
//! title = "the server in the cellar"
//!
//! [workload]
//! rw = "write"
//! sizes = ["64k", "2M"]     # what is predicted unless the command line says otherwise
//! depths = [1, 2, 4]
//!
//! [network]
//! rate = "1 Gbit/s"
//! one-way-latency = { value = "110 us", plus-minus = "20%", measured = "ping -i 0.002, 15 minutes" }
//! ```
//!
//! A value has a source, `measured`, `given` or `assumed`, with how, by whom or why; without one it is given by the file.
//! `plus-minus` is one standard deviation.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::parameter::{
    CHOICES, Choice, KEYS, Key, Name, ParameterError, Parts, STORAGE_TIMES, Source, as_bytes,
    quantity,
};
use crate::units::Unit;

/// A set-up, and what to predict of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartsFile {
    pub title: String,
    pub parts: Parts,
    /// Bytes of an operation.
    pub sizes: Vec<u64>,
    /// Operations under way on each connection.
    pub depths: Vec<u16>,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct PartsFileError {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

/// The tables of a file.
const TABLES: [&str; 6] = [
    "workload",
    "network",
    "client",
    "server",
    "storage",
    "negotiated",
];

/// Keys of a value that is a table.
const VALUE_KEYS: [&str; 5] = ["value", "plus-minus", "measured", "given", "assumed"];

/// Parameters that have no sensible default.
/// Stands for the rate of a set-up without a network, whose time it leaves as it is.
const NO_LINK: &str = "1000 Gbit/s";

const NEEDED: [Key; 2] = [Key::Rate, Key::OneWayLatency];

/// A problem and the bytes of the text that have it.
type Located<T> = Result<T, (Range<usize>, String)>;

impl PartsFile {
    /// Reads a file that is called `name`.
    ///
    /// # Errors
    /// It is not TOML, or has keys or values that are not known.
    pub fn parse(text: &str, name: &str) -> Result<Self, PartsFileError> {
        read(text, name).map_err(|(span, problem)| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            PartsFileError {
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                problem,
            }
        })
    }
}

fn read(text: &str, name: &str) -> Located<PartsFile> {
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        (span, error.message().to_owned())
    })?;
    let mut file = PartsFile::default();
    let mut given = Vec::new();
    for (key, value) in document.get_ref() {
        let found: &str = key.get_ref();
        match (found, value.get_ref()) {
            ("title", DeValue::String(title)) => file.title = title.to_string(),
            (table, DeValue::Table(rows)) if TABLES.contains(&table) => {
                for (key, value) in rows {
                    read_row(&mut file, table, key.get_ref(), key.span(), value, name)?;
                    given.push(key.get_ref().to_string());
                }
            }
            _ => {
                let problem = format!(
                    "unknown key `{found}`; a file has `title` and the tables {}",
                    TABLES.map(|table| format!("[{table}]")).join(", ")
                );
                return Err((key.span(), problem));
            }
        }
    }
    for key in NEEDED.map(|key| key.definition()) {
        if !given.iter().any(|name| name == key.name) {
            let problem = format!(
                "`{}` is missing; add it to [{}], for example {} = \"{}\"",
                key.name,
                key.table,
                key.name,
                if key.unit == Unit::Time {
                    "100 us"
                } else {
                    "1 Gbit/s"
                }
            );
            return Err((0..0, problem));
        }
    }
    if file.sizes.is_empty() {
        file.sizes = vec![512, 4096, 65_536];
    }
    if file.depths.is_empty() {
        file.depths = vec![1, 2, 4, 8, 16, 32, 64, 128];
    }
    Ok(file)
}

fn read_row(
    file: &mut PartsFile,
    table: &str,
    name: &str,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    file_name: &str,
) -> Located<()> {
    let at = |problem: String| (value.span(), problem);
    if table == "workload" && name == "sizes" {
        file.sizes = list(value)?
            .iter()
            .map(|text| Unit::Size.parse(text).map(as_bytes))
            .collect::<Result<_, _>>()
            .map_err(|error| at(error.to_string()))?;
        check_sizes(&file.sizes).map_err(at)?;
        return positive(&file.sizes, &0).map_err(at);
    }
    if table == "workload" && name == "depths" {
        let depth = |text: &String| {
            text.parse()
                .map_err(|_| at(format!("`{text}` is not a depth; give 1 to 65535")))
        };
        file.depths = list(value)?.iter().map(depth).collect::<Result<_, _>>()?;
        return positive(&file.depths, &0).map_err(at);
    }
    let found = Name::find(name).map_err(|error| (key.clone(), error.to_string()))?;
    if found.table() != table {
        return Err((key, format!("`{name}` belongs into [{}]", found.table())));
    }
    let given = Source::Given(file_name.to_owned());
    let changed = match value.get_ref() {
        DeValue::Table(rows) if found == Name::StorageTimes => {
            let times = storage_times(rows)?;
            file.parts.set_storage_times(&times, given)
        }
        DeValue::Table(rows) => {
            let written = Written::read(rows, value.span())?;
            let source = written.source.unwrap_or(given);
            match found {
                Name::Key(key) => {
                    let spread = written.spread.as_deref();
                    quantity(key, &written.value, spread, source)
                        .and_then(|quantity| file.parts.set(key, quantity))
                }
                _ => file.parts.change(name, &written.value, source),
            }
        }
        plain => file
            .parts
            .change(name, &text_of(plain, value.span())?, given),
    };
    changed.map_err(|error: ParameterError| at(error.to_string()))
}

/// The largest operation that is predicted.
pub const SIZE_MAX: u64 = 1 << 30;

/// Refuses operations that no protocol has.
///
/// # Errors
/// One is larger than [`SIZE_MAX`].
pub fn check_sizes(sizes: &[u64]) -> Result<(), String> {
    match sizes.iter().find(|size| **size > SIZE_MAX) {
        Some(size) => Err(format!(
            "{size} is too large for an operation; give up to 1 GiB"
        )),
        None => Ok(()),
    }
}

fn positive<T: PartialEq>(values: &[T], zero: &T) -> Result<(), String> {
    if values.is_empty() || values.contains(zero) {
        return Err("give at least one, and none that is 0".to_owned());
    }
    Ok(())
}

/// A value with its uncertainty and source.
struct Written {
    value: String,
    spread: Option<String>,
    source: Option<Source>,
}

impl Written {
    fn read(rows: &DeTable<'_>, span: Range<usize>) -> Located<Self> {
        let mut written = Self {
            value: String::new(),
            spread: None,
            source: None,
        };
        for (key, value) in rows {
            let text = text_of(value.get_ref(), value.span())?;
            let name: &str = key.get_ref();
            match name {
                "value" => written.value = text,
                "plus-minus" => written.spread = Some(text),
                "measured" => written.source = Some(Source::Measured(text)),
                "given" => written.source = Some(Source::Given(text)),
                "assumed" => written.source = Some(Source::Assumed(text)),
                other => {
                    let known = VALUE_KEYS.join(", ");
                    return Err((
                        key.span(),
                        format!("unknown key `{other}`; known are {known}"),
                    ));
                }
            }
        }
        if written.value.is_empty() {
            return Err((span, "`value` is missing".to_owned()));
        }
        Ok(written)
    }
}

/// A scalar as the text that the command line would have.
fn text_of(value: &DeValue<'_>, span: Range<usize>) -> Located<String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(yes) => Ok(if *yes { "yes" } else { "no" }.to_owned()),
        _ => Err((span, "give a text or a number".to_owned())),
    }
}

fn list(value: &Spanned<DeValue<'_>>) -> Located<Vec<String>> {
    let DeValue::Array(rows) = value.get_ref() else {
        return Err((value.span(), "give a list, such as [1, 2, 4]".to_owned()));
    };
    rows.iter()
        .map(|row| text_of(row.get_ref(), row.span()))
        .collect()
}

/// `{ 4k = "120us" }` as `4k=120us`.
fn storage_times(rows: &DeTable<'_>) -> Located<String> {
    let mut pairs = Vec::new();
    for (size, time) in rows {
        let time = text_of(time.get_ref(), time.span())?;
        pairs.push(format!("{}={time}", size.get_ref()));
    }
    Ok(pairs.join(","))
}

/// A set-up as a file, with comments: a beginning for one's own.
#[must_use]
pub fn render(file: &PartsFile) -> String {
    let mut text = format!("title = {}\n", quoted(&file.title));
    for table in TABLES {
        text += &format!("\n[{table}]\n");
        for (choice, it) in CHOICES.iter().filter(|(_, it)| it.table == table) {
            let source = file.parts.word_source(*choice);
            let word = quoted(file.parts.word(*choice));
            let written = if source.note() == "default" {
                word
            } else {
                let note = quoted(source.note());
                format!("{{ value = {word}, {} = {note} }}", source.kind())
            };
            text += &format!(
                "{} = {written} # {}: {}\n",
                it.name,
                it.words.join(", "),
                it.meaning
            );
        }
        if table == "workload" {
            let sizes: Vec<String> = file
                .sizes
                .iter()
                .map(|size| format!("\"{size}\""))
                .collect();
            text += &format!(
                "sizes = [{}]\ndepths = {:?}\n",
                sizes.join(", "),
                file.depths
            );
        }
        for (key, it) in KEYS.iter().filter(|(_, it)| it.table == table) {
            let quantity = file.parts.quantity(*key);
            if *key == Key::Rate && quantity.value <= 0.0 {
                text += &format!(
                    "{} = {{ value = {}, assumed = \"there is no link\" }} # {}\n",
                    it.name,
                    quoted(NO_LINK),
                    it.meaning
                );
                continue;
            }
            let value = quoted(&exact(it.unit, quantity.value));
            let mut row = format!("value = {value}");
            if quantity.uncertainty > 0.0 {
                row += &format!(
                    ", plus-minus = {}",
                    quoted(&exact(it.unit, quantity.uncertainty))
                );
            }
            let (kind, note) = (quantity.source.kind(), quoted(quantity.source.note()));
            text += &format!(
                "{} = {{ {row}, {kind} = {note} }} # {}\n",
                it.name, it.meaning
            );
        }
        if table == "storage" && !file.parts.storage_times().is_empty() {
            let times = file.parts.storage_times().iter();
            let times: Vec<String> = times
                .map(|(size, us)| {
                    let spread = file.parts.storage_spreads().get(size);
                    let spread = spread.map_or_else(String::new, |spread| format!("±{spread}us"));
                    format!("\"{size}\" = \"{us} us{spread}\"")
                })
                .collect();
            text += &format!("{STORAGE_TIMES} = {{ {} }}\n", times.join(", "));
        }
    }
    text
}

/// A value in a unit in which it loses no digit.
fn exact(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Time => format!("{value} us"),
        Unit::Size => format!("{value}"),
        Unit::LineRate => format!("{} bit/s", value * 8.0),
        Unit::Rate if value > 0.0 => format!("{value} B/s"),
        Unit::Rate => "0".to_owned(),
        Unit::Cost if value > 0.0 => format!("{} ns/B", value * 1e3),
        Unit::Cost => "0".to_owned(),
        Unit::Clock => format!("{value} GHz"),
        Unit::Count | Unit::Ratio => format!("{value}"),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Whether a set-up needs the simulation: what bounds know nothing of.
#[must_use]
pub fn needs_simulation(parts: &Parts) -> bool {
    parts.get(Key::MixSize) > 0.0
}

/// Whether responses may wait for acknowledgements, which bounds leave out.
#[must_use]
pub fn holds_responses(parts: &Parts) -> bool {
    let policy = parts.word(Choice::Transmit);
    parts.is(Choice::Direction, "read") && (policy == "nagle" || policy == "adaptive-nagle")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::PRESETS;
    use crate::random::Random;

    const SMALL: &str = "title = \"x\"\n[network]\nrate = \"1Gbit/s\"\none-way-latency = { value = \"110us\", \
                         plus-minus = \"10%\", measured = \"ping\" }\n";

    #[test]
    fn a_small_file_is_enough() {
        let file = PartsFile::parse(SMALL, "x.toml").unwrap();
        let latency = file.parts.quantity(Key::OneWayLatency);
        assert!((latency.uncertainty - 11.0).abs() < 1e-9);
        assert_eq!(latency.source, Source::Measured("ping".to_owned()));
        let rate = file.parts.quantity(Key::Rate);
        assert_eq!(rate.source, Source::Given("x.toml".to_owned()));
    }

    #[test]
    fn no_text_makes_the_reader_panic() {
        let mut random = Random::new(5);
        let texts = PRESETS.iter().map(|(_, text)| *text);
        for text in texts.chain(["title = \"µ±\"\n[network]\nrate = \"1µ\"\n"]) {
            for _ in 0..400 {
                let mut letters: Vec<char> = text.chars().collect();
                for _ in 0..=random.bits() % 4 {
                    let place = usize::try_from(random.bits()).unwrap() % letters.len();
                    let other = usize::try_from(random.bits()).unwrap() % letters.len();
                    match random.bits() % 3 {
                        0 => letters.truncate(place.max(1)),
                        1 => letters[place] = letters[other],
                        _ => letters.insert(place, ['\u{b5}', '"', '\n', '0', '-', '{'][other % 6]),
                    }
                }
                let mutated: String = letters.into_iter().collect();
                let _ = PartsFile::parse(&mutated, "x");
            }
        }
    }

    #[test]
    fn a_rendered_file_reads_the_same() {
        let text = format!(
            "{SMALL}[storage]\nstorage-times = {{ 4k = \"100us\", 64k = \"480us±7us\" }}\n[server]\nserver-cpu-per-byte = \
             \"4ms/MiB\"\n"
        );
        let file = PartsFile::parse(&text, "x.toml").unwrap();
        let again = PartsFile::parse(&render(&file), "x.toml").unwrap();
        for (key, it) in KEYS {
            let (one, other) = (file.parts.get(*key), again.parts.get(*key));
            assert!((one - other).abs() <= one.abs() * 1e-12, "{}", it.name);
        }
        assert_eq!(file.parts.storage_times(), again.parts.storage_times());
        assert_eq!(file.parts.storage_spreads(), again.parts.storage_spreads());
        assert_eq!((file.sizes, file.depths), (again.sizes, again.depths));
    }

    #[test]
    fn mistakes_have_a_line_and_a_column_and_say_what_to_write() {
        for (text, place, problem) in [
            ("[network]\nrat = 1\n", "2:1", "did you mean `rate`?"),
            ("[network]\nrate = \"fast\"\n", "2:8", "is not a rate"),
            (
                "[network]\nclock = \"2GHz\"\n",
                "2:1",
                "belongs into [server]",
            ),
            ("[net]\n", "1:2", "the tables [workload]"),
            (
                "[network]\nrate = \"1Gbit/s\"\n",
                "1:1",
                "`one-way-latency` is missing",
            ),
            ("[network\n", "1:9", ""),
            ("[workload]\ndepths = [0]\n", "2:10", "none that is 0"),
            ("[workload]\nrw = \"trim\"\n", "2:6", "read, write"),
            (
                "[network]\nrate = { plus-minus = \"1%\" }\n",
                "2:8",
                "`value` is missing",
            ),
            (
                "[network]\nrate = { value = \"1Gbit/s\", spread = 1 }\n",
                "2:29",
                "plus-minus",
            ),
        ] {
            let message = PartsFile::parse(text, "x").unwrap_err().to_string();
            assert!(message.starts_with(place), "{text}: {message}");
            assert!(message.contains(problem), "{text}: {message}");
        }
    }
}
