//! The tables of `node.toml` as they are written, and their checks.

use super::{
    Config, Fault, Fleet, From, Isolation, Limits, Link, Metrics, Readers, Scheduler, Socket, Source, Tls,
};
use crate::units::{NAME, duration, is_name, percent, size};
use flame_abi::manifest::bits_per_second;
use flame_api::Reservation;
use flame_source::live::Capture;
use flame_worker::Overload;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// The usual time between rows of the accounting, and the shortest.
const ACCOUNTING: Duration = Duration::from_secs(10);
const LEAST_ACCOUNTING: Duration = Duration::from_millis(100);
/// The usual time between writes of the modules' state, and the shortest.
const STATES: Duration = Duration::from_secs(10);
const LEAST_STATES: Duration = Duration::from_millis(100);
/// The usual bytes of a table in the spool of a fleet.
const FLEET_BYTES: u64 = 1 << 30;
/// The most restarts of a process within ten minutes.
const MAX_RESTARTS: u32 = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    node: NodeTable,
    socket: Option<SocketTable>,
    tls: Option<TlsTable>,
    metrics: Option<MetricsTable>,
    #[serde(default)]
    sources: BTreeMap<Spanned<String>, Spanned<SourceTable>>,
    #[serde(default)]
    links: BTreeMap<Spanned<String>, LinkTable>,
    fleet: Option<FleetTable>,
    #[serde(default)]
    isolation: IsolationTable,
    #[serde(default)]
    capacity: CapacityTable,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    storage: PathBuf,
    policy: Option<PathBuf>,
    user: Option<String>,
    accounting: Option<Spanned<String>>,
    states: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketTable {
    path: PathBuf,
    mode: Option<Spanned<String>>,
    #[serde(default)]
    operators: Vec<String>,
    #[serde(default)]
    users: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    listen: Spanned<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    #[serde(default)]
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: Spanned<String>,
    readers: Option<Spanned<String>>,
    token: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceTable {
    interface: Option<String>,
    promiscuous: Option<bool>,
    capture: Option<Spanned<String>>,
    file: Option<PathBuf>,
    repeat: Option<bool>,
    workers: Option<Spanned<u16>>,
    #[serde(default)]
    cores: Vec<Spanned<usize>>,
    interval: Option<Spanned<String>>,
    snaplen: Option<u32>,
    overload: Option<Spanned<String>>,
    link: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    interface: String,
    bandwidth: Spanned<String>,
}

/// The agent reads the name, the server, the size of streams and the folder of its keys
/// (`fleet/fleet/src/config.rs`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetTable {
    name: Spanned<String>,
    spool: PathBuf,
    bytes: Option<Spanned<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    principal: Option<String>,
    #[serde(rename = "member")]
    _member: Option<PathBuf>,
    #[serde(rename = "alone")]
    _alone: Option<String>,
    #[serde(rename = "server")]
    _server: Option<String>,
    #[serde(rename = "stream")]
    _stream: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct IsolationTable {
    place: Option<Spanned<String>>,
    #[serde(default)]
    inline: BTreeSet<String>,
    scheduler: Option<Spanned<String>>,
    restarts: Option<Spanned<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityTable {
    cpu: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    blocks: Option<u64>,
    records: Option<Spanned<String>>,
    #[serde(default)]
    principal: AmountsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AmountsTable {
    cpu: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    blocks: Option<u64>,
    records: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    modules: Option<Spanned<usize>>,
    modules_per_principal: Option<Spanned<usize>>,
    storage_per_principal: Option<Spanned<String>>,
    state_per_principal: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    spool: Option<Spanned<String>>,
    request_bytes: Option<Spanned<String>>,
    bodies: Option<Spanned<String>>,
    request_time: Option<Spanned<String>>,
    requests_per_second: Option<Spanned<u32>>,
    connections: Option<Spanned<usize>>,
}

impl File {
    pub(super) fn checked(self, folder: &Path) -> Result<Config, Fault> {
        let mut links = BTreeMap::new();
        for (name, LinkTable { interface, bandwidth }) in self.links {
            if !is_name(name.get_ref()) {
                return Err((name.span().start, format!("link {:?}: {NAME}", name.get_ref())));
            }
            let read = bits_per_second(bandwidth.get_ref());
            let bandwidth = read.map_err(|e| (bandwidth.span().start, format!("bandwidth {e}")))?;
            links.insert(name.into_inner(), Link { interface, bandwidth });
        }
        let mut sources = BTreeMap::new();
        for (name, table) in self.sources {
            let start = table.span().start;
            if let Some(link) =
                table.get_ref().link.as_ref().filter(|link| !links.contains_key(link.get_ref()))
            {
                let reason = format!("link {:?}: there is no [links.{0}]", link.get_ref());
                return Err((link.span().start, reason));
            }
            if !is_name(name.get_ref()) {
                return Err((name.span().start, format!("source {:?}: {NAME}", name.get_ref())));
            }
            sources.insert(name.into_inner(), table.into_inner().checked(start, folder)?);
        }
        if sources.is_empty() {
            return Err((
                0,
                "no source: add [sources.NAME] with interface = \"…\" or file = \"…\"".to_owned(),
            ));
        }
        if self.socket.is_none() && self.tls.is_none() {
            return Err((0, "nothing to listen on: add [socket] with path = \"…\", or [tls]".to_owned()));
        }
        let interval = |text: &Option<Spanned<String>>, usual: Duration, least: Duration| {
            let Some(text) = text else { return Ok(usual) };
            match Duration::from_nanos(duration(text)?) {
                short if short < least => {
                    Err((text.span().start, format!("{:?}: expected {least:?} or more", text.get_ref())))
                }
                interval => Ok(interval),
            }
        };
        let accounting = interval(&self.node.accounting, ACCOUNTING, LEAST_ACCOUNTING)?;
        let states = interval(&self.node.states, STATES, LEAST_STATES)?;
        let workers = sources.values().map(|source: &Source| u64::from(source.workers)).sum();
        let (capacity, per_principal) = self.capacity.checked(workers)?;
        Ok(Config {
            accounting,
            states,
            isolation: self.isolation.checked()?,
            capacity,
            per_principal,
            storage: folder.join(self.node.storage),
            policy: self.node.policy.map(|path| folder.join(path)),
            user: self.node.user,
            socket: self.socket.map(|socket| socket.checked(folder)).transpose()?,
            metrics: self.metrics.map(|table| table.checked(self.tls.is_some(), folder)).transpose()?,
            tls: self.tls.map(|tls| tls.checked(folder)).transpose()?,
            sources,
            links,
            fleet: self.fleet.map(|fleet| fleet.checked(folder)).transpose()?,
            limits: self.limits.checked()?,
        })
    }
}

impl SocketTable {
    fn checked(self, folder: &Path) -> Result<Socket, Fault> {
        let mode = match self.mode {
            None => 0o600,
            Some(text) => {
                u32::from_str_radix(text.get_ref(), 8).ok().filter(|m| *m <= 0o777).ok_or_else(|| {
                    (
                        text.span().start,
                        format!("mode {:?}: expected octal digits, as in \"0660\"", text.get_ref()),
                    )
                })?
            }
        };
        Ok(Socket { path: folder.join(self.path), mode, operators: self.operators, users: self.users })
    }
}

/// Returns the address of `listen`, which is like `example`.
fn address(listen: &Spanned<String>, example: &str) -> Result<SocketAddr, Fault> {
    let wrong = |_| {
        let found = listen.get_ref();
        let reason = format!("listen {found:?}: expected an address and a port, as in {example:?}");
        (listen.span().start, reason)
    };
    listen.get_ref().parse().map_err(wrong)
}

impl MetricsTable {
    fn checked(self, has_tls: bool, folder: &Path) -> Result<Metrics, Fault> {
        let (start, listen) = (self.listen.span().start, address(&self.listen, "127.0.0.1:9464")?);
        let is_loopback = listen.ip().is_loopback();
        if !is_loopback && !has_tls {
            let reason = format!("listen {listen}: other addresses than loopback need TLS: add [tls]");
            return Err((start, reason));
        }
        let readers = match &self.readers {
            None => None,
            Some(text) => match text.get_ref().as_str() {
                "token" => None,
                "loopback" if is_loopback => Some(Readers::Loopback),
                "loopback" => {
                    let reason = format!("readers \"loopback\": {listen} is reached from elsewhere");
                    return Err((text.span().start, reason));
                }
                other => {
                    let reason = format!("readers {other:?}: expected \"token\" or \"loopback\"");
                    return Err((text.span().start, reason));
                }
            },
        };
        let readers = match (readers, self.token) {
            (Some(_), Some(token)) => {
                return Err((token.span().start, "readers \"loopback\" need no token".to_owned()));
            }
            (Some(readers), None) => readers,
            (None, token) => Readers::Token(token.map(|path| folder.join(path.into_inner()))),
        };
        Ok(Metrics { listen, readers })
    }
}

impl TlsTable {
    fn checked(self, folder: &Path) -> Result<Tls, Fault> {
        let (start, listen) = (self.listen.span().start, address(&self.listen, "0.0.0.0:7443")?);
        let files = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((folder.join(certificate), folder.join(key))),
            (None, None) => None,
            _ => return Err((start, "give both certificate and key, or neither".to_owned())),
        };
        Ok(Tls { listen, files, names: self.names })
    }
}

impl SourceTable {
    fn checked(self, start: usize, folder: &Path) -> Result<Source, Fault> {
        let from = match (self.interface, self.file) {
            (Some(name), None) => {
                if self.repeat.is_some() {
                    return Err((start, "repeat is for files".to_owned()));
                }
                let capture = self.capture.map_or(Ok(Capture::default()), |text| {
                    let read = text.get_ref().parse();
                    read.map_err(|e| (text.span().start, format!("capture {e}")))
                })?;
                From::Interface { name, promiscuous: self.promiscuous.unwrap_or(true), capture }
            }
            (None, Some(path)) => {
                if self.promiscuous.is_some() {
                    return Err((start, "promiscuous is for interfaces".to_owned()));
                }
                if let Some(capture) = self.capture {
                    return Err((capture.span().start, "capture is for interfaces".to_owned()));
                }
                From::File { path: folder.join(path), repeat: self.repeat.unwrap_or(false) }
            }
            _ => return Err((start, "give either interface = \"…\" or file = \"…\"".to_owned())),
        };
        let workers = match &self.workers {
            Some(n) if !(1..=64).contains(n.get_ref()) => {
                return Err((n.span().start, format!("workers = {}: expected 1 to 64", n.get_ref())));
            }
            Some(n) => *n.get_ref(),
            None => 1,
        };
        // A service may have a part of the machine's cores.
        let here = rustix::thread::sched_getaffinity(None).map_err(|e| (start, format!("cores: {e}")))?;
        let is_here = |core: usize| core < rustix::thread::CpuSet::MAX_CPU && here.is_set(core);
        if let Some(core) = self.cores.iter().find(|core| !is_here(*core.get_ref())) {
            let count = here.count();
            let reason = format!("core {}: it is none of the {count} that the node may use", core.get_ref());
            return Err((core.span().start, reason));
        }
        let interval_ns = self.interval.as_ref().map_or(Ok(1_000_000_000), duration)?;
        let overload = match &self.overload {
            None => Overload::default(),
            Some(text) => {
                let read = text.get_ref().parse();
                read.map_err(|reason| (text.span().start, format!("overload {reason}")))?
            }
        };
        Ok(Source {
            from,
            workers,
            cores: self.cores.into_iter().map(Spanned::into_inner).collect(),
            interval_ns,
            snaplen: self.snaplen.unwrap_or(262_144),
            overload,
            link: self.link.map(Spanned::into_inner),
        })
    }
}

impl FleetTable {
    fn checked(self, folder: &Path) -> Result<Fleet, Fault> {
        if !is_name(self.name.get_ref()) {
            return Err((self.name.span().start, format!("name {:?}: {NAME}", self.name.get_ref())));
        }
        let bytes = match &self.bytes {
            None => FLEET_BYTES,
            Some(text) => {
                size(text.get_ref()).filter(|bytes| *bytes >= flame_spool::MIN_BOUND).ok_or_else(|| {
                    let (found, least) = (text.get_ref(), flame_spool::MIN_BOUND.div_ceil(1 << 20));
                    (
                        text.span().start,
                        format!("{found:?}: expected a size as in \"1GiB\", at least {least}MiB"),
                    )
                })?
            }
        };
        let Self { spool, labels, principal, .. } = self;
        Ok(Fleet { spool: folder.join(spool), bytes, labels, principal })
    }
}

impl IsolationTable {
    fn checked(self) -> Result<Isolation, Fault> {
        let usual = Isolation::default();
        let is_inline = match &self.place {
            None => usual.is_inline,
            Some(place) => match place.get_ref().as_str() {
                "process" => false,
                "inline" => true,
                other => {
                    let reason = format!("place {other:?}: expected \"process\" or \"inline\"");
                    return Err((place.span().start, reason));
                }
            },
        };
        let scheduler = match &self.scheduler {
            None => usual.scheduler,
            Some(text) => match text.get_ref().as_str() {
                "auto" => Scheduler::Auto,
                "deadline" => Scheduler::Deadline,
                "fair" => Scheduler::Fair,
                other => {
                    let reason = format!("scheduler {other:?}: expected \"auto\", \"deadline\" or \"fair\"");
                    return Err((text.span().start, reason));
                }
            },
        };
        let restarts = match self.restarts {
            Some(n) if *n.get_ref() > MAX_RESTARTS => {
                let reason = format!("restarts = {}: expected 0 to {MAX_RESTARTS}", n.get_ref());
                return Err((n.span().start, reason));
            }
            n => n.map_or(usual.restarts, Spanned::into_inner),
        };
        Ok(Isolation { is_inline, inline: self.inline, scheduler, restarts })
    }
}

impl CapacityTable {
    fn checked(self, workers: u64) -> Result<(Reservation, Reservation), Fault> {
        let Self { cpu, memory, blocks, records, principal } = self;
        let usual = Reservation {
            cpu_ppm: 800_000 * workers,
            memory: machine_memory() / 2,
            blocks: 1024,
            record_bytes: 64 << 20,
        };
        let capacity = AmountsTable { cpu, memory, blocks, records }.checked(&usual)?;
        Ok((capacity, principal.checked(&capacity)?))
    }
}

impl AmountsTable {
    fn checked(self, usual: &Reservation) -> Result<Reservation, Fault> {
        let bytes = |text: Option<Spanned<String>>, usual: u64| match text {
            None => Ok(usual),
            Some(text) => {
                let wrong = format!("{:?}: expected a size as in \"4GiB\"", text.get_ref());
                size(text.get_ref()).ok_or((text.span().start, wrong))
            }
        };
        let cpu_ppm = match self.cpu {
            None => usual.cpu_ppm,
            Some(text) => percent(text.get_ref()).ok_or_else(|| {
                (text.span().start, format!("{:?}: expected percent as in \"160%\"", text.get_ref()))
            })?,
        };
        Ok(Reservation {
            cpu_ppm,
            memory: bytes(self.memory, usual.memory)?,
            blocks: self.blocks.unwrap_or(usual.blocks),
            record_bytes: bytes(self.records, usual.record_bytes)?,
        })
    }
}

/// Returns the memory of this machine in bytes, or 4 GiB if the kernel does not report it.
fn machine_memory() -> u64 {
    use procfs_core::FromRead;
    procfs_core::Meminfo::from_file("/proc/meminfo").map_or(4 << 30, |info| info.mem_total)
}

impl LimitsTable {
    fn checked(self) -> Result<Limits, Fault> {
        let usual = Limits::default();
        let bytes = |text: Option<Spanned<String>>, usual: u64, most: u64| match text {
            None => Ok(usual),
            Some(text) => {
                let found = size(text.get_ref()).filter(|n| (1..=most).contains(n));
                found.ok_or_else(|| {
                    let (found, most) = (text.get_ref(), most >> 20);
                    (
                        text.span().start,
                        format!("{found:?}: expected a size as in \"8MiB\", at most {most}MiB"),
                    )
                })
            }
        };
        let count = |n: Option<Spanned<usize>>, usual: usize, most: usize| match n {
            Some(n) if !(1..=most).contains(n.get_ref()) => {
                Err((n.span().start, format!("{}: expected 1 to {most}", n.get_ref())))
            }
            n => Ok(n.map_or(usual, Spanned::into_inner)),
        };
        let request_bytes = bytes(self.request_bytes, usual.request_bytes as u64, 1 << 30)? as usize;
        let modules = count(self.modules, usual.modules, 10_000)?;
        let each = usual.modules_per_principal.min(modules.div_ceil(4));
        // At least one request of the greatest length.
        let bodies = bytes(self.bodies, usual.bodies as u64, 64 << 30)?.max(request_bytes as u64) as usize;
        let rate = self.requests_per_second.map(|n| Spanned::new(n.span(), *n.get_ref() as usize));
        Ok(Limits {
            modules,
            modules_per_principal: count(self.modules_per_principal, each, 10_000)?,
            storage_per_principal: bytes(self.storage_per_principal, usual.storage_per_principal, 1 << 40)?,
            state_per_principal: bytes(self.state_per_principal, usual.state_per_principal, 1 << 30)?,
            memory: bytes(self.memory, usual.memory.into(), 2 << 30)? as u32,
            spool: bytes(self.spool, usual.spool, 64 << 30)?,
            request_bytes,
            bodies,
            request_time: match &self.request_time {
                None => usual.request_time,
                Some(text) => Duration::from_nanos(duration(text)?),
            },
            requests_per_second: count(rate, usual.requests_per_second as usize, 1_000_000)? as u32,
            connections: count(self.connections, usual.connections, 65_536)?,
        })
    }
}
