//! TLS to a server, with the certificates that the system trusts or those of a file.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::error::ClientError;

pub async fn wrap(
    link: TcpStream,
    host: &str,
    ca_file: Option<&Path>,
) -> Result<TlsStream<TcpStream>, ClientError> {
    let failed = |error: &dyn std::error::Error| ClientError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let unreadable = |error: &dyn std::error::Error| {
                ClientError::Tls(format!("cannot read {}: {error}", path.display()))
            };
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, link).await.map_err(|error| {
        ClientError::Tls(format!(
            "{host}: {error}; for a private certificate, name its issuer with --ca-file"
        ))
    })
}
