//! Accepts connections, and closes those that are slow, half-open or too many.

use super::App;
use crate::config::Socket;
use crate::identity::{Access, Connection, Peer};
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// The time for the head of a request, from the moment that the connection could send one.
const HEAD: Duration = Duration::from_secs(10);
/// The time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time for which a client may leave a reply unread.
const UNREAD: Duration = Duration::from_secs(30);
/// The time for open connections to end when the node stops.
const DRAIN: Duration = Duration::from_secs(3);
/// Maximum length of the head of a request in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The pause after an accept failed, for example because no descriptor was left.
const BREATHER: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
    router: Router,
    places: Places,
}

/// The connections that may be open: of operators, other users, and over TLS, so that none of them keeps the
/// others out.
#[derive(Clone)]
struct Places {
    operators: Arc<Semaphore>,
    users: Arc<Semaphore>,
    tls: Arc<Semaphore>,
    most: u32,
}

impl Places {
    fn new(most: usize) -> Self {
        let of = || Arc::new(Semaphore::new(most));
        Self { operators: of(), users: of(), tls: of(), most: u32::try_from(most).unwrap_or(u32::MAX) }
    }

    /// Returns a place for a peer. Without one the connection is closed at once, which the client sees as an
    /// error.
    fn take(&self, peer: &Peer) -> Option<OwnedSemaphorePermit> {
        let places = match peer {
            Peer::Unix { access: Access::Operator, .. } => &self.operators,
            Peer::Unix { .. } => &self.users,
            Peer::Tls { .. } => &self.tls,
        };
        places.clone().try_acquire_owned().ok()
    }
}

impl Server {
    pub fn new(app: Arc<App>, router: Router) -> Self {
        let most = app.engine.config().limits.connections;
        Self { app, router, places: Places::new(most) }
    }

    pub async fn accept_unix(self, listener: UnixListener) {
        let mut ending = self.app.ending.clone();
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
            let socket = self.app.engine.config().socket;
            let access = socket.map_or(Access::None, |socket| access(&socket, uid));
            let peer = Peer::Unix { uid, access };
            if let Some(place) = self.places.take(&peer) {
                tokio::spawn(self.clone().serve(stream, peer, place));
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
            let Ok(place) = self.places.tls.clone().try_acquire_owned() else { continue };
            let _ = stream.set_nodelay(true);
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
                let exported = stream.get_ref().1.export_keying_material([0; 32], flame_api::EXPORTER, None);
                let Ok(exported) = exported else { return };
                server.serve(stream, Peer::Tls { address: address.ip(), exported }, place).await;
            });
        }
    }

    /// Serves one connection, one request after the other.
    async fn serve<S>(self, stream: S, peer: Peer, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let connection = Arc::new(Connection::new(peer));
        let router = self.router.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(connection.clone());
            router.clone().call(request.map(axum::body::Body::new))
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
        let Places { operators, users, tls, most } = &self.places;
        let all = async {
            for places in [operators, users, tls] {
                let _ = places.acquire_many(*most).await;
            }
        };
        let _ = timeout(DRAIN, all).await;
    }
}

/// Returns the rights of a user of this machine.
fn access(socket: &Socket, uid: u32) -> Access {
    let names = |list: &[String]| list.iter().any(|name| uid_of(name) == Some(uid));
    match () {
        () if uid == 0 || uid == flame_files::effective_user() || names(&socket.operators) => {
            Access::Operator
        }
        () if names(&socket.users) => Access::User,
        () => Access::None,
    }
}

/// Returns the number of a user, given by number or name.
fn uid_of(name: &str) -> Option<u32> {
    let named = || nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_rights_that_the_configuration_gives_them() {
        let socket = Socket {
            path: "s".into(),
            mode: 0o600,
            operators: vec!["4001".into()],
            users: vec!["4002".into(), "no-such-user".into(), "nobody".into()],
        };
        let nobody = uid_of("nobody").expect("every system has this user");
        let me = flame_files::effective_user();
        for (uid, expected) in [
            (0, Access::Operator),
            (me, Access::Operator),
            (4001, Access::Operator),
            (4002, Access::User),
            (nobody, Access::User),
            (4003, Access::None),
        ] {
            assert_eq!(access(&socket, uid), expected, "{uid}");
        }
    }
}
