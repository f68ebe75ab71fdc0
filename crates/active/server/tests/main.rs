//! Nodes and hosts over UDP, and attacks on them.

mod credentials;
mod world;

use flame_active_link::{Cause as LinkCause, OVERHEAD};
use flame_active_node::Cause;
use flame_active_server::{Probe, Question, Report};
use flame_capsule::{Capsule, Grant, Key, Limits, Message, Payer, Place, hash_of};
use flame_capsule_language::Program;
use flame_trust::Field;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use world::{PATIENCE, World, ask};

const MOST: Limits = Limits { hops: 32, instructions: 200_000, bytes: 100_000, copies: 100 };

fn met(report: &Report, cause: Cause) -> u64 {
    report.causes.iter().find(|(other, _)| *other == cause).map_or(0, |(_, count)| *count)
}

fn link(report: &Report, cause: LinkCause) -> u64 {
    report.links.iter().find(|(other, _)| *other == cause).map_or(0, |(_, count)| *count)
}

#[test]
fn a_ping_crosses_three_nodes_and_a_trace_names_them() {
    let world = World::new();
    let mut alice = world.host("alice");
    let config = world.open("alice");
    let target = config.place("n3");
    let mut probe = Probe::new().unwrap();
    let begun = Instant::now();
    // Until the links between nodes are there.
    while probe.ping(&mut alice, target, Duration::from_millis(500), false).unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE);
    }
    for with_code in [false, true] {
        assert!(probe.ping(&mut alice, target, PATIENCE, with_code).unwrap().is_some());
    }
    for name in ["n1", "n2"] {
        assert!(probe.ping(&mut alice, config.place(name), PATIENCE, false).unwrap().is_some(), "{name}");
    }
    let mut trace = || probe.trace(&mut alice, target, PATIENCE).unwrap();
    let (before, after) = (trace(), trace());
    let names: Vec<&str> = after.iter().map(|visited| config.names[&visited.place].as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    for (before, after) in before.iter().zip(&after) {
        assert!(before.capsules < after.capsules);
        assert!(before.times.0.iter().zip(after.times.0).all(|(before, after)| *before < after), "{after:?}");
    }
    // The numbers of a service come back, too.
    let program = Program::read("fun f(a: int) = deliver(service(\"twice\", a))").unwrap();
    assert_eq!(ask(&mut alice, program.code(), 0, &[21], MOST), [42]);
    // A stranger's account has no times, and its time is in seconds.
    let mut bob = world.host("bob");
    let program = Program::read("fun f() = deliver(now() % 1000)").unwrap();
    assert_eq!(ask(&mut bob, program.code(), 0, &[], MOST), [0]);
    let program = Program::read("fun f() = deliver(service(\"time\", 0))").unwrap();
    bob.send(&Question { code: program.code(), function: 0, arguments: &[], limits: MOST, with_code: false })
        .unwrap();
    assert_eq!(bob.receive(Some(program.code()), Duration::from_millis(300)).unwrap(), None);
    let reports = world.end();
    assert!(reports.iter().all(|report| met(report, Cause::Malformed) == 0));
    // Code that asks for a service is not linked for strangers.
    assert_eq!(met(&reports[0], Cause::NotCompiled), 1);
}

#[test]
fn the_examples_run_over_real_nodes() {
    let world = World::new();
    let mut alice = world.host("alice");
    let config = world.open("alice");
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| config.place(name).0);
    let program = |text: &str| Program::read(text).unwrap();
    // There and back, in milliseconds.
    let ping = program(include_str!("../../language/programs/ping.capsule"));
    assert!(ask(&mut alice, ping.code(), 0, &[n3], MOST)[0] < 60_000);
    // The queues on the way, by a service that doubles: of the next places, and at the end none.
    let probe = program(include_str!("../../language/programs/probe.capsule"));
    let doubled = |place: u64| place.wrapping_mul(2);
    let queues = ask(&mut alice, probe.code(), 1, &[n3, 0], MOST);
    assert_eq!(queues, [3, doubled(n2), doubled(n3), 0]);
    // Each node but the first answers a trace, in any order.
    let trace = program(include_str!("../../language/programs/trace.capsule"));
    let found = ask(&mut alice, trace.code(), 1, &[n3], MOST);
    assert!([n2, n3].contains(&found[0]), "{found:?}");
    // A value is delivered at all targets; at the first node, this host has it.
    let multicast = program(include_str!("../../language/programs/multicast.capsule"));
    let begun = Instant::now();
    while ask(&mut alice, multicast.code(), 0, &[2, n1, n3, 77], MOST) != [77] {
        // Answers of the trace may come in between.
        assert!(begun.elapsed() < PATIENCE);
    }
    world.end();
}

#[test]
fn a_loop_spends_no_more_than_its_bound() {
    // Each number is the first to be used up once.
    let wide = Limits { hops: 32, instructions: 1_000_000, bytes: 250_000, copies: 250 };
    spends_no_more(Limits { copies: 60, ..wide });
    spends_no_more(Limits { bytes: 9_000, ..wide });
    spends_no_more(Limits { instructions: 5_000, ..wide });
}

/// Begins a program that multiplies itself, and compares what the nodes spend for it with its bound.
fn spends_no_more(limits: Limits) {
    let world = World::new();
    // Another principal waits for the link between n1 and n2.
    let (mut alice, mut bob) = (world.host("alice"), world.host("bob"));
    let program = Program::read(include_str!("../../language/programs/ping.capsule")).unwrap();
    let target = world.open("alice").place("n2");
    ask(&mut bob, program.code(), 0, &[target.0], MOST);
    // Each copy sends two more to each neighbour, for ever.
    let text = "fun f() = fold to in neighbours() at most 8 with u = skip do\n\
                OnNeighbor(f(), to, 600); OnNeighbor(f(), to, 600) end";
    let endless = Program::read(text).unwrap();
    let carried = || world.wire().seen.lock().unwrap().len();
    let before = carried();
    let code = endless.code();
    alice.send(&Question { code, function: 0, arguments: &[], limits, with_code: true }).unwrap();
    let (begun, mut last) = (Instant::now(), before);
    // Until copies have come to n2, and none is left on the way.
    while last == before || carried() != last {
        last = carried();
        assert!(begun.elapsed() < PATIENCE, "copies are on the way for too long");
        std::thread::sleep(Duration::from_millis(500));
    }
    let payer = world.open("alice").payer();
    let reports = world.end();
    let accounts: Vec<_> = reports.iter().filter_map(|report| report.accounts.get(&payer)).collect();
    let copies: u64 = accounts.iter().map(|account| account.copies).sum();
    let sum: u64 = accounts.iter().map(|account| account.bytes).sum();
    assert!(copies > 10, "it did not spread: {reports:?}");
    assert!(
        copies <= limits.copies.into() && sum <= limits.bytes,
        "{limits:?}: {copies} copies, {sum} bytes"
    );
    let instructions: u64 = accounts.iter().map(|account| account.instructions).sum();
    assert!(instructions <= limits.instructions, "{limits:?}: {instructions}");
    let refused: u64 = reports.iter().map(|report| met(report, Cause::Exhausted)).sum();
    assert!(refused > 0);
}

#[test]
fn what_the_wire_changes_is_refused_by_cause() {
    let world = World::new();
    let mut alice = world.host("alice");
    let program = Program::read(include_str!("../../language/programs/ping.capsule")).unwrap();
    let target = world.open("alice").place("n3");
    ask(&mut alice, program.code(), 0, &[target.0], MOST);
    // A packet of the session from n1 to n2, from the end of what was carried.
    let is_packet = |datagram: &[u8]| datagram[3] == 1 && datagram.len() > OVERHEAD;
    let seen = world.wire().seen.lock().unwrap().clone();
    let (_, packet) = seen.iter().rfind(|(to_second, d)| *to_second && is_packet(d)).unwrap().clone();
    world.wire().inject(true, &packet);
    world.wire().inject(false, &packet);
    world.wire().inject(true, &packet[..packet.len() - 1]);
    world.wire().inject(true, &packet[..7]);
    let mut changed = packet.clone();
    // A later nonce, so that it is no replay.
    changed[8] = changed[8].wrapping_add(200);
    world.wire().inject(true, &changed);
    // The same from another address.
    let other = UdpSocket::bind(std::net::SocketAddr::new(world.address(7).ip(), 0)).unwrap();
    other.send_to(&changed, world.address(2)).unwrap();
    // A first message of the exchange again, and a part of it.
    let (_, first) = seen.iter().find(|(to_second, d)| *to_second && d[3] == 3).unwrap().clone();
    // It may have come before n2 listened: then the second time is the first repetition.
    world.wire().inject(true, &first);
    world.wire().inject(true, &first);
    world.wire().inject(true, &first[..100]);
    // A plain capsule whose code has another hash, a capsule without code, and a part of each.
    let code = program.code();
    let capsule = Capsule {
        function: 0,
        limits: MOST,
        origin: Place(1),
        place: Place::NOWHERE,
        payer: Payer([9; 16]),
        key: Key::default(),
        hash: hash_of(b"other"),
        grant: Grant::ALL,
        arguments: &[],
        code: Some(code),
    };
    for capsule in [capsule.clone(), Capsule { code: None, ..capsule }] {
        let mut datagram = vec![b'F', b'L', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        Message::Capsule(capsule).write(&mut datagram);
        other.send_to(&datagram, world.address(2)).unwrap();
        other.send_to(&datagram[..60], world.address(2)).unwrap();
    }
    // The link is as before.
    ask(&mut alice, code, 0, &[target.0], MOST);
    let reports = world.end();
    let second = &reports[1];
    assert!(link(second, LinkCause::Replayed) >= 1);
    assert!(link(second, LinkCause::Short) >= 1 && link(second, LinkCause::Forged) >= 1, "{second:?}");
    assert_eq!(link(second, LinkCause::OtherAddress), 1);
    assert!(link(second, LinkCause::Repeated) >= 1);
    assert_eq!(link(second, LinkCause::Asks), 1);
    assert_eq!((met(second, Cause::Malformed), met(second, Cause::NoCode)), (3, 1));
    // What is reflected names a session that the other end has not, or is forged.
    let first = &reports[0];
    assert_eq!(link(first, LinkCause::NoSession) + link(first, LinkCause::Forged), 1);
}

#[test]
fn a_flood_of_strangers_ends_no_service() {
    let world = World::new();
    let mut alice = world.host("alice");
    let program = Program::read(include_str!("../../language/programs/ping.capsule")).unwrap();
    let target = world.open("alice").place("n3");
    ask(&mut alice, program.code(), 0, &[target.0], MOST);
    let other = UdpSocket::bind(std::net::SocketAddr::new(world.address(7).ip(), 0)).unwrap();
    // Each has another program, and all ask for the most.
    for number in 0..400 {
        let text = format!("fun f() = OnNeighbor(f(), {}, all); deliver({number})", "place(1)");
        let program = Program::read(&text).unwrap();
        let capsule = Capsule {
            function: 0,
            limits: MOST,
            origin: Place(1),
            place: Place::NOWHERE,
            payer: Payer([9; 16]),
            key: Key::default(),
            hash: hash_of(program.code()),
            grant: Grant::ALL,
            arguments: &[],
            code: Some(program.code()),
        };
        let mut datagram = vec![b'F', b'L', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        Message::Capsule(capsule).write(&mut datagram);
        other.send_to(&datagram, world.address(2)).unwrap();
    }
    ask(&mut alice, program.code(), 0, &[target.0], MOST);
    let reports = world.end();
    let strangers = reports[1].accounts[&Payer::BEST_EFFORT];
    // Their share of a second, a few times over, and not more: nothing of them leaves the node.
    assert!(met(&reports[1], Cause::BeyondShare) > 0, "{:?}", reports[1]);
    assert_eq!((strangers.copies, strangers.bytes), (0, 0));
}

#[test]
fn revoked_hosts_lose_their_link() {
    let world = World::new();
    let (alice, key) = world.try_host("alice", PATIENCE);
    let mut alice = alice.unwrap();
    let program = Program::read("fun f() = deliver(7)").unwrap();
    assert_eq!(ask(&mut alice, program.code(), 0, &[], MOST), [7]);
    std::fs::write(world.path("revoked"), format!("key {key}\n")).unwrap();
    let (begun, mut silent) = (Instant::now(), 0);
    while silent < 3 {
        let (code, limits) = (program.code(), MOST);
        alice.send(&Question { code, function: 0, arguments: &[], limits, with_code: false }).unwrap();
        let has_answer = alice.receive(Some(code), Duration::from_secs(1)).unwrap().is_some();
        silent = if has_answer { 0 } else { silent + 1 };
        assert!(begun.elapsed() < PATIENCE, "the link is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Others have one as before, and the same host gets none.
    let mut bob = world.host("bob");
    assert_eq!(ask(&mut bob, program.code(), 0, &[], MOST), [7]);
    let config = world.open("alice");
    let started = Instant::now();
    let again = flame_active_server::Client::open(
        &config,
        move || flame_active_server::clock(started),
        Duration::from_millis(500),
    );
    // Message 3 is refused, which the host cannot know: its capsules are.
    let mut again = again.unwrap();
    if let Some(host) = &mut again {
        let (code, limits) = (program.code(), MOST);
        host.send(&Question { code, function: 0, arguments: &[], limits, with_code: true }).unwrap();
        assert_eq!(host.receive(Some(code), Duration::from_millis(300)).unwrap(), None);
    }
    let reports = world.end();
    assert!(link(&reports[0], LinkCause::Revoked) >= 1, "{:?}", reports[0]);
}

/// A bearer narrows the credential without asking anyone. That holds at each node, also behind the first, and
/// the principal's whole credential is as before.
#[test]
fn a_narrowed_credential_gives_no_more() {
    let world = World::new();
    let fields = [
        (Field::Capsule, "send, deliver, service"),
        (Field::Ask, "twice"),
        (Field::Node, "n1, n2"),
        (Field::CapsuleBytes, "1GiB"),
    ];
    let mut narrow = world.narrowed(("narrow", "alice"), &fields);
    let mut alice = world.host("alice");
    let config = world.open("alice");
    let [n2, n3] = ["n2", "n3"].map(|name| config.place(name).0);
    let text = "fun done(n: int) = deliver(n)
         fun twice(a: int) = OnRemote(done(service(\"twice\", a)), origin(), all)
         fun other(a: int) = OnRemote(done(service(\"other\", a)), origin(), all)
         fun keep(a: int) = leave(\"x\", a, 5); OnRemote(done(a), origin(), all)
         fun far(to: place, what: int, a: int) =
           if what == 0 then OnRemote(twice(a), to, all)
           else if what == 1 then OnRemote(other(a), to, all) else OnRemote(keep(a), to, all)";
    let program = Program::read(text).unwrap();
    let code = program.code();
    // The whole credential may do all of it, everywhere.
    for at in [n2, n3] {
        for (what, answer) in [(0, 42), (1, 42), (2, 21)] {
            assert_eq!(ask(&mut alice, code, 4, &[at, what, 21], MOST), [answer]);
        }
    }
    assert_eq!(ask(&mut narrow, code, 4, &[n2, 0, 21], MOST), [42]);
    for arguments in [[n2, 1, 21], [n2, 2, 21], [n3, 0, 21]] {
        let arguments: Vec<u8> = arguments.iter().flat_map(|number| number.to_le_bytes()).collect();
        narrow
            .send(&Question { code, function: 4, arguments: &arguments, limits: MOST, with_code: false })
            .unwrap();
        assert_eq!(narrow.receive(Some(code), Duration::from_millis(300)).unwrap(), None, "{arguments:?}");
    }
    // What was sent before has come.
    assert_eq!(ask(&mut alice, code, 4, &[n3, 0, 4], MOST), [8]);
    let reports = world.end();
    assert_eq!(met(&reports[1], Cause::Trapped), 2, "{:?}", reports[1]);
    assert_eq!(met(&reports[2], Cause::Elsewhere), 1, "{:?}", reports[2]);
}

/// The interfaces of a credential hold at each node, on both sides of a link, and its copies for all that one
/// capsule sends.
#[test]
fn a_credential_names_interfaces_and_copies() {
    let world = World::new();
    let mut narrow = world.narrowed(("narrow", "alice"), &[(Field::Interface, "up")]);
    let mut few = world.narrowed(("few", "alice"), &[(Field::CapsuleCopies, "3")]);
    let mut alice = world.host("alice");
    let config = world.open("alice");
    let [n2, n3] = ["n2", "n3"].map(|name| config.place(name).0);
    let text = "fun done(n: int) = deliver(n)
         fun back(n: int) = OnRemote(done(n), origin(), all)
         fun far(to: place, n: int) = OnRemote(back(n), to, all)
         fun five(n: int) = deliver(n); deliver(n); deliver(n); deliver(n); deliver(n)";
    let program = Program::read(text).unwrap();
    let code = program.code();
    for at in [n2, n3] {
        assert_eq!(ask(&mut alice, code, 2, &[at, 7], MOST), [7]);
    }
    // n1 and n2 are joined by `up`, n2 and n3 by another one.
    assert_eq!(ask(&mut narrow, code, 2, &[n2, 8], MOST), [8]);
    let arguments: Vec<u8> = [n3, 9].iter().flat_map(|number| number.to_le_bytes()).collect();
    narrow
        .send(&Question { code, function: 2, arguments: &arguments, limits: MOST, with_code: false })
        .unwrap();
    assert_eq!(narrow.receive(Some(code), Duration::from_millis(300)).unwrap(), None);
    let delivered = |host: &mut world::Host| {
        // The link is confirmed.
        assert_eq!(ask(host, code, 0, &[1], MOST), [1]);
        let arguments = 5_u64.to_le_bytes();
        host.send(&Question { code, function: 3, arguments: &arguments, limits: MOST, with_code: true })
            .unwrap();
        std::iter::from_fn(|| host.receive(Some(code), Duration::from_millis(500)).unwrap()).count()
    };
    assert_eq!((delivered(&mut few), delivered(&mut alice)), (3, 5));
    let reports = world.end();
    assert_eq!(met(&reports[1], Cause::Interface), 1, "{:?}", reports[1]);
    assert_eq!(met(&reports[0], Cause::Exhausted), 2, "{:?}", reports[0]);
}

/// First messages from addresses whose owners do not answer, many times as many as are answered, end no
/// service: a host that comes meanwhile has its link in a few seconds, and capsules of others run.
#[test]
fn a_forged_flood_ends_no_service() {
    let world = World::new();
    let mut alice = world.host("alice");
    let program = Program::read("fun f() = deliver(7)").unwrap();
    assert_eq!(ask(&mut alice, program.code(), 0, &[], MOST), [7]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let (target, [a, b]) = (world.address(1), world.forged());
    let (told, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The device takes any address below 127.0.0.0/8, and no one reads the answers.
            let ports =
                (0..64).map(|n| UdpSocket::bind(SocketAddr::from(([127, a, b, 128 + n], 0))).unwrap());
            let sockets: Vec<UdpSocket> = ports.collect();
            let mut number = 0_u64;
            while number < 4000 || !is_over() {
                number += 1;
                if number.is_multiple_of(32) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if number == 2000 {
                    told.send(()).unwrap();
                }
                let now = flame_active_server::clock(Instant::now()).wall;
                // Header, key, time, number, zeros.
                let mut first = [&b"FL\x01\x03"[..], &[0; 12], &[9; 24], &number.to_le_bytes()].concat();
                first.extend_from_slice(&now.to_le_bytes());
                first.extend_from_slice(&[1; 4]);
                first.resize(2048, 0);
                let _ = sockets[usize::try_from(number).unwrap() % sockets.len()].send_to(&first, target);
            }
        });
        // The flood has begun, and takes all that there is for strangers.
        begun.recv().unwrap();
        let begun = Instant::now();
        let mut bob = world.host("bob");
        let linked = begun.elapsed();
        assert_eq!(ask(&mut bob, program.code(), 0, &[], MOST), [7]);
        assert_eq!(ask(&mut alice, program.code(), 0, &[], MOST), [7]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        eprintln!("linked after {linked:?}");
    });
    let reports = world.end();
    assert!(link(&reports[0], LinkCause::Unproven) > 1000, "{:?}", reports[0]);
}
