use crate::node::{AdmittedModule, Node};
use flame_trust::{Policy, time};
use flame_worker::Handle;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// The interval at which policy, revocations and clock are checked. Changes take effect within a second.
const GRANTS_CHECK: Duration = Duration::from_millis(200);

/// A receiver of warnings, which do not end anything.
type Warn = Box<dyn Fn(&str) + Send>;

/// A thread that checks whether modules may still run, as long as this value lives, and evicts those that may
/// not.
pub struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Watches the `admitted` modules of the run that `handle` controls. The run is stopped when none is
    /// left.
    pub fn start(
        node: Node,
        admitted: Vec<AdmittedModule>,
        handle: Handle,
        warn: impl Fn(&str) + Send + 'static,
    ) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let over = done.clone();
        let mut watched = Watched { node, admitted, handle, warn: Box::new(warn), warned: None };
        let thread = std::thread::spawn(move || watched.watch(&over));
        Self { done, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The modification time and length of a file, by which changes are detected.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: Option<&Path>) -> Stamp {
    let metadata = std::fs::metadata(path?).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

struct Watched {
    node: Node,
    admitted: Vec<AdmittedModule>,
    handle: Handle,
    warn: Warn,
    /// The last warning about the policy, which is not repeated.
    warned: Option<String>,
}

impl Watched {
    fn watch(&mut self, done: &AtomicBool) {
        // Changes made while modules were compiled are detected in the first check.
        let (mut seen, mut second) = ([None, None], 0);
        while !done.load(Ordering::Relaxed) {
            let (now, files) = (time::now(), self.stamps());
            if (now, &files) != (second, &seen) {
                if files != seen {
                    self.reload();
                }
                (second, seen) = (now, files);
                let admitted = std::mem::take(&mut self.admitted);
                self.admitted = admitted.into_iter().filter(|a| self.reevaluate(a)).collect();
                if self.admitted.is_empty() {
                    self.handle.stop();
                    return;
                }
            }
            std::thread::park_timeout(GRANTS_CHECK);
        }
    }

    fn stamps(&self) -> [Stamp; 2] {
        [stamp(Some(&self.node.path)), stamp(self.node.policy.revocations.as_deref())]
    }

    fn reload(&mut self) {
        match Policy::open(&self.node.path) {
            Ok(policy) => self.node.policy = Arc::new(policy),
            // The policy that was read before stays in force: an incompletely written file is no reason to
            // end all modules.
            Err(e) => {
                let text = e.to_string();
                if self.warned.as_ref() != Some(&text) {
                    (self.warn)(&format!("{text}; the policy as it was before stays in force"));
                    self.warned = Some(text);
                }
            }
        }
    }

    /// Returns whether a module still has its grant, and evicts it otherwise.
    fn reevaluate(&self, admitted: &AdmittedModule) -> bool {
        let Some((reason, unwritten)) = self.node.review(admitted) else { return true };
        if let Some(e) = unwritten {
            (self.warn)(&e.to_string());
        }
        // A module that has ended meanwhile needs no eviction.
        let _ = self.handle.evict(admitted.id, reason);
        false
    }
}
