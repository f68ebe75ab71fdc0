//! The start of a source, and its start again when its run has ended.

use super::{Inner, Shared, SourceRunError};
use crate::config;
use crate::route::{Routes, ToLogs, ToSpools};
use flame_plan::Plan;
use flame_run::Engines;
use flame_source::live::{self, Interface, LiveOptions};
use flame_source::{Paced, SourceError};
use flame_trust::Place;
use flame_view::Key;
use flame_worker::{Charging, Input, Link, Options, Run, Runner, Worker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time after which a source that failed is opened again.
const RETRY: Duration = Duration::from_secs(1);

/// A source that was opened, before its workers are started.
pub struct Opened {
    pub input: Input,
    /// The place from which its packets come, for grants.
    pub place: Place,
    /// The way in which the packets come.
    pub method: String,
    /// The reason why an interface is not captured in the better way.
    reason: Option<String>,
}

impl Opened {
    /// Takes out what the operator should know about the way in which an interface is captured.
    pub fn said(&mut self) -> Option<String> {
        let reason = self.reason.take().map(|reason| format!("{}: {reason}", self.method));
        let Input::Shared(source) = &mut self.input else { return reason };
        source.take_notice().map(|notice| notice.text().to_owned()).or(reason)
    }
}

/// Opens a source.
///
/// # Errors
///
/// Returns an error without the rights, or if the source cannot be opened.
pub fn open(config: &config::Source) -> Result<Opened, SourceError> {
    let config::Source { from, workers, snaplen, .. } = config;
    match from {
        config::From::File { path, repeat } => {
            let input = Input::Shared(Box::new(Paced::open(path.clone(), *repeat, *snaplen)?));
            Ok(Opened { input, place: Place::captures(), method: "file, paced".to_owned(), reason: None })
        }
        config::From::Interface { name, promiscuous, capture } => {
            let usual = LiveOptions::default();
            let options = LiveOptions { promiscuous: *promiscuous, snaplen: *snaplen, ..usual };
            // What is decided about is what is opened, whatever it is called later.
            let interface = Interface::find(name)?;
            let place = flame_node::place_of(&interface)?;
            let opened = live::open_by(*capture, &interface, &options, (*workers).into())?;
            let method = opened.way.to_string();
            Ok(Opened { input: Input::of(opened.sources), place, method, reason: opened.reason })
        }
    }
}

/// The parts of a run that are the same each time it is started.
pub(super) struct Launch {
    pub config: config::Source,
    pub place: Place,
    pub engines: Engines,
    /// The program for modules in processes of their own, if there are any.
    pub runner: Option<Runner>,
    pub dispatch_key: Option<Key>,
    /// The link on which its modules send frames.
    pub link: Option<Arc<Link>>,
    pub routes: Routes,
    pub charging: Arc<Charging>,
}

impl Launch {
    /// Starts a run with the modules of `inner`, but for those in processes.
    pub fn start(&self, inner: &mut Inner, opened: Opened) -> Result<Worker, SourceRunError> {
        if opened.place != self.place {
            let name = |place: &Place| place.name().to_owned();
            return Err(SourceRunError::Moved { before: name(&self.place), now: name(&opened.place) });
        }
        let modules = inner.modules.values().filter(|module| module.plan.process.is_none());
        let states = modules.clone().filter_map(|m| Some((m.plan.id, m.keep.clone()?)));
        let (plans, meters) =
            modules.map(|m| (m.plan.clone(), m.meters.clone())).unzip::<_, _, Vec<_>, Vec<_>>();
        let workers = self.config.workers.into();
        let plan = Plan { modules: plans, workers, interval_ns: self.config.interval_ns };
        let options = Options {
            dispatch_key: self.dispatch_key.clone(),
            runner: self.runner.clone(),
            keeps: states.collect(),
            link: self.link.clone(),
            ..Options::default()
        };
        let run = Run::new(&plan, &meters, &self.engines, options)?
            .charging(self.charging.clone())
            .overload(self.config.overload);
        let handle = run.handle();
        let (sink, observer) =
            (Box::new(ToSpools(self.routes.clone())), Box::new(ToLogs(self.routes.clone())));
        let worker = Worker::spawn(run, opened.input, sink, observer).map_err(SourceRunError::Thread)?;
        inner.handle = Some(handle);
        inner.method = opened.method;
        inner.failed = None;
        inner.starts += 1;
        Ok(worker)
    }
}

/// Waits for the end of the run, and starts it again until the source is stopped.
pub(super) fn supervise(launch: &Launch, shared: &Shared, mut worker: Option<Worker>) {
    loop {
        if let Some(worker) = worker.take() {
            let ended = worker.join();
            let reason = shared.ended(ended.map(|(report, _)| report), &launch.routes);
            if !shared.stopping.load(Ordering::SeqCst) {
                launch.routes.tell_all("the source does not run", Some(&reason));
            }
        }
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        std::thread::park_timeout(RETRY);
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let opened = open(&launch.config).map_err(SourceRunError::from);
        let mut inner = shared.inner();
        match opened.and_then(|opened| launch.start(&mut inner, opened)) {
            Ok(started) => {
                // It may have been stopped before it could be commanded.
                if shared.stopping.load(Ordering::SeqCst) {
                    started.handle().stop();
                }
                launch.routes.tell_all(
                    "the source runs again: a new instance was started, empty but for a state that it keeps",
                    None,
                );
                let apart = inner.modules.values().filter(|module| module.plan.process.is_some());
                let (apart, handle) = (apart.cloned().collect::<Vec<_>>(), started.handle());
                worker = Some(started);
                // Without the lock: the command waits for the workers.
                drop(inner);
                for module in apart {
                    let id = module.plan.id;
                    // A module that cannot be started is lost, and ends if it was removed meanwhile.
                    if handle.add(&module).is_ok() && !shared.inner().modules.contains_key(&id) {
                        let _ = handle.remove(id);
                    }
                }
            }
            Err(e) => inner.failed = Some(e.to_string()),
        }
    }
}

/// Restricts this thread, and those that it starts, to `cores`, if any are given.
pub(super) fn pin(cores: &[usize]) -> Result<(), SourceRunError> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| {
        let error = std::io::Error::new(std::io::Error::from(e).kind(), format!("cores {cores:?}: {e}"));
        SourceRunError::Thread(error)
    })
}
