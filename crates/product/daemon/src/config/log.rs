//! How the log looks and what gets into it.

use std::path::PathBuf;
use std::str::FromStr;

use tracing_subscriber::filter::Targets;

use super::suggest;

/// Words for levels, for suggestions.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// One event a line, for people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Not a log format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a log format; use text or json{meant}",
    meant = suggest::did_you_mean(.0, &["text", "json"])
)]
pub struct UnknownFormat(String);

impl FromStr for LogFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat(text.to_owned())),
        }
    }
}

/// Which events are logged: a level, or a list of `module=level` with at most one bare level.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter(pub Targets);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a log level; write off, error, warn, info, debug or trace, or a list such as \
     warn,longshore_iscsi=debug{meant}",
    meant = suggest::did_you_mean(.0, &LEVELS)
)]
pub struct FilterError(String);

impl Default for LogFilter {
    fn default() -> Self {
        Self(Targets::new().with_default(tracing::Level::INFO))
    }
}

impl FromStr for LogFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError(text.to_owned());
        // `Targets` takes an unknown bare word for the name of a module. No module of ours is called
        // `verbose`, so a bare word that is no level is a mistake.
        for part in text.split(',') {
            // An empty word would count as a level.
            if part.trim().is_empty() {
                return Err(wrong());
            }
            let is_level = part
                .trim()
                .parse::<tracing::level_filters::LevelFilter>()
                .is_ok();
            if !part.contains('=') && !is_level {
                return Err(wrong());
            }
        }
        text.parse().map(Self).map_err(|_| wrong())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogConfig {
    pub format: LogFormat,
    pub filter: LogFilter,
    /// Where reports of what the server has done go; `None`: a summary goes into the log.
    pub statistics: Option<PathBuf>,
}

deserialize_from_str!(LogFormat, LogFilter);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_filters_and_other_words_are_not() {
        for text in [
            "off",
            "info",
            "DEBUG",
            "warn,longshore_iscsi=debug",
            "longshore_server=trace",
        ] {
            assert!(text.parse::<LogFilter>().is_ok(), "{text}");
        }
        for text in ["", "verbose", "info,longshore_iscsi=loud", "info,,"] {
            assert!(text.parse::<LogFilter>().is_err(), "{text}");
        }
    }
}
