//! The table of a node's links.

use crate::cookie::{COOKIE, Cookie, Cookies};
use crate::exchange::{Exchange, FIRST, MAX_IDENTITY, Split, Stamp, of_first};
use crate::firsts::{Firsts, Sender};
use crate::session::{Header, Session};
use crate::{Cause, Certificates, Clock, Counts, Identity, Mode, OVERHEAD, Peer, Presented, Time};
use flame_capsule::Place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// The milliseconds after which an exchange without an answer may begin again.
const RETRY: u64 = 1000;
/// The milliseconds that a session serves.
const SESSION_TIME: u64 = 3_600_000;
/// The milliseconds without a packet after which a session on probation is replaced.
const PROBATION: u64 = 2000;

/// Fills bytes at random.
pub type Entropy = Box<dyn FnMut(&mut [u8]) + Send>;

/// What a node is to others.
#[derive(Clone)]
pub struct Own {
    /// The secret half of the static key.
    pub key: [u8; 32],
    pub identity: Identity,
}

/// The most entries of each table.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub sessions: usize,
    /// Sessions of one principal.
    pub of_one: usize,
    /// Exchanges that others began and did not finish. The oldest is given up for one more.
    pub exchanges: usize,
    /// First messages that are remembered.
    pub remembered: usize,
    /// First messages of strange addresses that are answered in a second, and once more of addresses that a
    /// cookie has proven. Each address, also a neighbour's, has at most an eighth of it.
    pub firsts: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { sessions: 1024, of_one: 16, exchanges: 256, remembered: 4096, firsts: 256 }
    }
}

/// A datagram that was accepted.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are packets, and receiving one allocates nothing")]
pub enum Received<'a> {
    /// A packet without an authenticator: Best Effort.
    Plain(&'a [u8]),
    /// A packet of a peer.
    Packet { peer: Peer, body: &'a [u8] },
    /// A step of the exchange, with the datagram that answers it.
    Step(Vec<u8>),
    /// A session began. The datagram, if there is one, goes to the peer.
    Begun(Vec<u8>),
    /// The peer confirmed a session.
    Nothing,
}

struct Open {
    peer: Peer,
    key: [u8; 32],
    address: SocketAddr,
    /// The peer's number of the session.
    theirs: u32,
    session: Session,
    begun: u64,
    /// The number of the last packet that came with it, among all of this node's: 0 until the peer has shown
    /// that it has the session, too.
    heard: u64,
}

struct Waiting {
    exchange: Exchange,
    address: SocketAddr,
    since: u64,
    /// Theirs, if they have begun.
    theirs: Option<u32>,
    /// Whether this end has shown a cookie: it is asked once.
    has_cookie: bool,
}

/// A node's links: sessions by number, and exchanges that wait.
pub struct Links<C> {
    own: Own,
    /// The public half of its static key.
    public: [u8; 32],
    /// The places that addresses are known to have.
    known: BTreeMap<SocketAddr, Place>,
    certificates: C,
    entropy: Entropy,
    limit: Limit,
    time: Time,
    sessions: BTreeMap<u32, Open>,
    /// The sessions of an address, from the oldest.
    addresses: BTreeMap<SocketAddr, Vec<u32>>,
    waiting: BTreeMap<u32, Waiting>,
    /// The order in which others began.
    answered: VecDeque<u32>,
    /// The first messages of this second.
    firsts: Firsts,
    cookies: Cookies,
    seen: BTreeSet<[u8; 32]>,
    seen_order: VecDeque<(u64, [u8; 32])>,
    /// The packets of sessions that came.
    heard: u64,
    counts: Counts,
}

/// Returns the public half of a static key.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    use snow::params::DHChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};
    let mut public = [0; 32];
    if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        dh.set(secret);
        public.copy_from_slice(dh.pubkey());
    }
    public
}

impl<C: Certificates> Links<C> {
    /// Begins without links.
    ///
    /// # Errors
    ///
    /// Returns the bytes of the identity, and the most that there may be, if it is too long for an answer.
    pub fn new(
        own: Own,
        certificates: C,
        limit: Limit,
        entropy: Entropy,
        time: Time,
    ) -> Result<Self, (usize, usize)> {
        if own.identity.length() > MAX_IDENTITY {
            return Err((own.identity.length(), MAX_IDENTITY));
        }
        Ok(Self {
            public: public_key(&own.key),
            known: BTreeMap::new(),
            own,
            certificates,
            entropy,
            limit,
            time,
            sessions: BTreeMap::new(),
            addresses: BTreeMap::new(),
            waiting: BTreeMap::new(),
            answered: VecDeque::new(),
            firsts: Firsts::default(),
            cookies: Cookies::default(),
            seen: BTreeSet::new(),
            seen_order: VecDeque::new(),
            heard: 0,
            counts: Counts::default(),
        })
    }

    /// Returns how many datagrams were refused, by cause.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Advances the time, and returns it.
    pub fn advance(&mut self, clock: Clock) -> u64 {
        self.time.advance(clock)
    }

    /// Accepts no other node at an address than the one of this place.
    pub fn expect(&mut self, address: SocketAddr, place: Place) {
        self.known.insert(address, place);
    }

    /// Returns the judge of certificates.
    pub fn certificates(&mut self) -> &mut C {
        &mut self.certificates
    }

    /// Returns the sizes of the tables: sessions, exchanges, first messages.
    #[must_use]
    pub fn sizes(&self) -> [usize; 3] {
        [self.sessions.len(), self.waiting.len(), self.seen.len()]
    }

    /// Returns whether an address has a session that may be used.
    #[must_use]
    pub fn is_linked(&self, address: SocketAddr, now: u64) -> bool {
        self.newest(address).is_some_and(|(_, open)| open.peer.until > now)
    }

    /// Returns the peers that have a session, with their addresses.
    pub fn peers(&self) -> impl Iterator<Item = (SocketAddr, &Peer)> {
        self.sessions.values().map(|open| (open.address, &open.peer))
    }

    /// Ends the sessions of peers: those whose certificates are revoked.
    pub fn end(&mut self, is_revoked: impl Fn(&Peer) -> bool) {
        let ended = self.sessions.iter().filter(|(_, open)| is_revoked(&open.peer));
        let ended: Vec<u32> = ended.map(|(number, _)| *number).collect();
        ended.into_iter().for_each(|number| self.forget(number));
    }

    /// Returns message 1 for an address, unless an exchange that began within a second waits for its answer.
    ///
    /// # Errors
    ///
    /// Returns a cause if the static key cannot be used.
    pub fn connect(&mut self, to: SocketAddr, clock: Clock) -> Result<Option<Vec<u8>>, Cause> {
        let now = self.time.advance(clock);
        let own = self.waiting.iter().find(|(_, w)| w.address == to && w.theirs.is_none());
        if let Some((number, waiting)) = own {
            if now.saturating_sub(waiting.since) < RETRY {
                return Ok(None);
            }
            let number = *number;
            self.waiting.remove(&number);
        }
        self.begin(to, &[0; COOKIE], now).map(Some)
    }

    /// Begins an exchange with an address, and returns message 1.
    fn begin(&mut self, to: SocketAddr, cookie: &Cookie, now: u64) -> Result<Vec<u8>, Cause> {
        let mut random = [0; 32];
        (self.entropy)(&mut random);
        let mut exchange = Exchange::begin(true, &self.own.key, random)?;
        let number = self.number();
        let mut message = Vec::with_capacity(crate::HEADER + FIRST);
        Header { kind: 3, number: 0, nonce: 0 }.write(&mut message);
        exchange.write_first(Stamp { time: now, number }, cookie, &mut message)?;
        let (theirs, has_cookie) = (None, *cookie != [0; COOKIE]);
        self.waiting.insert(number, Waiting { exchange, address: to, since: now, theirs, has_cookie });
        Ok(message)
    }

    /// Appends a packet for an address with a session.
    ///
    /// # Errors
    ///
    /// Returns a cause if there is no session, or it has ended.
    pub fn seal(
        &mut self,
        to: SocketAddr,
        mode: Mode,
        body: &[u8],
        clock: Clock,
        into: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let now = self.time.advance(clock);
        let Some((number, open)) = self.newest(to) else { return Err(self.counts.add(Cause::NoLink)) };
        if Self::has_ended(open, now) {
            self.forget(number);
            return Err(self.counts.add(Cause::Ended));
        }
        let open = self.sessions.get_mut(&number).ok_or(Cause::NoLink)?;
        let sealed = open.session.seal(open.theirs, mode, body, now, into);
        sealed.map_err(|cause| self.counts.add(cause))
    }

    /// Returns whether the session with an address is to be replaced by another exchange: there is no
    /// session, it ends soon, or the peer has not shown that it has it.
    #[must_use]
    pub fn is_due(&self, address: SocketAddr, now: u64) -> bool {
        self.newest(address).is_none_or(|(_, open)| {
            let age = now.saturating_sub(open.begun);
            age >= SESSION_TIME / 2 || (open.heard == 0 && age >= PROBATION) || open.peer.until <= now
        })
    }

    /// Returns what brings the sessions of both ends together, after a packet of `length` bytes came from the
    /// address of a neighbour and named a session that is unknown here.
    ///
    /// If this node has a session with the address, an empty packet shows the neighbour which one, and is no
    /// longer than its cause. An empty packet is not answered by another: then keys are exchanged, at
    /// most once in two seconds.
    pub fn resume(&mut self, from: SocketAddr, length: usize, clock: Clock) -> Option<Vec<u8>> {
        let now = self.time.advance(clock);
        if self.is_due(from, now) {
            return self.connect(from, clock).ok().flatten();
        }
        if length > OVERHEAD {
            let mut packet = Vec::new();
            self.seal(from, Mode::Authenticated, &[], clock, &mut packet).ok()?;
            return Some(packet);
        }
        let is_old = self.newest(from).is_some_and(|(_, open)| now.saturating_sub(open.begun) >= PROBATION);
        if is_old { self.connect(from, clock).ok().flatten() } else { None }
    }

    /// Takes a datagram. What is refused is counted and changes no session.
    ///
    /// # Errors
    ///
    /// Returns why the datagram was refused.
    pub fn receive<'a>(
        &mut self,
        from: SocketAddr,
        datagram: &'a mut [u8],
        clock: Clock,
    ) -> Result<Received<'a>, Cause> {
        let now = self.time.advance(clock);
        let header = Header::read(datagram).map_err(|cause| self.counts.add(cause))?;
        if header.is_of_session() {
            return self.packet(from, header, datagram, now);
        }
        let message = &datagram[crate::HEADER..];
        let step = match header.kind {
            0 => return Ok(Received::Plain(message)),
            3 => self.first(from, message, now).map(Received::Step),
            4 => self.second(from, header.number, message, now).map(Received::Begun),
            6 => self.cookie(from, header.number, message, now).map(Received::Step),
            _ => self.third(from, header.number, message, now).map(Received::Begun),
        };
        step.map_err(|cause| self.counts.add(cause))
    }

    fn packet<'a>(
        &mut self,
        from: SocketAddr,
        header: Header,
        packet: &'a mut [u8],
        now: u64,
    ) -> Result<Received<'a>, Cause> {
        let open = self.sessions.get_mut(&header.number).ok_or(Cause::NoSession);
        let opened = open.and_then(|open| {
            if open.address != from {
                return Err(Cause::OtherAddress);
            }
            if Self::has_ended(open, now) {
                return Err(Cause::Ended);
            }
            let body = open.session.open(header, packet)?;
            self.heard += 1;
            open.heard = self.heard;
            Ok(match body.is_empty() {
                true => Received::Nothing,
                false => Received::Packet { peer: open.peer, body },
            })
        });
        opened.map_err(|cause| self.counts.add(cause))
    }

    fn first(&mut self, from: SocketAddr, message: &[u8], now: u64) -> Result<Vec<u8>, Cause> {
        if message.len() != FIRST {
            return Err(Cause::Asks);
        }
        let ephemeral: [u8; 32] = message.first_chunk().copied().ok_or(Cause::Asks)?;
        self.forget_seen(now);
        if self.seen.contains(&ephemeral) {
            return Err(Cause::Repeated);
        }
        let (number, cookie) = of_first(message).ok_or(Cause::Asks)?;
        let sender = match self.known.contains_key(&from) {
            true => Sender::Neighbour,
            false => Sender::Stranger,
        };
        if !self.firsts.admit(from.ip(), sender, self.limit.firsts, now) {
            if !self.cookies.prove(&cookie, from, now, &mut self.entropy) {
                self.counts.add(Cause::Unproven);
                let cookie = self.cookies.of(from, now, &mut self.entropy);
                let mut answer = Vec::with_capacity(crate::HEADER + COOKIE);
                Header { kind: 6, number, nonce: 0 }.write(&mut answer);
                answer.extend_from_slice(&cookie);
                return Ok(answer);
            }
            if !self.firsts.admit(from.ip(), Sender::Proven, self.limit.firsts, now) {
                return Err(Cause::Crowded);
            }
        }
        let mut random = [0; 32];
        (self.entropy)(&mut random);
        let mut exchange = Exchange::begin(false, &self.own.key, random)?;
        let stamp = exchange.read_first(message, now)?;
        self.seen.insert(ephemeral);
        self.seen_order.push_back((now, ephemeral));
        while self.answered.len() >= self.limit.exchanges.max(1) {
            if let Some(oldest) = self.answered.pop_front() {
                self.waiting.remove(&oldest);
            }
        }
        let number = self.number();
        let mut answer = Vec::new();
        Header { kind: 4, number: stamp.number, nonce: 0 }.write(&mut answer);
        exchange.write_second(Stamp { time: now, number }, &self.own.identity, &mut answer)?;
        let theirs = Some(stamp.number);
        self.waiting
            .insert(number, Waiting { exchange, address: from, since: now, theirs, has_cookie: false });
        self.answered.push_back(number);
        Ok(answer)
    }

    /// Begins an exchange again with a cookie, for which it was asked.
    fn cookie(&mut self, from: SocketAddr, number: u32, message: &[u8], now: u64) -> Result<Vec<u8>, Cause> {
        let cookie: &Cookie = message.try_into().map_err(|_| Cause::Exchange)?;
        let waiting = self.waiting.get(&number).ok_or(Cause::NoExchange)?;
        if waiting.has_cookie || waiting.address != from || waiting.theirs.is_some() {
            return Err(Cause::NoExchange);
        }
        self.waiting.remove(&number);
        self.begin(from, cookie, now)
    }

    fn second(&mut self, from: SocketAddr, number: u32, message: &[u8], now: u64) -> Result<Vec<u8>, Cause> {
        let mut waiting = self.waited(from, number, true)?;
        let judge = |presented: &Presented<'_>| self.judge(from, presented, now);
        let (stamp, (peer, key)) = waiting.exchange.read_second(message, now, judge)?;
        let mut answer = Vec::new();
        Header { kind: 5, number: stamp.number, nonce: 0 }.write(&mut answer);
        waiting.exchange.write_third(&self.own.identity, &mut answer)?;
        let (sends, receives): Split = waiting.exchange.finish();
        let session = Session::new(&sends, &receives, now);
        let theirs = stamp.number;
        let open = Open { peer, key, address: from, theirs, session, begun: now, heard: 0 };
        self.admit(number, open, now)?;
        Ok(answer)
    }

    fn third(&mut self, from: SocketAddr, number: u32, message: &[u8], now: u64) -> Result<Vec<u8>, Cause> {
        let mut waiting = self.waited(from, number, false)?;
        let judge = |presented: &Presented<'_>| self.judge(from, presented, now);
        let (peer, key) = waiting.exchange.read_third(message, judge)?;
        let (receives, sends): Split = waiting.exchange.finish();
        let mut session = Session::new(&sends, &receives, now);
        let theirs = waiting.theirs.ok_or(Cause::NoExchange)?;
        // Confirms the session to the initiator, which has no other sign of it.
        let mut confirmation = Vec::new();
        session.seal(theirs, Mode::Authenticated, &[], now, &mut confirmation)?;
        self.heard += 1;
        let heard = self.heard;
        let open = Open { peer, key, address: from, theirs, session, begun: now, heard };
        self.admit(number, open, now)?;
        Ok(confirmation)
    }

    /// Takes the exchange out that waits for a message: what is wrong with the message ends it.
    fn waited(&mut self, from: SocketAddr, number: u32, is_ours: bool) -> Result<Waiting, Cause> {
        let waiting = self.waiting.get(&number).ok_or(Cause::NoExchange)?;
        if waiting.address != from || waiting.theirs.is_none() != is_ours {
            return Err(Cause::NoExchange);
        }
        self.answered.retain(|answered| *answered != number);
        self.waiting.remove(&number).ok_or(Cause::NoExchange)
    }

    fn judge(
        &self,
        from: SocketAddr,
        presented: &Presented<'_>,
        now: u64,
    ) -> Result<(Peer, [u8; 32]), Cause> {
        if *presented.key == self.public {
            return Err(Cause::Reflected);
        }
        let peer = self.certificates.verify(presented, now)?;
        if self.known.get(&from).is_some_and(|place| *place != peer.place) {
            return Err(Cause::OtherPlace);
        }
        // A judge with another clock does not lengthen the life of a certificate.
        if peer.until <= now { Err(Cause::Expired) } else { Ok((peer, *presented.key)) }
    }

    /// Adds a session. Of one key, two serve, the new one and the last that was heard: packets of it are
    /// still on their way.
    fn admit(&mut self, number: u32, open: Open, now: u64) -> Result<(), Cause> {
        let of_key = self.sessions.iter().filter(|(_, other)| other.key == open.key);
        let of_key = of_key.map(|(number, other)| (other.heard, other.begun, *number));
        let mut of_key: Vec<(u64, u64, u32)> = of_key.collect();
        of_key.sort_unstable();
        if let [(_, _, oldest), .., _] = of_key[..] {
            self.forget(oldest);
        }
        if self.sessions.len() >= self.limit.sessions {
            let ended = self.sessions.iter().filter(|(_, open)| Self::has_ended(open, now));
            let ended: Vec<u32> = ended.map(|(number, _)| *number).collect();
            ended.into_iter().for_each(|number| self.forget(number));
        }
        if self.sessions.len() >= self.limit.sessions {
            return Err(Cause::ManyLinks);
        }
        let of_one = self.sessions.values().filter(|other| other.peer.payer == open.peer.payer).count();
        if of_one >= self.limit.of_one {
            return Err(Cause::ManyOfOne);
        }
        self.addresses.entry(open.address).or_default().push(number);
        self.sessions.insert(number, open);
        Ok(())
    }

    /// Returns the session that sends to an address: the peer used it last, so that both ends
    /// come to use the same.
    fn newest(&self, address: SocketAddr) -> Option<(u32, &Open)> {
        let numbers = self.addresses.get(&address)?;
        let all = numbers.iter().filter_map(|number| Some((*number, self.sessions.get(number)?)));
        all.max_by_key(|(_, open)| open.heard)
    }

    fn has_ended(open: &Open, now: u64) -> bool {
        open.peer.until <= now || now.saturating_sub(open.begun) >= SESSION_TIME
    }

    fn forget(&mut self, number: u32) {
        let Some(open) = self.sessions.remove(&number) else { return };
        if let Some(numbers) = self.addresses.get_mut(&open.address) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.addresses.remove(&open.address);
            }
        }
    }

    /// Forgets first messages that the clock refuses now, and the oldest for want of room.
    fn forget_seen(&mut self, now: u64) {
        let most = self.limit.remembered.max(1);
        while let Some((at, ephemeral)) = self.seen_order.front() {
            // The sender's clock may be as far ahead as the receiver's was behind.
            let is_refused = now.saturating_sub(*at) > 2 * crate::TOLERANCE;
            if !is_refused && self.seen_order.len() < most {
                break;
            }
            self.seen.remove(ephemeral);
            self.seen_order.pop_front();
        }
    }

    /// Returns a number that neither a session nor an exchange has.
    fn number(&mut self) -> u32 {
        loop {
            let mut bytes = [0; 4];
            (self.entropy)(&mut bytes);
            let number = u32::from_le_bytes(bytes);
            if number != 0 && !self.sessions.contains_key(&number) && !self.waiting.contains_key(&number) {
                return number;
            }
        }
    }
}
