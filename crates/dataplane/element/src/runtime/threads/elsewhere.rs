//! The representative of an element that another thread has.

use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use crate::runtime::threads::team::{Facts, Kind, Member};
use std::rc::Rc;

/// An element of another thread. Packets are posted to it, and its handlers are called there.
pub struct Elsewhere {
    pub member: Rc<Member>,
    pub element: usize,
}

impl Elsewhere {
    fn call(&self, cx: &Cx<'_>, kind: Kind, name: &str, value: &str) -> Result<String, String> {
        // Packets that were pushed before are there when the handler is called.
        self.member.flush();
        cx.router.call_elsewhere(&self.member, kind, self.element, (name, value))
    }

    fn facts(&self) -> Facts {
        self.member.facts(self.element)
    }
}

impl Element for Elsewhere {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        self.member.post(self.element, port, std::mem::take(&mut batch));
        if self.facts().notifies_room {
            cx.set_room(self.member.has_credit(self.element));
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
