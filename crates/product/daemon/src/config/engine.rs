//! How the event loops run: engine, cores, and when responses are sent.

use std::fmt;
use std::str::FromStr;

use longshore_reactor::engine::EngineChoice;
use longshore_server::config::TransmitConfig;

use super::copies::{ByReference, RegisteredBuffers};
use super::reactor::ReactorSettings;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineConfig {
    pub kind: EngineChoice,
    /// Cores to run on, one event loop each; `None` lets the server choose.
    pub cores: Option<CoreList>,
    /// When responses are sent.
    pub transmit: TransmitConfig,
    /// Read data straight out of the page cache.
    pub splice: ByReference,
    /// Buffers of direct volumes are registered with io_uring.
    pub registered: RegisteredBuffers,
    /// One operation in so many is followed through its stages; 0: none. `None`: as the server likes.
    pub sample: Option<u32>,
    /// How they wait and share.
    pub reactor: ReactorSettings,
}

/// Why an engine setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Not a list of cores.
    #[error("`{0}` is not a list of cores; write for example 0,2-3")]
    Cores(String),
    /// A core named twice.
    #[error("core {0} is given twice; remove one")]
    CoreTwice(usize),
    /// A core no machine has.
    #[error("core {0} is too large; core numbers are {max} at most", max = CoreList::MAX)]
    CoreTooLarge(usize),
}

/// Numbers of cores, ascending, each once, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

impl CoreList {
    /// The largest core number: CPU sets of the kernel end at 1024.
    pub const MAX: usize = 1023;
}

impl FromStr for CoreList {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let wrong = || EngineError::Cores(text.to_owned());
        let number = |digits: &str| -> Result<usize, EngineError> {
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(wrong());
            }
            let core = digits.parse().map_err(|_| wrong())?;
            if core > Self::MAX {
                Err(EngineError::CoreTooLarge(core))
            } else {
                Ok(core)
            }
        };
        let mut cores = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        match cores.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(EngineError::CoreTwice(pair[0])),
            None => Ok(Self(cores)),
        }
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, core) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{core}")?;
        }
        Ok(())
    }
}

deserialize_from_str!(CoreList);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_cores_are_read() {
        for (text, cores) in [
            ("0", vec![0]),
            ("0,2-3", vec![0, 2, 3]),
            ("3,1", vec![1, 3]),
            ("0-0", vec![0]),
            ("0, 2", vec![0, 2]),
        ] {
            assert_eq!(text.parse(), Ok(CoreList(cores)), "{text}");
        }
        for text in ["", ",", "1,", "3-1", "a", "1-", "-1", "0x1", "+1"] {
            assert!(
                matches!(text.parse::<CoreList>(), Err(EngineError::Cores(_))),
                "{text}"
            );
        }
        assert_eq!("0-2,1".parse::<CoreList>(), Err(EngineError::CoreTwice(1)));
        assert_eq!(
            "0-9999999".parse::<CoreList>(),
            Err(EngineError::CoreTooLarge(9_999_999))
        );
    }
}
