//! Protocols above TCP that the beginning of a payload shows.

use super::facts::{Facts, Group};
use super::tls;
use crate::rule::App;

/// The beginnings of requests and answers of HTTP.
const HTTP: [&[u8]; 9] =
    [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"HTTP/1."];

/// Returns the protocol of a packet that begins as one does, except DNS.
#[inline]
pub fn of_start(f: &Facts<'_>) -> Option<App> {
    if f.group != Group::Tcp {
        return None;
    }
    match f.payload.first()? {
        22 => tls::hello(f.payload).map(|_| App::Tls),
        b'S' => f.payload.starts_with(b"SSH-").then_some(App::Ssh),
        b'G' | b'P' | b'H' | b'D' | b'O' | b'C' => {
            HTTP.iter().any(|start| f.payload.starts_with(start)).then_some(App::Http)
        }
        _ => None,
    }
}

/// Returns the name of a protocol as Suricata writes it.
pub fn name(app: App) -> &'static str {
    match app {
        App::Dns => "dns",
        App::Tls => "tls",
        App::Http => "http",
        App::Ssh => "ssh",
    }
}
