//! The API's server: listeners, connections and requests. All of it runs on threads apart from the workers.

mod connection;
mod extract;
mod metrics;
mod openapi;
mod rate;
mod records;
mod routes;
mod tls;

pub use openapi::description;
pub use tls::{TlsError, certificate, server_config};

use crate::engine::Engine;
use rate::Rates;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// The number of modules that are examined and compiled at the same time.
const COMPILING: usize = 2;

/// The server's shared state.
pub(crate) struct App {
    pub engine: Arc<Engine>,
    pub rates: Rates,
    /// Limits the compilations in progress.
    pub compiling: Semaphore,
    /// Becomes true when the node stops.
    pub ending: watch::Receiver<bool>,
}

/// The sockets to listen on, bound before privileges are dropped.
pub struct Listeners {
    pub unix: Option<UnixListener>,
    pub tls: Option<(std::net::TcpListener, Arc<rustls::ServerConfig>)>,
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
        compiling: Semaphore::new(COMPILING),
        ending: ending.clone(),
    });
    let router = routes::router(app.clone());
    let server = connection::Server::new(app, router);
    let mut tasks = tokio::task::JoinSet::new();
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
