//! What operators write.

use std::path::Path;

use longshore_daemon::config::file::ConfigFile;
use longshore_daemon::config::volume::VolumeArgument;
use longshore_daemon::config::{Arguments, Config};

pub(crate) fn config_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match ConfigFile::parse(Path::new("longshore.toml"), text.to_owned()) {
        Ok(file) => match Config::assemble(Some(&file), Arguments::default()) {
            Ok(config) => drop(format!("{config:?}")),
            Err(problem) => drop(problem.to_string()),
        },
        Err(problem) => drop(problem.to_string()),
    }
}

/// The value of `--volume`.
pub(crate) fn volume_argument(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        match text.parse::<VolumeArgument>() {
            Ok(argument) => drop(format!("{argument:?}")),
            Err(error) => drop(error.to_string()),
        }
    }
}
