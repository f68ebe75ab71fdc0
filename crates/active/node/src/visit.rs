//! A capsule's visit to a node: the calls that it makes, and their effects, which wait for its good end.

use crate::execute::Services;
use crate::settings::{Account, Map, Terms};
use crate::tables::{Reply, Soft, Visitor};
use flame_capsule::{Host, Limits, MAX_ARGUMENTS, Parts, Payer, Place, Refused, Target};

/// The service by which a capsule reads its account at this node: the number of capsules, then the
/// nanoseconds of each [`crate::Part`].
const TIME: u64 = u64::from_le_bytes(*b"time\0\0\0\0");
/// The most copies of one evaluation.
pub const MAX_SENDS: usize = 64;
/// The most questions of one capsule to modules at one node.
const MAX_QUESTIONS: usize = 8;
/// The most deliveries and values of one evaluation.
const MAX_EFFECTS: usize = 32;

/// A copy to be sent; its arguments lie in the buffer of the effects.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub function: u8,
    pub to: Target,
    pub parts: Parts,
    pub arguments: (usize, usize),
}

/// The effects of an evaluation. The buffers are used again.
#[derive(Default)]
pub struct Effects {
    pub copies: Vec<Copy>,
    pub deliveries: Vec<(usize, usize)>,
    pub left: Vec<(u64, i64, u64)>,
    /// The question whose reply the capsule waits for: name and request.
    pub asked: Option<(u64, Vec<u8>)>,
    pub buffer: Vec<u8>,
}

impl Effects {
    pub fn clear(&mut self) {
        self.copies.clear();
        self.deliveries.clear();
        self.left.clear();
        self.asked = None;
        self.buffer.clear();
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(usize, usize), Refused> {
        if bytes.len() > MAX_ARGUMENTS {
            return Err(Refused::TooMany("bytes of arguments", MAX_ARGUMENTS));
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        Ok((start, self.buffer.len()))
    }
}

/// The node as the capsule sees it.
pub struct Visit<'a> {
    pub here: Place,
    pub now: u64,
    pub account: Payer,
    /// What was spent before.
    pub spent: Account,
    pub terms: Terms,
    pub left: Limits,
    pub visitor: Visitor,
    pub map: &'a Map,
    pub soft: &'a Soft,
    pub services: &'a mut dyn Services,
    /// The replies that came before this evaluation began again.
    pub replies: &'a [Reply],
    pub effects: &'a mut Effects,
}

fn granted(is_granted: bool, call: &'static str) -> Result<(), Refused> {
    if is_granted { Ok(()) } else { Err(Refused::NotGranted(call)) }
}

impl Host for Visit<'_> {
    fn here(&self) -> Place {
        self.here
    }

    fn origin(&self) -> Place {
        self.visitor.origin
    }

    fn from(&self) -> Place {
        self.visitor.from
    }

    fn now(&self) -> u64 {
        self.now - self.now % self.terms.resolution.max(1)
    }

    fn hops(&self) -> u8 {
        self.left.hops
    }

    fn next(&self, place: Place) -> Place {
        self.map.next(place).unwrap_or(Place::NOWHERE)
    }

    fn neighbours(&self) -> &[Place] {
        self.map.places()
    }

    fn send(&mut self, function: u8, arguments: &[u8], to: Target, parts: Parts) -> Result<(), Refused> {
        granted(self.terms.rights.send, "send")?;
        if self.effects.copies.len() >= MAX_SENDS {
            return Err(Refused::TooMany("copies", MAX_SENDS));
        }
        let arguments = self.effects.keep(arguments)?;
        self.effects.copies.push(Copy { function, to, parts, arguments });
        Ok(())
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        granted(self.terms.rights.deliver, "deliver")?;
        if self.effects.deliveries.len() >= MAX_EFFECTS {
            return Err(Refused::TooMany("deliveries", MAX_EFFECTS));
        }
        let bytes = self.effects.keep(bytes)?;
        self.effects.deliveries.push(bytes);
        Ok(())
    }

    fn leave(&mut self, name: u64, value: i64, seconds: u64) -> Result<(), Refused> {
        granted(self.terms.rights.leave, "leave")?;
        if self.effects.left.len() >= MAX_EFFECTS {
            return Err(Refused::TooMany("values of soft state", MAX_EFFECTS));
        }
        self.effects.left.push((name, value, seconds));
        Ok(())
    }

    fn find(&self, name: u64) -> i64 {
        let own = self.effects.left.iter().rev().find(|(other, ..)| *other == name);
        own.map_or_else(
            || self.soft.find((self.account, self.visitor.key, name), self.now),
            |(_, value, _)| *value,
        )
    }

    fn service(&mut self, name: u64, argument: i64) -> Result<i64, Refused> {
        let is_named = self.visitor.grant.services.has(name);
        granted(self.terms.rights.service && is_named, "service")?;
        if name == TIME && self.terms.rights.times {
            let parts = [&[self.spent.capsules][..], &self.spent.times.0].concat();
            let part = usize::try_from(argument).ok().and_then(|part| parts.get(part));
            return Ok(part.map_or(0, |part| part.cast_signed()));
        }
        if self.services.is_served(name) {
            let reply = self.ask(name, &argument.to_le_bytes())?;
            return Ok(reply.first_chunk().map_or(0, |number| i64::from_le_bytes(*number)));
        }
        Ok(self.services.service(self.account, name, argument).unwrap_or(0))
    }

    fn ask(&mut self, name: u64, request: &[u8]) -> Result<&[u8], Refused> {
        let is_named = self.visitor.grant.services.has(name);
        granted(self.terms.rights.service && is_named, "ask")?;
        if request.len() > MAX_ARGUMENTS {
            return Err(Refused::TooMany("bytes of a request", MAX_ARGUMENTS));
        }
        let is_it = |reply: &&Reply| (reply.name, &*reply.request) == (name, request);
        if let Some(known) = self.replies.iter().find(is_it) {
            return Ok(&known.reply);
        }
        if self.replies.len() >= MAX_QUESTIONS {
            return Err(Refused::TooMany("questions", MAX_QUESTIONS));
        }
        self.effects.asked = Some((name, request.to_vec()));
        Err(Refused::Waits)
    }
}
