//! Set-ups that are drawn from a seed, and what limits each of them in truth.
//!
//! The truth is arithmetic on the values that were drawn, with the processor times of a usual machine. A set-up is used
//! if one of the values that were drawn limits it, not a processor time that was assumed.

use std::fmt;

use anyhow::{Context, Result, bail};
use longshore_model::operation::Element;
use longshore_model::parameter::{Parts, Source};
use longshore_model::probe::Direction;
use longshore_model::random::Random;
use longshore_model::verdict::level;

use crate::bench::point::Protocol;

/// One link, device, server and load.
#[derive(Debug, Clone, PartialEq)]
pub struct SetUp {
    pub protocol: Protocol,
    pub link: Link,
    pub device: Device,
    /// Percent of a processor that the server gets.
    pub share: u32,
    pub rules: Rules,
    pub load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Megabits a second, both ways.
    pub rate: u32,
    pub mtu: u32,
    /// Bytes that pass at once after a pause.
    pub burst: u32,
    /// Milliseconds that packets wait at most.
    pub queue_ms: u32,
    /// One way; 0: none.
    pub delay_us: u32,
    pub jitter_us: u32,
}

/// A volume of known times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Zero stands for none.
    pub delay_us: u32,
    /// Megabytes a second; 0: any.
    pub rate: u32,
}

/// What the server lets clients negotiate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub outstanding: u32,
    pub first_burst: u32,
    pub max_burst: u32,
    pub in_capsule: u32,
}

/// The load that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub direction: Direction,
    pub size: u32,
    pub depth: u16,
}

/// What is meant to limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Link,
    Way,
    DeviceTime,
    DeviceRate,
    R2ts,
    Processor,
}

pub const KINDS: [Kind; 6] = [
    Kind::Link,
    Kind::Way,
    Kind::DeviceTime,
    Kind::DeviceRate,
    Kind::R2ts,
    Kind::Processor,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "rate of the link",
            Self::Way => "delay of the way",
            Self::DeviceTime => "time of the device",
            Self::DeviceRate => "rate of the device",
            Self::R2ts => "R2Ts",
            Self::Processor => "share of the server's processor",
        }
    }

    /// Whether the published error counts these: rate, delay or device limit.
    pub fn is_judged(self) -> bool {
        !matches!(self, Self::R2ts | Self::Processor)
    }
}

/// As far as a draw can go before something is wrong with the ranges.
const DRAWS_MAX: usize = 1000;

/// Processor times of a usual machine, and what else is not drawn.
const USUAL: [(&str, &str); 8] = [
    ("client-cpu-per-op", "12us"),
    ("client-cpu-per-byte", "0.3ns/B"),
    ("server-cpu-per-op", "10us"),
    ("server-cpu-per-byte", "0.3ns/B"),
    ("client-wake-up", "20us"),
    ("server-wake-up", "20us"),
    ("variation", "0.2"),
    ("transmit", "auto"),
];

impl SetUp {
    /// The set-up of a number: kinds take turns, all else comes from the random numbers.
    pub fn draw(random: &mut Random, number: usize) -> Result<(Kind, Self)> {
        let kind = KINDS[number % KINDS.len()];
        for _ in 0..DRAWS_MAX {
            let drawn = Self::once(random, kind);
            let truth = drawn.truth()?;
            if truth.first().is_some_and(|first| kind.limits(*first)) {
                return Ok((kind, drawn));
            }
        }
        bail!("no set-up is limited by the {}", kind.name())
    }

    fn once(random: &mut Random, kind: Kind) -> Self {
        let nvme = kind != Kind::R2ts && random.bits() % 2 == 1;
        let writes = kind == Kind::R2ts || random.bits().is_multiple_of(3);
        let sizes: &[u32] = match kind {
            Kind::Link | Kind::DeviceRate => &[16 << 10, 64 << 10, 256 << 10],
            Kind::R2ts => &[512 << 10, 1 << 20],
            _ => &[4 << 10, 16 << 10],
        };
        let depths: &[u16] = match kind {
            Kind::Link | Kind::DeviceRate => &[1, 2, 4, 16],
            Kind::Processor => &[32, 64],
            Kind::R2ts => &[1],
            _ => &[1, 2, 4],
        };
        let half = |random: &mut Random| random.bits().is_multiple_of(2);
        let rate = match kind {
            Kind::Link => between(random, 50.0, 400.0),
            _ => between(random, 300.0, 1000.0),
        };
        let delayed = match kind {
            Kind::Way | Kind::R2ts => true,
            Kind::Processor => false,
            _ => half(random),
        };
        let delay = match kind {
            Kind::Way | Kind::R2ts => between(random, 1000.0, 10_000.0),
            _ => between(random, 200.0, 2000.0),
        };
        let delay_us = if delayed { delay } else { 0 };
        let device = match kind {
            Kind::DeviceTime => Device {
                delay_us: between(random, 1000.0, 15_000.0),
                rate: if half(random) {
                    between(random, 50.0, 200.0)
                } else {
                    0
                },
            },
            Kind::DeviceRate => Device {
                delay_us: if half(random) {
                    between(random, 200.0, 2000.0)
                } else {
                    0
                },
                rate: between(random, 3.0, 40.0),
            },
            Kind::Processor => Device {
                delay_us: 0,
                rate: 0,
            },
            _ => Device {
                delay_us: if half(random) {
                    between(random, 100.0, 1000.0)
                } else {
                    0
                },
                rate: 0,
            },
        };
        let mtu = if half(random) { 1500 } else { 9000 };
        Self {
            protocol: if nvme {
                Protocol::Nvme
            } else {
                Protocol::Iscsi
            },
            link: Link {
                rate: if kind == Kind::Processor { 4000 } else { rate },
                mtu,
                burst: one_of(random, &[mtu * 2, 32 << 10, 64 << 10]),
                // All that a probe has under way fits: the model knows no loss.
                queue_ms: one_of(random, &[400, 800]),
                delay_us,
                jitter_us: if half(random) { delay_us / 10 } else { 0 },
            },
            device,
            share: if kind == Kind::Processor {
                one_of(random, &[15, 25, 40])
            } else {
                100
            },
            rules: Rules {
                outstanding: one_of(random, &[1, 1, 2]),
                first_burst: 64 << 10,
                max_burst: one_of(random, &[64 << 10, 128 << 10]),
                in_capsule: 8192,
            },
            load: Load {
                direction: if writes {
                    Direction::Write
                } else {
                    Direction::Read
                },
                size: one_of(random, sizes),
                depth: one_of(random, depths),
            },
        }
    }

    pub fn plain(protocol: Protocol) -> Self {
        Self {
            protocol,
            link: Link {
                rate: 1000,
                mtu: 1500,
                burst: 64 << 10,
                queue_ms: 2000,
                delay_us: 0,
                jitter_us: 0,
            },
            device: Device {
                delay_us: 0,
                rate: 0,
            },
            share: 100,
            rules: Rules {
                outstanding: 1,
                first_burst: 64 << 10,
                max_burst: 256 << 10,
                in_capsule: 8192,
            },
            load: Load {
                direction: Direction::Read,
                size: 4096,
                depth: 1,
            },
        }
    }

    /// Elements that limit, the first one and those that are level with it.
    pub fn truth(&self) -> Result<Vec<Element>> {
        let parts = self.parts()?;
        Ok(level(&parts, self.load.size.into(), self.load.depth))
    }

    /// What is known of it.
    fn parts(&self) -> Result<Parts> {
        let Self {
            link,
            device,
            rules,
            load,
            ..
        } = self;
        let mean_delay = f64::from(link.delay_us) + f64::from(link.jitter_us) / 2.0;
        let mut values = vec![
            ("rate", format!("{} Mbit/s", link.rate)),
            ("mtu", link.mtu.to_string()),
            ("link-burst", link.burst.to_string()),
            ("one-way-latency", format!("{} us", mean_delay.max(10.0))),
            ("storage-access-time", format!("{} us", device.delay_us)),
            ("storage-throughput", format!("{} MB/s", device.rate)),
            // Delays pass side by side.
            ("storage-parallel", "1000".to_owned()),
            ("max-outstanding-r2t", rules.outstanding.to_string()),
            ("first-burst", rules.first_burst.to_string()),
            ("max-burst", rules.max_burst.to_string()),
            ("in-capsule-data", rules.in_capsule.to_string()),
        ];
        let word = |is, yes: &str, no: &str| if is { yes } else { no }.to_owned();
        let writes = load.direction == Direction::Write;
        values.push(("rw", word(writes, "write", "read")));
        let nvme = self.protocol == Protocol::Nvme;
        values.push(("protocol", word(nvme, "nvme-tcp", "iscsi")));
        let mut parts = Parts::default();
        let usual = USUAL.map(|(name, value)| (name, value.to_owned()));
        for (name, value) in usual.into_iter().chain(values) {
            let source = Source::Given("drawn".to_owned());
            let changed = parts.change(name, &value, source);
            changed.with_context(|| format!("{name} = {value}"))?;
        }
        if self.share < 100 {
            let longer = 10.0 * 100.0 / f64::from(self.share);
            let source = Source::Given("drawn".to_owned());
            parts.change("server-cpu-per-op", &format!("{longer} us"), source)?;
        }
        Ok(parts)
    }
}

impl Load {
    /// Options of `longshore bench`, but for its time.
    pub fn options(&self) -> String {
        let what = match self.direction {
            Direction::Read => "randread",
            Direction::Write => "randwrite",
        };
        format!(
            "--rw {what} --bs {} --iodepth {} --span 16m",
            self.size, self.depth
        )
    }
}

impl Kind {
    fn limits(self, element: Element) -> bool {
        let elements: &[Element] = match self {
            Self::Link => &[Element::RequestWire, Element::ResponseWire],
            Self::Way => &[Element::Distance],
            Self::DeviceTime | Self::DeviceRate => &[Element::Storage],
            Self::R2ts => &[Element::R2ts],
            Self::Processor => &[Element::ServerProcessor],
        };
        elements.contains(&element)
    }
}

impl fmt::Display for SetUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            link,
            device,
            rules,
            load,
            ..
        } = self;
        write!(f, "{} Mbit/s, MTU {}", link.rate, link.mtu)?;
        if link.delay_us > 0 {
            write!(f, ", {} µs", link.delay_us)?;
        }
        if link.jitter_us > 0 {
            write!(f, " to {} µs", link.delay_us + link.jitter_us)?;
        }
        if device.delay_us > 0 {
            write!(f, "; device {} µs", device.delay_us)?;
        }
        if device.rate > 0 {
            write!(f, "; device {} MB/s", device.rate)?;
        }
        if self.share < 100 {
            write!(f, "; {} % of a processor", self.share)?;
        }
        let writes = load.direction == Direction::Write;
        let direction = if writes { "write" } else { "read" };
        write!(
            f,
            "; {direction} of {} KiB at {}",
            load.size >> 10,
            load.depth
        )?;
        if writes && self.protocol == Protocol::Iscsi && load.size > rules.first_burst {
            let r2ts = rules.outstanding;
            write!(f, ", {r2ts} R2Ts of {} KiB", rules.max_burst >> 10)?;
        }
        Ok(())
    }
}

/// One of a few values.
pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    let count = u64::try_from(all.len()).expect("a few values");
    let place = usize::try_from(random.bits() % count);
    all[place.expect("less than their number")]
}

/// A value whose logarithm is evenly distributed.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
pub fn between(random: &mut Random, low: f64, high: f64) -> u32 {
    (low * (high / low).powf(random.uniform())).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_set_ups_and_all_kinds_limit_some() {
        let draw = || -> Vec<(Kind, SetUp)> {
            let mut random = Random::new(7);
            let all = (0..60).map(|number| SetUp::draw(&mut random, number));
            all.collect::<Result<_>>().unwrap()
        };
        let all = draw();
        assert_eq!(all, draw());
        for (kind, set_up) in &all {
            let first = set_up.truth().unwrap()[0];
            assert!(kind.limits(first), "{set_up}: {first:?}");
        }
        for direction in [Direction::Read, Direction::Write] {
            for protocol in [Protocol::Iscsi, Protocol::Nvme] {
                let is_it = |set_up: &SetUp| {
                    (set_up.load.direction, set_up.protocol) == (direction, protocol)
                };
                assert!(all.iter().any(|(_, set_up)| is_it(set_up)));
            }
        }
    }
}
