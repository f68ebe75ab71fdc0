//! The life of the node's process: sockets, privileges, signals, readiness, end.

use crate::config::{Config, From, Isolation, Metrics, Scheduler, Socket, Source};
use crate::engine::Engine;
use crate::privileges;
use crate::restore::StartError;
use crate::server::{self, Listeners, Scrape};
use crate::source::{Opened, open};
use crate::standing::{FLEET, STANDING};
use flame_base::{lock, unpoisoned};
use flame_source::live::{Capture, Interface};
use flame_worker::Runner;
use listenfd::ListenFd;
use nix::unistd::{Uid, User};
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The time between two checks for faults.
const FAULT_CHECK: Duration = Duration::from_secs(1);

fn at(place: impl std::fmt::Display) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Io { place: place.to_string(), error }
}

/// Runs the node until SIGTERM or SIGINT. `note` receives what the operator should know.
///
/// # Errors
///
/// Returns an error if the node cannot be started.
pub fn run(path: &Path, note: &dyn Fn(&str)) -> Result<(), StartError> {
    let config = Config::open(path)?;
    let user = match (&config.user, Uid::effective().is_root()) {
        (Some(name), true) => Some(privileges::user(name).map_err(at("[node], user"))?),
        _ => None,
    };
    prepare_storage(&config.storage, user.as_ref()).map_err(at(config.storage.display()))?;
    let locked = lock_storage(&config.storage).map_err(at(config.storage.display()))?;
    if let (Some(file), Some(user)) = (&locked, &user) {
        std::os::unix::fs::fchown(file, Some(user.uid.as_raw()), None)
            .map_err(at(config.storage.display()))?;
    }
    let mut passed = ListenFd::from_env();
    // The socket of a service manager outlives the node.
    let is_own = passed.len() == 0;
    let unix = match &config.socket {
        Some(socket) => {
            Some(bind_unix(socket, user.as_ref(), &mut passed).map_err(at(socket.path.display()))?)
        }
        None => None,
    };
    let tcp = match &config.tls {
        Some(tls) => {
            let given = passed.take_tcp_listener(usize::from(unix.is_some())).ok().flatten();
            Some(given.map_or_else(|| std::net::TcpListener::bind(tls.listen), Ok).map_err(at(tls.listen))?)
        }
        None => None,
    };
    let metrics =
        config.metrics.as_ref().map(|of| std::net::TcpListener::bind(of.listen).map_err(at(of.listen)));
    let metrics = metrics.transpose()?;
    // The operator's key may be readable to root only; the node's own key belongs to the node's user.
    let failed = |e: server::TlsError| StartError::Other(e.to_string());
    let read = |tls: &crate::config::Tls| {
        let (certificate, key) = server::certificate(tls, &config.storage).map_err(failed)?;
        let config = server::server_config(&certificate, &key).map_err(failed)?;
        Ok::<_, StartError>((certificate, config))
    };
    let given = config.tls.as_ref().filter(|tls| tls.files.is_some()).map(read).transpose()?;
    let runner = config.has_processes().then(Runner::open).transpose().map_err(StartError::Runner)?;
    // Later, the rights for AF_XDP are missing.
    let opened = open_taking(&config)?;
    if let Some(user) = &user {
        privileges::drop_to(user, config.isolation.scheduler == Scheduler::Deadline)
            .map_err(at(format!("becoming user {}", user.name)))?;
    }
    let of_tls = match (given, &config.tls) {
        (Some(given), _) => Some(given),
        (None, Some(tls)) => Some(read(tls)?),
        (None, None) => None,
    };
    let socket = config.socket.as_ref().filter(|_| is_own).map(|socket| socket.path.clone());
    if let Some((certificate, _)) = &of_tls
        && let Some(tls) = config.tls.as_ref().filter(|tls| tls.files.is_none())
    {
        note(&format!("clients of https on {} need {}", tls.listen, certificate.display()));
    }
    let tls = tcp.zip(of_tls).map(|(listener, (_, config))| (listener, config));
    let scrape = match (metrics, &config.metrics) {
        (Some(listener), Some(of)) => Some(scrape(listener, of, &config.storage, tls.as_ref(), note)?),
        _ => None,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("api").enable_all().build();
    let runtime = runtime.map_err(at("threads"))?;
    let engine = Engine::start(config, runner, opened, note)?;
    let fleet = engine.outbox.as_ref().map(|_| FLEET);
    let threads =
        STANDING.into_iter().chain(fleet).map(|standing| engine.stand(standing).map_err(at("threads")));
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    let listeners = Listeners { unix, tls, scrape };
    let served = runtime.block_on(serve(path, &engine, listeners, note));
    // Requests that are still running are given up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    for thread in threads {
        thread.thread().unpark();
        let _ = thread.join();
    }
    // No change is in progress any more that would write its own.
    engine.write_rows();
    engine.send_rows(None);
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    drop(locked);
    served.map_err(at("server"))
}

/// Returns what the readers of metrics need. The token belongs to the node's user.
fn scrape(
    listener: std::net::TcpListener,
    of: &Metrics,
    storage: &Path,
    tls: Option<&(std::net::TcpListener, Arc<rustls::ServerConfig>)>,
    note: &dyn Fn(&str),
) -> Result<Scrape, StartError> {
    let authorization = server::authorization(of, storage).map_err(StartError::Other)?;
    let (authorization, file) = authorization.unzip();
    if let Some(file) = file {
        note(&format!("readers of metrics on {} need the token in {}", of.listen, file.display()));
    }
    // Loopback is not encrypted: Prometheus would need the certificate for nothing.
    let tls = tls.filter(|_| !of.listen.ip().is_loopback()).map(|(_, config)| config.clone());
    Ok(Scrape { listener, tls, authorization })
}

/// Opens the interfaces that may be captured by AF_XDP.
fn open_taking(config: &Config) -> Result<BTreeMap<String, Opened>, StartError> {
    let may_take = |source: &&Source| match &source.from {
        From::Interface { capture, .. } => *capture != Capture::Packet,
        From::File { .. } => false,
    };
    let taking = config.sources.iter().filter(|(_, source)| may_take(source));
    let opened = taking.map(|(name, source)| match open(source) {
        Ok(opened) => Ok((name.clone(), opened)),
        Err(e) => Err(StartError::Source { name: name.clone(), error: e.into() }),
    });
    opened.collect()
}

/// Serves until a signal, reloads the configuration on SIGHUP, and ends the sources in order.
async fn serve(
    path: &Path,
    engine: &Arc<Engine>,
    listeners: Listeners,
    note: &dyn Fn(&str),
) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (end, ending) = watch::channel(false);
    let mut server = tokio::spawn(server::serve(engine.clone(), listeners, ending));
    // Without a service manager there is no listener.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    note("ready");
    let (mut look, mut troubles) = (tokio::time::interval(FAULT_CHECK), BTreeMap::new());
    loop {
        tokio::select! {
            _ = look.tick() => {
                note_changes(&mut troubles, engine.troubles(), note);
                lock(&engine.reports).refusals.take().iter().for_each(|text| note(text));
            }
            _ = hangup.recv() => reload(path, engine, note),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // Its listeners failed.
            ended = &mut server => return ended.map_err(io::Error::other)?,
        }
    }
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    // First the sources, so that streams of records carry the last rows.
    let finishing = engine.clone();
    let _ = tokio::task::spawn_blocking(move || finishing.finish()).await;
    let _ = end.send(true);
    server.await.map_err(io::Error::other)??;
    note("ended");
    Ok(())
}

/// Notes what does not work any more, and what works again.
fn note_changes(known: &mut BTreeMap<String, String>, now: BTreeMap<String, String>, note: &dyn Fn(&str)) {
    for (subject, reason) in now.iter().filter(|(subject, reason)| known.get(*subject) != Some(*reason)) {
        note(&format!("{subject}: {reason}"));
    }
    for subject in known.keys().filter(|subject| !now.contains_key(*subject)) {
        note(&format!("{subject}: works again"));
    }
    *known = now;
}

/// Reads the configuration again. Limits, users and policy change; what needs new sockets or sources does
/// not.
fn reload(path: &Path, engine: &Engine, note: &dyn Fn(&str)) {
    let new = match Config::open(path) {
        Ok(new) => new,
        Err(e) => {
            // Shown by status and health until a configuration can be read, as with a policy.
            let reason = format!("{e}; the configuration as it was before stays in force");
            return engine.fault("configuration", Some(reason));
        }
    };
    engine.fault("configuration", None);
    let policy = {
        let mut config = unpoisoned(engine.config.write());
        let fixed = [
            ("[node] storage", config.storage == new.storage),
            ("[node] user", config.user == new.user),
            ("[node] accounting", config.accounting == new.accounting),
            ("[node] states", config.states == new.states),
            ("[node] policy", config.policy.is_some() == new.policy.is_some()),
            (
                "[socket] path",
                config.socket.as_ref().map(|s| &s.path) == new.socket.as_ref().map(|s| &s.path),
            ),
            ("[tls]", config.tls == new.tls),
            ("[metrics]", config.metrics == new.metrics),
            ("[sources]", config.sources == new.sources),
            ("[fleet]", config.fleet == new.fleet),
            ("[links]", config.links == new.links),
            ("[isolation] place", config.isolation.is_inline == new.isolation.is_inline),
            ("[limits] connections", config.limits.connections == new.limits.connections),
        ];
        for (what, _) in fixed.iter().filter(|(_, same)| !same) {
            note(&format!("{what} has changed, which needs a restart"));
        }
        config.limits = new.limits;
        let is_inline = config.isolation.is_inline;
        config.isolation = Isolation { is_inline, ..new.isolation };
        if let (Some(now), Some(new)) = (&mut config.socket, new.socket) {
            (now.operators, now.users) = (new.operators, new.users);
        }
        if config.policy.is_some() && new.policy.is_some() {
            config.policy = new.policy;
        }
        config.policy.clone()
    };
    engine.end_decisions();
    engine.apply_limits();
    engine.reload_policy(policy.as_deref());
    engine.evict_lost();
    note("reloaded");
}

/// Creates the storage, for the node's user.
fn prepare_storage(storage: &Path, user: Option<&User>) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(storage)?;
    if let Some(user) = user {
        std::os::unix::fs::chown(storage, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// Locks the storage, which one node at a time may use. On a read-only file system there is no lock.
fn lock_storage(storage: &Path) -> io::Result<Option<std::fs::File>> {
    let file = match std::fs::File::options().create(true).append(true).open(storage.join("lock")) {
        Ok(file) => file,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(io::Error::other("another node uses this storage: stop it, or choose another folder"))
        }
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Binds the Unix socket, or takes the socket that the service manager passed. A socket that was left behind
/// is replaced.
fn bind_unix(socket: &Socket, user: Option<&User>, passed: &mut ListenFd) -> io::Result<UnixListener> {
    if passed.len() > 0 {
        let listener = passed.take_unix_listener(0)?;
        return listener.ok_or_else(|| io::Error::other("the service manager passed no Unix socket"));
    }
    let path = &socket.path;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other("it exists and is no socket: remove it, or choose another path"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::other("another process listens on it: stop it, or choose another path"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(socket.mode))?;
    if let Some(user) = user {
        std::os::unix::fs::chown(path, Some(user.uid.as_raw()), None)?;
    }
    Ok(listener)
}

/// Checks the configuration and all that it names, without starting anything. Returns the points that need
/// attention but do not prevent a start.
///
/// # Errors
///
/// Returns the first error for which the node would not start.
pub fn check(path: &Path) -> Result<Vec<String>, StartError> {
    let config = Config::open(path)?;
    let mut notes = Vec::new();
    if let Some(policy) = &config.policy {
        flame_node::Node::open(policy)?;
    } else {
        notes.push("no policy: only the operator has access".to_owned());
    }
    if config.has_processes() {
        Runner::open().map_err(StartError::Runner)?;
    }
    if let Some(name) = &config.user {
        privileges::user(name).map_err(at("[node], user"))?;
    } else if Uid::effective().is_root() {
        notes.push("no user: started by root, the node keeps root's rights".to_owned());
    }
    if let Some((certificate, key)) = config.tls.as_ref().and_then(|tls| tls.files.as_ref()) {
        server::server_config(certificate, key).map_err(|e| StartError::Other(e.to_string()))?;
    }
    for (name, source) in &config.sources {
        let error = |reason: String| StartError::Other(format!("source {name}: {reason}"));
        match &source.from {
            From::File { path, .. } => {
                flame_source::open(std::slice::from_ref(path), &flame_source::FileOptions::default())
                    .map_err(|e| error(e.to_string()))?;
            }
            From::Interface { name, .. } => has_interface(name).map_err(error)?,
        }
    }
    for (name, link) in &config.links {
        let error = |reason: String| StartError::Other(format!("link {name}: {reason}"));
        has_interface(&link.interface).map_err(error)?;
    }
    Ok(notes)
}

fn has_interface(name: &str) -> Result<(), String> {
    match Interface::find(name).and_then(|interface| flame_node::place_of(&interface)) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::World;

    #[test]
    fn a_configuration_that_cannot_be_read_shows_until_one_can() {
        let world = World::new();
        let path = world.folder.path().join("node.toml");
        let good = "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"sock\"\n\
                    [sources.tap]\ninterface = \"eth0\"\n[limits]\nmodules = 9\n";
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            reload(&path, &world.engine, &|_| {});
            world.engine.health()
        };
        assert!(load(good).ok);
        let health = load(&good.replace("modules = 9", "modules = nine"));
        assert!(!health.ok && health.reasons.len() == 1, "{:?}", health.reasons);
        let reason = &health.reasons[0];
        assert!(reason.contains("node.toml") && reason.contains("stays in force"), "{reason}");
        assert_eq!(world.engine.config().limits.modules, 9);
        assert!(load(good).ok);
    }
}
