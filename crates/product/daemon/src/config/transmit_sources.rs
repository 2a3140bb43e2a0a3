//! The sources of the transmit settings: the command line wins over the API and the file, and these over the environment.

use std::sync::Arc;

use super::file::ConfigFile;
use super::problem::Problem;
use super::transmit::{TransmitConfig, TransmitKeys};

/// What the environment, the file, the objects of the API and the command line say together.
pub(super) fn settle(
    file: Option<&ConfigFile>,
    objects: &[Arc<ConfigFile>],
    arguments: &TransmitKeys,
) -> Result<TransmitConfig, Problem> {
    let mut config = TransmitConfig::default();
    TransmitKeys::from_environment(|name| std::env::var(name).ok())?.apply(&mut config);
    let objects = objects.iter().map(|object| &**object);
    for file in file.into_iter().chain(objects) {
        file.document.engine.transmit_keys().apply(&mut config);
    }
    arguments.apply(&mut config);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::transmit::{NagleCycles, NagleThreshold, SendUnit, TransmitPolicy};

    fn file(text: &str) -> Result<ConfigFile, Problem> {
        ConfigFile::parse(Path::new("longshore.toml"), text.to_owned())
    }

    fn keys(text: &str) -> TransmitKeys {
        file(text).unwrap().document.engine.transmit_keys()
    }

    #[test]
    fn all_keys_of_the_file_are_read() {
        let text = "[engine]\ntransmit = \"adaptive-nagle\"\nnagle-threshold = 32\n\
                    nagle-margin = 10\nnagle-cycles = \"corrected\"\nsend = \"turn\"\n";
        assert_eq!(
            keys(text),
            TransmitKeys {
                policy: Some(TransmitPolicy::AdaptiveNagle),
                nagle_threshold: Some(NagleThreshold::Requests(32)),
                nagle_margin: Some(10),
                nagle_cycles: Some(NagleCycles::Corrected),
                send: Some(SendUnit::Turn),
            }
        );
        let text = "[engine]\nnagle-threshold = \"infinite\"\n";
        assert_eq!(keys(text).nagle_threshold, Some(NagleThreshold::Infinite));
        assert_eq!(keys("[engine]\n"), TransmitKeys::default());
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        for (line, complaint) in [
            (
                "transmit = \"fast\"",
                "it is auto, nodelay, nagle or adaptive-nagle",
            ),
            ("nagle-threshold = -1", "`-1` is not a threshold"),
            (
                "nagle-threshold = true",
                "a number of requests, or \"infinite\"",
            ),
            ("nagle-cycles = \"some\"", "it is paper or corrected"),
            ("send = 3", "expected a text in quotes, found 3"),
        ] {
            let message = file(&format!("[engine]\n{line}\n"))
                .unwrap_err()
                .to_string();
            assert!(message.contains(complaint), "{message}");
            assert!(message.contains("longshore.toml:2:"), "{message}");
        }
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let arguments = TransmitKeys {
            nagle_margin: Some(7),
            ..TransmitKeys::default()
        };
        let file = file("[engine]\ntransmit = \"nagle\"\nnagle-margin = 5\n").unwrap();
        let config = settle(Some(&file), &[], &arguments).unwrap();
        assert_eq!(config.policy, TransmitPolicy::Nagle);
        assert_eq!(config.nagle_margin, 7);
    }

    #[test]
    fn the_environment_gives_defaults_for_threshold_and_margin() {
        let given = |name: &str| match name {
            "nagle_threshold" => Some("32".to_owned()),
            "nagle_margin" => Some(" 10\n".to_owned()),
            _ => None,
        };
        let keys = TransmitKeys::from_environment(given).unwrap();
        assert_eq!(keys.nagle_threshold, Some(NagleThreshold::Requests(32)));
        assert_eq!(keys.nagle_margin, Some(10));
        let message = TransmitKeys::from_environment(|_| Some("many".to_owned()))
            .unwrap_err()
            .to_string();
        assert!(message.contains("nagle_threshold"), "{message}");
    }
}
