//! TLS for the API beyond loopback. Certificate and key are read again when their files change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {reason}; correct the path, or its permissions", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error(
        "certificate {} and key {} cannot be used: {reason}; check that they belong together",
        certificate.display(),
        key.display()
    )]
    Unusable {
        certificate: PathBuf,
        key: PathBuf,
        reason: String,
    },
}

/// A certificate and its key, in files of PEM.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Loaded>,
}

#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    changed: [Option<SystemTime>; 2],
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// They cannot be read or used.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let loaded = Loaded {
            changed: changed(certificate, key),
            config: load(certificate, key)?,
        };
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: Mutex::new(loaded),
        })
    }

    /// For the next connection: with new files, if they have changed and can be used.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&self.certificate, &self.key);
        if changed != current.changed {
            current.changed = changed;
            match load(&self.certificate, &self.key) {
                Ok(config) => {
                    current.config = config;
                    tracing::info!("API: new certificate taken up");
                }
                Err(error) => tracing::error!("API: the former certificate stays: {error}"),
            }
        }
        Arc::clone(&current.config).into()
    }
}

fn changed(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| fs::metadata(path).and_then(|it| it.modified()).ok())
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error: &dyn std::error::Error| TlsError::Unreadable {
            path,
            reason: error.to_string(),
        }
    };
    let read = |path: &Path| fs::read(path).map_err(|error: io::Error| unreadable(path)(&error));
    let (certificate_bytes, key_bytes) = (read(certificate)?, read(key)?);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate_bytes).collect();
    let chain = chain.map_err(|error| unreadable(certificate)(&error))?;
    let private = PrivateKeyDer::from_pem_slice(&key_bytes);
    let private = private.map_err(|error| unreadable(key)(&error))?;
    let unusable = |error: tokio_rustls::rustls::Error| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
