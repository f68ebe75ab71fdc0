//! Notification: tasks that have nothing to do sleep until an element up or down the path wakes them.

use super::element::{Cx, Notice};
use super::router::Router;
use std::cell::RefCell;
use std::collections::HashSet;

/// A signal that there is something to pull, or room to push.
#[derive(Clone, Debug, Default)]
pub struct Signal {
    /// Whether some path has no notifier.
    is_always: bool,
    is_upstream: bool,
    pub sources: Vec<usize>,
}

impl Signal {
    pub fn is_active(&self, router: &Router) -> bool {
        self.is_always
            || self.sources.iter().any(|s| {
                let node = &router.nodes[*s];
                if self.is_upstream { node.is_filled.get() } else { node.has_room.get() }
            })
    }

    /// Returns whether it is active whatever others report.
    pub fn is_always(&self) -> bool {
        self.is_always
    }

    /// Writes it as Click does: `empty.0/1:0`, with a star while it is active.
    pub fn unparse(&self, router: &Router) -> String {
        if self.is_always {
            return "always*".into();
        }
        let kind = if self.is_upstream { "empty" } else { "full" };
        let one = |s: &usize| {
            let node = &router.nodes[*s];
            let active = if self.is_upstream { node.is_filled.get() } else { node.has_room.get() };
            format!("{kind}.{}/{}:{}{}", s / 32, s % 32, u8::from(active), if active { "*" } else { "" })
        };
        match self.sources.is_empty() {
            true => "idle".into(),
            false => self.sources.iter().map(one).collect::<Vec<_>>().join("+"),
        }
    }
}

/// Adds an element to listeners, in their order, unless it is there: an element that is replaced asks again.
fn listen(listeners: &RefCell<Vec<usize>>, me: usize) {
    let mut listeners = listeners.borrow_mut();
    if let Err(at) = listeners.binary_search(&me) {
        listeners.insert(at, me);
    }
}

impl Cx<'_> {
    /// Finds the notifiers of packets at an input, and registers to be woken.
    pub fn upstream_signal(&self, port: usize) -> Signal {
        let router = self.router;
        let mut signal = Signal { is_upstream: true, ..Signal::default() };
        let (mut seen, mut work) = (HashSet::new(), vec![(self.me, port)]);
        while let Some((element, port)) = work.pop() {
            if !seen.insert((element, port)) {
                continue;
            }
            let Some((source, output)) = router.nodes[element].inputs.get(port).and_then(|i| i.source) else {
                continue;
            };
            match router.element(source).notice(output) {
                Notice::Own => signal.sources.push(source),
                Notice::Silent => signal.is_always = true,
                Notice::Pass => {
                    let inputs = &router.nodes[source].inputs;
                    let before = work.len();
                    work.extend((0..inputs.len()).filter(|i| !inputs[*i].is_push).map(|i| (source, i)));
                    signal.is_always |= work.len() == before;
                }
            }
        }
        signal.sources.sort_unstable();
        signal.sources.dedup();
        for source in &signal.sources {
            listen(&router.nodes[*source].filled_listeners, self.me);
        }
        signal
    }

    /// Finds the notifiers of room after an output, and registers to be woken.
    pub fn downstream_signal(&self, port: usize) -> Signal {
        let router = self.router;
        let mut signal = Signal::default();
        let (mut seen, mut work) = (HashSet::new(), vec![(self.me, port)]);
        while let Some((element, port)) = work.pop() {
            if !seen.insert((element, port)) {
                continue;
            }
            let Some(target) = router.nodes[element].outputs.get(port).and_then(|o| o.target) else {
                continue;
            };
            if router.notifies_room(target.0) {
                signal.sources.push(target.0);
                continue;
            }
            let outputs = &router.nodes[target.0].outputs;
            let before = work.len();
            work.extend((0..outputs.len()).filter(|o| outputs[*o].is_push).map(|o| (target.0, o)));
            signal.is_always |= work.len() == before;
        }
        signal.sources.sort_unstable();
        signal.sources.dedup();
        // On a cycle there is no source that could notify.
        signal.is_always |= signal.sources.is_empty();
        for source in &signal.sources {
            listen(&router.nodes[*source].room_listeners, self.me);
        }
        signal
    }
}
