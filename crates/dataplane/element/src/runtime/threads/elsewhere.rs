//! The representative of an element that another thread has.

use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use crate::runtime::threads::team::{Facts, Kind, Team};
use std::sync::Arc;

/// An element of another thread. Packets are posted to it, and its handlers are called there.
pub struct Elsewhere {
    pub team: Arc<Team>,
    pub element: usize,
}

impl Elsewhere {
    fn call(&self, cx: &Cx<'_>, kind: Kind, name: &str, value: &str) -> Result<String, String> {
        let Some(member) = &cx.router.member else { return Err("no thread".to_owned()) };
        // Packets that were pushed before are there when the handler is called.
        member.flush();
        cx.router.call_elsewhere(member, kind, self.element, (name, value))
    }

    fn facts(&self) -> Facts {
        self.team.facts(self.element)
    }
}

impl Element for Elsewhere {
    fn push(&self, cx: &Cx<'_>, port: usize, batch: Batch) {
        let Some(member) = &cx.router.member else { return };
        member.post(self.element, port, batch);
        if self.facts().notifies_room {
            cx.set_room(member.has_credit(self.element));
        }
    }

    fn read(&self, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
        Some(self.call(cx, Kind::Read, name, argument))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(self.call(cx, Kind::Write, name, value).map(drop))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        self.facts().handlers
    }
}
