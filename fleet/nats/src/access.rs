//! How a server is reached: its address, its authority, and the user that connects.

use crate::LogError;
use async_nats::{Auth, AuthError, ConnectOptions};
use flame_fleet_protocol::nkey::nkey;
use flame_fleet_protocol::{Secret, talk};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A server, and the user that connects to it.
#[derive(Clone)]
pub struct Access {
    /// `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub server: String,
    pub user: Option<User>,
}

/// A user of a server, with TLS.
#[derive(Clone)]
pub struct User {
    pub secret: Arc<Secret>,
    /// The file of the authority that signed the server's certificate.
    pub authority: PathBuf,
    /// The beginning of the subjects of replies.
    pub inbox: String,
    /// The name, if the user is a node. The fleet makes the streams for it.
    pub node: Option<String>,
}

impl Access {
    /// A server that is open to all who reach it.
    pub fn open(server: &str) -> Self {
        Self { server: server.to_owned(), user: None }
    }

    /// Returns the subject on which the user asks, if it is a node.
    pub(crate) fn asks(&self) -> Option<String> {
        Some(talk::Subjects::of(self.user.as_ref()?.node.as_ref()?).ask)
    }

    /// Returns the options of a connection.
    pub fn options(&self) -> ConnectOptions {
        let options = match &self.user {
            None => ConnectOptions::new(),
            Some(user) => {
                let secret = user.secret.clone();
                let options = ConnectOptions::with_auth_callback(move |nonce| {
                    let secret = secret.clone();
                    async move {
                        let refused = || {
                            AuthError::new(
                                "the server's nonce has other characters than base64: it is not signed",
                            )
                        };
                        let signature = secret.answer(&nonce).ok_or_else(refused)?;
                        let mut auth = Auth::new();
                        auth.nkey = Some(nkey(&secret.public()));
                        auth.signature = Some(signature.to_vec());
                        Ok(auth)
                    }
                });
                options
                    .require_tls(true)
                    .add_root_certificates(user.authority.clone())
                    .custom_inbox_prefix(user.inbox.clone())
            }
        };
        options.reconnect_delay_callback(|attempts| {
            // From 50 ms up to a second: a node without contact loses time for its leases.
            Duration::from_millis(50 << attempts.min(5)).min(Duration::from_secs(1))
        })
    }

    pub(crate) fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> LogError {
        move |error| LogError::Failed { what, reason: error.to_string() }
    }
}
