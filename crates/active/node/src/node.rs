//! The node: a datagram comes in, and others go out.

use crate::cause::{Cause, Counts};
use crate::execute::{Execute, Failure, Output, Services};
use crate::settings::{Account, Part, Settings, Terms, Times};
use crate::tables::{
    ASK_AGAIN, Allowances, Codes, HOLD, Held, Hosts, Owed, Rates, Reply, Soft, Visitor, Waits,
};
use crate::visit::{Effects, Visit};
use flame_active_link::{
    Cause as LinkCause, Certificates, Clock, Links, Mode, OVERHEAD, Peer, Received, Role,
};
use flame_capsule::{
    Bound, CODE_HEADER, Capsule, CodeMessage, DELIVERY_HEADER, Delivery, Grant, Hash, Key, Limits, MAX_CODE,
    Message, Parts, Payer, Place, Request, Target, hash_of,
};
use std::collections::BTreeMap;
use std::io::PipeReader;
use std::net::SocketAddr;

/// A capsule that begins at this node.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'a> {
    pub payer: Payer,
    pub key: Key,
    pub code: &'a [u8],
    pub function: u8,
    pub arguments: &'a [u8],
    pub limits: Limits,
}

/// One call of a node.
struct Turn<'a> {
    now: u64,
    clock: Clock,
    out: &'a mut dyn Output,
    /// The end of the last part of the work.
    last: u64,
    times: Times,
    /// The account of the work, once it is known.
    account: Option<Payer>,
}

impl<'a> Turn<'a> {
    fn new(now: u64, clock: Clock, out: &'a mut dyn Output) -> Self {
        let last = out.instant();
        Self { now, clock, out, last, times: Times::default(), account: None }
    }

    /// Ends a part of the work.
    fn end(&mut self, part: Part) {
        let now = self.out.instant();
        self.times.0[part as usize] += now.saturating_sub(self.last);
        self.last = now;
    }
}

/// A question to a module: the name of the service, and the request.
type Asked = (u64, Vec<u8>);

/// A request for code that waits for its answer.
struct Wanted {
    since: u64,
    /// What the answer may spend.
    reserved: Bound,
}

fn failed(failure: Failure) -> Cause {
    match failure {
        Failure::NotCompiled => Cause::NotCompiled,
        Failure::NoFunction => Cause::NoFunction,
        Failure::Trapped => Cause::Trapped,
        Failure::Limit => Cause::Exhausted,
    }
}

/// An active node.
pub struct Node<C, X: Execute, S> {
    settings: Settings,
    links: Links<C>,
    sandbox: X,
    services: S,
    codes: Codes<X::Code>,
    held: Vec<Held>,
    asked: BTreeMap<(SocketAddr, Hash), Wanted>,
    allowances: Allowances,
    rates: Rates,
    soft: Soft,
    owed: Owed,
    hosts: Hosts,
    accounts: BTreeMap<Payer, Account>,
    counts: Counts,
    /// Buffers that are used again.
    effects: Effects,
    message: Vec<u8>,
    datagram: Vec<u8>,
}

impl<C: Certificates, X: Execute, S: Services> Node<C, X, S> {
    #[must_use]
    pub fn new(settings: Settings, mut links: Links<C>, sandbox: X, services: S) -> Self {
        settings.map.neighbours().for_each(|(place, address)| links.expect(address, place));
        let room = settings.room;
        Self {
            settings,
            links,
            sandbox,
            services,
            codes: Codes::new(room.codes),
            held: Vec::new(),
            asked: BTreeMap::new(),
            allowances: Allowances::default(),
            rates: Rates::default(),
            soft: Soft::new(room.soft),
            owed: Owed::new(room.owed),
            hosts: Hosts::new(room.hosts),
            accounts: BTreeMap::new(),
            counts: Counts::default(),
            effects: Effects::default(),
            message: Vec::new(),
            datagram: Vec::new(),
        }
    }

    /// Returns how often something ended, by cause.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the links.
    pub fn links(&mut self) -> &mut Links<C> {
        &mut self.links
    }

    /// Returns what was spent here, by account.
    #[must_use]
    pub fn accounts(&self) -> &BTreeMap<Payer, Account> {
        &self.accounts
    }

    /// Returns the sizes of the tables: programs, held capsules, requests, soft state, owed code, hosts,
    /// allowances.
    #[must_use]
    pub fn sizes(&self) -> [usize; 7] {
        let (codes, soft, owed) = (self.codes.len(), self.soft.len(), self.owed.len());
        [codes, self.held.len(), self.asked.len(), soft, owed, self.hosts.len(), self.allowances.len()]
    }

    /// Exchanges keys with the neighbours that have no session.
    pub fn connect(&mut self, clock: Clock, out: &mut dyn Output) {
        let mut turn = Turn::new(self.links.advance(clock), clock, out);
        for at in 0..self.settings.map.places().len() {
            let place = self.settings.map.places()[at];
            if let Some(address) = self.settings.map.address(place) {
                self.meet(address, &mut turn);
            }
        }
    }

    /// Begins a capsule here, where it is evaluated first.
    pub fn begin(&mut self, begin: Begin<'_>, clock: Clock, out: &mut dyn Output) {
        let mut turn = Turn::new(self.links.advance(clock), clock, out);
        let (account, terms) = self.account(begin.payer);
        let hash = hash_of(begin.code);
        self.codes.add(account, hash, begin.code);
        let visitor = Visitor {
            function: begin.function,
            payer: begin.payer,
            origin: self.settings.here,
            place: Place::NOWHERE,
            from: Place::NOWHERE,
            key: begin.key,
            hash,
            grant: Grant::ALL,
        };
        let bound = Bound::begin(begin.limits.meet(terms.most));
        self.accounts.entry(account).or_default().capsules += 1;
        self.proceed(visitor, bound, begin.arguments, Vec::new(), &mut turn);
    }

    /// Takes a datagram, which may be changed: it is decrypted in place.
    pub fn handle(&mut self, from: SocketAddr, datagram: &mut [u8], clock: Clock, out: &mut dyn Output) {
        let mut turn = Turn::new(self.links.advance(clock), clock, out);
        self.forget_overdue(turn.now);
        let length = datagram.len();
        match self.links.receive(from, datagram, clock) {
            Ok(Received::Step(answer) | Received::Begun(answer)) => out.send(from, &answer, None),
            Ok(Received::Nothing) => {}
            Ok(Received::Plain(body)) => self.message(None, from, body, &mut turn),
            Ok(Received::Packet { peer, body }) => {
                turn.end(Part::Authentication);
                self.message(Some(peer), from, body, &mut turn);
            }
            Err(cause) => {
                self.counts.add(Cause::Link);
                if cause == LinkCause::NoSession
                    && self.settings.map.has(from)
                    && let Some(answer) = self.links.resume(from, length, clock)
                {
                    turn.out.send(from, &answer, None);
                }
            }
        }
    }

    /// Takes a message, and charges the account with the time.
    fn message(&mut self, peer: Option<Peer>, from: SocketAddr, body: &[u8], turn: &mut Turn<'_>) {
        let done = match (Message::read(body), peer) {
            (Err(_), _) => Err(Cause::Malformed),
            (Ok(Message::Capsule(capsule)), peer) => self.capsule(peer, from, &capsule, turn),
            (Ok(Message::Request(request)), Some(peer)) => self.request(&peer, from, request, turn),
            (Ok(Message::Code(answer)), Some(_)) => self.code(from, &answer, turn),
            (Ok(Message::Request(_)), None) => Err(Cause::NotOwed),
            (Ok(Message::Code(_)), None) | (Ok(Message::Delivery(_)), _) => Err(Cause::Unasked),
        };
        if let Err(cause) = done {
            self.counts.add(cause);
        }
        turn.end(Part::Marshalling);
        if let Some(account) = turn.account {
            self.accounts.entry(account).or_default().times.add(turn.times);
        }
    }

    fn capsule(
        &mut self,
        peer: Option<Peer>,
        from: SocketAddr,
        capsule: &Capsule<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        let here = self.settings.here;
        let (payer, origin, share, sender) = match &peer {
            None => (Payer::BEST_EFFORT, here, self.settings.strangers, (Payer::BEST_EFFORT, Place::NOWHERE)),
            Some(peer) if peer.role == Role::Host && capsule.payer != peer.payer => {
                return Err(Cause::ForeignPayer);
            }
            Some(peer) if peer.role == Role::Host => (peer.payer, here, peer.share, (peer.payer, peer.place)),
            Some(peer) => (capsule.payer, capsule.origin, peer.share, (peer.payer, peer.place)),
        };
        // A host may narrow its credential further; a node vouches for the grant as for the payer.
        let grant = match &peer {
            None => Grant::ALL,
            Some(peer) => capsule.grant.meet(peer.grant),
        };
        let (account, terms) = self.account(payer);
        turn.account = Some(account);
        let most = Limits { hops: share.hops, copies: grant.copies, ..terms.most };
        let limits = capsule.limits.meet(terms.most).meet(most);
        // A host is no neighbour: its own node decides on its credential.
        let comes_over = peer.filter(|peer| peer.role == Role::Node).map(|peer| peer.place);
        if comes_over.is_some_and(|from| !grant.holds_over(self.settings.map.interface(from))) {
            return Err(Cause::Interface);
        }
        // An empty bound would cost its sender nothing, and the node the time of an evaluation.
        let length = (OVERHEAD + capsule.length()) as u64;
        let (bytes, copies) = (limits.bytes.max(length), limits.copies.max(1));
        if !self.allowances.accept(sender, share, Limits { bytes, copies, ..limits }, turn.now) {
            return Err(Cause::BeyondShare);
        }
        if !self.rates.accept(account, &grant, limits, turn.now) {
            return Err(Cause::BeyondGrant);
        }
        let bound = Bound::begin(limits);
        self.accounts.entry(account).or_default().capsules += 1;
        let Capsule { function, place, key, hash, arguments, .. } = *capsule;
        let visitor = Visitor { function, payer, origin, place, from: sender.1, key, hash, grant };
        if peer.is_some_and(|peer| peer.role == Role::Host) {
            self.hosts.add(payer, key, from, |host| self.links.is_linked(host, turn.now));
        }
        if let Some(code) = capsule.code {
            self.codes.add(account, hash, code);
        }
        if self.codes.get(account, hash).is_some() {
            self.proceed(visitor, bound, arguments, Vec::new(), turn);
            return Ok(());
        }
        if peer.is_none() {
            return Err(Cause::NoCode);
        }
        self.hold(from, account, visitor, bound, arguments, turn)
    }

    /// Holds a capsule until its code comes, and asks the previous hop for it.
    fn hold(
        &mut self,
        from: SocketAddr,
        account: Payer,
        visitor: Visitor,
        mut bound: Bound,
        arguments: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        self.has_room(account)?;
        let hash = visitor.hash;
        let is_asked =
            self.asked.get(&(from, hash)).is_some_and(|a| turn.now.saturating_sub(a.since) < ASK_AGAIN);
        if !is_asked {
            let frame = OVERHEAD + CODE_HEADER;
            bound.exchange(frame).map_err(|_| Cause::Exhausted)?;
            let left = usize::try_from(bound.left().bytes).unwrap_or(usize::MAX);
            let most = left.saturating_sub(frame).min(MAX_CODE);
            let reserved = bound.reserve(frame + most).map_err(|_| Cause::Exhausted)?;
            let request = Request { most: u32::try_from(most).unwrap_or(0), hash };
            self.send(&Message::Request(request), from, account, turn)?;
            self.asked.insert((from, hash), Wanted { since: turn.now, reserved });
        }
        let arguments = arguments.to_vec();
        let (waits, since, replies) = (Waits::Code(from), turn.now, Vec::new());
        self.held.push(Held { account, hash, waits, since, bound, visitor, arguments, replies });
        Ok(())
    }

    /// Checks that an account may have one more capsule that waits.
    fn has_room(&self, account: Payer) -> Result<(), Cause> {
        let of_account = self.held.iter().filter(|held| held.account == account).count();
        if of_account >= self.settings.room.held { Err(Cause::Full) } else { Ok(()) }
    }

    /// Answers with code whose hash was sent to this peer.
    fn request(
        &mut self,
        peer: &Peer,
        from: SocketAddr,
        request: Request,
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        let (account, bytes) = self.owed.take(from, request.hash).ok_or(Cause::NotOwed)?;
        turn.account = Some(account);
        if bytes.len() > request.most as usize {
            return Err(Cause::Long);
        }
        let length = (OVERHEAD + CODE_HEADER + bytes.len()) as u64;
        let wanted = Limits { bytes: length, copies: 1, ..Limits::default() };
        if !self.allowances.accept((peer.payer, peer.place), peer.share, wanted, turn.now) {
            return Err(Cause::BeyondShare);
        }
        let answer = CodeMessage { hash: request.hash, code: &bytes };
        self.send(&Message::Code(answer), from, account, turn)
    }

    /// Takes code that was asked for, and continues the capsules that wait for it.
    fn code(&mut self, from: SocketAddr, answer: &CodeMessage<'_>, turn: &mut Turn<'_>) -> Result<(), Cause> {
        let asked = self.asked.remove(&(from, answer.hash)).ok_or(Cause::Unasked)?;
        let mut reserved = asked.reserved;
        let length = OVERHEAD + CODE_HEADER + answer.code.len();
        reserved.exchange(length).map_err(|_| Cause::Long)?;
        let mut reserved = Some(reserved);
        let waits = |held: &mut Held| held.hash == answer.hash && held.waits == Waits::Code(from);
        let waiting: Vec<Held> = self.held.extract_if(.., waits).collect();
        for mut held in waiting {
            // It was set aside by one of them, and all have the same sender.
            if let Some(rest) = reserved.take() {
                held.bound.take_back(rest);
            }
            turn.account = Some(held.account);
            self.codes.add(held.account, answer.hash, answer.code);
            self.proceed(held.visitor, held.bound, &held.arguments, held.replies, turn);
        }
        Ok(())
    }

    /// Evaluates a capsule, or passes it on towards its place. Its code is cached.
    fn proceed(
        &mut self,
        visitor: Visitor,
        mut bound: Bound,
        arguments: &[u8],
        replies: Vec<Reply>,
        turn: &mut Turn<'_>,
    ) {
        let is_here = visitor.place == Place::NOWHERE || visitor.place == self.settings.here;
        let done = if is_here && !visitor.grant.holds_at(self.settings.here) {
            Err(Cause::Elsewhere)
        } else if is_here {
            match self.make(&visitor, turn) {
                Ok(true) => self.run(visitor, bound, arguments, replies, turn),
                Ok(false) => self.wait(visitor, bound, arguments, turn),
                Err(cause) => Err(cause),
            }
        } else {
            let to = Target::Remote(visitor.place);
            self.copy(&visitor, &mut bound, (visitor.function, to, Parts::ALL), arguments, turn)
        };
        if let Err(cause) = done {
            self.counts.add(cause);
        }
    }

    /// Returns whether the program is there, and begins to compile it otherwise.
    fn make(&mut self, visitor: &Visitor, turn: &mut Turn<'_>) -> Result<bool, Cause> {
        let (account, terms) = self.account(visitor.payer);
        turn.end(Part::Marshalling);
        // What the compiler has is limited by the capsules that wait for it.
        let room = self.has_room(account);
        let cached = self.codes.get(account, visitor.hash).ok_or(Cause::NoCode)?;
        if cached.code.is_none() && !cached.is_begun {
            room?;
            cached.code = self.sandbox.compile(&cached.bytes, account, terms.rights);
            cached.is_begun = true;
        }
        turn.end(Part::Loading);
        match &cached.code {
            Some(Ok(_)) => Ok(true),
            Some(Err(failure)) => Err(failed(*failure)),
            None => Ok(false),
        }
    }

    /// Holds a capsule until its program is compiled.
    fn wait(
        &mut self,
        visitor: Visitor,
        bound: Bound,
        arguments: &[u8],
        turn: &Turn<'_>,
    ) -> Result<(), Cause> {
        let (account, _) = self.account(visitor.payer);
        self.has_room(account)?;
        let (hash, since, arguments) = (visitor.hash, turn.now, arguments.to_vec());
        let (waits, replies) = (Waits::Compiler, Vec::new());
        self.held.push(Held { account, hash, waits, since, bound, visitor, arguments, replies });
        Ok(())
    }

    /// Evaluates a capsule whose program is there, until it ends, or waits for the reply of a module. Then it
    /// begins again with the reply: it has had no effects, and its bound pays for each evaluation.
    fn run(
        &mut self,
        visitor: Visitor,
        mut bound: Bound,
        arguments: &[u8],
        mut replies: Vec<Reply>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        while let Some((name, request)) = self.evaluate(&visitor, &mut bound, arguments, &replies, turn)? {
            let (account, _) = self.account(visitor.payer);
            self.has_room(account)?;
            let number = self.services.ask(account, name, &request);
            replies.push(Reply { name, request, reply: Vec::new() });
            if let Some(number) = number {
                let (hash, since, arguments) = (visitor.hash, turn.now, arguments.to_vec());
                let waits = Waits::Reply(number);
                self.held.push(Held { account, hash, waits, since, bound, visitor, arguments, replies });
                return Ok(());
            }
        }
        Ok(())
    }

    /// Continues the capsules whose programs are compiled by now, or whose replies have come.
    pub fn resume(&mut self, clock: Clock, out: &mut dyn Output) {
        while let Some((account, hash, made)) = self.sandbox.made() {
            if let Some(cached) = self.codes.get(account, hash) {
                cached.code = Some(made);
            }
            let waits = |held: &mut Held| {
                held.waits == Waits::Compiler && (held.account, held.hash) == (account, hash)
            };
            let waiting: Vec<Held> = self.held.extract_if(.., waits).collect();
            waiting.into_iter().for_each(|held| self.proceed_again(held, clock, out));
        }
        while let Some((number, reply)) = self.services.answered() {
            let waits = |held: &Held| held.waits == Waits::Reply(number);
            let Some(at) = self.held.iter().position(waits) else { continue };
            let mut held = self.held.remove(at);
            held.replies.iter_mut().next_back().into_iter().for_each(|last| last.reply.clone_from(&reply));
            self.proceed_again(held, clock, out);
        }
    }

    /// Continues a capsule that has waited, and charges its account with the time.
    fn proceed_again(&mut self, held: Held, clock: Clock, out: &mut dyn Output) {
        let mut turn = Turn::new(self.links.advance(clock), clock, out);
        let Held { account, visitor, bound, arguments, replies, .. } = held;
        self.proceed(visitor, bound, &arguments, replies, &mut turn);
        self.accounts.entry(account).or_default().times.add(turn.times);
    }

    /// Returns whether capsules wait for the compiler or for replies of modules.
    #[must_use]
    pub fn is_making(&self) -> bool {
        self.held.iter().any(|held| !matches!(held.waits, Waits::Code(_)))
    }

    /// Returns the pipe that can be read once a reply of a module is there.
    pub fn signal(&mut self) -> Option<PipeReader> {
        self.services.signal()
    }

    /// Evaluates a capsule once. Returns the question whose reply it needs to begin again.
    fn evaluate(
        &mut self,
        visitor: &Visitor,
        bound: &mut Bound,
        arguments: &[u8],
        replies: &[Reply],
        turn: &mut Turn<'_>,
    ) -> Result<Option<Asked>, Cause> {
        let (account, mut terms) = self.account(visitor.payer);
        terms.rights = terms.rights.within(&visitor.grant);
        let spent = self.accounts.get(&account).copied().unwrap_or_default();
        let cached = self.codes.get(account, visitor.hash).ok_or(Cause::NoCode)?;
        let Some(Ok(code)) = &mut cached.code else { return Err(Cause::NotCompiled) };
        self.effects.clear();
        let left = bound.left();
        let ran = {
            let mut visit = Visit {
                here: self.settings.here,
                now: turn.now,
                account,
                spent,
                terms,
                left,
                visitor: *visitor,
                map: &self.settings.map,
                soft: &self.soft,
                services: &mut self.services,
                replies,
                effects: &mut self.effects,
            };
            self.sandbox.run(code, visitor.function, arguments, left.instructions, &mut visit)
        };
        turn.end(Part::Running);
        self.accounts.entry(account).or_default().instructions += ran.instructions;
        bound.run(ran.instructions).map_err(|_| Cause::Overrun)?;
        if let Some(asked) = self.effects.asked.take() {
            return Ok(Some(asked));
        }
        ran.end.map_err(failed)?;
        // The effects are this evaluation's until they are done, and their buffers come back.
        let effects = std::mem::take(&mut self.effects);
        for (from, to) in &effects.deliveries {
            if let Err(cause) = self.deliver(visitor, bound, account, &effects.buffer[*from..*to], turn) {
                self.counts.add(cause);
            }
        }
        for (name, value, seconds) in &effects.left {
            let of = (account, visitor.key, *name);
            if !self.soft.leave(of, &visitor.grant, (*value, *seconds), turn.now) {
                self.counts.add(Cause::SoftFull);
            }
        }
        for copy in &effects.copies {
            let arguments = &effects.buffer[copy.arguments.0..copy.arguments.1];
            let call = (copy.function, copy.to, copy.parts);
            if let Err(cause) = self.copy(visitor, bound, call, arguments, turn) {
                self.counts.add(cause);
            }
        }
        self.effects = effects;
        Ok(None)
    }

    /// Delivers bytes to the host that waits for them, which the bound pays, or to the application here.
    fn deliver(
        &mut self,
        visitor: &Visitor,
        bound: &mut Bound,
        account: Payer,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        let Visitor { payer, key, origin, .. } = *visitor;
        match self.hosts.get(payer, key).filter(|host| self.links.is_linked(*host, turn.now)) {
            Some(host) => {
                bound.exchange(OVERHEAD + DELIVERY_HEADER + bytes.len()).map_err(|_| Cause::Exhausted)?;
                self.send(&Message::Delivery(Delivery { key, bytes }), host, account, turn)
            }
            None => {
                turn.out.deliver(payer, key, origin, bytes);
                Ok(())
            }
        }
    }

    /// Sends a copy with its part of the bound, which is subtracted before it leaves.
    fn copy(
        &mut self,
        visitor: &Visitor,
        bound: &mut Bound,
        (function, to, parts): (u8, Target, Parts),
        arguments: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        let map = &self.settings.map;
        let (next, place) = match to {
            Target::Remote(place) => (map.next(place), place),
            Target::Neighbour(next) => (Some(next), Place::NOWHERE),
        };
        let next = next.ok_or(Cause::NoRoute)?;
        let address = map.address(next).ok_or(Cause::NoRoute)?;
        if !visitor.grant.holds_over(map.interface(next)) {
            return Err(Cause::Interface);
        }
        self.meet(address, turn);
        if !self.links.is_linked(address, turn.now) {
            return Err(Cause::NoLink);
        }
        let (account, _) = self.account(visitor.payer);
        let Visitor { payer, origin, key, hash, grant, .. } = *visitor;
        let (limits, code) = (Limits::default(), None);
        let mut capsule =
            Capsule { function, limits, origin, place, payer, key, hash, grant, arguments, code };
        let share = bound.split(parts, OVERHEAD + capsule.length()).map_err(|_| Cause::Exhausted)?;
        capsule.limits = share.left();
        self.send(&Message::Capsule(capsule), address, account, turn)?;
        if let Some(cached) = self.codes.get(account, hash) {
            self.owed.add(address, hash, account, &cached.bytes);
        }
        Ok(())
    }

    /// Sends a message to a peer. It was paid before.
    fn send(
        &mut self,
        message: &Message<'_>,
        to: SocketAddr,
        account: Payer,
        turn: &mut Turn<'_>,
    ) -> Result<(), Cause> {
        self.message.clear();
        self.datagram.clear();
        message.write(&mut self.message);
        turn.end(Part::Marshalling);
        let sealed = self.links.seal(to, Mode::Authenticated, &self.message, turn.clock, &mut self.datagram);
        sealed.map_err(|_| Cause::NoLink)?;
        turn.end(Part::Authentication);
        let spent = self.accounts.entry(account).or_default();
        spent.bytes += self.datagram.len() as u64;
        spent.copies += 1;
        turn.out.send(to, &self.datagram, Some(account));
        turn.end(Part::Transmission);
        Ok(())
    }

    /// Exchanges keys with an address if it is time to.
    fn meet(&mut self, address: SocketAddr, turn: &mut Turn<'_>) {
        if !self.links.is_due(address, turn.now) {
            return;
        }
        match self.links.connect(address, turn.clock) {
            Ok(Some(first)) => turn.out.send(address, &first, None),
            Ok(None) => {}
            Err(_) => {
                self.counts.add(Cause::Link);
            }
        }
    }

    /// Returns the account of a payer, and its terms.
    fn account(&self, payer: Payer) -> (Payer, Terms) {
        match self.settings.accounts.get(&payer) {
            Some(terms) => (payer, *terms),
            None => (Payer::BEST_EFFORT, self.settings.best_effort),
        }
    }

    fn forget_overdue(&mut self, now: u64) {
        let is_overdue = |since: u64| now.saturating_sub(since) >= HOLD;
        for _ in self.held.extract_if(.., |held| is_overdue(held.since)) {
            self.counts.add(Cause::Overdue);
        }
        self.asked.retain(|_, asked| !is_overdue(asked.since));
    }
}
