//! Connections to a node: a Unix socket, or TLS 1.3 to the node's certificate.

use super::nodes::{Address, Resolved};
use crate::error::Error;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest time for a connection, and again for the TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A sender of requests, the channel of the connection, and the host's name.
type Connected = (SendRequest<Full<Bytes>>, Channel, String);

/// The properties that distinguish a connection from all others, for the challenge of a session.
pub enum Channel {
    /// A Unix socket: the user who listens, as the kernel names it, and the one who is expected.
    Unix { path: PathBuf, listens: u32, expected: Option<String> },
    /// Keying material of a TLS connection.
    Tls(Vec<u8>),
}

impl Channel {
    /// Returns the bytes that become part of the challenge of the node whose public key is `node`.
    pub fn bytes(&self, node: &str) -> Vec<u8> {
        match self {
            Self::Tls(exported) => exported.clone(),
            Self::Unix { listens, .. } => {
                flame_api::unix_channel(node, *listens, flame_files::effective_user())
            }
        }
    }

    /// Checks who listens, before anything is presented.
    ///
    /// # Errors
    ///
    /// Returns an error if a user listens who is not known to run a node, and who could pass answers on.
    pub fn check(&self) -> Result<(), Error> {
        let Self::Unix { path, listens, expected } = self else { return Ok(()) };
        let named = expected.as_deref().map(number_of).transpose()?;
        match *listens == 0 || *listens == flame_files::effective_user() || named == Some(*listens) {
            true => Ok(()),
            false => Err(format!(
                "{}: user {listens} listens there, neither root nor you: no credential is presented (if the node \
                 runs as that user: flame node add NAME unix:PATH --user {listens})",
                path.display()
            )
            .into()),
        }
    }
}

/// Returns the number of a user, given by number or name.
fn number_of(user: &str) -> Result<u32, Error> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let found = nix::unistd::User::from_name(user)?;
    Ok(found.ok_or_else(|| format!("no user is called {user:?}"))?.uid.as_raw())
}

pub async fn connect(node: &Resolved) -> Result<Connected, Error> {
    match &node.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|e| {
                format!("{}: {e} (does the node run, and may you connect? flame node status)", path.display())
            })?;
            let listens = stream.peer_cred()?.uid();
            let channel = Channel::Unix { path: path.clone(), listens, expected: node.user.clone() };
            Ok((http(stream).await?, channel, "node".to_owned()))
        }
        Address::Https { host, port } => {
            let place = format!("{host}:{port}");
            let late = |_| format!("{place}: no answer within {CONNECT_MAX:?}");
            let stream =
                timeout(CONNECT_MAX, TcpStream::connect((host.as_str(), *port))).await.map_err(late)?;
            let stream = stream.map_err(|e| format!("{place}: {e}"))?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host.clone()).map_err(|e| format!("{host}: {e}"))?;
            let connector = TlsConnector::from(config(node.certificate.as_deref())?);
            let stream = timeout(CONNECT_MAX, connector.connect(name, stream)).await.map_err(late)?;
            let stream = stream.map_err(|e| format!("{place}: {e} (--certificate FILE is the node's)"))?;
            let channel =
                stream.get_ref().1.export_keying_material([0; 32], flame_api::EXPORTER, None)?.to_vec();
            Ok((http(stream).await?, Channel::Tls(channel), place))
        }
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Error> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Its error is reported by the request that it concerns.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn config(certificate: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let path =
        certificate.ok_or("https needs --certificate FILE: the node's certificate, or its authority's")?;
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_file_iter(path).map_err(|e| fail(&e))? {
        roots.add(found.map_err(|e| fail(&e))?).map_err(|e| fail(&e))?;
    }
    if roots.is_empty() {
        return Err(fail(&"it holds no certificate in PEM").into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13])?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
