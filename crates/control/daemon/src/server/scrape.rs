//! The address at which Prometheus reads the operator's metrics, and nothing else. It has a listener, places
//! and rights of its own: its readers take nothing from the API's clients.

use super::{App, metrics};
use crate::config::{Metrics, Readers};
use flame_plan::Audience;
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// The most connections that are open at once. One is enough for each server of Prometheus.
const CONNECTIONS: usize = 16;
/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// The bytes of a token that the node makes, before they are written as hexadecimal digits.
const TOKEN_BYTES: usize = 32;
/// The file of the token that the node makes, in its storage.
const TOKEN: &str = "metrics.token";
/// The most and the least characters of a token.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// A listener, bound before privileges are dropped, and the needs of its readers.
pub struct Scrape {
    pub listener: TcpListener,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The value of the header that readers must send, if they need one.
    pub authorization: Option<String>,
}

/// Returns the value of the header that readers must send, and the file of the token in it. Without a file of
/// the operator's, the node makes one.
///
/// # Errors
///
/// Returns an error with the place if the file cannot be read or made, or if there is no token in it.
pub fn authorization(metrics: &Metrics, storage: &Path) -> Result<Option<(String, PathBuf)>, String> {
    let Readers::Token(given) = &metrics.readers else { return Ok(None) };
    let path = given.clone().unwrap_or_else(|| storage.join(TOKEN));
    let failed = |e: io::Error| format!("[metrics] token {}: {e}", path.display());
    if given.is_none() && !path.exists() {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| failed(io::Error::other(e.to_string())))?;
        let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let mut file = flame_files::Staged::private(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.finish()).map_err(failed)?;
    }
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    let token = text.trim();
    if !TOKEN_LENGTHS.contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let expected = format!("expected {TOKEN_LENGTHS:?} printable characters without spaces");
        return Err(format!("[metrics] token {}: {expected}", path.display()));
    }
    Ok(Some((format!("Bearer {token}"), path)))
}

/// Compares in a time that depends on the lengths alone.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Places(VecDeque<Place>);

struct Place {
    task: AbortHandle,
    /// Whether a reader has shown that it may read.
    is_known: Arc<AtomicBool>,
}

impl Places {
    /// Makes room for one more connection. If there are [`CONNECTIONS`], the oldest ends of those that showed
    /// no token, so that silent clients keep no reader out.
    fn make_room(&mut self) {
        self.0.retain(|place| !place.task.is_finished());
        if self.0.len() < CONNECTIONS {
            return;
        }
        let silent = self.0.iter().position(|place| !place.is_known.load(Ordering::Relaxed));
        if let Some(place) = self.0.remove(silent.unwrap_or(0)) {
            place.task.abort();
        }
    }
}

/// Serves readers until the node ends.
pub(super) async fn serve(app: Arc<App>, scrape: Scrape) {
    let Ok(listener) = tokio::net::TcpListener::from_std(scrape.listener) else { return };
    let (acceptor, mut places) = (scrape.tls.map(TlsAcceptor::from), Places::default());
    let authorization: Option<Arc<str>> = scrape.authorization.map(Arc::from);
    let mut ending = app.ending.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ending| *ending) => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(super::connection::BREATHER).await;
            continue;
        };
        places.make_room();
        let (app, acceptor, authorization) = (app.clone(), acceptor.clone(), authorization.clone());
        let is_known = Arc::new(AtomicBool::new(false));
        let known = is_known.clone();
        let served = tokio::spawn(async move {
            match acceptor {
                None => connection(app, authorization, known, stream).await,
                Some(acceptor) => {
                    let accepted = timeout(super::connection::HANDSHAKE, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = accepted {
                        connection(app, authorization, known, stream).await;
                    }
                }
            }
        });
        places.0.push_back(Place { task: served.abort_handle(), is_known });
    }
}

async fn connection<S>(app: Arc<App>, authorization: Option<Arc<str>>, known: Arc<AtomicBool>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut ending = app.ending.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, authorization, known) = (app.clone(), authorization.clone(), known.clone());
        async move {
            let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
            let may_read = authorization.is_none_or(|expected| is_equal(expected.as_bytes(), given));
            known.store(may_read, Ordering::Relaxed);
            let reply = reply(&app, may_read, &request).await;
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(super::connection::UNREAD));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(super::connection::HEAD).max_buf_size(HEAD_BYTES);
    let served = http.serve_connection(TokioIo::new(Box::pin(stream)), service);
    tokio::select! {
        _ = served => {}
        _ = ending.wait_for(|ending| *ending) => {}
    }
}

async fn reply(app: &App, may_read: bool, request: &Request<Incoming>) -> Response<String> {
    let mut response = Response::new(String::new());
    if !may_read {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        *response.body_mut() = "give the token of [metrics] in node.toml: authorization in the scrape \
            configuration, with credentials_file\n"
            .to_owned();
    } else if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
        *response.body_mut() = "there is only /metrics\n".to_owned();
    } else if request.method() != Method::GET {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    } else {
        let engine = app.engine.clone();
        let gathered =
            app.working.run(None, move || metrics::gather(&engine, None, Audience::Operator)).await;
        match gathered.ok().flatten() {
            Some(text) => {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT));
                *response.body_mut() = text;
            }
            None => {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                *response.body_mut() = "metrics could not be gathered: report this\n".to_owned();
            }
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_equal_only_if_all_bytes_are() {
        assert!(is_equal(b"Bearer a", b"Bearer a"));
        for other in [&b""[..], b"Bearer", b"Bearer b", b"Bearer a ", b"bearer a"] {
            assert!(!is_equal(b"Bearer a", other), "{other:?}");
        }
    }

    #[test]
    fn a_token_is_made_once_and_a_file_without_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let of = |readers| Metrics { listen: ([127, 0, 0, 1], 9464).into(), readers };
        let made = authorization(&of(Readers::Token(None)), folder.path()).unwrap().unwrap();
        assert_eq!(made.0.len(), "Bearer ".len() + 2 * TOKEN_BYTES);
        assert_eq!(authorization(&of(Readers::Token(None)), folder.path()).unwrap().unwrap(), made);
        assert_eq!(authorization(&of(Readers::Loopback), folder.path()), Ok(None));
        let file = folder.path().join("own");
        for text in
            ["", "short", "with spaces in the middle", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"]
        {
            std::fs::write(&file, text).unwrap();
            let refused = authorization(&of(Readers::Token(Some(file.clone()))), folder.path()).unwrap_err();
            assert!(refused.contains("expected 16..=512 printable characters"), "{refused}");
        }
    }
}
