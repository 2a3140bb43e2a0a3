//! Keys with which the hosts of a rule open TLS.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_nvme::psk::{ConfiguredKey, Derivation};
use longshore_server::config::TlsKeys;
use toml::Spanned;

use super::document::HostTable;
use super::file::ConfigFile;
use super::listener::HAS_TLS;
use super::problem::{Problem, ProblemKind};
use super::secret_file;

/// With what the hosts of a rule open TLS; `None`: they do not.
pub(super) fn keys(file: &ConfigFile, table: &HostTable) -> Result<Option<Arc<TlsKeys>>, Problem> {
    let Some(files) = &table.tls_key_files else {
        let others = [
            table
                .tls_required
                .as_ref()
                .map(|it| (it.span(), "tls-required")),
            table
                .tls_derivation
                .as_ref()
                .map(|it| (it.span(), "tls-derivation")),
        ];
        return match others.into_iter().flatten().next() {
            Some((span, key)) => Err(file.problem(span, ProblemKind::TlsWithoutKey(key))),
            None => Ok(None),
        };
    };
    if !HAS_TLS {
        return Err(file.problem(files.span(), ProblemKind::NoTls));
    }
    if files.get_ref().is_empty() {
        return Err(file.problem(files.span(), ProblemKind::NoTlsKey));
    }
    let keys = files.get_ref().iter().map(|path| key(file, path));
    let derivation = match &table.tls_derivation {
        None => Derivation::Standard,
        Some(name) => Derivation::from_name(name.get_ref()).ok_or_else(|| {
            let kind = ProblemKind::UnknownDerivation(name.get_ref().clone());
            file.problem(name.span(), kind)
        })?,
    };
    Ok(Some(Arc::new(TlsKeys {
        keys: keys.collect::<Result<_, _>>()?,
        derivation,
        required: table.tls_required.as_ref().is_none_or(|it| *it.get_ref()),
    })))
}

fn key(file: &ConfigFile, path: &Spanned<PathBuf>) -> Result<ConfiguredKey, Problem> {
    let (place, text) = secret_file::read_private(file, path)?;
    ConfiguredKey::parse(text.trim()).map_err(|source| {
        let kind = ProblemKind::TlsKey {
            path: place,
            source,
        };
        file.problem(path.span(), kind)
    })
}
