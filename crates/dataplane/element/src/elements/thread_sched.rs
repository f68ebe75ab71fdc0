//! StaticThreadSched(ELEMENT THREAD, ...): binds elements to threads, which `-j N` starts; -1 is the last.
//! The name of a compound element stands for all elements inside that are not bound by names of their own.
//! A queue and the elements after it run in one thread, up to the next queue, and so do elements that push
//! to the same element which is no queue. Elements that nothing binds run in thread 0.
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: none.
//! Example: `StaticThreadSched(in 0, out 1)`

use crate::runtime::element::{Cx, Element};
use crate::runtime::names::in_scope;
use crate::runtime::threads::assign::{binding, is_inside};

const SOURCE: &str = include_str!("thread_sched.rs");

struct StaticThreadSched {
    /// The elements that it names.
    names: Vec<String>,
}

impl Element for StaticThreadSched {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let is_compound = |name: &str| cx.router.nodes.iter().any(|node| is_inside(&node.name, name));
        let is_known = |name: &String| {
            cx.router.lookup(cx.name(), name).is_some()
                || in_scope(cx.name(), name, |name| is_compound(name).then_some(())).is_some()
        };
        let unknown = self.names.iter().find(|name| !is_known(name));
        unknown.map_or(Ok(()), |name| Err(format!("no element named '{name}'")))
    }
}

class!(STATIC_THREAD_SCHED, "StaticThreadSched", "0/0", "a/a", [], |args, _| {
    let mut names = Vec::new();
    for arg in args.rest() {
        match binding(&arg) {
            Ok((name, _)) => names.push(name),
            Err(e) => args.error(e),
        }
    }
    Box::new(StaticThreadSched { names })
});
