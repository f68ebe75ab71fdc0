//! Accepts connections, and closes those that are slow, half-open or too many.

use super::extract::Refusal;
use super::shares::{Part, Shares};
use super::{App, STRANGERS};
use crate::identity::{Access, Connection, Peer};
use axum::Router;
use axum::response::{IntoResponse, Response};
use flame_api::{Code, Problem};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// The time for the head of a request, from the moment that the connection could send one.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// The time for a TLS handshake.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time for which a client may leave a reply unread.
pub(super) const UNREAD: Duration = Duration::from_secs(30);
/// The time for open connections to end when the node stops.
const DRAIN: Duration = Duration::from_secs(3);
/// Maximum length of the head of a request in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The time for the request of a client without a place, and the number of those that are told so at once.
const BRIEF: Duration = Duration::from_secs(2);
const TOLD: usize = 8;
/// The pause after an accept failed, for example because no descriptor was left.
pub(super) const BREATHER: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
    router: Router,
    places: Places,
}

/// The connections that may be open: of operators, other users, users without access, and over TLS, so that
/// none of them keeps the others out. One peer that is not an operator has at most half of its kind.
#[derive(Clone)]
struct Places {
    operators: Arc<Semaphore>,
    users: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    tls: Arc<Semaphore>,
    peers: Arc<Shares>,
    /// Clients without a place.
    told: Arc<Semaphore>,
    most: u32,
}

/// A place of a connection, while this value lives.
struct Place {
    _kind: OwnedSemaphorePermit,
    _peer: Option<Part>,
}

impl Places {
    fn new(most: usize) -> Self {
        let of = |most| Arc::new(Semaphore::new(most));
        Self {
            operators: of(most),
            users: of(most),
            strangers: of(STRANGERS),
            tls: of(most),
            peers: Arc::default(),
            told: of(TOLD),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        }
    }

    /// Returns a place for a peer, if there is one.
    fn take(&self, peer: &str, kind: &Arc<Semaphore>) -> Option<Place> {
        let permit = kind.clone().try_acquire_owned().ok()?;
        let each = (self.most as usize / 2).max(1);
        let part = match Arc::ptr_eq(kind, &self.operators) {
            true => None,
            false => Some(self.peers.take(peer, 1, each, usize::MAX)?),
        };
        Some(Place { _kind: permit, _peer: part })
    }

    /// Tells a client that there is no place for it. It is closed at once if many others are being told.
    fn tell(&self, stream: UnixStream) {
        let Ok(told) = self.told.clone().try_acquire_owned() else { return };
        let most = self.most;
        let service = service_fn(move |_: hyper::Request<Incoming>| async move {
            let problem = Problem::new(
                Code::TooMany,
                format!(
                    "no connection is left: {most} may be open, half of them for one user but the operator"
                ),
                "close some, or raise connections in [limits] of node.toml",
            );
            Ok::<_, std::convert::Infallible>(Refusal(problem).into_response())
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(BRIEF).keep_alive(false).max_buf_size(HEAD_BYTES);
        tokio::spawn(async move {
            let _ = timeout(BRIEF, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(told);
        });
    }

    fn of_user(&self, access: Access) -> &Arc<Semaphore> {
        match access {
            Access::Operator => &self.operators,
            Access::User => &self.users,
            Access::None => &self.strangers,
        }
    }
}

impl Server {
    pub fn new(app: Arc<App>, router: Router) -> Self {
        let most = app.engine.config().limits.connections;
        Self { app, router, places: Places::new(most) }
    }

    pub async fn accept_unix(self, listener: UnixListener) {
        let mut ending = self.app.ending.clone();
        // Clients see the user that began to listen, who may be another than the node's, such as root.
        let listens = getsockopt(&listener, PeerCredentials);
        let node = listens.map_or_else(|_| flame_files::effective_user(), |by| by.uid());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ending.wait_for(|ending| *ending) => return,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(BREATHER).await;
                continue;
            };
            let uid = match stream.peer_cred() {
                Ok(credentials) => credentials.uid(),
                Err(_) => continue,
            };
            let connection = Connection::new(Peer::Unix { uid, node });
            let kind = self.places.of_user(connection.access(&self.app.engine));
            match self.places.take(&connection.label(), kind) {
                Some(place) => drop(tokio::spawn(self.clone().serve(stream, connection, place))),
                None => self.places.tell(stream),
            }
        }
    }

    pub async fn accept_tls(self, listener: TcpListener, config: Arc<rustls::ServerConfig>) {
        let acceptor = TlsAcceptor::from(config);
        let mut ending = self.app.ending.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ending.wait_for(|ending| *ending) => return,
            };
            let Ok((stream, address)) = accepted else {
                tokio::time::sleep(BREATHER).await;
                continue;
            };
            // Before the handshake, which takes time.
            let peer = format!("address {}", address.ip());
            let Some(place) = self.places.take(&peer, &self.places.tls) else { continue };
            let _ = stream.set_nodelay(true);
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
                let exported = stream.get_ref().1.export_keying_material([0; 32], flame_api::EXPORTER, None);
                let Ok(exported) = exported else { return };
                let peer = Peer::Tls { address: address.ip(), exported };
                server.serve(stream, Connection::new(peer), place).await;
            });
        }
    }

    /// Serves one connection, one request after the other.
    async fn serve<S>(self, stream: S, connection: Connection, place: Place)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let connection = Arc::new(connection);
        let (app, router) = (self.app.clone(), self.router.clone());
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            reply(app.clone(), router.clone(), connection.clone(), request)
        });
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
        let served = http.serve_connection(TokioIo::new(Box::pin(stream)), service);
        tokio::pin!(served);
        let mut ending = self.app.ending.clone();
        let is_ending = tokio::select! {
            _ = served.as_mut() => false,
            _ = ending.wait_for(|ending| *ending) => true,
        };
        if is_ending {
            served.as_mut().graceful_shutdown();
            // The streams of records end by themselves; a client that reads nothing is left.
            let _ = timeout(DRAIN, served).await;
        }
        drop(place);
    }

    /// Waits until all connections have ended.
    pub async fn drained(&self) {
        let Places { operators, users, strangers, tls, most, .. } = &self.places;
        let all = async {
            for (places, most) in
                [(operators, *most), (users, *most), (strangers, STRANGERS as u32), (tls, *most)]
            {
                let _ = places.acquire_many(most).await;
            }
        };
        let _ = timeout(DRAIN, all).await;
    }
}

/// Replies to one request. Before anything else is done for it, its peer is charged.
async fn reply(
    app: Arc<App>,
    mut router: Router,
    connection: Arc<Connection>,
    mut request: hyper::Request<Incoming>,
) -> Result<Response, std::convert::Infallible> {
    let payer = connection.payer(&app.engine);
    let response = match charge(&app, &connection, payer.as_deref()) {
        Err(problem) => Refusal(problem).into_response(),
        Ok(()) => {
            request.extensions_mut().insert(connection);
            router.call(request.map(axum::body::Body::new)).await?
        }
    };
    // Details are for the operator, the only client that pays nothing.
    Ok(match (payer, response.extensions().get::<Problem>()) {
        (None, Some(problem)) => Refusal(problem.clone().for_operator()).into_response(),
        _ => response,
    })
}

fn charge(app: &App, connection: &Connection, payer: Option<&str>) -> Result<(), Problem> {
    let Some(payer) = payer else { return Ok(()) };
    let per_second = app.engine.config().limits.requests_per_second;
    app.rates.take(payer, per_second).map_err(|wait| {
        Problem::new(
            Code::TooMany,
            format!("more than {per_second} requests in a second"),
            format!("wait {} ms", wait.as_millis() + 1),
        )
    })?;
    match connection.peer {
        Peer::Unix { uid, .. } if connection.access(&app.engine) == Access::None => Err(Problem::new(
            Code::Forbidden,
            format!("user {uid} has no access to this node"),
            "the operator adds users to [socket] of node.toml: users = [\"NAME\"]",
        )),
        _ => Ok(()),
    }
}
