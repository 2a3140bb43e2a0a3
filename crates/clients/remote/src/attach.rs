//! From what the operator wrote to an attached remote volume.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_initiator::info::{Identifier, VolumeInfo};
use longshore_initiator::options::{Options, QueueMaps, TlsOptions};
use longshore_initiator::url::Url;
use longshore_initiator::volume::RemoteVolume;
use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_nvme::auth::Secret as DhchapSecret;
use longshore_nvme::psk::ConfiguredKey;
use longshore_reactor::buffer::Buffer;
use longshore_volume::{OpenError, Outline, VolumeSpec, identify, physical_block_size};
use zeroize::Zeroizing;

use super::{Abilities, RemoteBackend, ZEROS_PER_WRITE};
use crate::error::RemoteError;
use crate::name::{ISCSI, backend_of_url};
use crate::spec::RemoteSpec;

/// Most connections to one remote volume.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Most commands that one connection carries.
pub(crate) const DEPTH_MAX: u16 = 4096;
/// Connections when nothing is said: more of them than cores help nobody, and more than this few.
const QUEUES: usize = 4;

/// The longest secret that a file may hold.
const SECRET_LENGTH_MAX: u64 = 255;

impl RemoteBackend {
    /// Attaches the volume. Blocks, within the initiator's time-outs.
    ///
    /// # Errors
    /// The specification makes no sense, or the peer cannot be reached or used.
    pub fn open(spec: &VolumeSpec) -> Result<RemoteBackend, OpenError> {
        let given = spec.options::<RemoteSpec>().cloned().unwrap_or_default();
        let url = checked_url(spec, &given)?;
        let options = options(spec, &given, url)?;
        let remote = RemoteVolume::open(url, &options).map_err(|source| RemoteError::Attach {
            name: spec.name.clone(),
            url: Box::new(url.clone()),
            source: Box::new(source),
        })?;
        Self::over(spec, url, remote)
    }

    /// Makes a volume of a remote one that was attached with options of the caller's own. Of the specification, name,
    /// serial, UUID, block size and `read-only` matter.
    ///
    /// # Errors
    /// The remote volume cannot be used; it is closed then.
    pub fn over(
        spec: &VolumeSpec,
        url: &Url,
        remote: RemoteVolume,
    ) -> Result<RemoteBackend, OpenError> {
        let info = remote.info();
        let described = outline(spec, url, &info)
            .and_then(|outline| Ok((outline, Abilities::of(spec, &info)?)));
        let zeros = usize::try_from(ZEROS_PER_WRITE).expect("256 KiB fit everywhere");
        let described = described.and_then(|(outline, abilities)| {
            let zeros = Buffer::try_allocate(zeros).ok_or_else(|| RemoteError::OutOfMemory {
                name: spec.name.clone(),
            })?;
            Ok((outline, abilities, zeros))
        });
        let (outline, abilities, zeros) = match described {
            Ok(described) => described,
            Err(error) => {
                remote.close();
                return Err(error);
            }
        };
        Ok(RemoteBackend {
            outline,
            remote,
            place: url.to_string(),
            abilities,
            zeros: Arc::new(zeros),
            poisoned: AtomicBool::new(false),
        })
    }
}

impl Abilities {
    fn of(spec: &VolumeSpec, info: &VolumeInfo) -> Result<Abilities, OpenError> {
        let granularity = info.unmap_granularity_blocks.unwrap_or(1).max(1);
        Ok(Abilities {
            read_only: spec.read_only || info.read_only,
            write_cache: info.write_cache,
            write_through: spec.write_through,
            fua: info.fua,
            unmap_granularity: info
                .unmap
                .then(|| info.block_size.saturating_mul(granularity)),
            unmapped_reads_zeros: info.unmapped_reads_zeros,
            physical_block_size: physical_block_size(
                spec,
                info.block_size,
                info.physical_block_size,
            )?,
            write_zeroes: AtomicBool::new(info.write_zeroes),
            extent_status: AtomicBool::new(info.extent_status),
        })
    }
}

fn checked_url<'a>(spec: &VolumeSpec, given: &'a RemoteSpec) -> Result<&'a Url, RemoteError> {
    let url = given.url.as_ref().ok_or_else(|| RemoteError::UrlMissing {
        name: spec.name.clone(),
        backend: spec.backend,
    })?;
    if backend_of_url(url) != spec.backend {
        return Err(RemoteError::UrlOfOther {
            name: spec.name.clone(),
            backend: spec.backend,
            url: Box::new(url.clone()),
        });
    }
    Ok(url)
}

fn options(spec: &VolumeSpec, given: &RemoteSpec, url: &Url) -> Result<Options, RemoteError> {
    let variable = |name: &str| std::env::var(name).ok();
    let mut options = Options {
        initiator_name: given.initiator_name.clone(),
        host_nqn: given.host_nqn.clone(),
        ..Options::default()
    };
    options.chap = account(spec, given, url, &variable)?;
    let dhchap = [&given.dhchap_secret_file, &given.dhchap_ctrl_secret_file];
    let [secret, controller_secret] = dhchap.map(|path| dhchap_secret(spec, path.as_deref()));
    options.nvme.secret = secret?;
    options.nvme.controller_secret = controller_secret?;
    let wrong = |reason| {
        let name = spec.name.clone();
        Err(RemoteError::DhchapOptions { name, reason })
    };
    if spec.backend == ISCSI && dhchap.iter().any(|path| path.is_some()) {
        return wrong("dhchap-secret-file is for nvme-tcp; iSCSI has secret-file");
    }
    if options.nvme.secret.is_none() && options.nvme.controller_secret.is_some() {
        return wrong(
            "dhchap-ctrl-secret-file needs dhchap-secret-file: the host authenticates first",
        );
    }
    if spec.backend == ISCSI && given.tls_key_file.is_some() {
        return wrong("tls-key-file is for nvme-tcp; iSCSI has no TLS");
    }
    options.nvme.tls = tls_options(spec, given)?;
    if options.nvme.tls.is_none()
        && (given.tls_identity.is_some() || given.tls_derivation.is_some())
    {
        return wrong("tls-identity and tls-derivation need tls-key-file");
    }
    if options.chap.is_some() {
        options.mutual_chap = account_of(
            &variable,
            "LIBISCSI_CHAP_TARGET_USERNAME",
            "LIBISCSI_CHAP_TARGET_PASSWORD",
        );
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = u16::try_from(cores.min(QUEUES)).expect("a handful");
    let checked = |option, given: Option<u16>, usual, most| match given {
        None => Ok(usual),
        Some(found) if (1..=most).contains(&found) => Ok(found),
        Some(found) => Err(RemoteError::Range {
            name: spec.name.clone(),
            option,
            found,
            most,
        }),
    };
    options.queues = QueueMaps::plain(checked("queues", given.queues, queues, QUEUES_MAX)?);
    options.depth = checked("depth", given.depth, options.depth, DEPTH_MAX)?;
    if let Some(give_up) = given.give_up {
        options.timeouts.give_up = give_up;
    }
    Ok(options)
}

/// Who we are to the target, where the URL leaves something open: the secret comes from the file, or, as with
/// libiscsi, from the environment. What the URL says in full needs nothing from here.
fn account(
    spec: &VolumeSpec,
    given: &RemoteSpec,
    url: &Url,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<ChapAccount>, RemoteError> {
    let name = || spec.name.clone();
    let (user, has_password) = match url {
        Url::Iscsi(url) => (url.user.clone(), url.password.is_some()),
        Url::NvmeTcp(_) => (None, false),
    };
    let from_environment = "LIBISCSI_CHAP_PASSWORD";
    match (user, has_password, &given.secret_file) {
        (Some(user), false, Some(path)) => {
            let secret = read_secret(spec, path)?;
            Ok(Some(ChapAccount { name: user, secret }))
        }
        (_, _, Some(_)) => Err(RemoteError::SecretForNobody { name: name() }),
        (Some(user), false, None) => match variable(from_environment) {
            Some(text) => Ok(Some(ChapAccount {
                name: user,
                secret: Secret::new(text.into_bytes()),
            })),
            None => Err(RemoteError::SecretMissing {
                name: name(),
                url: Box::new(url.clone()),
            }),
        },
        (None, _, None) if spec.backend == ISCSI => Ok(account_of(
            variable,
            "LIBISCSI_CHAP_USERNAME",
            from_environment,
        )),
        (_, _, None) => Ok(None),
    }
}

fn account_of(
    variable: &impl Fn(&str) -> Option<String>,
    user: &str,
    secret: &str,
) -> Option<ChapAccount> {
    Some(ChapAccount {
        name: variable(user)?,
        secret: Secret::new(variable(secret)?.into_bytes()),
    })
}

/// A secret of DH-HMAC-CHAP, if there is a file for it.
fn dhchap_secret(
    spec: &VolumeSpec,
    path: Option<&Path>,
) -> Result<Option<DhchapSecret>, RemoteError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let text = read_secret_text(spec, path)?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    let secret = DhchapSecret::parse(text).map_err(|source| RemoteError::DhchapSecret {
        name: spec.name.clone(),
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(secret))
}

/// With what connections go over TLS, if there is a file for it.
fn tls_options(spec: &VolumeSpec, given: &RemoteSpec) -> Result<Option<TlsOptions>, RemoteError> {
    let Some(path) = &given.tls_key_file else {
        return Ok(None);
    };
    let text = read_secret_text(spec, path)?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    let key = ConfiguredKey::parse(text.trim()).map_err(|source| RemoteError::TlsKey {
        name: spec.name.clone(),
        path: path.to_owned(),
        source,
    })?;
    let mut tls = TlsOptions::new(key);
    tls.version = given.tls_identity.unwrap_or(tls.version);
    tls.derivation = given.tls_derivation.unwrap_or(tls.derivation);
    Ok(Some(tls))
}

fn read_secret(spec: &VolumeSpec, path: &Path) -> Result<Secret, RemoteError> {
    let bytes = read_secret_text(spec, path)?;
    Ok(Secret::new(bytes.as_slice()))
}

/// The line end that editors leave behind is not part of the secret.
fn read_secret_text(spec: &VolumeSpec, path: &Path) -> Result<Zeroizing<Vec<u8>>, RemoteError> {
    use std::io::Read;
    let failed = |source: io::Error| RemoteError::SecretFile {
        name: spec.name.clone(),
        path: path.to_owned(),
        source,
    };
    let mut bytes = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(failed)?;
    warn_of_readers(spec, path, &file);
    // A little more than it may have, so that one too long is noticed whatever line end it has.
    file.take(SECRET_LENGTH_MAX + 3)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    while let Some(b'\n' | b'\r') = bytes.last() {
        bytes.pop();
    }
    let most = usize::try_from(SECRET_LENGTH_MAX).expect("small");
    if !(1..=most).contains(&bytes.len()) {
        return Err(RemoteError::SecretLength {
            name: spec.name.clone(),
            path: path.to_owned(),
            length: bytes.len(),
        });
    }
    Ok(bytes)
}

fn warn_of_readers(spec: &VolumeSpec, path: &Path, file: &std::fs::File) {
    use std::os::unix::fs::MetadataExt;
    if file
        .metadata()
        .is_ok_and(|metadata| metadata.mode() & 0o004 != 0)
    {
        tracing::warn!(
            volume = spec.name,
            "secret file {} can be read by every user; chmod 600 it",
            path.display()
        );
    }
}

fn outline(spec: &VolumeSpec, url: &Url, info: &VolumeInfo) -> Result<Outline, OpenError> {
    let name = || spec.name.clone();
    let given = spec.options::<RemoteSpec>();
    let asked = given.and_then(|given| given.block_size);
    if !matches!(info.block_size, 512 | 4096) || asked.is_some_and(|asked| asked != info.block_size)
    {
        return Err(RemoteError::BlockSize {
            name: name(),
            url: Box::new(url.clone()),
            found: info.block_size,
            asked,
        }
        .into());
    }
    if info.block_count == 0 {
        return Err(RemoteError::Empty {
            name: name(),
            url: Box::new(url.clone()),
        }
        .into());
    }
    let identity = identify(spec, Some(origin(url, info).as_bytes()))?;
    let block_size = u64::from(info.block_size);
    // What no offset in bytes could reach is not there.
    let blocks = info.block_count.min(u64::MAX / block_size);
    Ok(Outline::new(identity, info.block_size, blocks * block_size))
}

/// What the remote volume is known by wherever it is reached: its best worldwide name, or where it is when it has
/// none.
fn origin(url: &Url, info: &VolumeInfo) -> String {
    const BEST_FIRST: [&str; 6] = ["naa", "nguid", "uuid", "eui", "scsi-name", "t10"];
    let named = |kind| info.identifiers.iter().find(|found| found.kind == kind);
    match BEST_FIRST.into_iter().find_map(named) {
        Some(Identifier { kind, value }) => format!("{kind}.{value}"),
        None => match url {
            Url::Iscsi(url) => format!("{}/{}", url.target.as_str(), url.lun),
            Url::NvmeTcp(url) => format!("{}/{}", url.subsystem.as_str(), url.namespace),
        },
    }
}
