//! Active packets: the costs of a capsule at a node, of its authentication by size, of instances that are
//! wiped and fresh, and of the key exchange; and, as root, an active ping against a ping of ICMP between the
//! same namespaces. After the Figures 5, 7 and 8 of SANE, whose ping spent 33 % on authentication with 2,230
//! bytes of code in each packet, and whose key exchange took 2.4 s.

use super::finding::{Finding, Verdict, short};
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::row::median;
use flame_active_link::{Clock, Limit, Links, Mode, Received, Time};
use flame_active_node::{Execute, Map, Node, Output, Rights, Room, Services, Settings, Terms};
use flame_active_sandbox::{Compiled, Sandbox};
use flame_active_server::{Judge, own, place_of};
use flame_capsule::{
    Capsule, Grant, Host, Key, Limits, MAX_CODE, Message, Parts, Payer, Place, Refused, Target, hash_of,
};
use flame_capsule_language::Program;
use flame_compile::{Compiler, Engines};
use flame_plot::{Scale, Shape};
use flame_trust::{Credential, Field, Mint, Narrow, Policy, Secret};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

const CLOCK: Clock = Clock { wall: 1_800_000_000_000, steady: 1 };
const SHARE: Limits = Limits { hops: 64, instructions: u64::MAX, bytes: u64::MAX, copies: u32::MAX };
const BOUND: Limits = Limits { hops: 16, instructions: 20_000, bytes: 5000, copies: 10 };

/// A root, which gives credentials to nodes.
pub(super) struct World(Secret);

/// Swallows what a node sends.
#[derive(Default)]
struct Sent {
    count: u64,
    first: Option<Vec<u8>>,
}

impl Output for Sent {
    fn send(&mut self, _: SocketAddr, datagram: &[u8], _: Option<Payer>) {
        self.count += 1;
        self.first.get_or_insert_with(|| datagram.to_vec());
    }

    fn deliver(&mut self, _: Payer, _: Key, _: Place, _: &[u8]) {}
}

struct Without;

impl Services for Without {
    fn service(&mut self, _: Payer, _: u64, _: i64) -> Option<i64> {
        None
    }
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 4747))
}

fn failed(what: &'static str) -> impl Fn(flame_active_link::Cause) -> Error {
    move |cause| format!("{what}: {cause}").into()
}

impl World {
    pub fn new() -> Self {
        Self(Secret::generate())
    }

    /// Returns the policy of a node of this name.
    fn policy(&self, name: &str) -> String {
        format!(
            "[node]\nname = \"{name}\"\nkey = \"{name}.key\"\n[roots]\noperator = \"{}\"\n[roles.relay]\n\
             roots = [\"operator\"]\nselect = \"ip\"\nexpose = \"count\"\ncalls = \"records\"\ncode = \"any\"\n",
            self.0.public()
        )
    }

    /// Makes the credential of a node.
    fn credential(&self, name: &str, secret: &Secret) -> Result<Credential, Error> {
        let fields =
            vec![(Field::Expires, "2100-01-01T00:00:00Z".to_owned()), (Field::Code, "any".to_owned())];
        let narrow = Narrow { fields, holder: Some(secret.public()), ..Narrow::default() };
        let mint = Mint { principal: name.to_owned(), role: "relay".to_owned(), narrow };
        Ok(Credential::mint(&self.0, &mint)?)
    }

    /// Writes the files of a node on the loopback device.
    pub fn files(&self, folder: &std::path::Path, name: &str) -> Result<(), Error> {
        let secret = Secret::generate();
        let write =
            |ending: &str, text: String| std::fs::write(folder.join(format!("{name}.{ending}")), text);
        secret.write_new(&folder.join(format!("{name}.key")))?;
        write("credential", self.credential(name, &secret)?.text())?;
        write("policy", self.policy(name))?;
        let config = format!(
            "listen = \"127.0.0.1:0\"\npolicy = \"{name}.policy\"\ncredential = \"{name}.credential\"\n\
             identity = \"{name}.key\"\n"
        );
        Ok(write("toml", config)?)
    }

    fn place(&self, n: u8) -> Place {
        place_of(&self.0.public(), &format!("n{n}"))
    }

    fn links(&self, n: u8) -> Result<Links<Judge>, Error> {
        let secret = Secret::generate();
        let credential = self.credential(&format!("n{n}"), &secret)?;
        let judge = Judge::new(Policy::parse(self.policy("n").as_bytes())?, "relay".to_owned(), SHARE);
        // Numbers that need not be secret here, and differ.
        let mut next = u64::from(n) << 32;
        let entropy = Box::new(move |bytes: &mut [u8]| {
            next += 1;
            bytes.fill(n);
            bytes.iter_mut().zip(next.to_le_bytes()).for_each(|(byte, other)| *byte = other);
        });
        let made =
            Links::new(own(&credential, &secret), judge, Limit::default(), entropy, Time::begin(0, CLOCK));
        made.map_err(|(found, most)| format!("an identity of {found} bytes, at most {most}").into())
    }
}

/// Exchanges keys, and returns nothing: both have a session then.
fn meet(a: &mut Links<Judge>, b: &mut Links<Judge>, at: (u8, u8)) -> Result<(), Error> {
    let mut next = a.connect(address(at.1), CLOCK).map_err(failed("connect"))?.ok_or("it waits")?;
    for (to_second, from) in [(true, at.0), (false, at.1), (true, at.0), (false, at.1)] {
        let to = if to_second { &mut *b } else { &mut *a };
        match to.receive(address(from), &mut next, CLOCK).map_err(failed("exchange"))? {
            Received::Step(bytes) | Received::Begun(bytes) => next = bytes,
            _ => return Ok(()),
        }
    }
    Err("the exchange has no end".into())
}

/// Exchanges keys of a node in the middle with what is around.
fn join<X: Execute>(
    node: &mut Node<Judge, X, Without>,
    other: &mut Links<Judge>,
    n: u8,
) -> Result<(), Error> {
    let mut next = other.connect(address(2), CLOCK).map_err(failed("connect"))?.ok_or("it waits")?;
    for _ in 0..2 {
        let mut out = Sent::default();
        node.handle(address(n), &mut next, CLOCK, &mut out);
        let mut answer = out.first.ok_or("the node does not answer")?;
        match other.receive(address(2), &mut answer, CLOCK).map_err(failed("exchange"))? {
            Received::Begun(bytes) => next = bytes,
            _ => return Ok(()),
        }
    }
    Err("the exchange has no end".into())
}

pub(super) fn compile(code: &[u8], _: Payer) -> Result<Compiled, flame_active_node::Failure> {
    let failed = flame_active_node::Failure::NotCompiled;
    let engines = Engines::new().map_err(|_| failed)?;
    let made = Compiler::in_process(engines, None).capsule(code).map_err(|_| failed)?;
    Ok(Compiled { code: made.code, bounds: made.bounds })
}

/// A capsule that goes on towards a place.
fn capsule<'a>(code: &[u8], carried: Option<&'a [u8]>, arguments: &'a [u8], payer: Payer) -> Capsule<'a> {
    Capsule {
        function: 0,
        limits: BOUND,
        origin: Place(1),
        place: Place::NOWHERE,
        payer,
        key: Key::default(),
        hash: hash_of(code),
        grant: Grant::ALL,
        arguments,
        code: carried,
    }
}

/// Returns the nanoseconds that a node takes for a capsule that it runs and sends on, with its code in each
/// packet or in the cache, and with three lists of `numbers` numbers; and the bytes of its datagram.
fn forwarding(world: &World, with_code: bool, numbers: u64, count: usize) -> Result<[f64; 2], Error> {
    let payer = Payer([7; 16]);
    let neighbours = [(world.place(1), address(1)), (world.place(3), address(3))];
    let terms = Terms { rights: Rights::ALL, most: SHARE, resolution: 1 };
    let settings = Settings {
        here: world.place(2),
        map: Map::new(&neighbours, [].into()),
        accounts: [(payer, terms)].into(),
        best_effort: terms,
        strangers: SHARE,
        room: Room::default(),
    };
    let mut node = Node::new(settings, world.links(2)?, Sandbox::new(compile)?, Without);
    let (mut before, mut after) = (world.links(1)?, world.links(3)?);
    join(&mut node, &mut before, 1)?;
    join(&mut node, &mut after, 3)?;
    let text = match numbers {
        0 => "fun f(to: place) = OnNeighbor(f(to), next(to), all)",
        _ => "fun f(to: place, a: ints, b: ints, c: ints) = OnNeighbor(f(to, a, b, c), next(to), all)",
    };
    let program = Program::read(text)?;
    let mut arguments = world.place(3).0.to_le_bytes().to_vec();
    if numbers > 0 {
        let list = || [numbers].into_iter().chain(0..numbers).flat_map(u64::to_le_bytes);
        arguments.extend((0..3).flat_map(|_| list()));
    }
    let mut packets = |carried: Option<&[u8]>, count: usize| {
        let mut message = Vec::new();
        Message::Capsule(capsule(program.code(), carried, &arguments, payer)).write(&mut message);
        let seal = |_| {
            let mut packet = Vec::new();
            before.seal(address(2), Mode::Authenticated, &message, CLOCK, &mut packet)?;
            Ok(packet)
        };
        (0..count).map(seal).collect::<Result<Vec<_>, _>>().map_err(failed("seal"))
    };
    let mut out = Sent::default();
    for mut packet in packets(Some(program.code()), 10)? {
        node.handle(address(1), &mut packet, CLOCK, &mut out);
    }
    let mut packets = packets(with_code.then_some(program.code()), count)?;
    out.count = 0;
    let begun = Instant::now();
    for packet in &mut packets {
        node.handle(address(1), packet, CLOCK, &mut out);
    }
    let took = begun.elapsed().as_nanos() as f64 / count as f64;
    if out.count != count as u64 {
        return Err(format!("of {count} capsules {} went on: {:?}", out.count, node.counts()).into());
    }
    Ok([took, packets.first().map_or(0, Vec::len) as f64])
}

/// A node that gives nothing, and keeps what was delivered last.
#[derive(Default)]
pub(super) struct Nothing {
    pub delivered: Vec<u8>,
}

impl Host for Nothing {
    fn here(&self) -> Place {
        Place(1)
    }
    fn origin(&self) -> Place {
        Place(1)
    }
    fn from(&self) -> Place {
        Place(1)
    }
    fn now(&self) -> u64 {
        0
    }
    fn hops(&self) -> u8 {
        1
    }
    fn next(&self, place: Place) -> Place {
        place
    }
    fn neighbours(&self) -> &[Place] {
        &[]
    }
    fn send(&mut self, _: u8, _: &[u8], _: Target, _: Parts) -> Result<(), Refused> {
        Ok(())
    }
    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.delivered.clear();
        self.delivered.extend_from_slice(bytes);
        Ok(())
    }
    fn leave(&mut self, _: u64, _: i64, _: u64) -> Result<(), Refused> {
        Ok(())
    }
    fn find(&self, _: u64) -> i64 {
        0
    }
    fn service(&mut self, _: u64, _: i64) -> Result<i64, Refused> {
        Ok(0)
    }
    fn ask(&mut self, _: u64, _: &[u8]) -> Result<&[u8], Refused> {
        Ok(&[])
    }
}

/// Returns the nanoseconds of a run in an instance that is wiped, and in a fresh one.
fn instances(count: u32) -> Result<[f64; 2], Error> {
    let mut sandbox = Sandbox::new(compile)?;
    let program = Program::read("fun f(to: place) = OnNeighbor(f(to), next(to), all)")?;
    let made = sandbox.compile(program.code(), Payer::default(), Rights::ALL);
    let mut program = made.ok_or("later")?.map_err(|failure| format!("{failure:?}"))?;
    let mut times = [0.0; 2];
    for (is_fresh, time) in [false, true].into_iter().zip(&mut times) {
        let begun = Instant::now();
        for _ in 0..count {
            if is_fresh {
                program.renew()?;
            }
            let ran = sandbox.run(&mut program, 0, &[3; 8], 5000, &mut Nothing::default());
            ran.end.map_err(|failure| format!("{failure:?}"))?;
        }
        *time = begun.elapsed().as_nanos() as f64 / f64::from(count);
    }
    Ok(times)
}

/// Returns the nanoseconds to make and to verify the authenticator of a packet, and to hash its body.
fn authentication(world: &World, bytes: usize, count: usize) -> Result<[f64; 2], Error> {
    let (mut a, mut b) = (world.links(1)?, world.links(2)?);
    meet(&mut a, &mut b, (1, 2))?;
    let body = vec![7; bytes];
    let mut packet = Vec::new();
    let begun = Instant::now();
    for _ in 0..count {
        packet.clear();
        a.seal(address(2), Mode::Authenticated, &body, CLOCK, &mut packet).map_err(failed("seal"))?;
        b.receive(address(1), &mut packet, CLOCK).map_err(failed("open"))?;
    }
    let both = begun.elapsed().as_nanos() as f64 / count as f64;
    let begun = Instant::now();
    for _ in 0..count {
        std::hint::black_box(hash_of(std::hint::black_box(&body)));
    }
    Ok([both, begun.elapsed().as_nanos() as f64 / count as f64])
}

/// Draws lines by the bytes of a packet.
fn by_size<'a>(
    setting: &Setting<'_>,
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    lines: impl IntoIterator<Item = (&'a str, Vec<(f64, f64)>)>,
) -> Result<(), Error> {
    let series = lines.into_iter().map(|(name, line)| (name.to_owned(), Shape::Line(line))).collect();
    let (x, y) = (("bytes", Scale::FromZero), (unit, Scale::FromZero));
    Figure { name, title, notes: Vec::new(), x, y, series }.write(setting.folder)
}

/// Measures all of it.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let world = World::new();
    let (rounds, count) = if setting.quick { (1, 200) } else { (9, 50_000) };
    let of = |with_code: bool, numbers: u64| {
        let runs = (0..rounds).map(|_| forwarding(&world, with_code, numbers, count));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        Ok::<_, Error>([0, 1].map(|n| median(runs.iter().map(|run| run[n]).collect())))
    };
    println!("active: the cost of a capsule at a node, in one thread, without the socket");
    let [cached, _] = of(false, 0)?;
    let [carried, _] = of(true, 0)?;
    let runs = (0..rounds).map(|_| instances(count as u32 / 10)).collect::<Result<Vec<_>, _>>()?;
    let wiped = median(runs.iter().map(|[wiped, _]| *wiped).collect());
    let fresh = median(runs.iter().map(|[_, fresh]| *fresh).collect());
    for (name, ns) in [
        ("code in the cache", cached),
        ("code in each packet", carried),
        ("of it, the run in an instance that is wiped", wiped),
        ("with a fresh instance for each", cached - wiped + fresh),
    ] {
        println!("  {name:<44} {ns:9.0} ns  {:9.0} capsules/s", 1e9 / ns);
    }
    println!("bandwidth by packet size, one thread, without the socket (SANE, Fig. 6)");
    let mut bandwidth = Vec::new();
    for numbers in [0, 8, 16, 31] {
        let [ns, bytes] = of(false, numbers)?;
        println!("  {bytes:5} bytes  {:8.1} Mbit/s  {:9.0} capsules/s", bytes * 8e3 / ns, 1e9 / ns);
        bandwidth.push((bytes, bytes * 8e3 / ns));
    }
    println!("authentication of a packet (made and verified), and SHA-256 of as many bytes (SANE, Fig. 5)");
    let mut lines = [const { Vec::new() }; 2];
    for bytes in [112, 512, 1024, 2342, 4096, 112 + MAX_CODE] {
        let all =
            (0..rounds).map(|_| authentication(&world, bytes, count / 5)).collect::<Result<Vec<_>, _>>()?;
        let [both, hash] = [0, 1].map(|n| median(all.iter().map(|times| times[n]).collect()));
        println!("  {bytes:5} bytes  {both:8.0} ns  {hash:8.0} ns");
        lines.iter_mut().zip([both, hash]).for_each(|(line, ns)| line.push((bytes as f64, ns)));
    }
    let exchanges = if setting.quick { 2 } else { 40 };
    let begun = Instant::now();
    for _ in 0..exchanges {
        meet(&mut world.links(1)?, &mut world.links(2)?, (1, 2))?;
    }
    let ms = begun.elapsed().as_secs_f64() * 1000.0 / f64::from(exchanges);
    println!("key exchange, both sides, with credentials minted for it: {ms:.2} ms (SANE: 2.4 s)");
    let pings = ping(setting)?;
    let at = |line: usize, bytes: f64| {
        lines[line].iter().find(|(x, _)| *x == bytes).map_or(f64::NAN, |(_, ns)| *ns)
    };
    let packet = at(0, 2342.0);
    let lines = ["authenticator", "SHA-256"].into_iter().zip(lines);
    by_size(setting, "active", "Authentication of a packet by its length", "ns", lines)?;
    let most = bandwidth.last().map_or(f64::NAN, |(_, rate)| *rate);
    let rises = bandwidth.is_sorted_by(|(_, a), (_, b)| a < b);
    let title = "Capsules that a node runs and sends on, by packet size";
    by_size(setting, "active-bandwidth", title, "Mbit/s", [("code in the cache", bandwidth)])?;
    let mut findings = vec![
        Finding::other(
            "SANE Fig. 6",
            "bandwidth of authenticated packets by their size",
            "rises with the size",
            format!(
                "{} Mbit/s at the largest, {}",
                short(most),
                if rises { "rises" } else { "does not rise" }
            ),
            "ours is one thread without the socket",
        ),
        Finding::less(
            "SANE Fig. 9",
            "loading the code that a packet brings, at each node; ours checks its hash and makes an instance",
            "us",
            1148.0,
            (carried - cached + fresh - wiped) / 1000.0,
        ),
        Finding::less("SANE Section V", "key exchange of both sides", "ms", 2400.0, ms),
        Finding::other(
            "SANE Fig. 8",
            "authentication of 2,342 bytes, made and verified",
            "grows linearly with the size",
            format!("{packet:.0} ns, {:.1} ns a byte", packet / 2342.0),
            "ours is a MAC by AES-GCM, theirs an HMAC of SHA-1",
        ),
    ];
    if let Some(active) = &pings.active {
        // Their 1,000 pings rise, with lines of outliers.
        let verdict = match active.p99 < 3.0 * active.median {
            true => Verdict::Better,
            false => Verdict::Differs("the machine was busy".to_owned()),
        };
        let (what, theirs) =
            ("99 of 100 pings take at most", "rises over 1,000 pings, with lines of outliers");
        let ours =
            format!("{} times the median of {} ms", short(active.p99 / active.median), short(active.median));
        let (what, theirs) = (what.to_owned(), theirs.to_owned());
        findings.push(Finding { item: "SANE Fig. 7", what, theirs, ours, verdict });
    }
    if let (Some(code), true) = (&pings.code, packet.is_finite()) {
        // Four links on the way and back, each of which makes and verifies an authenticator.
        let part = 100.0 * 4.0 * packet / (code.median * 1e6);
        findings.push(Finding::less(
            "SANE Fig. 8",
            "authentication of a ping with its code",
            "%",
            33.0,
            part,
        ));
    }
    Ok(findings)
}

/// Sends echo requests of ICMP, and prints the times as `flame ping` does.
const ICMP: &str = r"
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(5)
times = []
for seq in range(int(sys.argv[2])):
    head = struct.pack('!HH', 77, seq)
    n = 0x800 + sum(struct.unpack('!HH', head))
    n = (n >> 16) + (n & 0xffff)
    begun = time.perf_counter_ns()
    s.sendto(struct.pack('!BBH', 8, 0, ~n & 0xffff) + head + bytes(56), (sys.argv[1], 0))
    while True:
        reply = s.recv(2000)[20:]
        if reply[0] == 0 and reply[4:8] == head:
            break
    times.append((time.perf_counter_ns() - begun) / 1e6)
times.sort()
at = lambda part: times[(len(times) - 1) * part // 1000]
print(f'least {at(0):.3f} ms, median {at(500):.3f} ms, p99 {at(990):.3f} ms, most {at(1000):.3f} ms')
";

/// Compares pings between the same namespaces, if they can be made.
fn ping(setting: &Setting<'_>) -> Result<Pings, Error> {
    let count = if setting.quick { 20 } else { 1000 };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/active-demo.sh");
    let steps = format!(
        "echo ICMP; ip netns exec $NET-1 python3 -c \"$ICMP\" 10.23.0.3 {count}; \
         echo active, code in the cache; host ping --active n3 -i 0 -q -n {count}; \
         echo active, code in each packet; host ping --active n3 -i 0 -q --code -n {count}"
    );
    println!("pings over two links, {count} of each kind (SANE, Figs. 7 and 8)");
    let mut command = Command::new(script);
    command.arg(setting.flame).args(["bash", "-c", &steps]).env("ICMP", ICMP);
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    said.lines().for_each(|line| println!("  {line}"));
    if !out.status.success() {
        println!("  left out: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let of = |head: &str| Times::read(said.split_once(head)?.1);
    Ok(Pings { active: of("active, code in the cache"), code: of("active, code in each packet") })
}

/// Times of pings in milliseconds.
struct Times {
    median: f64,
    p99: f64,
}

impl Times {
    /// Reads the first summary of a text.
    fn read(said: &str) -> Option<Self> {
        let after = |name: &str| said.split_once(name)?.1.split_whitespace().next()?.parse().ok();
        Some(Self { median: after("median ")?, p99: after("p99 ")? })
    }
}

/// Active pings, if they could be sent.
struct Pings {
    active: Option<Times>,
    code: Option<Times>,
}
