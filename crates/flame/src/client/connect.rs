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
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The time for a connection, and again for the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sender of requests, the keying material of the connection, and the host's name.
type Connected = (SendRequest<Full<Bytes>>, Vec<u8>, String);

pub async fn connect(node: &Resolved) -> Result<Connected, Error> {
    match &node.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|e| {
                format!("{}: {e} (does the node run, and may you connect? flame node status)", path.display())
            })?;
            Ok((http(stream).await?, flame_api::UNIX_CHANNEL.to_vec(), "node".to_owned()))
        }
        Address::Https { host, port } => {
            let place = format!("{host}:{port}");
            let late = |_| format!("{place}: no answer within {PATIENCE:?}");
            let stream = timeout(PATIENCE, TcpStream::connect((host.as_str(), *port))).await.map_err(late)?;
            let stream = stream.map_err(|e| format!("{place}: {e}"))?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host.clone()).map_err(|e| format!("{host}: {e}"))?;
            let connector = TlsConnector::from(config(node.certificate.as_deref())?);
            let stream = timeout(PATIENCE, connector.connect(name, stream)).await.map_err(late)?;
            let stream = stream.map_err(|e| format!("{place}: {e} (--certificate FILE is the node's)"))?;
            let channel =
                stream.get_ref().1.export_keying_material([0; 32], flame_api::EXPORTER, None)?.to_vec();
            Ok((http(stream).await?, channel, place))
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
