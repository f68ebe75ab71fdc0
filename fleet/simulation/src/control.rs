//! Intents on their way: a fleet that signs, nodes that decide, and a server that holds back and replays.

use crate::broken::Broken;
use crate::queue::Queue;
use flame_fleet_protocol::rollout::{Outcome, Plan, Progress, Rollout, order};
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::{
    Action, Age, Agent, Alone, Beacon, Clock, Condition, Delegated, Delegation, Ed25519, Intent, Key, Label,
    Labels, Member, Revocations, Secret, Statement, Stored, Verify,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The time at which a run begins, in seconds since 1970.
const BASE: u64 = 1_800_000_000;
/// What clocks of seconds and a step of a node add to each limit, in milliseconds.
const SLACK: u64 = 2600;
/// The milliseconds after the faults in which all must be as the fleet wishes.
const CALM: u64 = 40_000;
/// The share of a wave in thousandths that may fail.
const FAILURES: u32 = 250;
const TARGETS: [&str; 2] = ["a", "b"];

/// A run of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub nodes: usize,
    /// The milliseconds with faults.
    pub until: u64,
    pub broken: Option<Broken>,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub rollouts: u64,
    pub halted: u64,
    pub revoked: u64,
    pub rotated: u64,
    pub accepted: u64,
    pub refused: u64,
    pub starts: u64,
    /// Times that a node stopped a module without contact.
    pub leases: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Fleet,
    Install,
    Revoke,
    Rotate,
    /// A statement reaches a node: its number among all that were signed.
    Hear(usize, usize),
    /// A number that a node asks with reaches the fleet.
    Ask(u64),
    Report(usize, String, u64, Outcome),
    Tick(usize),
    Crash(usize),
    Start(usize),
    Part(usize),
    Join(usize),
    SetClock(usize),
    Replay,
}

struct Node {
    member: Member,
    disk: Stored,
    agent: Agent,
    is_up: bool,
    is_joined: bool,
    /// The difference of the machine's clock in seconds.
    skew: i64,
    /// When the machine started.
    boot: u64,
    running: BTreeMap<String, Intent>,
    /// When the newest beacon was signed that the node has stored, and since its start.
    heard: Option<u64>,
    contact: Option<u64>,
    /// The latest intent that it acted on.
    acted: BTreeMap<String, Age>,
}

/// A statement that was signed, by the fleet or by others.
struct Signed {
    at: u64,
    bytes: Vec<u8>,
    statement: Statement,
}

/// What the fleet wishes of a target: the latest intent of each rollout that nodes may still follow.
#[derive(Default)]
struct Wish {
    intents: Vec<Intent>,
    rollout: Option<Rollout>,
    /// The number of each in `intents` among the statements.
    signed: Vec<usize>,
}

struct World {
    setup: Setup,
    queue: Queue<Event>,
    nodes: Vec<Node>,
    number: u64,
    key: Secret,
    delegated: Delegated,
    list: Revocations,
    list_signed: usize,
    asked: Vec<u64>,
    wishes: BTreeMap<&'static str, Wish>,
    statements: Vec<Signed>,
    /// When a module was revoked, or came from a key that was lost.
    revoked: HashMap<String, u64>,
    /// The rollout of each module that fails everywhere, with the nodes that ran it.
    bad: BTreeMap<String, (u64, Vec<usize>, BTreeSet<usize>)>,
    modules: u64,
    rollouts: u64,
    seen: Memory,
    counts: Counts,
}

/// Remembers which signatures are valid.
#[derive(Default)]
struct Memory {
    known: RefCell<HashMap<u64, bool>>,
    trusts_all: bool,
}

impl Verify for Memory {
    fn verifies(&self, key: &Key, purpose: &str, message: &[u8], signature: &[u8; 64]) -> bool {
        let mut hasher = DefaultHasher::new();
        (key, purpose, message, signature).hash(&mut hasher);
        let check = || Ed25519.verifies(key, purpose, message, signature);
        self.trusts_all || *self.known.borrow_mut().entry(hasher.finish()).or_insert_with(check)
    }
}

/// Runs a seed.
///
/// # Errors
///
/// Returns the property that does not hold, with the time.
pub fn run(seed: u64, setup: &Setup) -> Result<Counts, String> {
    let mut world = World::new(seed, *setup);
    match world.run() {
        Ok(()) => Ok(world.counts),
        Err(reason) => Err(format!("seed {seed}, at {} ms: {reason}", world.queue.now())),
    }
}

fn secret(n: u64) -> Secret {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&n.to_le_bytes());
    Secret::new(&seed)
}

/// Signs a delegation of the fleet's key with a number.
fn delegate(number: u64) -> (Secret, Delegated) {
    let key = secret(number + 1);
    let hex = hex(&key.public().0);
    let delegation = Delegation { fleet: "f".to_owned(), key: hex, number, expires: BASE + 100_000 };
    (key, secret(0).delegate(&delegation))
}

/// Returns whether the policy of a node forbids a module.
fn refuses(node: usize, module: &str) -> bool {
    (module.bytes().map(usize::from).sum::<usize>() + node).is_multiple_of(7)
}

fn module(intent: &Intent) -> Option<&str> {
    match &intent.action {
        Action::Run { module, .. } => Some(module),
        Action::Stop => None,
    }
}

impl World {
    fn new(seed: u64, setup: Setup) -> Self {
        let mut queue = Queue::new(seed);
        let mut nodes = Vec::new();
        for n in 0..setup.nodes {
            let site = Label::Text(if n % 3 == 0 { "penn" } else { "mit" }.to_owned());
            let labels: Labels =
                [("site".to_owned(), site), ("speed".to_owned(), Label::Number(n as u64 % 5))].into();
            let alone = if n % 4 == 3 { Alone::Keep } else { Alone::Stop };
            let root = secret(0).public();
            let member = Member { node: format!("n{n}"), fleet: "f".to_owned(), root, labels, alone };
            let clock = Clock { wall: BASE, steady: 0 };
            nodes.push(Node {
                agent: Agent::new(member.clone(), Stored::default(), queue.rng.u64(..), clock),
                member,
                disk: Stored::default(),
                is_up: true,
                is_joined: true,
                skew: 0,
                boot: 0,
                running: BTreeMap::new(),
                heard: None,
                contact: None,
                acted: BTreeMap::new(),
            });
            let delay = queue.rng.u64(..1000);
            queue.push(delay, Event::Tick(n));
            for _ in 0..queue.rng.usize(..4) {
                let at = queue.rng.u64(..setup.until);
                let event = match queue.rng.u8(..4) {
                    0 => Event::Crash(n),
                    1 => Event::SetClock(n),
                    _ => Event::Part(n),
                };
                queue.push(at, event);
            }
        }
        for _ in 0..queue.rng.usize(2..8) {
            let at = queue.rng.u64(..setup.until);
            queue.push(at, Event::Install);
        }
        for _ in 0..queue.rng.usize(..4) {
            let at = queue.rng.u64(..setup.until);
            queue.push(at, Event::Revoke);
        }
        if queue.rng.bool() {
            let at = queue.rng.u64(..setup.until);
            queue.push(at, Event::Rotate);
        }
        queue.push(0, Event::Fleet);
        queue.push(500, Event::Replay);
        let (key, delegated) = delegate(1);
        let trusts_all = setup.broken == Some(Broken::SignaturesAreNotVerified);
        let mut world = Self {
            setup,
            queue,
            nodes,
            number: 1,
            key,
            delegated,
            list: Revocations::default(),
            list_signed: 0,
            asked: Vec::new(),
            wishes: TARGETS.map(|target| (target, Wish::default())).into(),
            statements: Vec::new(),
            revoked: HashMap::new(),
            bad: BTreeMap::new(),
            modules: 0,
            rollouts: 0,
            seen: Memory { trusts_all, ..Memory::default() },
            counts: Counts::default(),
        };
        world.state_list();
        world
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.queue.pop() {
            self.counts.events += 1;
            if self.queue.now() > self.setup.until + CALM {
                break;
            }
            self.handle(event)?;
        }
        self.check_end()
    }

    fn is_calm(&self) -> bool {
        self.queue.now() >= self.setup.until
    }

    fn is_broken(&self, broken: Broken) -> bool {
        self.setup.broken == Some(broken)
    }

    fn clock(&self, n: usize) -> Clock {
        let now = self.queue.now();
        let node = &self.nodes[n];
        let skew = if self.is_calm() { 0 } else { node.skew };
        Clock {
            wall: (BASE + now / 1000).saturating_add_signed(skew),
            steady: now.saturating_sub(node.boot) / 1000,
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Fleet => self.lead(),
            Event::Install => self.install(),
            Event::Revoke => self.revoke(),
            Event::Rotate => self.rotate(),
            Event::Ask(number) => self.asked.push(number),
            Event::Report(n, target, rollout, outcome) => {
                let outcome = match outcome {
                    Outcome::Failed(_) if self.is_broken(Broken::FailuresAreNotCounted) => Outcome::Running,
                    outcome => outcome,
                };
                let name = &self.nodes[n].member.node;
                let rollouts = self.wishes.get_mut(target.as_str()).and_then(|wish| wish.rollout.as_mut());
                rollouts.into_iter().for_each(|r| r.reported(rollout, name, outcome.clone()));
            }
            Event::Hear(n, statement) => return self.hear(n, statement),
            Event::Tick(n) => return self.tick(n),
            Event::Crash(n) => self.crash(n),
            Event::Start(n) => self.start(n),
            Event::Part(n) => {
                self.nodes[n].is_joined = false;
                let delay = self.queue.rng.u64(..25_000);
                self.queue.push(delay, Event::Join(n));
            }
            Event::Join(n) => {
                self.nodes[n].is_joined = true;
                let (random, clock) = (self.random(), self.clock(n));
                self.nodes[n].agent.ask(random, clock);
                self.tell_all(n);
            }
            Event::SetClock(n) => self.nodes[n].skew = self.queue.rng.i64(-50_000..40),
            Event::Replay => self.replay(),
        }
        Ok(())
    }

    fn random(&mut self) -> u64 {
        match self.is_broken(Broken::NodesAskWithTheSameNumber) {
            true => 5,
            false => self.queue.rng.u64(..),
        }
    }

    // The fleet.

    fn state(&mut self, statement: Statement) -> usize {
        let bytes = self.key.state(&self.delegated, &statement);
        self.statements.push(Signed { at: self.queue.now(), bytes, statement });
        self.statements.len() - 1
    }

    fn state_list(&mut self) {
        self.list.number += 1;
        self.list_signed = self.state(Statement::Revocations(self.list.clone()));
    }

    fn lead(&mut self) {
        let answers = std::mem::take(&mut self.asked);
        let time = BASE + self.queue.now() / 1000;
        let beacon = Beacon { time, revocations: self.list.number, answers };
        let beacon = self.state(Statement::Beacon(beacon));
        for target in TARGETS {
            self.advance(target);
        }
        for n in 0..self.nodes.len() {
            self.send(n, beacon);
            if self.queue.once_in(3) || self.is_calm() {
                self.tell_all(n);
            }
        }
        self.queue.push(1000, Event::Fleet);
    }

    /// Sends the current list and intents to a node.
    fn tell_all(&mut self, n: usize) {
        let intents = self.wishes.values().flat_map(|wish| &wish.signed).copied();
        let all: Vec<_> = [self.list_signed].into_iter().chain(intents).collect();
        all.into_iter().for_each(|statement| self.send(n, statement));
    }

    fn send(&mut self, n: usize, statement: usize) {
        let is_calm = self.is_calm();
        let is_lost = !is_calm && (!self.nodes[n].is_joined || self.queue.once_in(30));
        // The server may hold back a statement, and deliver it late.
        if is_lost && !self.queue.once_in(4) {
            return;
        }
        let delay = match () {
            () if is_lost => self.queue.rng.u64(..30_000),
            () if !is_calm && self.queue.once_in(20) => self.queue.rng.u64(..3000),
            () => 1 + self.queue.rng.u64(..50),
        };
        self.queue.push(delay, Event::Hear(n, statement));
        if !is_calm && self.queue.once_in(30) {
            self.queue.push(2 * delay, Event::Hear(n, statement));
        }
    }

    fn advance(&mut self, target: &'static str) {
        let now = self.queue.now() / 1000;
        let Some(wish) = self.wishes.get_mut(target) else { return };
        let Some(rollout) = &mut wish.rollout else { return };
        let (before, after) = (rollout.reach(), rollout.poll(now));
        let reach = rollout.reach();
        match after {
            Progress::Halted { .. } => {
                self.counts.halted += 1;
                wish.rollout = None;
            }
            Progress::Done => {
                wish.rollout = None;
                wish.intents.drain(..wish.intents.len() - 1);
            }
            Progress::Wave(_) => {}
        }
        if reach != before
            && let Some(last) = wish.intents.last_mut()
        {
            (last.reach, last.counter) = (reach, last.counter + 1);
            self.state_intents(target);
        }
    }

    /// Signs the intents of a target again.
    fn state_intents(&mut self, target: &'static str) {
        let mut intents = self.wishes[target].intents.clone();
        if self.is_broken(Broken::WavesReachAll) {
            intents.iter_mut().for_each(|intent| intent.reach = u64::MAX);
        }
        let signed = intents.into_iter().map(|intent| self.state(Statement::Intent(intent))).collect();
        self.wishes.entry(target).or_default().signed = signed;
    }

    fn install(&mut self) {
        let target = TARGETS[self.queue.rng.usize(..2)];
        (self.modules, self.rollouts) = (self.modules + 1, self.rollouts + 1);
        self.counts.rollouts += 1;
        let (id, name) = (self.rollouts, format!("m{}", self.modules));
        let waves = vec![self.queue.rng.usize(1..4), self.queue.rng.usize(1..6)];
        let all: Vec<String> = self.nodes.iter().map(|node| node.member.node.clone()).collect();
        if self.queue.once_in(3) {
            self.bad.insert(name.clone(), (id, waves.clone(), BTreeSet::new()));
        }
        let plan = Plan { waves, failures: FAILURES, patience: 5 };
        let rollout = Rollout::new(id, all, plan, self.queue.now() / 1000);
        let condition = ["", "site = \"penn\"", "not site = \"penn\" or speed >= 2"];
        let action = match self.queue.once_in(6) {
            true => Action::Stop,
            false => Action::Run { module: name, credential: vec![], parameters: vec![] },
        };
        let life = if self.queue.once_in(3) { 15 } else { 90_000 };
        let intent = Intent {
            target: target.to_owned(),
            counter: 1,
            expires: BASE + self.queue.now() / 1000 + life,
            lease: self.queue.rng.u64(4..10),
            revocations: self.list.number,
            r#where: condition[self.queue.rng.usize(..3)].to_owned(),
            rollout: id,
            reach: rollout.reach(),
            action,
        };
        let wish = self.wishes.entry(target).or_default();
        wish.intents.push(intent);
        wish.rollout = Some(rollout);
        self.state_intents(target);
    }

    fn revoke(&mut self) {
        let installed = self.wishes.values().flat_map(|wish| &wish.intents);
        let modules: Vec<_> = installed.filter_map(module).map(str::to_owned).collect();
        if modules.is_empty() {
            return;
        }
        let module = modules[self.queue.rng.usize(..modules.len())].clone();
        self.counts.revoked += 1;
        self.revoked.entry(module.clone()).or_insert(self.queue.now());
        self.list.revoked.push(module);
        self.state_list();
        (0..self.nodes.len()).for_each(|n| self.send(n, self.list_signed));
    }

    /// The key is lost to others, who sign an intent with it. A new one is delegated.
    fn rotate(&mut self) {
        self.counts.rotated += 1;
        let stolen = self.wishes.values().flat_map(|wish| &wish.intents).next().cloned();
        if let Some(intent) = stolen {
            let action = Action::Run { module: "evil".to_owned(), credential: vec![], parameters: vec![] };
            let most = u64::MAX / 2;
            let (counter, reach) = (most, u64::MAX);
            let evil = Intent { counter, rollout: most, reach, action, r#where: String::new(), ..intent };
            self.revoked.insert("evil".to_owned(), self.queue.now());
            self.state(Statement::Intent(evil));
        }
        self.number += 1;
        (self.key, self.delegated) = delegate(self.number);
        self.list.number = 0;
        let lowest = if self.is_broken(Broken::ALostKeyIsNotEnded) { 0 } else { self.number };
        self.list.delegations = lowest;
        self.state_list();
        for target in TARGETS {
            let intents = self.wishes.get_mut(target).into_iter().flat_map(|wish| &mut wish.intents);
            intents.for_each(|intent| intent.revocations = self.list.number);
            self.state_intents(target);
        }
    }

    /// Sends something that was signed before, or is not signed by the fleet, to some node.
    fn replay(&mut self) {
        if self.is_calm() {
            return;
        }
        for _ in 0..1 + self.nodes.len() / 8 {
            let (n, which) =
                (self.queue.rng.usize(..self.nodes.len()), self.queue.rng.usize(..self.statements.len()));
            // A beacon is more often a late one than not.
            self.queue.push(1, Event::Hear(n, which));
        }
        if self.queue.once_in(10) {
            let (key, _) = delegate(99);
            let action = Action::Run { module: "forged".to_owned(), credential: vec![], parameters: vec![] };
            let (target, most) = (TARGETS[0].to_owned(), u64::MAX / 2);
            let forged = Statement::Intent(Intent {
                target,
                counter: most,
                expires: BASE + 90_000,
                lease: 9000,
                revocations: 0,
                r#where: String::new(),
                rollout: most,
                reach: u64::MAX,
                action,
            });
            let bytes = key.state(&self.delegated, &forged);
            self.revoked.entry("forged".to_owned()).or_insert(0);
            self.statements.push(Signed { at: self.queue.now(), bytes, statement: forged });
        }
        let delay = self.queue.rng.u64(50..500);
        self.queue.push(delay, Event::Replay);
    }

    // The node.

    fn hear(&mut self, n: usize, which: usize) -> Result<(), String> {
        if !self.nodes[n].is_up {
            return Ok(());
        }
        let (clock, broken) = (self.clock(n), self.setup.broken);
        let Signed { at, bytes, statement } = &self.statements[which];
        let (at, is_beacon) = (*at, matches!(statement, Statement::Beacon(_)));
        let node = &mut self.nodes[n];
        match (broken, statement) {
            (Some(Broken::LeasesBeginWithTheArrival), Statement::Beacon(beacon)) => {
                beacon.answers.iter().chain(&[1]).for_each(|answer| node.agent.ask(*answer, clock));
            }
            (Some(Broken::ReplaysAreFollowed), Statement::Intent(intent)) => {
                let mut stored = node.agent.stored().clone();
                stored.targets.remove(&intent.target);
                node.agent = Agent::restored(&node.agent, stored);
            }
            _ => {}
        }
        let outcome = node.agent.receive(bytes, clock, &self.seen);
        if broken == Some(Broken::TheBeaconsListIsNotAwaited) {
            let mut stored = node.agent.stored().clone();
            stored.demanded = Age::default();
            node.agent = Agent::restored(&node.agent, stored);
        }
        match outcome {
            Err(_) => self.counts.refused += 1,
            Ok(()) => {
                self.counts.accepted += 1;
                let acts_first = broken == Some(Broken::WhatIsNotStoredIsActedOn);
                if acts_first {
                    self.act(n)?;
                }
                // It may end before the change is stored, which is then lost.
                if self.queue.once_in(200) && !self.is_calm() {
                    self.crash(n);
                    return Ok(());
                }
                let node = &mut self.nodes[n];
                node.disk = node.agent.stored().clone();
                if is_beacon {
                    node.heard = node.heard.max(Some(at));
                    node.contact = node.contact.max(Some(at));
                }
                return self.act(n);
            }
        }
        Ok(())
    }

    /// Runs what is wanted, stops all else, and checks what holds at all times.
    fn act(&mut self, n: usize) -> Result<(), String> {
        let clock = self.clock(n);
        let node = &mut self.nodes[n];
        let wanted = node.agent.wanted(clock);
        let wanted: BTreeMap<String, Intent> = wanted
            .into_iter()
            .filter(|(_, intent)| module(intent).is_some_and(|module| !refuses(n, module)))
            .map(|(target, intent)| (target.to_owned(), intent.clone()))
            .collect();
        let is_lost = |target: &&String| !wanted.contains_key(*target) && node.contact.is_some();
        let stored = node.agent.stored();
        self.counts.leases += node.running.keys().filter(is_lost).count() as u64;
        node.running = wanted;
        for (target, intent) in &node.running {
            let delegation = stored.targets[target].delegation;
            let age = Age { delegation, rollout: intent.rollout, counter: intent.counter };
            let before = node.acted.insert(target.clone(), age).unwrap_or_default();
            if age < before {
                return Err(format!("node {n} went back from intent {before} to {age}"));
            }
            if let Some((_, _, ran)) = module(intent).and_then(|module| self.bad.get_mut(module)) {
                ran.insert(n);
            }
        }
        self.check(n)
    }

    fn check(&self, n: usize) -> Result<(), String> {
        let (node, now) = (&self.nodes[n], self.queue.now());
        for intent in node.running.values() {
            let name = module(intent).unwrap_or_default();
            let lease = intent.lease * 1000 + SLACK;
            let is_leased = node.contact.is_some_and(|at| now <= at + lease);
            let must_stop = node.member.alone == Alone::Stop;
            if must_stop && !is_leased {
                let contact = node.contact;
                return Err(format!("node {n} runs {name}, with its last contact {contact:?} ms"));
            }
            if let Some(at) = self.revoked.get(name) {
                if node.heard.is_some_and(|heard| heard > *at) {
                    return Err(format!("node {n} runs {name}, and heard of its end at {at} ms"));
                }
                if name == "forged" || must_stop && now > at + lease {
                    return Err(format!("node {n} runs {name}, which ended at {at} ms"));
                }
            }
            let known = if must_stop { now } else { node.heard.unwrap_or(0) };
            if known > (intent.expires - BASE) * 1000 + SLACK {
                return Err(format!("node {n} runs {name}, which expired at {}", intent.expires - BASE));
            }
        }
        Ok(())
    }

    fn tick(&mut self, n: usize) -> Result<(), String> {
        self.queue.push(700, Event::Tick(n));
        if !self.nodes[n].is_up {
            if self.is_calm() {
                self.start(n);
            }
            return Ok(());
        }
        self.act(n)?;
        if !self.nodes[n].is_joined && !self.is_calm() {
            return Ok(());
        }
        let clock = self.clock(n);
        if self.nodes[n].agent.should_ask(clock) {
            let random = self.random();
            self.nodes[n].agent.ask(random, clock);
        }
        let node = &self.nodes[n];
        let mut all: Vec<_> = node.agent.asks().map(Event::Ask).into_iter().collect();
        for (target, intent) in node.agent.wanted(clock) {
            let name = module(intent).unwrap_or_default();
            let outcome = match () {
                () if refuses(n, name) => Outcome::Refused("policy".to_owned()),
                () if self.bad.contains_key(name) => Outcome::Failed("trap".to_owned()),
                () => Outcome::Running,
            };
            all.push(Event::Report(n, target.to_owned(), intent.rollout, outcome));
        }
        for (target, intent) in node.agent.settled(clock) {
            all.push(Event::Report(n, target.to_owned(), intent.rollout, Outcome::Running));
        }
        for event in all {
            if !self.queue.once_in(20) || self.is_calm() {
                let delay = 1 + self.queue.rng.u64(..100);
                self.queue.push(delay, event);
            }
        }
        Ok(())
    }

    fn crash(&mut self, n: usize) {
        if self.nodes[n].is_up && !self.is_calm() {
            self.nodes[n].is_up = false;
            self.nodes[n].running.clear();
            let delay = self.queue.rng.u64(..15_000);
            self.queue.push(delay, Event::Start(n));
        }
    }

    fn start(&mut self, n: usize) {
        if self.nodes[n].is_up {
            return;
        }
        self.counts.starts += 1;
        let (random, now, broken) = (self.random(), self.queue.now(), self.setup.broken);
        self.nodes[n].boot = now;
        let clock = self.clock(n);
        let node = &mut self.nodes[n];
        match broken {
            Some(Broken::TheTimeIsForgotten) => node.disk.time = 0,
            Some(Broken::RevocationsAreForgotten) => node.disk.revocations.revoked.clear(),
            _ => {}
        }
        node.agent = Agent::new(node.member.clone(), node.disk.clone(), random, clock);
        (node.is_up, node.contact) = (true, None);
    }

    // The end.

    fn check_end(&self) -> Result<(), String> {
        for (target, wish) in &self.wishes {
            if wish.rollout.is_some() {
                return Err(format!("the rollout of {target} came to no end"));
            }
            for (n, node) in self.nodes.iter().enumerate() {
                let now = BASE + self.queue.now() / 1000;
                let reaches = |i: &&Intent| order(i.rollout, &node.member.node) <= i.reach;
                let latest = wish.intents.iter().rev().find(reaches);
                let is_wanted = |i: &&Intent| {
                    let name = module(i);
                    let holds = Condition::parse(&i.r#where).is_ok_and(|c| c.holds(&node.member.labels));
                    let may = |name: &str| !refuses(n, name) && !self.revoked.contains_key(name);
                    holds && i.expires > now && name.is_some_and(may)
                };
                let expected = latest.filter(is_wanted).and_then(module);
                let found = node.running.get(*target).and_then(module);
                if expected != found {
                    let followed = node.agent.stored().targets.get(*target).map(|t| &t.intent);
                    let wish = &wish.intents;
                    return Err(format!(
                        "node {n} runs {found:?} as {target}, expected {expected:?}: it follows {followed:?} \
                         of {wish:?}"
                    ));
                }
            }
        }
        self.check_waves()
    }

    /// A wave follows only if few nodes of each one before failed.
    fn check_waves(&self) -> Result<(), String> {
        for (name, (rollout, waves, ran)) in &self.bad {
            let mut nodes: Vec<_> = (0..self.nodes.len()).collect();
            nodes.sort_by_key(|n| order(*rollout, &self.nodes[*n].member.node));
            let (mut rest, mut waves) = (&nodes[..], waves.iter());
            while let Some(size) = waves.next().filter(|size| **size < rest.len()) {
                let (wave, later) = rest.split_at(*size);
                let failed = wave.iter().filter(|n| ran.contains(n)).count();
                let is_followed = later.iter().any(|n| ran.contains(n));
                if is_followed && failed * 1000 > size * FAILURES as usize {
                    return Err(format!("{failed} of {size} nodes failed with {name}, and more followed"));
                }
                rest = later;
            }
        }
        Ok(())
    }
}
