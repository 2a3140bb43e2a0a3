//! The command line.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::address::Address;

const USAGE: &str = "\
usage: longshore-loadgen --url URL --operation read|write --size BYTES --depth N [--queues N]
         [--order random|sequential] [--digests none|header|data|both] [--flow-control yes|no]
         [--seconds SECONDS | --operations N] [--span BYTES] [--pid SERVER]

URL is iscsi://ADDR:PORT/IQN/LUN or nvme+tcp://ADDR:PORT/NQN/NSID. The depth is that of each queue.";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// READ (16), or Read.
    Read,
    /// WRITE (16), or Write.
    Write,
}

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// After so long.
    Time(Duration),
    /// After exactly so many operations, with none before them to warm up.
    Operations(u64),
}

/// One run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The volume.
    pub address: Address,
    /// What to do.
    pub operation: Operation,
    /// Bytes of each operation.
    pub size: u32,
    /// Operations under way at the same time on each queue.
    pub depth: u16,
    /// Blocks are taken one after the other, from the first on, instead of at random.
    pub sequential: bool,
    /// Connections: sessions of iSCSI, I/O queues of one NVMe controller.
    pub queues: u16,
    /// Whether headers have digests.
    pub header_digest: bool,
    /// Whether data have digests.
    pub data_digest: bool,
    /// Submission queues of NVMe have flow control, which costs a response for each read.
    pub flow_control: bool,
    /// When to stop.
    pub length: Length,
    /// Bytes of the volume to spread over.
    pub span: u64,
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
        let (header_digest, data_digest) = choice(
            &mut given,
            "--digests",
            &[
                ("none", (false, false)),
                ("header", (true, false)),
                ("data", (false, true)),
                ("both", (true, true)),
            ],
        )?;
        let options = Self {
            address: take(&mut given, "--url")?.parse()?,
            operation: match take(&mut given, "--operation")? {
                "read" => Operation::Read,
                "write" => Operation::Write,
                other => return Err(usage(&format!("--operation {other}"))),
            },
            size: number(&mut given, "--size")?,
            depth: number(&mut given, "--depth")?,
            sequential: choice(
                &mut given,
                "--order",
                &[("random", false), ("sequential", true)],
            )?,
            queues: number_or(&mut given, "--queues", "1")?,
            header_digest,
            data_digest,
            flow_control: choice(
                &mut given,
                "--flow-control",
                &[("no", false), ("yes", true)],
            )?,
            length: length(&mut given)?,
            span: number_or(&mut given, "--span", "67108864")?,
            pid: given
                .remove("--pid")
                .map(str::parse)
                .transpose()
                .map_err(io::Error::other)?,
        };
        match given.keys().next() {
            Some(unknown) => Err(usage(&format!("unknown option {unknown}"))),
            None if options.depth == 0 || options.size == 0 || options.queues == 0 => {
                Err(usage("depth, size and queues are not 0"))
            }
            None if options.span < u64::from(options.size) => Err(usage("the span is too small")),
            None => Ok(options),
        }
    }
}

fn length(given: &mut BTreeMap<&str, &str>) -> io::Result<Length> {
    if given.contains_key("--operations") {
        return number(given, "--operations").map(Length::Operations);
    }
    let seconds = number_or(given, "--seconds", "2")?;
    let time = Duration::try_from_secs_f64(seconds).map_err(io::Error::other)?;
    Ok(Length::Time(time))
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

/// One of some words, the first if none is given.
fn choice<T: Copy>(
    given: &mut BTreeMap<&str, &str>,
    name: &str,
    choices: &[(&str, T)],
) -> io::Result<T> {
    let text = given.remove(name).unwrap_or(choices[0].0);
    let chosen = choices.iter().find(|(word, _)| *word == text);
    chosen
        .map(|(_, value)| *value)
        .ok_or_else(|| usage(&format!("{name} {text}")))
}

fn usage(problem: &str) -> io::Error {
    io::Error::other(format!("{problem}\n{USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> io::Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    const LEAST: &str =
        "--url iscsi://127.0.0.1:1/iqn.2026-11.a:b/0 --operation read --size 512 --depth 4";

    #[test]
    fn one_queue_without_digests_is_the_default() {
        let options = parse(LEAST).unwrap();
        assert_eq!((options.queues, options.depth), (1, 4));
        assert!(!options.header_digest && !options.data_digest && !options.flow_control);
        assert_eq!(options.length, Length::Time(Duration::from_secs(2)));
    }

    #[test]
    fn words_that_choose_are_checked() {
        let options = parse(&format!("{LEAST} --digests both --flow-control yes")).unwrap();
        assert!(options.header_digest && options.data_digest && options.flow_control);
        assert!(parse(&format!("{LEAST} --digests all")).is_err());
        assert!(parse(&format!("{LEAST} --queues 0")).is_err());
        assert!(parse(&format!("{LEAST} --typo 1")).is_err());
    }
}
