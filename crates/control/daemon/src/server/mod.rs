//! The API's server: listeners, connections and requests. All of it runs on threads apart from the workers.

mod connection;
mod extract;
mod metrics;
mod openapi;
mod rate;
mod records;
mod router;
mod routes;
mod scrape;
mod shares;
mod slots;
mod tls;

pub use openapi::description;
pub use scrape::{Scrape, authorization};
pub use shares::Part;
pub use tls::{TlsError, certificate, server_config};

use crate::engine::Engine;
use rate::Rates;
use shares::Shares;
use slots::Slots;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::watch;

/// The number of principals whose modules are examined and compiled at the same time. The operator has a
/// place besides. Renewals compile nothing.
const COMPILING: usize = 2;
/// The number of other requests that are worked on at the same time, and those of one principal.
const WORKING: usize = 32;
const WORKING_EACH: usize = 4;
/// The number of requests of the operator that are worked on at the same time.
const OPERATOR: usize = 64;
/// The number of connections of users without access, which receive a refusal.
const STRANGERS: usize = 8;

/// The server's shared state.
pub(crate) struct App {
    pub engine: Arc<Engine>,
    pub rates: Rates,
    /// Places for changes that compile, for renewals, and for everything else.
    pub compiling: Slots,
    pub renewing: Slots,
    pub working: Slots,
    /// Bytes of bodies.
    pub bodies: Arc<Shares>,
    /// Connections of principals.
    pub sessions: Arc<Shares>,
    /// Becomes true when the node stops.
    pub ending: watch::Receiver<bool>,
}

/// The sockets to listen on, bound before privileges are dropped.
pub struct Listeners {
    pub unix: Option<UnixListener>,
    pub tls: Option<(std::net::TcpListener, Arc<rustls::ServerConfig>)>,
    pub scrape: Option<Scrape>,
}

/// Serves requests until `ending` becomes true; then no connection is accepted, and open ones are completed.
pub async fn serve(
    engine: Arc<Engine>,
    listeners: Listeners,
    ending: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let app = Arc::new(App {
        engine,
        rates: Rates::default(),
        compiling: Slots::new(COMPILING, 1, 1),
        renewing: Slots::new(WORKING, 1, 1),
        working: Slots::new(WORKING, WORKING_EACH, OPERATOR),
        bodies: Arc::default(),
        sessions: Arc::default(),
        ending: ending.clone(),
    });
    let router = router::router(app.clone());
    let server = connection::Server::new(app.clone(), router);
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(scrape) = listeners.scrape {
        scrape.listener.set_nonblocking(true)?;
        tasks.spawn(scrape::serve(app, scrape));
    }
    if let Some(listener) = listeners.unix {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        tasks.spawn(server.clone().accept_unix(listener));
    }
    if let Some((listener, config)) = listeners.tls {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.spawn(server.clone().accept_tls(listener, config));
    }
    while tasks.join_next().await.is_some() {}
    server.drained().await;
    Ok(())
}
