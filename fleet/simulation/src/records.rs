//! Records on their way: spools, a server that may lose its disk, two writers, and an archive.

mod writers;

use crate::broken::Broken;
use crate::queue::Queue;
use crate::spool::Spool;
use flame_fleet_protocol::{Forked, Loss, Mark, Message, Progress, Publisher, Subject, Writer};
use flame_spool::{Epoch, Frame, Kept, Position, Stamp};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A run of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub nodes: usize,
    /// The milliseconds with faults. Then all heals, and the run ends when nothing is left to do.
    pub until: u64,
    /// The mean milliseconds between two batches of a node.
    pub pace: u64,
    /// Whether nodes are restored together with their memory, after which the loss is only bounded.
    pub memories: bool,
    pub broken: Option<Broken>,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub batches: u64,
    pub archived: u64,
    pub lost_batches: u64,
    pub repeated: u64,
    pub early: u64,
    pub forked: u64,
    pub conflicts: u64,
    /// Changes without batches.
    pub merged: u64,
    pub restored: u64,
    pub wiped: u64,
    pub refused: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Append(usize),
    Sync(usize),
    Crash(usize),
    Start(usize),
    Backup(usize),
    Restore(usize),
    Connect(usize),
    Disconnect(usize),
    Retry(usize, u64),
    Watch(usize),
    /// A request of a node on a connection, to the server of a generation.
    ToServer {
        node: usize,
        link: u64,
        generation: u64,
        request: Request,
    },
    ToNode {
        node: usize,
        link: u64,
        reply: Reply,
    },
    ServerEnds,
    ServerBegins {
        wiped: bool,
    },
    Writer(usize, u64, Step),
    WriterEnds(usize),
}

#[derive(Clone, Debug)]
enum Request {
    Ask,
    /// A mark may have been lost.
    Watch,
    Publish(Position, Vec<u8>),
}

#[derive(Clone, Debug)]
enum Reply {
    Answer { last: Option<Stamp>, mark: Option<Mark> },
    Accepted(Position),
    Refused(Position),
    Mark(Mark),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pull,
    Commit,
    Publish,
    Trim,
}

/// One node with one table.
struct Node {
    subject: Subject,
    /// The file as the processes of the node see it, and as it is on the disk.
    spool: Spool,
    disk: Spool,
    publisher: Publisher,
    backup: Option<(Spool, Spool, Publisher)>,
    is_up: bool,
    /// The number of the present connection.
    link: Option<u64>,
    /// The batches since its memory was restored, until the fork is found. If the node starts again before
    /// that, they look like the beginning of the epoch that others know (the one known weakness).
    unsure: Option<Vec<u64>>,
    was_restored: bool,
}

struct Server {
    is_up: bool,
    /// Grows whenever the server ends.
    generation: u64,
    first: u64,
    stream: VecDeque<(usize, Vec<u8>)>,
    last: HashMap<usize, (u64, Stamp)>,
    marks: HashMap<usize, Mark>,
    capacity: usize,
}

/// One of two processes that write the archive.
#[derive(Default)]
struct Process {
    /// Grows with each start.
    run: u64,
    generation: u64,
    writer: Writer,
    cursor: u64,
    taken: Vec<(usize, Position, u64, u64)>,
    publish: Vec<Subject>,
}

#[derive(Default)]
struct Store {
    version: u64,
    subjects: BTreeMap<Subject, Progress>,
    /// The rows of each archived batch by its identity.
    archived: HashMap<u64, u64>,
    newest: HashMap<usize, u64>,
    losses: Vec<(Subject, Loss)>,
}

struct World {
    setup: Setup,
    queue: Queue<Event>,
    nodes: Vec<Node>,
    names: HashMap<Subject, usize>,
    server: Server,
    processes: Vec<Process>,
    store: Store,
    /// The rows of each batch.
    rows: Vec<u64>,
    links: u64,
    counts: Counts,
    /// Identities that were dropped or given up in any copy of a spool.
    dropped: HashSet<u64>,
    given_up: HashSet<u64>,
    is_healing: bool,
}

/// Runs a seed.
///
/// # Errors
///
/// Returns the property that does not hold, with the time.
pub fn run(seed: u64, setup: &Setup) -> Result<Counts, String> {
    let mut world = World::new(seed, *setup);
    let result = world.run();
    match result {
        Ok(()) => Ok(world.counts),
        Err(reason) => Err(format!("seed {seed}, at {} ms: {reason}", world.queue.now())),
    }
}

impl World {
    fn new(seed: u64, setup: Setup) -> Self {
        let mut queue = Queue::new(seed);
        let mut nodes = Vec::new();
        for n in 0..setup.nodes {
            let subject = Subject::new(&format!("node {n}"), "alice", "flow", "flows").expect("short names");
            let mut spool = Spool::new(queue.rng.usize(3..16));
            spool.open(Epoch(queue.rng.u64(..)));
            nodes.push(Node {
                subject,
                disk: spool.clone(),
                spool,
                publisher: Publisher::new(queue.rng.usize(1..6)),
                backup: None,
                is_up: true,
                link: None,
                unsure: None,
                was_restored: false,
            });
            let delay = queue.rng.u64(..setup.pace);
            queue.push(delay, Event::Append(n));
            let delay = queue.rng.u64(..20);
            queue.push(delay, Event::Connect(n));
            queue.push(1000 + delay, Event::Watch(n));
        }
        let names = nodes.iter().enumerate().map(|(n, node)| (node.subject.clone(), n)).collect();
        let capacity = setup.nodes * queue.rng.usize(1..8) + 2;
        let server = Server {
            is_up: true,
            generation: 1,
            first: 1,
            stream: VecDeque::new(),
            last: HashMap::new(),
            marks: HashMap::new(),
            capacity,
        };
        let mut world = Self {
            setup,
            queue,
            nodes,
            names,
            server,
            processes: vec![Process::default(), Process::default()],
            store: Store::default(),
            rows: Vec::new(),
            links: 0,
            counts: Counts::default(),
            dropped: HashSet::new(),
            given_up: HashSet::new(),
            is_healing: false,
        };
        world.begin_writer(0);
        // Faults, about as often in small fleets as in large ones for each node.
        let span = setup.until;
        for n in 0..setup.nodes {
            for _ in 0..world.queue.rng.usize(..4) {
                let at = world.queue.rng.u64(..span);
                let event = match world.queue.rng.u8(..8) {
                    0..=2 => Event::Crash(n),
                    3 if seed % 2 == 1 => Event::Backup(n),
                    _ => Event::Disconnect(n),
                };
                world.queue.push(at, event);
            }
        }
        for _ in 0..world.queue.rng.usize(..4) {
            let at = world.queue.rng.u64(..span);
            world.queue.push(at, Event::ServerEnds);
        }
        for _ in 0..world.queue.rng.usize(..6) {
            let (at, which) = (world.queue.rng.u64(..span), world.queue.rng.usize(..2));
            world.queue.push(at, Event::WriterEnds(which));
        }
        world
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.queue.pop() {
            self.counts.events += 1;
            if !self.is_healing && self.queue.now() >= self.setup.until {
                self.heal();
            }
            if self.queue.now() > self.setup.until + 60_000 {
                break;
            }
            self.handle(event)?;
            if self.is_healing && self.counts.events.is_multiple_of(64) && self.is_quiet() {
                break;
            }
        }
        self.check_end()
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.is_healing = true;
        if !self.server.is_up {
            self.queue.push(1, Event::ServerBegins { wiped: false });
        }
        for n in 0..self.nodes.len() {
            if !self.nodes[n].is_up {
                self.queue.push(1, Event::Start(n));
            }
            self.queue.push(2, Event::Sync(n));
        }
        if self.processes.iter().all(|process| process.run == 0) {
            self.begin_writer(0);
        }
    }

    fn is_quiet(&self) -> bool {
        let is_sent = |node: &Node| node.is_up && node.spool.first(None).is_none();
        self.server.is_up && self.server.stream.is_empty() && self.nodes.iter().all(is_sent)
    }

    fn is_broken(&self, broken: Broken) -> bool {
        self.setup.broken == Some(broken)
    }

    fn delay(&mut self) -> u64 {
        // Now and then a message is late enough to be passed by others.
        let span = if self.queue.once_in(20) { 400 } else { 15 };
        1 + self.queue.rng.u64(..span)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Append(n) => self.append(n),
            Event::Sync(n) => self.sync(n),
            Event::Crash(n) => self.crash(n),
            Event::Start(n) => self.start(n),
            Event::Backup(n) => {
                let node = &mut self.nodes[n];
                node.backup = Some((node.disk.clone(), node.spool.clone(), node.publisher.clone()));
                let delay = self.queue.rng.u64(..self.setup.until / 2);
                self.queue.push(delay, Event::Restore(n));
            }
            Event::Restore(n) => self.restore(n),
            Event::Connect(n) => self.connect(n),
            Event::Disconnect(n) => self.disconnect(n),
            Event::Retry(n, link) if self.nodes[n].link == Some(link) => {
                self.nodes[n].publisher.retry();
                self.send(n);
            }
            Event::Retry(..) => {}
            Event::Watch(n) => {
                self.request(n, Request::Watch);
                self.queue.push(1000, Event::Watch(n));
            }
            Event::ToServer { node, link, generation, request } => {
                self.serve(node, link, generation, request);
            }
            Event::ToNode { node, link, reply } if self.nodes[node].link == Some(link) => {
                return self.answer(node, reply);
            }
            Event::ToNode { .. } => {}
            Event::ServerEnds => self.end_server(),
            Event::ServerBegins { wiped } => self.begin_server(wiped),
            Event::Writer(which, run, step) if self.processes[which].run == run => {
                return self.write(which, step);
            }
            Event::Writer(..) => {}
            Event::WriterEnds(which) => {
                // Sometimes both run for a while.
                self.begin_writer(1 - which);
                if !self.queue.once_in(3) && !self.is_healing {
                    self.processes[which].run = 0;
                }
            }
        }
        Ok(())
    }

    // The node.

    fn append(&mut self, n: usize) {
        let rows = self.queue.rng.u64(1..50);
        if self.nodes[n].is_up && !self.is_healing {
            let (id, time) = (self.rows.len() as u64, self.queue.now());
            self.rows.push(rows);
            self.counts.batches += 1;
            self.nodes[n].spool.append(id, rows, time * 1_000_000);
            self.nodes[n].unsure.iter_mut().for_each(|unsure| unsure.push(id));
            self.note_drops(n);
            let delay = self.queue.rng.u64(..300);
            self.queue.push(delay, Event::Sync(n));
            self.send(n);
        }
        if !self.is_healing {
            let delay = self.queue.rng.u64(..2 * self.setup.pace);
            self.queue.push(delay, Event::Append(n));
        }
    }

    fn note_drops(&mut self, n: usize) {
        let spool = &mut self.nodes[n].spool;
        let dropped = std::mem::take(&mut spool.dropped);
        let given_up = std::mem::take(&mut spool.given_up);
        if self.setup.broken == Some(Broken::DropsAreNotSaid) && !dropped.is_empty() {
            spool.say_that_nothing_was_dropped();
        }
        self.dropped.extend(dropped);
        self.given_up.extend(given_up);
    }

    fn sync(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.is_up {
            node.disk = node.spool.clone();
        }
    }

    fn crash(&mut self, n: usize) {
        if self.nodes[n].is_up && !self.is_healing {
            self.disconnect(n);
            self.nodes[n].is_up = false;
            self.given_up.extend(self.nodes[n].unsure.take().into_iter().flatten());
            let delay = self.queue.rng.u64(..2000);
            self.queue.push(delay, Event::Start(n));
        }
    }

    fn start(&mut self, n: usize) {
        let epoch = Epoch(self.queue.rng.u64(..));
        let is_broken = self.is_broken(Broken::AnOpeningContinuesTheEpoch);
        let node = &mut self.nodes[n];
        if node.is_up {
            return;
        }
        node.spool = node.disk.clone();
        match is_broken {
            true => node.spool.reopen_without_an_epoch(epoch),
            false => node.spool.open(epoch),
        }
        node.disk = node.spool.clone();
        node.publisher = Publisher::new(4);
        node.is_up = true;
        self.queue.push(5, Event::Connect(n));
    }

    /// Puts a backup in the place of the disk, with or without the memory of that time.
    fn restore(&mut self, n: usize) {
        let with_memory = self.setup.memories && self.queue.rng.bool();
        let Some((disk, spool, publisher)) = self.nodes[n].backup.clone().filter(|_| !self.is_healing) else {
            return;
        };
        self.counts.restored += 1;
        self.disconnect(n);
        let node = &mut self.nodes[n];
        node.was_restored = true;
        if with_memory {
            (node.disk, node.spool, node.publisher, node.is_up) = (disk, spool, publisher, true);
            node.publisher.disconnected();
            node.unsure = Some(Vec::new());
            self.queue.push(30, Event::Connect(n));
        } else {
            (node.disk, node.is_up) = (disk, false);
            self.queue.push(30, Event::Start(n));
        }
    }

    fn connect(&mut self, n: usize) {
        if !self.nodes[n].is_up || self.nodes[n].link.is_some() {
            return;
        }
        if !self.server.is_up {
            let delay = 50 + self.queue.rng.u64(..200);
            self.queue.push(delay, Event::Connect(n));
            return;
        }
        self.links += 1;
        self.nodes[n].link = Some(self.links);
        self.nodes[n].publisher.connected();
        self.ask(n);
    }

    fn ask(&mut self, n: usize) {
        self.request(n, Request::Ask);
    }

    fn request(&mut self, n: usize, request: Request) {
        let (Some(link), generation) = (self.nodes[n].link, self.server.generation) else { return };
        let delay = self.delay();
        if self.queue.once_in(30) {
            let (later, request) = (delay + self.delay(), request.clone());
            self.queue.push(later, Event::ToServer { node: n, link, generation, request });
        }
        self.queue.push(delay, Event::ToServer { node: n, link, generation, request });
    }

    fn disconnect(&mut self, n: usize) {
        if self.nodes[n].link.take().is_some() {
            self.nodes[n].publisher.disconnected();
            let delay = 20 + self.queue.rng.u64(..500);
            self.queue.push(delay, Event::Connect(n));
        }
    }

    /// Sends what the publisher wants to send.
    fn send(&mut self, n: usize) {
        if self.nodes[n].link.is_none() {
            return;
        }
        // The reader syncs each batch before it is sent.
        if !self.is_broken(Broken::WhatIsNotSyncedIsSent) {
            self.sync(n);
        }
        loop {
            let node = &mut self.nodes[n];
            let Some(position) = node.publisher.next(&node.spool) else { return };
            let Some((ranges, header, id)) = node.spool.read(position) else { return };
            let (body, mut bytes) = (id.to_le_bytes(), Vec::new());
            Message { ranges, frame: Frame { header, body: &body } }.write(&mut bytes);
            self.request(n, Request::Publish(position, bytes));
        }
    }

    fn answer(&mut self, n: usize, reply: Reply) -> Result<(), String> {
        let broken = self.setup.broken;
        let node = &mut self.nodes[n];
        let outcome = match reply {
            Reply::Answer { last, mark } => node.publisher.answered(&node.spool, last, mark.as_ref()),
            Reply::Accepted(position) => {
                node.publisher.accepted(position);
                let hash = node.spool.hash(position).unwrap_or_default();
                let is_broken = broken == Some(Broken::TheLogsWordCuts);
                Ok(is_broken.then_some(Stamp { position, hash }))
            }
            Reply::Refused(position) => {
                match broken {
                    Some(Broken::ARefusalIsPassedOver) => node.publisher.accepted(position),
                    _ => node.publisher.refused(position),
                }
                if let (true, Some(link)) = (node.publisher.is_held(), node.link) {
                    self.queue.push(100, Event::Retry(n, link));
                }
                Ok(None)
            }
            Reply::Mark(mark) => node.publisher.archived(&node.spool, &mark),
        };
        match outcome {
            Ok(Some(stamp)) => self.cut(n, &stamp)?,
            Ok(None) => {}
            Err(Forked { common }) => {
                self.counts.forked += 1;
                let epoch = Epoch(self.queue.rng.u64(..));
                let node = &mut self.nodes[n];
                node.spool.fork(common, epoch);
                node.unsure = None;
                node.disk = node.spool.clone();
                node.publisher.connected();
                self.note_drops(n);
                self.ask(n);
            }
        }
        self.send(n);
        Ok(())
    }

    /// Cuts the spool, of which all must be archived, or counted.
    fn cut(&mut self, n: usize, stamp: &Stamp) -> Result<(), String> {
        let node = &mut self.nodes[n];
        let removed = node.spool.cut(stamp);
        node.disk.cut(stamp);
        for id in removed {
            let is_told = self.store.archived.contains_key(&id) || self.dropped.contains(&id);
            let is_given_up = self.setup.memories && self.given_up.contains(&id);
            if !is_told && !is_given_up {
                return Err(format!("node {n}: batch {id} was cut at {}, not archived", stamp.position));
            }
        }
        Ok(())
    }

    // The server.

    fn serve(&mut self, n: usize, link: u64, generation: u64, request: Request) {
        if !self.server.is_up || self.server.generation != generation {
            return;
        }
        let server = &mut self.server;
        let reply = match request {
            Request::Ask => {
                let last = server.last.get(&n).filter(|(at, _)| *at >= server.first);
                let (last, mark) = (last.map(|(_, stamp)| *stamp), server.marks.get(&n).copied());
                Reply::Answer { last, mark }
            }
            Request::Watch => Reply::Mark(server.marks.get(&n).copied().unwrap_or_default()),
            // What was on its way on an old connection may still come.
            Request::Publish(position, _) if server.stream.len() >= server.capacity => {
                self.counts.refused += 1;
                Reply::Refused(position)
            }
            Request::Publish(position, bytes) => {
                let stamp = Message::read(&bytes).expect("own bytes").frame.header.stamp();
                server.stream.push_back((n, bytes));
                server.last.insert(n, (server.first + server.stream.len() as u64 - 1, stamp));
                Reply::Accepted(position)
            }
        };
        let delay = self.delay();
        self.queue.push(delay, Event::ToNode { node: n, link, reply });
    }

    fn end_server(&mut self) {
        if self.server.is_up && !self.is_healing {
            self.server.is_up = false;
            self.server.generation += 1;
            for n in 0..self.nodes.len() {
                self.disconnect(n);
            }
            let (delay, wiped) = (self.queue.rng.u64(..1500), self.queue.rng.bool());
            self.queue.push(delay, Event::ServerBegins { wiped });
        }
    }

    fn begin_server(&mut self, wiped: bool) {
        if self.server.is_up {
            return;
        }
        self.server.is_up = true;
        if wiped {
            self.counts.wiped += 1;
            self.server.first = 1;
            self.server.stream.clear();
            self.server.last.clear();
            self.server.marks.clear();
        }
    }
}
