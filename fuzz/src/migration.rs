//! Configurations of other servers.

use std::path::Path;

use longshore_daemon::config::file::ConfigFile;
use longshore_import::{Format, Options, Source, import};

/// The first byte selects the format; the rest is the file.
pub(crate) fn imports(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let format = Format::ALL[usize::from(*first) % Format::ALL.len()];
    let source = Source {
        name: "source".to_owned(),
        text: text.to_owned(),
    };
    let options = Options {
        targets: vec!["iqn.2026-11.local.longshore:t".to_owned()],
        authentication: (format == Format::Istgt).then(|| source.clone()),
        ..Options::default()
    };
    let imported = match import(format, &source, &options) {
        Ok(imported) => imported,
        Err(error) => return drop(error.to_string()),
    };
    let lines = text.lines().count().max(1);
    for entry in &imported.report.entries {
        assert!((1..=lines).contains(&(entry.line as usize)), "{entry:?}");
    }
    drop(imported.report.to_text());
    let (toml, secrets) = imported.configuration.to_toml("secrets");
    if let Err(problem) = ConfigFile::parse(Path::new("longshore.toml"), toml.clone()) {
        panic!("the server refuses what was written: {problem}\n{toml}");
    }
    for secret in &secrets {
        let path = Path::new(&secret.name);
        assert_eq!(path.file_name(), Some(path.as_os_str()), "{secret:?}");
    }
}
