//! A run: machines, the network between them, and what must hold.

use crate::authority::{Authority, Statement, own};
use crate::sandbox::{Ledger, PROBE, Sandbox, Shared, Sum, Without, program};
use fastrand::Rng;
use flame_active_link::{Clock, Limit, Links, Mode, Received, Role, Time};
use flame_active_node::{Begin, Cause, Map, Node, Output, Rights, Room, Settings, Terms};
use flame_capsule::{Capsule, Grant, Key, Limits, MAX_LIST, Message, Payer, Place, hash_of};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::rc::Rc;

/// The time at which a run begins, in milliseconds since 1970.
const BASE: u64 = 1_800_000_000_000;
/// The most by which honest clocks are wrong at first, in milliseconds.
const SKEW: u64 = 8000;
/// The milliseconds with faults.
const FAULTS: u64 = 12_000;
/// The milliseconds of calm, in which links are made again.
const CALM: u64 = 9000;
const PAYERS: u8 = 5;
const ROOM: Room = Room { codes: 3, held: 3, soft: 4, owed: 3, hosts: 2 };
const LINKS: Limit = Limit { sessions: 24, of_one: 4, exchanges: 8, remembered: 32, firsts: 256 };

/// The machine that is not honest: always the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Villain {
    /// A node that states any bound, any payer and any number of copies.
    Liar,
    /// A node that sends all that comes to all of its neighbours, with the whole share.
    Repeater,
    /// A certificate of another root.
    Foreign,
    /// A certificate that expired before.
    Expired,
    /// A certificate that expires during the run.
    Expires,
    /// A certificate that is revoked.
    Revoked,
    /// The certificate of another machine.
    Thief,
}

/// A run of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub villain: Option<Villain>,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub evaluations: u64,
    pub deliveries: u64,
    pub crashes: u64,
    pub set_back: u64,
    pub causes: BTreeMap<Cause, u64>,
    pub links: BTreeMap<flame_active_link::Cause, u64>,
    pub spent: u128,
}

enum Event {
    Datagram { from: SocketAddr, to: usize, bytes: Vec<u8> },
    Begin(u8),
    Stranger,
    Tick(usize),
    Crash(usize),
    Start(usize),
    SetBack(usize),
    Probe(usize, usize),
    Lie,
}

struct Machine {
    place: Place,
    address: SocketAddr,
    node: Option<Node<Authority, Sandbox, Without>>,
    /// The links of a machine that is not honest.
    links: Option<Links<Authority>>,
    neighbours: Vec<usize>,
    /// The error of its clock.
    skew: i64,
    boot: u64,
    /// The latest time that it has stored.
    stored: u64,
    settings: Settings,
}

struct World {
    setup: Setup,
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    number: u64,
    machines: Vec<Machine>,
    authority: Authority,
    ledger: Shared,
    /// Datagrams that may come again.
    past: Vec<(SocketAddr, usize, Vec<u8>)>,
    probes: BTreeSet<(usize, usize)>,
    /// The sum that the villain received as its share.
    given: Sum,
    counts: Counts,
}

/// Collects what leaves a node.
#[derive(Default)]
struct Out {
    sent: Vec<(SocketAddr, Vec<u8>, Option<Payer>)>,
    delivered: Vec<(Place, Vec<u8>)>,
}

impl Output for Out {
    fn send(&mut self, to: SocketAddr, datagram: &[u8], account: Option<Payer>) {
        self.sent.push((to, datagram.to_vec(), account));
    }

    fn deliver(&mut self, _: Payer, _: Key, origin: Place, bytes: &[u8]) {
        self.delivered.push((origin, bytes.to_vec()));
    }
}

impl Sum {
    fn add(&mut self, limits: Limits) {
        self.instructions += u128::from(limits.instructions);
        self.bytes += u128::from(limits.bytes);
        self.copies += u128::from(limits.copies);
    }

    fn is_within(self, most: Self) -> bool {
        self.instructions <= most.instructions && self.bytes <= most.bytes && self.copies <= most.copies
    }

    fn times(self, n: u128) -> Self {
        Self { instructions: self.instructions * n, bytes: self.bytes * n, copies: self.copies * n }
    }
}

fn payer(number: u8) -> Payer {
    Payer([number + 1; 16])
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap_or(0)], 4747))
}

const BEST_EFFORT: Terms = Terms {
    rights: Rights::ALL,
    most: Limits { hops: 4, instructions: 4000, bytes: 4000, copies: 8 },
    resolution: 1000,
};
const TERMS: Terms = Terms {
    rights: Rights::ALL,
    most: Limits { hops: 12, instructions: 200_000, bytes: 300_000, copies: 200 },
    resolution: 1,
};
const STRANGERS: Limits = Limits { hops: 4, instructions: 20_000, bytes: 20_000, copies: 40 };
const SHARE: Limits = Limits { hops: 12, instructions: 250_000, bytes: 400_000, copies: 250 };

/// Runs a seed.
///
/// # Errors
///
/// Returns the first property that does not hold.
pub fn run(seed: u64, setup: &Setup) -> Result<Counts, String> {
    let mut world = World::new(seed, setup);
    while let Some(Reverse((at, number))) = world.queue.pop() {
        world.now = at;
        world.ledger.borrow_mut().now = at;
        let Some(event) = world.events.remove(&number) else { continue };
        world.counts.events += 1;
        world.step(event);
        world.check().map_err(|e| format!("seed {seed}, at {at} ms: {e}"))?;
        if world.counts.events > 200_000 {
            return Err(format!("seed {seed}: it does not end"));
        }
    }
    world.end().map_err(|e| format!("seed {seed}, at its end: {e}"))
}

impl World {
    fn new(seed: u64, setup: &Setup) -> Self {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(2..8);
        let mut edges = BTreeSet::new();
        for to in 1..count {
            edges.insert((rng.usize(..to), to));
        }
        for _ in 0..rng.usize(..=count) {
            let (a, b) = (rng.usize(..count), rng.usize(..count));
            if a != b {
                edges.insert((a.min(b), a.max(b)));
            }
        }
        let ledger: Shared = Rc::new(RefCell::new(Ledger::default()));
        let authority = Authority { share: SHARE, revoked: Rc::default() };
        let mut world = Self {
            setup: *setup,
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            number: 0,
            machines: Vec::new(),
            authority,
            ledger,
            past: Vec::new(),
            probes: BTreeSet::new(),
            given: Sum::default(),
            counts: Counts::default(),
        };
        for number in 0..count {
            let of = |(a, b): &(usize, usize)| match number {
                n if n == *a => Some(*b),
                n if n == *b => Some(*a),
                _ => None,
            };
            let neighbours: Vec<usize> = edges.iter().filter_map(of).collect();
            let known: Vec<_> = neighbours.iter().map(|n| (Place(*n as u64 + 1), address(*n))).collect();
            let map = Map::new(&known[..known.len().min(MAX_LIST)], ways(number, count, &edges));
            let settings = Settings {
                here: Place(number as u64 + 1),
                map,
                accounts: (0..PAYERS).map(|n| (payer(n), TERMS)).collect(),
                best_effort: BEST_EFFORT,
                strangers: STRANGERS,
                room: ROOM,
            };
            let skew = world.rng.i64(-(SKEW as i64)..=SKEW as i64);
            world.machines.push(Machine {
                place: settings.here,
                address: address(number),
                node: None,
                links: None,
                neighbours,
                skew,
                boot: 0,
                stored: 0,
                settings,
            });
            world.start(number);
            let at = world.rng.u64(..700);
            world.at(at, Event::Tick(number));
        }
        world.plan(count);
        world
    }

    /// Plans the events of the run.
    fn plan(&mut self, count: usize) {
        for number in 0..PAYERS {
            let at = self.rng.u64(1000..FAULTS);
            self.at(at, Event::Begin(number));
        }
        for _ in 0..self.rng.usize(..4) {
            let at = self.rng.u64(..FAULTS);
            self.at(at, Event::Stranger);
        }
        for _ in 0..self.rng.usize(..4) {
            let (at, number) = (self.rng.u64(..FAULTS - 2000), self.rng.usize(..count));
            if number == 0 && self.setup.villain.is_some() {
                continue;
            }
            self.at(at, Event::Crash(number));
            let back = at + self.rng.u64(1..2000);
            self.at(back, Event::Start(number));
        }
        for _ in 0..self.rng.usize(..3) {
            let (at, number) = (self.rng.u64(..FAULTS), self.rng.usize(..count));
            self.at(at, Event::SetBack(number));
        }
        if self.setup.villain.is_some() {
            for _ in 0..60 {
                let at = self.rng.u64(..FAULTS + CALM);
                self.at(at, Event::Lie);
            }
        }
        for number in 0..count {
            for to in self.machines[number].neighbours.clone() {
                self.probes.insert((number, to));
                if self.setup.villain.is_none() || (number != 0 && to != 0) {
                    // The first may meet a session that the other end has lost.
                    for nth in 0..3 {
                        self.at(FAULTS + CALM + number as u64 * 500 + nth * 4000, Event::Probe(number, to));
                    }
                }
            }
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.queue.push(Reverse((at, self.number)));
        self.events.insert(self.number, event);
    }

    fn clock(&self, number: usize) -> Clock {
        let machine = &self.machines[number];
        Clock {
            wall: (BASE + self.now).saturating_add_signed(machine.skew),
            steady: self.now - machine.boot + 50_000,
        }
    }

    fn start(&mut self, number: usize) {
        self.machines[number].boot = self.now;
        let clock = self.clock(number);
        let villain = self.setup.villain.filter(|_| number == 0);
        let machine = &self.machines[number];
        let payer = Payer([100 + u8::try_from(number).unwrap_or(0); 16]);
        let mut statement =
            Statement { place: machine.place, payer, role: Role::Node, until: BASE + 3_600_000 };
        let (mut key_of, mut root) = (machine.place, 0);
        match villain {
            Some(Villain::Foreign) => root = 1,
            Some(Villain::Expired) => statement.until = BASE - SKEW - 1,
            Some(Villain::Expires) => {
                (statement.until, statement.role) = (BASE + 4000, Role::Host);
                // A node that restarts with its clock set back misses the time that it was down: three times
                // 2 s.
                self.ledger.borrow_mut().until.insert(payer, 4000 + SKEW + 6000);
            }
            Some(Villain::Thief) => key_of = Place(2),
            Some(Villain::Revoked) => {
                self.authority.revoked.borrow_mut().insert(machine.place);
            }
            Some(Villain::Liar | Villain::Repeater) | None => {}
        }
        let own = own(&statement, key_of, root);
        let mut entropy = Rng::with_seed(self.rng.u64(..));
        let entropy = Box::new(move |bytes: &mut [u8]| entropy.fill(bytes));
        let time = Time::begin(machine.stored, clock);
        let links = Links::new(own, self.authority.clone(), LINKS, entropy, time);
        let Ok(links) = links else { return };
        let machine = &mut self.machines[number];
        if villain.is_some() {
            machine.links = Some(links);
        } else {
            let sandbox = Sandbox(self.ledger.clone());
            machine.node = Some(Node::new(machine.settings.clone(), links, sandbox, Without));
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Datagram { from, to, bytes } => self.arrive(from, to, bytes),
            Event::Begin(number) => {
                let at = self.rng.usize(..self.machines.len());
                let limits = Limits {
                    hops: self.rng.u8(1..12),
                    instructions: self.rng.u64(..60_000),
                    bytes: self.rng.u64(..60_000),
                    copies: self.rng.u32(..80),
                };
                self.begin(at, payer(number), 0, &[0], limits);
            }
            Event::Stranger => self.stranger(),
            Event::Tick(number) => {
                self.with(number, |node, clock, out| node.connect(clock, out));
                if self.now < FAULTS + CALM {
                    self.at(self.now + 700, Event::Tick(number));
                }
            }
            Event::Crash(number) => {
                let clock = self.clock(number);
                if let Some(mut node) = self.machines[number].node.take() {
                    self.machines[number].stored = node.links().advance(clock);
                    self.tally(&node);
                    self.counts.crashes += 1;
                }
            }
            Event::Start(number) => {
                if self.machines[number].node.is_none() && self.machines[number].links.is_none() {
                    self.start(number);
                }
            }
            Event::SetBack(number) => {
                self.machines[number].skew -= 3_600_000;
                self.counts.set_back += 1;
            }
            Event::Probe(number, to) => {
                let limits = Limits { hops: 2, instructions: 1000, bytes: 10_000, copies: 10 };
                let to = u8::try_from(to + 1).unwrap_or(0);
                self.begin(number, payer(to % PAYERS), PROBE, &[0, to], limits);
            }
            Event::Lie => self.lie(),
        }
    }

    fn begin(&mut self, at: usize, payer: Payer, function: u8, arguments: &[u8], limits: Limits) {
        if self.machines[at].node.is_none() {
            return;
        }
        let (seed, filling) = (self.rng.u64(..), self.rng.usize(..600));
        let code = program(payer, seed, filling);
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.begun.entry(payer).or_default().add(limits);
            if self.setup.villain.is_none() {
                let hops = ledger.hops.entry(payer).or_default();
                *hops = limits.hops.max(*hops);
            }
        }
        let key = Key([3; 16]);
        let begin = Begin { payer, key, code: &code, function, arguments, limits };
        self.with(at, |node, clock, out| node.begin(begin, clock, out));
    }

    /// Sends a plain capsule to some node, perhaps as another principal's.
    fn stranger(&mut self) {
        let to = self.rng.usize(..self.machines.len());
        let code = program(Payer::BEST_EFFORT, self.rng.u64(..), 10);
        let limits = Limits { hops: 200, instructions: u64::MAX, bytes: u64::MAX, copies: u32::MAX };
        let capsule = Capsule {
            function: 0,
            limits,
            origin: Place(3),
            place: Place::NOWHERE,
            payer: payer(self.rng.u8(..PAYERS)),
            key: Key::default(),
            hash: hash_of(&code),
            grant: Grant::ALL,
            arguments: &[0],
            code: (self.rng.u8(..4) > 0).then_some(&code[..]),
        };
        let mut bytes = b"FL\x01\0".to_vec();
        bytes.extend_from_slice(&[0; 12]);
        capsule.write(&mut bytes);
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        self.network(from, address(to), &bytes);
    }

    /// Calls a node, and passes on what leaves it.
    fn with(
        &mut self,
        number: usize,
        call: impl FnOnce(&mut Node<Authority, Sandbox, Without>, Clock, &mut Out),
    ) {
        let clock = self.clock(number);
        let Some(node) = &mut self.machines[number].node else { return };
        let mut out = Out::default();
        call(node, clock, &mut out);
        let from = self.machines[number].address;
        for (origin, bytes) in out.delivered {
            self.counts.deliveries += 1;
            if let [1, to] = bytes[..]
                && usize::from(to) == number + 1
            {
                self.probes.retain(|(from, to)| Place(*from as u64 + 1) != origin || *to != number);
            }
        }
        for (to, bytes, account) in out.sent {
            if let Some(account) = account {
                let mut ledger = self.ledger.borrow_mut();
                let spent = ledger.spent.entry(account).or_default();
                spent.bytes += bytes.len() as u128;
                spent.copies += 1;
            }
            self.network(from, to, &bytes);
        }
    }

    /// Delivers a datagram, or not, or twice, or changed, or to somebody else.
    fn network(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let Some(to) = self.machines.iter().position(|machine| machine.address == to) else { return };
        let deliver = |world: &mut Self, from, to, bytes: &[u8], most| {
            let at = world.now + world.rng.u64(1..most);
            world.at(at, Event::Datagram { from, to, bytes: bytes.to_vec() });
        };
        if self.now >= FAULTS {
            return deliver(self, from, to, bytes, 20);
        }
        self.past.push((from, to, bytes.to_vec()));
        match self.rng.u8(..100) {
            0..10 => {}
            10..20 => {
                deliver(self, from, to, bytes, 50);
                deliver(self, from, to, bytes, 900);
            }
            20..24 => {
                let mut changed = bytes.to_vec();
                let at = self.rng.usize(..changed.len());
                changed[at] ^= 1 << self.rng.u8(..8);
                changed.truncate(self.rng.usize(at..=changed.len()));
                deliver(self, from, to, &changed, 50);
            }
            24..26 => {
                // To its sender, as if the receiver had sent it.
                let reflected = self.machines.iter().position(|machine| machine.address == from);
                let receiver = self.machines[to].address;
                deliver(self, receiver, reflected.unwrap_or(to), bytes, 50);
            }
            26..28 => {
                let other = self.rng.usize(..self.machines.len());
                deliver(self, self.machines[other].address, to, bytes, 50);
            }
            _ => deliver(self, from, to, bytes, 50),
        }
        if self.rng.u8(..100) < 12 {
            let (from, to, bytes) = self.past[self.rng.usize(..self.past.len())].clone();
            deliver(self, from, to, &bytes, 3000);
        }
    }

    fn arrive(&mut self, from: SocketAddr, to: usize, mut bytes: Vec<u8>) {
        if self.machines[to].links.is_some() {
            return self.arrive_at_villain(from, &mut bytes);
        }
        // Each plain capsule that arrives begins with what strangers have.
        let is_plain = bytes.get(3) == Some(&0) && self.machines[to].node.is_some();
        if is_plain && let Some(Ok(Message::Capsule(capsule))) = bytes.get(16..).map(Message::read) {
            let begun = capsule.limits.meet(BEST_EFFORT.most);
            self.ledger.borrow_mut().begun.entry(Payer::BEST_EFFORT).or_default().add(begun);
        }
        self.with(to, |node, clock, out| node.handle(from, &mut bytes, clock, out));
    }

    fn arrive_at_villain(&mut self, from: SocketAddr, bytes: &mut [u8]) {
        let clock = self.clock(0);
        let villain = self.setup.villain;
        let own = self.machines[0].address;
        let Some(links) = &mut self.machines[0].links else { return };
        let mut answers = Vec::new();
        match links.receive(from, bytes, clock) {
            Ok(Received::Step(answer) | Received::Begun(answer)) => answers.push((from, answer)),
            Ok(Received::Packet { body, .. }) if villain == Some(Villain::Repeater) => {
                let body = body.to_vec();
                if let Ok(Message::Capsule(capsule)) = Message::read(&body) {
                    self.given.add(capsule.limits);
                    for to in &self.machines[0].neighbours.clone() {
                        let mut packet = Vec::new();
                        let links = self.machines[0].links.as_mut();
                        let sealed = links.map(|links| {
                            links.seal(address(*to), Mode::Authenticated, &body, clock, &mut packet)
                        });
                        if let Some(Ok(())) = sealed {
                            answers.push((address(*to), packet));
                        }
                    }
                }
            }
            _ => {}
        }
        for (to, answer) in answers {
            self.network(own, to, &answer);
        }
    }

    /// Lets the villain try: exchange keys, and send capsules as it likes.
    fn lie(&mut self) {
        let clock = self.clock(0);
        let own = self.machines[0].address;
        for to in self.machines[0].neighbours.clone() {
            let mut sent = Vec::new();
            let Some(links) = &mut self.machines[0].links else { return };
            if let Ok(Some(first)) = links.connect(address(to), clock)
                && links.is_due(address(to), BASE + self.now)
            {
                sent.push(first);
            }
            let is_host = self.setup.villain == Some(Villain::Expires);
            let is_liar = self.setup.villain == Some(Villain::Liar);
            for _ in 0..if is_liar || is_host { self.rng.usize(..5) } else { 0 } {
                let mut number = || self.rng.u64(..);
                let limits = match number() % 3 {
                    0 => Limits { hops: 255, instructions: u64::MAX, bytes: u64::MAX, copies: u32::MAX },
                    1 => Limits { hops: 9, instructions: 50_000, bytes: 90_000, copies: 60 },
                    _ => Limits { hops: 3, instructions: 5000, bytes: 9000, copies: 20 },
                };
                let payer = if is_host { Payer([100; 16]) } else { payer((number() % 7) as u8) };
                let code = program(payer, number(), 30);
                let capsule = Capsule {
                    function: 0,
                    limits,
                    origin: Place(number() % 9),
                    place: Place(number() % 4),
                    payer,
                    key: Key::default(),
                    hash: hash_of(&code),
                    grant: Grant::ALL,
                    arguments: &[0],
                    code: (number() % 4 > 0).then_some(&code[..]),
                };
                let (mut body, mut packet) = (Vec::new(), Vec::new());
                capsule.write(&mut body);
                if links.seal(address(to), Mode::Authenticated, &body, clock, &mut packet).is_ok() {
                    sent.push(packet);
                }
            }
            for packet in sent {
                self.network(own, address(to), &packet);
            }
        }
    }

    /// Checks what must hold after each event.
    fn check(&mut self) -> Result<(), String> {
        let ledger = self.ledger.borrow();
        if let Some(wrong) = &ledger.wrong {
            return Err(wrong.clone());
        }
        match self.setup.villain {
            Some(Villain::Liar | Villain::Repeater | Villain::Expires) => {
                // Of all payers together: what began honestly, and the share of each neighbour's second.
                let mut most = Sum::default();
                ledger.begun.values().for_each(|begun| most = most.plus(*begun));
                let mut share = Sum::default();
                share.add(SHARE);
                let neighbours = self.machines[0].neighbours.len() as u128;
                let stolen = match self.setup.villain {
                    // All that it received, once for each neighbour.
                    Some(Villain::Repeater) => self.given.times(neighbours),
                    _ => share.times(neighbours * (u128::from(self.now / 1000) + 2)),
                };
                let mut spent = Sum::default();
                ledger.spent.values().for_each(|sum| spent = spent.plus(*sum));
                if !spent.is_within(most.plus(stolen)) {
                    return Err(format!("{spent:?} was spent, at most {most:?} and {stolen:?}"));
                }
            }
            _ => {
                for (payer, spent) in &ledger.spent {
                    let begun = ledger.begun.get(payer).copied().unwrap_or_default();
                    if !spent.is_within(begun) {
                        return Err(format!("{payer:?} spent {spent:?} of {begun:?}"));
                    }
                }
            }
        }
        drop(ledger);
        let accounts = usize::from(PAYERS) + 1;
        for machine in &mut self.machines {
            let Some(node) = &mut machine.node else { continue };
            let [codes, held, asked, soft, owed, hosts, allowances] = node.sizes();
            let [sessions, exchanges, seen] = node.links().sizes();
            let is_small = codes <= ROOM.codes * accounts
                && held <= ROOM.held * accounts
                && asked <= ROOM.held * accounts
                && soft <= ROOM.soft * accounts
                && owed <= ROOM.owed * accounts
                && hosts <= ROOM.hosts * (accounts + 1)
                && allowances <= LINKS.sessions + 1
                && sessions <= LINKS.sessions
                && exchanges <= LINKS.exchanges + machine.neighbours.len()
                && seen <= LINKS.remembered;
            if !is_small {
                return Err(format!("tables: {:?}, {:?}", node.sizes(), node.links().sizes()));
            }
            let villain = self.setup.villain;
            let outside = [Villain::Foreign, Villain::Expired, Villain::Revoked, Villain::Thief]
                .map(Some)
                .contains(&villain);
            let is_other = |(at, peer): &(SocketAddr, &flame_active_link::Peer)| {
                *at != address(peer.place.0 as usize - 1)
            };
            if let Some((at, peer)) = node.links().peers().find(is_other) {
                return Err(format!("{at} has a session of {:?}", peer.place));
            }
            if outside && node.links().peers().any(|(_, peer)| peer.place == Place(1)) {
                return Err(format!("{villain:?} has a session"));
            }
        }
        Ok(())
    }

    fn tally(&mut self, node: &Node<Authority, Sandbox, Without>) {
        for cause in Cause::ALL {
            *self.counts.causes.entry(*cause).or_default() += node.counts().of(*cause);
        }
    }

    fn end(mut self) -> Result<Counts, String> {
        if !self.probes.is_empty() && self.setup.villain.is_none() {
            return Err(format!("neighbours do not reach each other: {:?}", self.probes));
        }
        let mut accounts: BTreeMap<Payer, u64> = BTreeMap::new();
        for number in 0..self.machines.len() {
            let Some(mut node) = self.machines[number].node.take() else { continue };
            self.tally(&node);
            for cause in flame_active_link::Cause::ALL {
                *self.counts.links.entry(*cause).or_default() += node.links().counts().of(*cause);
            }
            for (payer, account) in node.accounts() {
                *accounts.entry(*payer).or_default() += account.bytes;
            }
        }
        let ledger = self.ledger.borrow();
        if self.counts.crashes == 0 {
            for (payer, spent) in &ledger.spent {
                let stated = accounts.get(payer).copied().unwrap_or_default();
                if spent.bytes != u128::from(stated) && self.setup.villain.is_none() {
                    return Err(format!("{payer:?} spent {} bytes, accounts state {stated}", spent.bytes));
                }
            }
        }
        self.counts.evaluations = ledger.evaluations;
        self.counts.spent = ledger.spent.values().map(|sum| sum.bytes).sum();
        drop(ledger);
        Ok(self.counts)
    }
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            bytes: self.bytes + other.bytes,
            copies: self.copies + other.copies,
        }
    }
}

/// Returns the neighbour on a shortest way to each other machine.
fn ways(from: usize, count: usize, edges: &BTreeSet<(usize, usize)>) -> BTreeMap<Place, Place> {
    let place = |n: usize| Place(n as u64 + 1);
    let next = |n: usize| {
        edges.iter().filter_map(move |(a, b)| match n {
            n if n == *a => Some(*b),
            n if n == *b => Some(*a),
            _ => None,
        })
    };
    let mut ways: BTreeMap<Place, Place> = next(from).map(|n| (place(n), place(n))).collect();
    for _ in 0..count {
        for n in 0..count {
            let Some(way) = ways.get(&place(n)).copied() else { continue };
            for further in next(n).filter(|further| *further != from) {
                ways.entry(place(further)).or_insert(way);
            }
        }
    }
    ways
}
