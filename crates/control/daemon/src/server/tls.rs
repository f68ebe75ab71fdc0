//! TLS 1.3, with the operator's certificate or the node's own.

use crate::config::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of the certificate that the node makes, in its storage.
const CERTIFICATE: &str = "tls.pem";
const KEY: &str = "tls.key";

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path}: {reason}; expected PEM, as `openssl req -x509` writes it")]
    Form { path: String, reason: String },
    #[error("the node's certificate: {0}")]
    Make(String),
    #[error("certificate and key: {0}")]
    Config(#[from] rustls::Error),
}

/// Returns the paths of certificate and key, which are made if the operator gave none and none were made
/// before.
///
/// # Errors
///
/// Returns an error if they cannot be made or written.
pub fn certificate(tls: &Tls, storage: &Path) -> Result<(PathBuf, PathBuf), TlsError> {
    if let Some(files) = &tls.files {
        return Ok(files.clone());
    }
    let (certificate, key) = (storage.join(CERTIFICATE), storage.join(KEY));
    if !certificate.exists() || !key.exists() {
        let make = |e: rcgen::Error| TlsError::Make(e.to_string());
        let mut names = tls.names.clone();
        names.push("localhost".to_owned());
        if !tls.listen.ip().is_unspecified() {
            names.push(tls.listen.ip().to_string());
        }
        let pair = rcgen::KeyPair::generate().map_err(make)?;
        let made = rcgen::CertificateParams::new(names).map_err(make)?.self_signed(&pair).map_err(make)?;
        write(&key, pair.serialize_pem().as_bytes(), true)?;
        write(&certificate, made.pem().as_bytes(), false)?;
    }
    Ok((certificate, key))
}

fn write(path: &Path, bytes: &[u8], private: bool) -> Result<(), TlsError> {
    let io = |error| TlsError::Io { path: path.display().to_string(), error };
    let mut file = if private { flame_files::Staged::private(path) } else { flame_files::Staged::new(path) }
        .map_err(io)?;
    file.write_all(bytes).and_then(|()| file.finish()).map_err(io)
}

/// Returns the server's configuration: TLS 1.3 only, no early data, no session tickets.
///
/// # Errors
///
/// Returns an error if the files cannot be read or do not fit each other.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let form = |path: &Path, reason: String| TlsError::Form { path: path.display().to_string(), reason };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|e| form(certificate, e.to_string()))?;
    if chain.is_empty() {
        return Err(form(certificate, "no certificate".to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| form(key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    // The exported keying material of a resumed session would be new as well, but clients do not need
    // resumption.
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
