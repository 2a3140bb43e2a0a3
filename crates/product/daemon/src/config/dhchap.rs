//! Secrets and choices of DH-HMAC-CHAP for the hosts of a rule.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_nvme::auth::{Concatenation, Credentials, Group, Hash, Secret};
use toml::Spanned;

use super::document::HostTable;
use super::file::ConfigFile;
use super::listener::HAS_TLS;
use super::problem::{Problem, ProblemKind};
use super::secret_file;

/// What the hosts of a rule have to prove; `None`: nothing.
pub(super) fn credentials(
    file: &ConfigFile,
    table: &HostTable,
) -> Result<Option<Arc<Credentials>>, Problem> {
    let Some(host) = &table.dhchap_secret_file else {
        let others = [
            table
                .dhchap_ctrl_secret_file
                .as_ref()
                .map(|it| (it.span(), "dhchap-ctrl-secret-file")),
            table
                .dhchap_hashes
                .as_ref()
                .map(|it| (it.span(), "dhchap-hashes")),
            table
                .dhchap_groups
                .as_ref()
                .map(|it| (it.span(), "dhchap-groups")),
            table
                .dhchap_required
                .as_ref()
                .map(|it| (it.span(), "dhchap-required")),
            table
                .dhchap_secure_channel
                .as_ref()
                .map(|it| (it.span(), "dhchap-secure-channel")),
        ];
        return match others.into_iter().flatten().next() {
            Some((span, key)) => Err(file.problem(span, ProblemKind::DhchapWithoutSecret(key))),
            None => Ok(None),
        };
    };
    let secret = secret(file, host)?;
    let controller = match &table.dhchap_ctrl_secret_file {
        Some(path) => {
            let controller = self::secret(file, path)?;
            if controller == secret {
                return Err(file.problem(path.span(), ProblemKind::DhchapSecretReused));
            }
            Some(controller)
        }
        None => None,
    };
    Ok(Some(Arc::new(Credentials {
        host: secret,
        controller,
        hashes: choices(
            file,
            table.dhchap_hashes.as_ref(),
            (&Hash::ALL, &Hash::ALL),
            Hash::name,
            ProblemKind::UnknownHash,
        )?,
        groups: choices(
            file,
            table.dhchap_groups.as_ref(),
            (&Group::ALL, &GROUPS),
            Group::name,
            ProblemKind::UnknownGroup,
        )?,
        required: table
            .dhchap_required
            .as_ref()
            .is_none_or(|it| *it.get_ref()),
        concatenation: concatenation(file, table.dhchap_secure_channel.as_ref())?,
    })))
}

/// Whether keys for TLS are made of the authentication: where there is TLS, they may be.
fn concatenation(
    file: &ConfigFile,
    name: Option<&Spanned<String>>,
) -> Result<Concatenation, Problem> {
    let Some(name) = name else {
        return Ok(match HAS_TLS {
            true => Concatenation::Permitted,
            false => Concatenation::None,
        });
    };
    let wanted = match name.get_ref().as_str() {
        "none" => Concatenation::None,
        "permitted" => Concatenation::Permitted,
        "required" => Concatenation::Required,
        other => {
            let kind = ProblemKind::UnknownSecureChannel(other.to_owned());
            return Err(file.problem(name.span(), kind));
        }
    };
    match wanted {
        Concatenation::Permitted | Concatenation::Required if !HAS_TLS => {
            Err(file.problem(name.span(), ProblemKind::NoTls))
        }
        Concatenation::None | Concatenation::Permitted | Concatenation::Required => Ok(wanted),
    }
}

/// The groups that are allowed without a list, the preferred one first: as strong as TLS usually is, then the others, weaker ones
/// last. Without a group, recorded messages allow guesses: that is allowed by name only.
const GROUPS: [Group; 5] = [
    Group::Ffdhe3072,
    Group::Ffdhe4096,
    Group::Ffdhe6144,
    Group::Ffdhe8192,
    Group::Ffdhe2048,
];

fn secret(file: &ConfigFile, path: &Spanned<PathBuf>) -> Result<Secret, Problem> {
    let (place, text) = secret_file::read_private(file, path)?;
    Secret::parse(text.trim()).map_err(|source| {
        let kind = ProblemKind::DhchapSecret {
            path: place,
            source,
        };
        file.problem(path.span(), kind)
    })
}

/// Reads a list of names of all that there are; the default, when it is not given.
fn choices<T: Copy>(
    file: &ConfigFile,
    list: Option<&Spanned<Vec<String>>>,
    (all, default): (&[T], &[T]),
    name: impl Fn(T) -> &'static str,
    unknown: fn(String) -> ProblemKind,
) -> Result<Vec<T>, Problem> {
    let Some(list) = list else {
        return Ok(default.to_vec());
    };
    if list.get_ref().is_empty() {
        return Err(file.problem(list.span(), ProblemKind::EmptyList));
    }
    let find = |text: &String| {
        let found = all
            .iter()
            .find(|choice| name(**choice).eq_ignore_ascii_case(text));
        found
            .copied()
            .ok_or_else(|| file.problem(list.span(), unknown(text.clone())))
    };
    list.get_ref().iter().map(find).collect()
}
