//! The command line.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

const USAGE: &str = "\
usage: longshore-loadgen --portal ADDR:PORT --lun N --operation read|write --size BYTES --depth N
         [--seconds SECONDS] [--span BYTES] [--block-size 512|4096] [--pid SERVER] [--target IQN]";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// READ (16).
    Read,
    /// WRITE (16).
    Write,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server listens.
    pub portal: SocketAddr,
    /// The target's name.
    pub target: String,
    /// Which unit.
    pub lun: u8,
    /// What to do.
    pub operation: Operation,
    /// Bytes of each operation.
    pub size: u32,
    /// Operations under way at the same time.
    pub depth: u32,
    /// How long to measure.
    pub duration: Duration,
    /// Bytes of the unit to spread over.
    pub span: u64,
    /// Logical block size of the unit.
    pub block_size: u32,
    /// The server's process, whose processor time is taken.
    pub pid: Option<u32>,
}

impl Options {
    /// Reads the arguments of this process.
    pub fn from_process() -> io::Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Self::parse(&words)
    }

    fn parse(words: &[String]) -> io::Result<Self> {
        let mut given = BTreeMap::new();
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(usage("an option has no value"));
            };
            given.insert(name.as_str(), value.as_str());
        }
        let operation = match take(&mut given, "--operation")? {
            "read" => Operation::Read,
            "write" => Operation::Write,
            other => return Err(usage(&format!("--operation {other}"))),
        };
        let target = given
            .remove("--target")
            .unwrap_or(longshore_tests::server::TARGET)
            .to_owned();
        let seconds: f64 = number_or(&mut given, "--seconds", "2")?;
        let options = Self {
            portal: number(&mut given, "--portal")?,
            target,
            lun: number(&mut given, "--lun")?,
            operation,
            size: number(&mut given, "--size")?,
            depth: number(&mut given, "--depth")?,
            duration: Duration::try_from_secs_f64(seconds).map_err(io::Error::other)?,
            span: number_or(&mut given, "--span", "67108864")?,
            block_size: number_or(&mut given, "--block-size", "512")?,
            pid: given
                .remove("--pid")
                .map(str::parse)
                .transpose()
                .map_err(io::Error::other)?,
        };
        match given.keys().next() {
            Some(unknown) => Err(usage(&format!("unknown option {unknown}"))),
            None if options.depth == 0 || options.size == 0 => {
                Err(usage("depth and size are not 0"))
            }
            None if !options.size.is_multiple_of(options.block_size) => {
                Err(usage("the size is no multiple of the block size"))
            }
            None if options.span < u64::from(options.size) => Err(usage("the span is too small")),
            None => Ok(options),
        }
    }
}

fn take<'a>(given: &mut BTreeMap<&str, &'a str>, name: &str) -> io::Result<&'a str> {
    given
        .remove(name)
        .ok_or_else(|| usage(&format!("{name} is missing")))
}

fn number<T: std::str::FromStr>(given: &mut BTreeMap<&str, &str>, name: &str) -> io::Result<T> {
    let text = take(given, name)?;
    text.parse().map_err(|_| usage(&format!("{name} {text}")))
}

fn number_or<T: std::str::FromStr>(
    given: &mut BTreeMap<&str, &str>,
    name: &str,
    default: &str,
) -> io::Result<T> {
    let text = given.remove(name).unwrap_or(default);
    text.parse().map_err(|_| usage(&format!("{name} {text}")))
}

fn usage(problem: &str) -> io::Error {
    io::Error::other(format!("{problem}\n{USAGE}"))
}
