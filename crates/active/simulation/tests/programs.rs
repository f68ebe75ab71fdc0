//! The examples of the language in a network without faults, and the causes that random networks do not meet.

use flame_active_link::{Clock, Limit, Links, Mode, Received, Role, Time};
use flame_active_node::{
    Begin, Cause, Execute, Failure, Map, Node, Output, Ran, Rights, Room, Services, Settings, Terms,
};
use flame_active_simulation::{Authority, Statement, own};
use flame_capsule::{Calls, Capsule, Grant, Host, Key, Limits, Named, Payer, Place, hash_of, name};
use flame_capsule_language::{Ended, Program};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

pub const CLOCK: Clock = Clock { wall: 1_800_000_000_000, steady: 1 };
pub const ALICE: Payer = Payer([1; 16]);
pub const MOST: Limits = Limits { hops: 16, instructions: 1_000_000, bytes: 1_000_000, copies: 1000 };

/// Runs the text of a program by its interpreter.
pub struct Interpreter {
    /// What each run is said to take instead of its steps.
    pub claims: Option<u64>,
}

impl Execute for Interpreter {
    type Code = Program;

    fn compile(&mut self, code: &[u8], _: Payer, _: Rights) -> Option<Result<Program, Failure>> {
        let text = std::str::from_utf8(code).map_err(|_| Failure::NotCompiled);
        Some(text.and_then(|text| Program::read(text).map_err(|_| Failure::NotCompiled)))
    }

    fn run(
        &mut self,
        code: &mut Program,
        function: u8,
        arguments: &[u8],
        limit: u64,
        host: &mut dyn Host,
    ) -> Ran {
        let bound = code.bounds().get(usize::from(function)).map_or(0, |bound| bound.instructions);
        if bound > limit {
            return Ran { instructions: 0, end: Err(Failure::Limit) };
        }
        let end = code.interpret(function.into(), arguments, host);
        let instructions = self.claims.unwrap_or(end.unwrap_or(0).min(limit));
        let end = end.map(|_| ()).map_err(|ended| match ended {
            Ended::NoFunction => Failure::NoFunction,
            _ => Failure::Trapped,
        });
        Ran { instructions, end }
    }
}

/// The modules of a node: queues, and a flow that came over the place before.
struct Modules(Place);

impl Services for Modules {
    fn service(&mut self, _: Payer, service: u64, argument: i64) -> Option<i64> {
        let here = i64::try_from(self.0.0).unwrap();
        match service {
            n if n == name("queue").unwrap() => Some(here * 100 + argument),
            n if n == name("packets").unwrap() => Some(argument * here),
            n if n == name("before").unwrap() => Some(here - 1),
            _ => None,
        }
    }
}

type Nodes = Vec<Node<Authority, Interpreter, Modules>>;

/// Datagrams on their way: from, to, bytes.
#[derive(Default)]
pub struct Wire {
    pub here: Option<SocketAddr>,
    pub datagrams: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub delivered: Vec<(SocketAddr, Vec<i64>)>,
    pub sent: usize,
}

impl Output for Wire {
    fn send(&mut self, to: SocketAddr, datagram: &[u8], account: Option<Payer>) {
        self.datagrams.push_back((self.here.unwrap(), to, datagram.to_vec()));
        self.sent += usize::from(account == Some(ALICE));
    }

    fn deliver(&mut self, payer: Payer, _: Key, _: Place, bytes: &[u8]) {
        assert_eq!(payer, ALICE);
        let numbers = bytes.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
        self.delivered.push((self.here.unwrap(), numbers.collect()));
    }
}

pub fn address(place: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(place).unwrap()], 1))
}

pub fn links(place: u64, role: Role) -> Links<Authority> {
    let authority = Authority { share: MOST, revoked: Rc::default() };
    let place = Place(place);
    let own = own(&Statement { place, payer: ALICE, role, until: u64::MAX }, place, 0);
    let mut rng = fastrand::Rng::with_seed(place.0);
    let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
    Links::new(own, authority, Limit::default(), entropy, Time::begin(0, CLOCK)).unwrap()
}

fn node(
    place: u64,
    neighbours: &[u64],
    ways: &[(u64, u64)],
    claims: Option<u64>,
) -> Node<Authority, Interpreter, Modules> {
    let settings = settings(place, neighbours, ways);
    Node::new(settings, links(place, Role::Node), Interpreter { claims }, Modules(Place(place)))
}

pub fn settings(place: u64, neighbours: &[u64], ways: &[(u64, u64)]) -> Settings {
    let known: Vec<_> = neighbours.iter().map(|n| (Place(*n), address(*n))).collect();
    let ways: BTreeMap<_, _> = ways.iter().map(|(to, via)| (Place(*to), Place(*via))).collect();
    let terms = Terms { rights: Rights::ALL, most: MOST, resolution: 1 };
    Settings {
        here: Place(place),
        map: Map::new(&known, ways),
        accounts: BTreeMap::from([(ALICE, terms)]),
        best_effort: Terms { most: Limits { hops: 2, instructions: 1000, bytes: 1000, copies: 2 }, ..terms },
        strangers: MOST,
        room: Room::default(),
    }
}

/// Delivers all datagrams.
fn settle(nodes: &mut Nodes, wire: &mut Wire) {
    while let Some((from, to, mut bytes)) = wire.datagrams.pop_front() {
        let number = (1..=nodes.len() as u64).find(|n| address(*n) == to);
        let Some(number) = number else { continue };
        wire.here = Some(to);
        nodes[usize::try_from(number).unwrap() - 1].handle(from, &mut bytes, CLOCK, wire);
    }
}

/// Returns a network of a chain of 1, 2 and 3, from which 4 and 5 hang: 1-2-3, 3-4, 3-5.
fn network() -> (Nodes, Wire) {
    let mut nodes = vec![
        node(1, &[2], &[(3, 2), (4, 2), (5, 2)], None),
        node(2, &[1, 3], &[(4, 3), (5, 3)], None),
        node(3, &[2, 4, 5], &[(1, 2)], None),
        node(4, &[3], &[(1, 3), (2, 3), (5, 3)], None),
        node(5, &[3], &[(1, 3), (2, 3), (4, 3)], None),
    ];
    let mut wire = Wire::default();
    for (number, node) in nodes.iter_mut().enumerate() {
        wire.here = Some(address(number as u64 + 1));
        node.connect(CLOCK, &mut wire);
    }
    settle(&mut nodes, &mut wire);
    (nodes, wire)
}

/// Begins a program at a node, and returns what was delivered where, and the number of datagrams.
fn run(at: u64, text: &str, function: u8, arguments: &[i64]) -> (Vec<(u64, Vec<i64>)>, usize) {
    let (mut nodes, mut wire) = network();
    let arguments: Vec<u8> = arguments.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (key, code) = (Key::default(), text.as_bytes());
    let begin = Begin { payer: ALICE, key, code, function, arguments: &arguments, limits: MOST };
    wire.here = Some(address(at));
    nodes[usize::try_from(at).unwrap() - 1].begin(begin, CLOCK, &mut wire);
    settle(&mut nodes, &mut wire);
    let place = |of: SocketAddr| (1..=5).find(|n| address(*n) == of).unwrap();
    let sent = wire.sent;
    (wire.delivered.into_iter().map(|(at, numbers)| (place(at), numbers)).collect(), sent)
}

#[test]
fn a_ping_comes_back() {
    let (delivered, sent) = run(1, include_str!("../../language/programs/ping.capsule"), 0, &[5]);
    assert_eq!(delivered, [(1, vec![0])]);
    // Three hops there and back, and three questions for code with their answers.
    assert_eq!(sent, 6 + 6);
}

#[test]
fn a_trace_names_each_node() {
    let (mut delivered, _) = run(1, include_str!("../../language/programs/trace.capsule"), 1, &[4]);
    delivered.sort();
    let found = |place: i64, left: i64| (1, vec![place, left]);
    assert_eq!(delivered, [found(2, 15), found(3, 14), found(4, 13)]);
}

#[test]
fn a_multicast_divides_where_ways_part() {
    let text = include_str!("../../language/programs/multicast.capsule");
    let (mut delivered, sent) = run(1, text, 0, &[3, 2, 4, 5, 77]);
    delivered.sort();
    assert_eq!(delivered, [(2, vec![77]), (4, vec![77]), (5, vec![77])]);
    // A copy on each of four links, with a question and an answer.
    assert_eq!(sent, 4 * 3);
}

#[test]
fn a_probe_collects_queues() {
    let text = include_str!("../../language/programs/probe.capsule");
    let (delivered, _) = run(1, text, 1, &[5, 0]);
    assert_eq!(delivered, [(1, vec![4, 102, 203, 305, 500])]);
}

#[test]
fn a_query_follows_a_flow() {
    let (delivered, _) = run(4, include_str!("../../language/programs/upstream.capsule"), 1, &[9]);
    // From 4 to the neighbours before it, until the first.
    assert_eq!(delivered, [(4, vec![1, 9])]);
}

/// A host that speaks to a node.
fn host(role: Role, claims: Option<u64>) -> (Node<Authority, Interpreter, Modules>, Links<Authority>, Wire) {
    let mut node = node(1, &[2], &[], claims);
    let mut host = links(2, role);
    let mut wire = Wire { here: Some(address(1)), ..Wire::default() };
    let mut next = host.connect(address(1), CLOCK).unwrap().unwrap();
    for _ in 0..2 {
        node.handle(address(2), &mut next, CLOCK, &mut wire);
        let (_, _, mut answer) = wire.datagrams.pop_front().unwrap();
        match host.receive(address(1), &mut answer, CLOCK).unwrap() {
            Received::Begun(bytes) => next = bytes,
            other => assert!(matches!(other, Received::Nothing)),
        }
    }
    (node, host, wire)
}

/// Sends a body, and returns how often the node met a cause by it.
fn met(role: Role, claims: Option<u64>, body: &[u8], cause: Cause) -> u64 {
    let (mut node, mut host, mut wire) = host(role, claims);
    let mut packet = Vec::new();
    host.seal(address(1), Mode::Authenticated, body, CLOCK, &mut packet).unwrap();
    node.handle(address(2), &mut packet, CLOCK, &mut wire);
    assert!(wire.delivered.is_empty());
    node.counts().of(cause)
}

#[test]
fn wrong_capsules_are_refused_by_cause() {
    let body = |payer: Payer, function: u8, code: &[u8]| {
        let hash = hash_of(code);
        let (origin, place, key, code) = (Place(9), Place::NOWHERE, Key::default(), Some(code));
        let grant = Grant::ALL;
        let capsule =
            Capsule { function, limits: MOST, origin, place, payer, key, hash, grant, arguments: &[], code };
        let mut bytes = Vec::new();
        capsule.write(&mut bytes);
        bytes
    };
    let good = b"fun f() = deliver(1)";
    let other = Payer([2; 16]);
    assert_eq!(met(Role::Host, None, &body(other, 0, good), Cause::ForeignPayer), 1);
    assert_eq!(met(Role::Node, None, &body(ALICE, 0, b"fun f("), Cause::NotCompiled), 1);
    assert_eq!(met(Role::Node, None, &body(ALICE, 1, good), Cause::NoFunction), 1);
    assert_eq!(met(Role::Node, None, &body(ALICE, 0, b"fun f() = deliver(1 / 0)"), Cause::Trapped), 1);
    assert_eq!(met(Role::Node, None, &body(ALICE, 0, good)[1..], Cause::Malformed), 1);
    // A sandbox that ran over its limit is an error of the node: nothing of the capsule goes further.
    assert_eq!(met(Role::Node, Some(u64::MAX), &body(ALICE, 0, good), Cause::Overrun), 1);
    // A principal without an account has what strangers have.
    let long = b"fun f() = fold x in [1] at most 32 with n = 0 do n + x / hops() end; skip";
    assert_eq!(met(Role::Node, None, &body(other, 0, long), Cause::NotCompiled), 1);
    let long = b"fun f() = deliver(fold x in [1] at most 32 with n = 0 do n + x / hops() end)";
    assert_eq!(met(Role::Node, None, &body(other, 0, long), Cause::Exhausted), 1);
}

/// Sends programs under grants to a node, each with the milliseconds since the first, and returns how often
/// the node met a cause by them.
fn met_under(of: &[(Grant, &str, u64)], cause: Cause) -> u64 {
    let (mut node, mut host, mut wire) = host(Role::Host, None);
    for (grant, text, ms) in of {
        let code = text.as_bytes();
        let (mut body, mut packet) = (Vec::new(), Vec::new());
        let capsule = Capsule {
            function: 0,
            limits: Limits { instructions: 1000, bytes: 1000, copies: 10, ..MOST },
            origin: Place(9),
            place: Place::NOWHERE,
            payer: ALICE,
            key: Key::default(),
            hash: hash_of(code),
            grant: *grant,
            arguments: &[],
            code: Some(code),
        };
        capsule.write(&mut body);
        let clock = Clock { wall: CLOCK.wall + ms, steady: CLOCK.steady + ms };
        host.seal(address(1), Mode::Authenticated, &body, clock, &mut packet).unwrap();
        node.handle(address(2), &mut packet, clock, &mut wire);
    }
    node.counts().of(cause)
}

#[test]
fn a_grant_takes_away() {
    let all = Grant::ALL;
    let some = |number: u64| Named::some([number]).unwrap();
    let service = Grant { services: some(name("queue").unwrap()), ..all };
    let (ask, other) =
        ("fun f() = deliver(service(\"queue\", 1))", "fun f() = deliver(service(\"packets\", 1))");
    let leave = "fun f() = leave(\"a\", 1, 5); leave(\"b\", 1, 5)";
    for (grant, text, cause, times) in [
        (all, ask, Cause::Trapped, 0),
        (Grant { calls: Calls::DELIVER, ..all }, ask, Cause::Trapped, 1),
        (Grant { calls: Calls::SERVICE, ..all }, ask, Cause::Trapped, 1),
        (service, ask, Cause::Trapped, 0),
        (service, other, Cause::Trapped, 1),
        (Grant { state: 64, ..all }, leave, Cause::SoftFull, 0),
        (Grant { state: 63, ..all }, leave, Cause::SoftFull, 1),
        (Grant { places: some(1), ..all }, ask, Cause::Elsewhere, 0),
        (Grant { places: some(2), ..all }, ask, Cause::Elsewhere, 1),
        (Grant { instructions: 1000, ..all }, ask, Cause::BeyondGrant, 0),
        (Grant { instructions: 999, ..all }, ask, Cause::BeyondGrant, 1),
        (Grant { bytes: 999, ..all }, ask, Cause::BeyondGrant, 1),
        (
            Grant { interfaces: some(1), ..all },
            "fun f() = OnNeighbor(f(), place(2), all)",
            Cause::Interface,
            1,
        ),
        (all, "fun f() = OnNeighbor(f(), place(2), all)", Cause::Interface, 0),
        (Grant { copies: 1, ..all }, "fun f() = deliver(1)", Cause::Exhausted, 0),
        (Grant { copies: 0, ..all }, "fun f() = deliver(1)", Cause::Exhausted, 1),
    ] {
        assert_eq!(met_under(&[(grant, text, 0)], cause), times, "{grant:?}, {text}");
    }
    // Credentials that were made of a narrow credential have no more than it together; others are as before.
    let rate = |instructions| Grant { instructions, ..all };
    let parts = [(rate(2000), ask, 0), (rate(1999), ask, 1), (rate(1998), ask, 2), (all, ask, 3)];
    assert_eq!(met_under(&parts, Cause::BeyondGrant), 2);
    // Another second begins, and none by a clock that goes back.
    assert_eq!(met_under(&[(rate(1000), ask, 0), (rate(1000), ask, 1000)], Cause::BeyondGrant), 0);
}

/// Each is evaluated, so its sender's share limits how many there are.
#[test]
fn an_empty_bound_counts_as_its_datagram() {
    let (mut node, _, mut wire) = host(Role::Host, None);
    let code = b"fun f() = deliver(1)";
    let capsule = Capsule {
        function: 0,
        limits: Limits::default(),
        origin: Place::NOWHERE,
        place: Place::NOWHERE,
        payer: Payer::BEST_EFFORT,
        key: Key::default(),
        hash: hash_of(code),
        grant: Grant::ALL,
        arguments: &[],
        code: Some(code),
    };
    let mut body = Vec::new();
    capsule.write(&mut body);
    // A plain datagram: kind and number are zero.
    let datagram = [&b"FL\x01"[..], &[0; 13], &body].concat();
    let sent = 2 * u64::from(MOST.copies);
    for _ in 0..sent {
        node.handle(address(9), &mut datagram.clone(), CLOCK, &mut wire);
    }
    let (ran, refused) = (node.counts().of(Cause::Exhausted), node.counts().of(Cause::BeyondShare));
    assert_eq!((ran, refused), (MOST.copies.into(), sent - u64::from(MOST.copies)));
}

#[test]
fn a_delivery_to_a_host_is_paid() {
    // Header, authenticator, head of the delivery and one number.
    let needed = (flame_active_link::OVERHEAD + flame_capsule::DELIVERY_HEADER + 8) as u64;
    for (bytes, is_sent) in [(needed, true), (needed - 1, false)] {
        let (mut node, mut host, mut wire) = host(Role::Host, None);
        let code = b"fun f() = deliver(7)";
        let hash = hash_of(code);
        let limits = Limits { bytes, copies: 1, ..MOST };
        let (place, key, code) = (Place::NOWHERE, Key([5; 16]), Some(&code[..]));
        let capsule = Capsule {
            function: 0,
            limits,
            origin: Place(9),
            place,
            payer: ALICE,
            key,
            hash,
            grant: Grant::ALL,
            arguments: &[],
            code,
        };
        let (mut body, mut packet) = (Vec::new(), Vec::new());
        capsule.write(&mut body);
        host.seal(address(1), Mode::Authenticated, &body, CLOCK, &mut packet).unwrap();
        node.handle(address(2), &mut packet, CLOCK, &mut wire);
        assert_eq!(node.counts().of(Cause::Exhausted), u64::from(!is_sent));
        let sent = wire.datagrams.pop_front();
        assert_eq!((sent.is_some(), wire.delivered.len()), (is_sent, 0));
        if let Some((_, to, mut datagram)) = sent {
            assert_eq!((to, datagram.len() as u64), (address(2), needed));
            let Received::Packet { body, .. } = host.receive(address(1), &mut datagram, CLOCK).unwrap()
            else {
                panic!("no packet")
            };
            let delivery = flame_capsule::Delivery { key, bytes: &7_u64.to_le_bytes() };
            assert_eq!(flame_capsule::Message::read(body), Ok(flame_capsule::Message::Delivery(delivery)));
        }
        assert_eq!(node.accounts()[&ALICE].copies, u64::from(is_sent));
    }
}
