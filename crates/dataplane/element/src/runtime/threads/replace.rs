//! Another configuration in place of the one that runs in several threads.
//!
//! Each thread makes its part of the new router while all stand still, between two steps. What an element
//! holds goes to the one that continues it. If that is in another thread, the old element itself goes there.

use crate::runtime::element::Element;
use crate::runtime::packet::Batch;
use crate::runtime::router::Router;
use crate::runtime::threads::elsewhere::Elsewhere;
use crate::runtime::threads::team::Team;
use flame_base::lock;
use flame_click::Graph;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A part of the old router of one thread that goes to the new router of another.
enum Moved {
    /// An element, and the number of the one that continues it.
    Element(usize, Box<dyn Element>),
    /// Packets for an input of an element.
    Packets(usize, usize, Batch),
}

/// A configuration that the threads of a router build together.
pub struct Next {
    pub graph: Graph,
    /// The configuration as it was written.
    pub text: String,
    pub team: Arc<Team>,
    pub warnings: Vec<String>,
    errors: Mutex<Vec<String>>,
    /// The parts that go to each thread.
    moved: Vec<Mutex<Vec<Moved>>>,
}

impl Next {
    /// Assigns the elements of a configuration to threads.
    ///
    /// # Errors
    ///
    /// Returns the errors that can be found without making elements.
    pub fn new(graph: Graph, text: String, threads: usize) -> Result<Self, String> {
        let (owners, warnings) = Router::assign(&graph, threads)?;
        let team = Team::new(threads, owners);
        let moved = (0..threads).map(|_| Mutex::default()).collect();
        Ok(Self { graph, text, team, warnings, errors: Mutex::default(), moved })
    }

    /// Records that a thread cannot make its part.
    pub fn fail(&self, errors: String) {
        lock(&self.errors).push(errors);
    }

    pub fn has_failed(&self) -> bool {
        !lock(&self.errors).is_empty()
    }

    /// Returns the errors of all threads.
    pub fn errors(&self) -> String {
        lock(&self.errors).join("\n")
    }

    fn send(&self, thread: usize, moved: Moved) {
        lock(&self.moved[thread]).push(moved);
    }
}

impl Router {
    /// Gives what the old router of this thread holds for elements that other threads have in this router,
    /// and the packets between two of its elements.
    pub(super) fn give_away(&self, old: &Self, next: &Next) {
        let (Some(member), Some(before)) = (&self.member, &old.member) else { return };
        for i in (0..self.nodes.len()).filter(|i| !member.owns(*i)) {
            let Some(was) = self.continued(i, old).filter(|was| before.owns(*was)) else { continue };
            // No call is at work in it, so nothing else refers to it.
            let elsewhere = Rc::new(Elsewhere { team: next.team.clone(), element: i });
            if let Some(element) = old.nodes[was].element.replace(elsewhere).into_sole() {
                next.send(member.owner(i), Moved::Element(i, element));
            }
        }
        self.take_deferred(old, |to, input, batch| match member.owns(to) {
            true => self.deferred.borrow_mut().push_back((to, input, batch)),
            false => next.send(member.owner(to), Moved::Packets(to, input, batch)),
        });
    }

    /// Takes over what the elements held that those of this thread continue, once all threads have given
    /// away what they had for others. Returns the elements that came from other threads, by the numbers that
    /// they had.
    pub(super) fn take_over(&self, old: &Self, next: &Next) -> Vec<(usize, Box<dyn Element>)> {
        let (Some(member), Some(before)) = (&self.member, &old.member) else { return Vec::new() };
        let mut came = HashMap::new();
        for moved in lock(&next.moved[member.me]).drain(..) {
            match moved {
                Moved::Element(i, element) => drop(came.insert(i, element)),
                Moved::Packets(to, input, batch) => {
                    self.deferred.borrow_mut().push_back((to, input, batch));
                }
            }
        }
        let mut ended = Vec::new();
        // In the order of one thread.
        for i in (0..self.nodes.len()).filter(|i| member.owns(*i)) {
            let Some(was) = self.continued(i, old) else { continue };
            match came.remove(&i) {
                Some(element) => {
                    self.hand_over(i, &*element, old, was);
                    ended.push((was, element));
                }
                None if before.owns(was) => self.hand_over(i, &*old.element(was), old, was),
                None => {}
            }
        }
        self.keep_accounts(old, |was| before.owns(was));
        ended
    }

    /// Looks again at the room of queues in other threads, which have taken packets over since they were
    /// made. Sources would see what there was before until they have pushed once more.
    pub(super) fn see_rooms(&self) {
        let Some(member) = &self.member else { return };
        let is_theirs = |i: &usize| !member.owns(*i) && member.team.facts(*i).notifies_room;
        for i in (0..self.nodes.len()).filter(is_theirs) {
            self.set_room(i, member.has_credit(i));
        }
    }

    /// Keeps the packets of other threads for a later step.
    pub(super) fn defer_mail(&self) {
        let Some((member, (packets, _))) = self.member.as_ref().and_then(|m| Some((m, m.take_mail()?)))
        else {
            return;
        };
        for (element, input, batch) in packets {
            member.arrived(element, batch.len(), None);
            self.deferred.borrow_mut().push_back((element, input, batch));
        }
    }
}
