//! Three nodes on the loopback device, n1 – n2 – n3, in threads, with a host beside n1, and a wire between n1
//! and n2 that may be tapped.

use flame_active_link::Clock;
use flame_active_node::Services;
use flame_active_server::{Client, Config, Confined, Question, Report, clock, serve};
use flame_capsule::{Limits, Payer};
use flame_compile::{Compiler, Engines};
use flame_trust::{Credential, Field, Mint, Narrow, Secret};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 4747;

/// A service that doubles its argument.
struct Doubling;

impl Services for Doubling {
    fn service(&mut self, _: Payer, _: u64, argument: i64) -> Option<i64> {
        Some(argument * 2)
    }
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

/// A datagram that the wire between n1 and n2 carried: whether it went to n2.
pub type Tapped = (bool, Vec<u8>);

/// The wire between n1 and n2: each sees the other at an address of the wire.
pub struct Wire {
    /// Where n2 sees n1, and where n1 sees n2.
    ends: [UdpSocket; 2],
    nodes: [SocketAddr; 2],
    pub seen: Arc<Mutex<Vec<Tapped>>>,
}

pub struct World {
    folder: tempfile::TempDir,
    root: Secret,
    base: [u8; 3],
    running: Vec<Running>,
    wire: Arc<Wire>,
    stop: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

pub type Host = Client<Box<dyn FnMut() -> Clock>>;

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn clocks() -> Box<dyn FnMut() -> Clock> {
    let started = Instant::now();
    Box::new(move || clock(started))
}

impl Wire {
    /// Sends a datagram to n2 as n1, or to n1 as n2.
    pub fn inject(&self, to_second: bool, datagram: &[u8]) {
        let end = usize::from(!to_second);
        self.ends[end].send_to(datagram, self.nodes[1 - end]).unwrap();
    }

    fn carry(&self) {
        let mut buffer = [0; 16_384];
        for end in 0..2 {
            // What n1 sends comes to the end at which it sees n2, and leaves from the other.
            while let Ok((length, from)) = self.ends[end].recv_from(&mut buffer) {
                if from == self.nodes[1 - end] {
                    let datagram = &buffer[..length];
                    let to_second = end == 1;
                    self.seen.lock().unwrap().push((to_second, datagram.to_vec()));
                    self.inject(to_second, datagram);
                }
            }
        }
    }
}

impl World {
    /// Begins three nodes.
    pub fn new() -> Self {
        // Each process and test has addresses of its own below 127.0.0.0/8.
        let [_, _, a, b] = std::process::id().to_be_bytes();
        let number = u8::try_from(NUMBER.fetch_add(1, Ordering::Relaxed) * 8).unwrap();
        let base = [a.max(1), b, number];
        let at = |n: u8| SocketAddr::from(([127, a.max(1), b, number + n], PORT));
        let ends = [at(4), at(5)].map(|end| UdpSocket::bind(end).unwrap());
        for end in &ends {
            end.set_read_timeout(Some(Duration::from_micros(200))).unwrap();
        }
        let wire = Arc::new(Wire { ends, nodes: [at(1), at(2)], seen: Arc::default() });
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = {
            let (wire, stop) = (wire.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    wire.carry();
                }
            })
        };
        let (folder, root) = (tempfile::tempdir().unwrap(), Secret::generate());
        let carrier = Some(carrier);
        let mut world = Self { folder, root, base, running: Vec::new(), wire, stop, carrier };
        std::fs::write(world.path("revoked"), "").unwrap();
        let ways = |text: &str| text.to_owned();
        world.config("n1", 1, &format!("n2 = \"{}\"", at(5)), &ways("n3 = \"n2\""), "relay");
        world.config("n2", 2, &format!("n1 = \"{}\"\nn3 = \"{}\"", at(4), at(3)), "", "relay");
        world.config("n3", 3, &format!("n2 = \"{}\"", at(2)), &ways("n1 = \"n2\""), "relay");
        for name in ["n1", "n2", "n3"] {
            world.begin(name);
        }
        world
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn address(&self, n: u8) -> SocketAddr {
        let [a, b, number] = self.base;
        SocketAddr::from(([127, a, b, number + n], PORT))
    }

    /// Returns the middle of addresses that no node of this world has.
    pub fn forged(&self) -> [u8; 2] {
        let [a, b, _] = self.base;
        [a, b.wrapping_add(1)]
    }

    /// Writes the files of a node or host, and returns its public key.
    pub fn config(&self, name: &str, at: u8, neighbours: &str, ways: &str, role: &str) -> String {
        self.config_of((name, name), &[], at, neighbours, ways, role)
    }

    /// Writes the files of a principal under a name, with narrower rights.
    fn config_of(
        &self,
        (name, principal): (&str, &str),
        narrow_of: &[(Field, &str)],
        at: u8,
        neighbours: &str,
        ways: &str,
        role: &str,
    ) -> String {
        let secret = Secret::generate();
        secret.write_new(&self.path(&format!("{name}.key"))).unwrap();
        let fields =
            vec![(Field::Expires, "2100-01-01T00:00:00Z".to_owned()), (Field::Code, "any".to_owned())];
        let narrow = Narrow { fields, holder: Some(secret.public()), ..Narrow::default() };
        let mint = Mint { principal: principal.to_owned(), role: role.to_owned(), narrow };
        let credential = Credential::mint(&self.root, &mint).unwrap();
        // Any bearer narrows it, without the root.
        let fields: Vec<_> = narrow_of.iter().map(|(field, value)| (*field, (*value).to_owned())).collect();
        let narrow = Narrow { fields, ..Narrow::default() };
        let credential = match narrow_of {
            [] => credential,
            _ => credential.narrow(&narrow, None).unwrap(),
        };
        std::fs::write(self.path(&format!("{name}.credential")), credential.text()).unwrap();
        let kind = "roots = [\"operator\"]\nselect = \"ip\"\nexpose = \"count\"\ncalls = \"records\"\ncode = \"any\"\n";
        // A host does not look at what the nodes have revoked.
        let revocations = if role == "host" { "" } else { "revocations = \"revoked\"\n" };
        let policy = format!(
            "[node]\nname = \"{name}\"\nkey = \"{name}.key\"\n{revocations}\
             [roots]\noperator = \"{}\"\n[roles.relay]\n{kind}[roles.host]\n{kind}",
            self.root.public()
        );
        std::fs::write(self.path(&format!("{name}.policy")), policy).unwrap();
        let port = if at == 6 { 0 } else { PORT };
        let listen = SocketAddr::new(self.address(at).ip(), port);
        let interfaces = match name {
            "n1" => "n2 = \"up\"",
            "n2" => "n1 = \"up\"\nn3 = \"down\"",
            "n3" => "n2 = \"down\"",
            _ => "",
        };
        let text = format!(
            "listen = \"{listen}\"\npolicy = \"{name}.policy\"\ncredential = \"{name}.credential\"\n\
             identity = \"{name}.key\"\ntime = \"{name}.time\"\n\
             [neighbours]\n{neighbours}\n[ways]\n{ways}\n[interfaces]\n{interfaces}\n\
             [accounts.alice]\ncalls = [\"send\", \"deliver\", \"leave\", \"service\", \"times\"]\nresolution = 1\n"
        );
        std::fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        secret.public().to_string()
    }

    fn begin(&mut self, name: &str) {
        let config = Config::open(&self.path(&format!("{name}.toml")), flame_trust::time::now()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (told, begun) = mpsc::channel();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let compiler = Confined::new(|| Compiler::in_process(Engines::new().unwrap(), None)).unwrap();
            let begun = |address| told.send(address).unwrap();
            serve(config, compiler, Doubling, clocks(), &flag, begun).unwrap()
        });
        begun.recv().unwrap();
        self.running.push(Running { stop, thread });
    }

    /// Returns a host beside n1, if it gets a link, and its public key.
    pub fn try_host(&self, name: &str, patience: Duration) -> (Option<Host>, String) {
        let neighbour = format!("n1 = \"{}\"", self.address(1));
        let key = self.config(name, 6, &neighbour, "n2 = \"n1\"\nn3 = \"n1\"", "host");
        let config = self.open(name);
        (Client::open(&config, clocks(), patience).unwrap(), key)
    }

    /// Returns a host beside n1 with a narrowed credential of a principal.
    pub fn narrowed(&self, (name, principal): (&str, &str), narrow: &[(Field, &str)]) -> Host {
        let neighbour = format!("n1 = \"{}\"", self.address(1));
        self.config_of((name, principal), narrow, 6, &neighbour, "n2 = \"n1\"\nn3 = \"n1\"", "host");
        Client::open(&self.open(name), clocks(), PATIENCE).unwrap().unwrap()
    }

    pub fn host(&self, name: &str) -> Host {
        self.try_host(name, PATIENCE).0.unwrap()
    }

    pub fn open(&self, name: &str) -> Config {
        Config::open(&self.path(&format!("{name}.toml")), flame_trust::time::now()).unwrap()
    }

    /// Ends the nodes, and returns what each has done.
    pub fn end(mut self) -> Vec<Report> {
        for running in &self.running {
            running.stop.store(true, Ordering::Relaxed);
        }
        let reports = self.running.drain(..).map(|running| running.thread.join().unwrap()).collect();
        self.stop.store(true, Ordering::Relaxed);
        self.carrier.take().unwrap().join().unwrap();
        reports
    }
}

/// Begins a capsule until something is delivered, and returns it.
pub fn ask(host: &mut Host, code: &[u8], function: u8, arguments: &[u64], limits: Limits) -> Vec<u64> {
    let arguments: Vec<u8> = arguments.iter().flat_map(|number| number.to_le_bytes()).collect();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        // The links between nodes may not be there yet.
        let question = Question { code, function, arguments: &arguments, limits, with_code: false };
        host.send(&question).unwrap();
        if let Some(bytes) = host.receive(Some(code), Duration::from_millis(500)).unwrap() {
            return bytes.chunks(8).map(|n| u64::from_le_bytes(n.try_into().unwrap())).collect();
        }
        if let Some(bytes) = host.receive(Some(code), Duration::from_millis(500)).unwrap() {
            return bytes.chunks(8).map(|n| u64::from_le_bytes(n.try_into().unwrap())).collect();
        }
    }
    panic!("nothing was delivered");
}
