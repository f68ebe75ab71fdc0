//! Questions of capsules to services of installed modules: the node asks and continues, and others bring the
//! replies.
//!
//! A question to a service goes to each of its modules that the capsule's principal has installed. The reply
//! is theirs together: of one module its bytes; of several the sum of the numbers that their first eight
//! bytes are; and where neighbours are stated, the place of the neighbour whose module answers the largest
//! number.

use crate::extensions::Extensions;
use flame_active_node::Services;
use flame_capsule::Payer;
use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// The most questions that wait to be taken.
const WAITING: usize = 1024;

/// A question to one module.
#[derive(Clone, Debug)]
pub struct Question {
    number: u64,
    /// The place of the module in the service.
    at: usize,
    pub payer: Payer,
    pub module: String,
    /// The module's principal, as the node of modules names it.
    pub principal: Option<String>,
    pub service: String,
    pub request: Vec<u8>,
}

/// The reply of one module: number of the question, place of the module, bytes.
type Replied = (u64, usize, Vec<u8>);

/// A question whose replies have not all come.
struct Open {
    service: u64,
    missing: usize,
    replies: Vec<(usize, Vec<u8>)>,
}

/// The services of a node, as its capsules ask them.
pub struct Asking {
    extensions: Extensions,
    questions: SyncSender<Question>,
    replies: Receiver<Replied>,
    signal: Option<PipeReader>,
    /// Keeps the pipe open where no modules are asked.
    _write: Arc<PipeWriter>,
    open: BTreeMap<u64, Open>,
    next: u64,
}

/// The end at which questions are taken.
pub struct Inbox {
    questions: Receiver<Question>,
    replies: Replies,
}

/// The way back to the node.
#[derive(Clone)]
pub struct Replies {
    to: Sender<Replied>,
    signal: Arc<PipeWriter>,
}

impl Asking {
    /// Joins services with the end at which their questions are taken.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no pipe.
    pub fn new(extensions: Extensions) -> std::io::Result<(Self, Inbox)> {
        let (questions, taken) = sync_channel(WAITING);
        let (to, replies) = channel();
        let (signal, write) = std::io::pipe()?;
        let (signal, write) = (Some(signal), Arc::new(write));
        let inbox = Inbox { questions: taken, replies: Replies { to, signal: write.clone() } };
        let (open, next) = (BTreeMap::new(), 0);
        Ok((Self { extensions, questions, replies, signal, _write: write, open, next }, inbox))
    }
}

impl Inbox {
    /// Waits for the next question. Returns `None` once the node has ended.
    #[must_use]
    pub fn next(&self) -> Option<Question> {
        self.questions.recv().ok()
    }

    /// Returns the way back to the node.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.replies.clone()
    }
}

impl Replies {
    /// Brings the reply to a question: no bytes if the module has not replied.
    pub fn reply(&self, question: &Question, reply: Vec<u8>) {
        if self.to.send((question.number, question.at, reply)).is_ok() {
            // A node that has ended does not wait.
            let _ = (&*self.signal).write_all(&[1]);
        }
    }
}

/// Returns the number that the first eight bytes of a reply are.
fn number(reply: &[u8]) -> i64 {
    reply.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

impl Services for Asking {
    fn service(&mut self, account: Payer, name: u64, argument: i64) -> Option<i64> {
        self.extensions.sum(account, name, argument)
    }

    fn is_served(&self, name: u64) -> bool {
        self.extensions.served(name).is_some()
    }

    fn ask(&mut self, account: Payer, name: u64, request: &[u8]) -> Option<u64> {
        let service = self.extensions.served(name)?;
        let mut missing = 0;
        for (at, module, principal) in self.extensions.installed(account, name) {
            let (number, module, service) = (self.next, module.to_owned(), service.to_owned());
            let request = request.to_vec();
            let question = Question { number, at, payer: account, module, principal, service, request };
            missing += usize::from(self.questions.try_send(question).is_ok());
        }
        if missing == 0 {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Open { service: name, missing, replies: Vec::new() });
        Some(number)
    }

    fn answered(&mut self) -> Option<(u64, Vec<u8>)> {
        while let Ok((question, at, reply)) = self.replies.try_recv() {
            let Some(open) = self.open.get_mut(&question) else { continue };
            open.replies.push((at, reply));
            if open.replies.len() < open.missing {
                continue;
            }
            let Open { service, replies, .. } = self.open.remove(&question)?;
            let numbers = || replies.iter().map(|(at, reply)| (*at, number(reply)));
            let places = self.extensions.places(service);
            let together = if !places.is_empty() {
                let most = numbers().max_by_key(|(at, number)| (*number, std::cmp::Reverse(*at)));
                let most = most.filter(|(_, number)| *number > 0);
                most.and_then(|(at, _)| places.get(at))
                    .map_or(Vec::new(), |place| place.0.to_le_bytes().into())
            } else if let [(_, only)] = &replies[..] {
                only.clone()
            } else {
                numbers().map(|(_, number)| number).fold(0, i64::saturating_add).to_le_bytes().into()
            };
            return Some((question, together));
        }
        None
    }

    fn signal(&mut self) -> Option<PipeReader> {
        self.signal.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::Service;
    use flame_capsule::{Place, name};

    const ALICE: Payer = Payer([1; 16]);

    /// A question goes to the modules of the capsule's principal alone, and has one reply of them together.
    #[test]
    fn modules_answer_their_principal_together() {
        let served = |modules: &[&str], neighbours: &[&str]| Service {
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            neighbours: neighbours.iter().map(|name| (*name).to_owned()).collect(),
            serve: Some("packets".to_owned()),
            ..Service::default()
        };
        let services = BTreeMap::from([
            ("one".to_owned(), served(&["a"], &[])),
            ("all".to_owned(), served(&["a", "b"], &[])),
            ("before".to_owned(), served(&["a", "b"], &["n1", "n3"])),
        ]);
        let place = |name: &str| Place(u64::from(name.as_bytes()[1] - b'0'));
        let extensions = Extensions::new(&services, place);
        let installed = ["a", "b"].map(|name| ((ALICE, name.to_owned()), Some("alice".to_owned())));
        extensions.set_installed(BTreeMap::from(installed));
        let (mut asking, inbox) = Asking::new(extensions).unwrap();
        let named = |text: &str| name(text).unwrap();
        for (service, answers, expected) in [
            ("one", &[("a", &b"any bytes"[..])][..], b"any bytes".to_vec()),
            (
                "all",
                &[("b", &[5, 0, 0, 0, 0, 0, 0, 0]), ("a", &[2, 0, 0, 0, 0, 0, 0, 0, 9])],
                vec![7, 0, 0, 0, 0, 0, 0, 0],
            ),
            ("before", &[("b", &[5, 0, 0, 0, 0, 0, 0, 0]), ("a", &[])], vec![3, 0, 0, 0, 0, 0, 0, 0]),
            ("before", &[("a", &[0; 8]), ("b", &[])], vec![]),
        ] {
            assert!(asking.is_served(named(service)));
            let number = asking.ask(ALICE, named(service), b"request").unwrap();
            let asked: Vec<_> = answers.iter().map(|_| inbox.next().unwrap()).collect();
            for (at, (module, reply)) in answers.iter().enumerate() {
                assert_eq!(asking.answered(), None, "{service} {at}");
                let question = asked.iter().find(|question| question.module == *module).unwrap();
                assert_eq!((&*question.service, &*question.request), ("packets", &b"request"[..]));
                inbox.replies().reply(question, reply.to_vec());
            }
            assert_eq!(asking.answered(), Some((number, expected)), "{service}");
        }
        // Of others, and of no service.
        assert_eq!(asking.ask(Payer([2; 16]), named("one"), &[]), None);
        assert_eq!(asking.ask(ALICE, named("other"), &[]), None);
        assert!(asking.open.is_empty());
    }
}
