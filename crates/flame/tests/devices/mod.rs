//! Tests of graphs in line on interfaces, with veth pairs in namespaces: `tx0`–`rx0` and `out0`–`far0`. They
//! need root, and report when they are skipped.

mod devices_xdp;
mod interface;
mod live;

use crate::network::{Net, flame, ipv4, wait_for};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// A graph that runs. Standard error is in a file.
pub struct Graph {
    pub child: Child,
    folder: tempfile::TempDir,
}

impl Graph {
    /// Starts a graph, and waits until its devices are open.
    pub fn start(net: &Net, text: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let mut command = net.command(&flame());
        command.current_dir(folder.path()).args(["click", "-e", text]).args(more);
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        let devices = text.matches("Device(").count();
        let mut graph = Self { child, folder };
        wait_for("the devices", || {
            assert!(graph.child.try_wait().unwrap().is_none(), "ended early: {}", graph.said());
            graph.said().matches(" :: ").count() >= devices
        });
        graph
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.path().join("err")).unwrap()
    }

    pub fn kill(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Ends it with Ctrl-C, and returns what it printed.
    pub fn end(&mut self) -> String {
        self.kill("INT");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}", self.said());
        std::fs::read_to_string(self.path().join("out")).unwrap()
    }

    /// Talks to its ControlSocket, which is the file `control`.
    pub fn ask(&self, lines: &str) -> String {
        let mut stream = UnixStream::connect(self.path().join("control")).unwrap();
        stream.write_all(format!("{lines}\nQUIT\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns whether it uses next to no processor time for two seconds.
    pub fn is_quiet(&self) -> bool {
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
            let fields = stat.rsplit(')').next().unwrap().split(' ');
            fields.skip(12).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
        };
        std::thread::sleep(Duration::from_millis(300));
        let before = ticks();
        std::thread::sleep(Duration::from_secs(2));
        // Of 200 ticks that one processor has.
        ticks() - before < 20
    }

    /// Waits until a handler has a value.
    pub fn wait(&self, handler: &str, value: &str) {
        let line = format!("DATA {}\r\n{value}", value.len());
        wait_for(format!("{handler}: {value}"), || self.ask(&format!("READ {handler}")).contains(&line));
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the value of a handler in the output of several.
pub fn value<'a>(out: &'a str, handler: &str) -> &'a str {
    let part = out.split("\n\n").find_map(|part| part.trim_start().strip_prefix(&format!("{handler}:\n")));
    part.unwrap_or_else(|| panic!("{handler} in {out}")).trim_end()
}

/// Checks that every account adds up.
pub fn add_up(out: &str) {
    let mut count = 0;
    for part in out.split("\n\n").filter(|p| p.contains(".account:")) {
        let number = |word: &str| -> u64 {
            let lines = part.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' '));
            lines.map(|l| l.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        assert_eq!(
            number("taken") + number("made"),
            number("given") + number("held") + number("dropped"),
            "{part}"
        );
        count += 1;
    }
    assert!(count > 1, "{out}");
}

/// Returns the frames of a capture.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut all) = (24, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        all.push(bytes[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    all
}

pub fn net() -> Option<Net> {
    let net = Net::new()?;
    net.shell("ip link add out0 type veth peer name far0 && ip link set out0 up && ip link set far0 up");
    Some(net)
}

pub const CONTROL: &str = "ControlSocket(unix, control); ";

#[test]
fn frames_leave_as_they_came() {
    let Some(net) = net() else { return };
    // Frames of many lengths, some with a VLAN tag, which the kernel takes out of the frame, or with two.
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0x20, 7], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]];
    let sent: Vec<Vec<u8>> = (0..1000_u16)
        .map(|i| ipv4(tags[usize::from(i % 3)], 17, (7, i), (9, 53), 60 + usize::from(i)))
        .collect();
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> q :: Queue(10000) -> to :: ToDevice(out0);
        far :: FromDevice(far0, PROMISC true) -> ToDump(far.pcap) -> c :: Counter -> Discard;"
    );
    let mut graph =
        Graph::start(&net, &text, &["-h", "*.account", "-h", "to.count", "-h", "far.kernel_drops"]);
    for device in ["rx0", "out0", "far0"] {
        assert!(graph.said().contains(&format!("interface {device} by ")), "{}", graph.said());
    }
    net.send(&sent, 1);
    graph.wait("c.count", "1000");
    let out = graph.end();
    add_up(&out);
    assert_eq!((value(&out, "to.count"), value(&out, "far.kernel_drops")), ("1000", "0"));
    assert_eq!(frames(&graph.path().join("far.pcap")), sent);
}

/// Returns a router between two hosts, each in its namespace, by `rx0` and `out0`.
pub fn between() -> Option<(Net, Net, Net)> {
    let (net, near, far) = (net()?, Net::new()?, Net::new()?);
    for (host, device, address) in [(&near, "tx0", "10.8.0.1/24"), (&far, "far0", "10.8.0.2/24")] {
        host.shell("ip link del tx0");
        net.shell(&format!("ip link set {device} netns {}", host.namespace));
        host.shell(&format!("ip link set {device} name eth0 && ip link set eth0 up && ip link set lo up"));
        host.shell(&format!("ip addr add {address} dev eth0"));
    }
    Some((net, near, far))
}

/// Serves a connection: sends what it receives back, and ends.
pub const ECHO: &str = "
import socket
s = socket.create_server(('10.8.0.2', 7))
c, _ = s.accept()
while True:
    d = c.recv(1 << 20)
    if not d: break
    c.sendall(d)
";

/// Sends 2 MB, receives them, and prints whether they are the same.
pub const CLIENT: &str = "
import os, socket, threading
c = socket.create_connection(('10.8.0.2', 7))
sent = os.urandom(2_000_000)
def send():
    c.sendall(sent)
    c.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = b''
while True:
    d = c.recv(1 << 20)
    if not d: break
    got += d
print(got == sent)
";

/// Frames between hosts that leave checksums and segments to their cards leave as on a wire.
#[test]
fn segments_are_cut_and_checksums_computed() {
    let Some((net, near, far)) = between() else { return };
    // Copies are checked: length, checksums of IP and TCP.
    let text = format!(
        "{CONTROL} a :: FromDevice(rx0, SNIFFER false) -> ta :: Tee -> Queue(10000) -> ToDevice(out0);
        b :: FromDevice(out0, SNIFFER false) -> tb :: Tee -> Queue(10000) -> ToDevice(rx0);
        ta [1], tb [1] -> k :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
        -> t :: CheckTCPHeader -> tcp :: Counter -> Discard; k [1] -> Discard;"
    );
    let mut graph =
        Graph::start(&net, &text, &["-h", "*.account", "-h", "tcp.count", "-h", "tcp.byte_count"]);
    let mut server = far.command("python3").args(["-c", ECHO]).spawn().unwrap();
    wait_for("the server", || far.said("ss -Hltn").contains(":7 "));
    assert_eq!(near.command("python3").args(["-c", CLIENT]).output().unwrap().stdout, b"True\n");
    server.wait().unwrap();
    let out = graph.end();
    add_up(&out);
    // The kernel's own counters show fewer, since it counts joined segments as one.
    let joined: u64 = ["rx0", "out0"]
        .map(|d| net.said(&format!("cat /sys/class/net/{d}/statistics/rx_packets")).parse::<u64>().unwrap())
        .iter()
        .sum();
    let tcp: u64 = value(&out, "tcp.count").parse().unwrap();
    assert!(tcp > joined && tcp > 2700, "{tcp} segments, {joined} counted by the kernel");
    for checked in ["t.account", "k.account"] {
        assert!(!value(&out, checked).contains("dropped"), "{out}");
    }
    let bytes: u64 = value(&out, "tcp.byte_count").parse().unwrap();
    assert!(bytes > 4_000_000 && bytes / tcp <= 1500, "{bytes} bytes in {tcp} packets");
}

/// Sends a datagram without its checksum, and three segments as one frame, both with a VLAN tag, from `tx0`.
const UNFINISHED: &str = "
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('tx0', 0))
s.setsockopt(263, 15, 1)
def total(b):
    n = sum(struct.unpack('>%dH' % (len(b) // 2), b))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return n
def send(protocol, transport, at, kind, size):
    ip = struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(transport), 1, 0, 64, protocol, 0)
    ip += bytes([10, 0, 0, 1, 10, 0, 0, 2])
    ip = ip[:10] + struct.pack('>H', 0xffff - total(ip)) + ip[12:]
    pseudo = total(ip[12:] + struct.pack('>HH', protocol, len(transport)))
    transport = transport[:at] + struct.pack('>H', pseudo) + transport[at + 2:]
    frame = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x20, 7, 8, 0]) + ip + transport
    s.send(struct.pack('=BBHHHH', 1, kind, 58 if kind else 0, size, 38, at) + frame)
send(17, struct.pack('>HHHH', 5, 6, 8 + 11, 0) + bytes(range(11)), 6, 0, 0)
send(6, struct.pack('>HHIIBBHHH', 7, 8, 1, 2, 0x50, 0x18, 999, 0, 0) + bytes(i % 251 for i in range(2500)), 16, 1, 1000)
";

/// The tag that the kernel takes out of a frame moves the place of its checksum.
#[test]
fn unfinished_frames_with_a_tag_are_finished() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> all :: Counter -> tags :: Classifier(12/81002007, -)
          -> Strip(18) -> CheckIPHeader -> kinds :: IPClassifier(udp, tcp);
        kinds [0] -> CheckUDPHeader -> udp :: Counter -> Discard;
        kinds [1] -> CheckTCPHeader -> tcp :: Counter -> Discard; tags [1] -> Discard;"
    );
    let handlers = ["-h", "*.account", "-h", "udp.byte_count", "-h", "tcp.byte_count", "-h", "tcp.count"];
    let mut graph = Graph::start(&net, &text, &handlers);
    assert!(net.command("python3").args(["-c", UNFINISHED]).status().unwrap().success());
    graph.wait("all.count", "4");
    let out = graph.end();
    add_up(&out);
    assert_eq!((value(&out, "udp.byte_count"), value(&out, "tcp.count")), ("39", "3"), "{out}");
    assert_eq!(value(&out, "tcp.byte_count"), (2500 + 3 * 40).to_string(), "{out}");
}

/// Knocks at a closed port, which a kernel that receives it refuses.
const KNOCK: &str = "
import socket
s = socket.socket()
s.settimeout(2)
try:
    s.connect(('10.8.0.9', 9))
except ConnectionRefusedError:
    print('refused')
except OSError as e:
    print(e)
";

/// The kernel does not answer with SNIFFER false, until the router ends, even if it is killed.
#[test]
fn the_kernel_keeps_away_while_it_is_told_to() {
    let Some((net, near, _)) = between() else { return };
    net.shell("ip addr add 10.8.0.9/24 dev rx0");
    let answers = || near.said(&format!("python3 -c \"{KNOCK}\"")) == "refused";
    assert!(answers());
    let text = |sniffer: bool| {
        format!(
            "{CONTROL} d :: FromDevice(rx0, SNIFFER {sniffer}) -> IPClassifier(tcp) -> c :: Counter -> Discard"
        )
    };
    let mut sniffer = Graph::start(&net, &text(true), &[]);
    assert!(answers());
    sniffer.wait("c.count", "1");
    sniffer.end();
    let graph = Graph::start(&net, &text(false), &[]);
    near.shell("ip neigh flush dev eth0");
    assert!(!answers());
    graph.kill("KILL");
    wait_for("answers", answers);
}

#[test]
fn types_filters_and_directions_are_as_asked() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL}
        plain :: FromDevice(rx0) -> c0 :: Counter -> others :: HostEtherFilter(rx0:eth) -> o0 :: Counter -> Discard;
        all :: FromDevice(rx0, true) -> c1 :: Counter -> DropBroadcasts -> o1 :: Counter -> Discard;
        short :: FromDevice(rx0, PROMISC true, SNAPLEN 30) -> c2 :: Counter -> Queue -> to :: ToDevice(far0);
        vlan :: FromDevice(rx0, PROMISC true, BPF_FILTER \"vlan 7 and udp\") -> c3 :: Counter -> Discard;
        ip :: FromDevice(rx0, PROMISC true, FORCE_IP true) -> c4 :: Counter -> MarkIPHeader(14)
          -> CheckIPHeader(OFFSET 14, CHECKSUM false) -> Discard;
        out :: FromDevice(tx0, OUTBOUND true, PROMISC true) -> c5 :: Counter -> Discard;
        in :: FromDevice(tx0, PROMISC true) -> c6 :: Counter -> Discard;"
    );
    let handlers = ["*.account", "c0.count", "o0.count", "c1.count", "o1.count", "c2.byte_count", "c3.count"];
    let handlers = [&handlers[..], &["c4.count", "c5.count", "c6.count", "to.drops"]].concat();
    let arguments: Vec<&str> = handlers.iter().flat_map(|h| ["-h", h]).collect();
    let mut graph = Graph::start(&net, &text, &arguments);
    let mut sent = Vec::new();
    for i in 0..10 {
        let tag: &[u8] = if i < 4 { &[0x81, 0, 0, 7] } else { &[] };
        let mut frame = ipv4(tag, if i < 2 { 6 } else { 17 }, (1, i), (2, 53), 100);
        match i {
            8 => frame[..6].fill(0xff),
            9 => frame[12] = 0x99,
            _ => {}
        }
        sent.push(frame);
    }
    net.send(&sent, 1);
    graph.wait("c1.count", "10");
    graph.wait("c5.count", "10");
    std::thread::sleep(Duration::from_millis(100));
    let out = graph.end();
    add_up(&out);
    let count = |name: &str| value(&out, name).parse::<u64>().unwrap();
    // A veth pair delivers all frames, in promiscuous mode or not; their type says for whom they are.
    assert_eq!((count("c0.count"), count("o0.count")), (10, 1), "{out}");
    assert_eq!((count("c1.count"), count("o1.count")), (10, 9), "{out}");
    // A frame that was cut off is no right frame.
    assert_eq!((count("c2.byte_count"), count("to.drops")), (1000, 10), "{out}");
    assert_eq!((count("c3.count"), count("c4.count")), (2, 9), "{out}");
    assert_eq!((count("c5.count"), count("c6.count")), (10, 0), "{out}");
}

/// Packets of a tunnel begin with IP, and filters read them so.
#[test]
fn filters_are_those_of_the_interfaces_link_type() {
    let Some(net) = net() else { return };
    net.shell("ip tuntap add dev tun0 mode tun && ip link set tun0 up");
    let text = format!(
        "{CONTROL}
        some :: FromDevice(tun0, BPF_FILTER \"udp port 53\") -> dns :: Counter -> Discard;
        every :: FromDevice(tun0) -> all :: Counter -> Discard;"
    );
    let arguments = ["-h", "*.account", "-h", "dns.count", "-h", "all.count"];
    let mut graph = Graph::start(&net, &text, &arguments);
    let packets = (0..10).map(|i| ipv4(&[], if i < 4 { 17 } else { 6 }, (1, i), (2, 53), 100)[14..].to_vec());
    let packets: Vec<String> =
        packets.map(|p| p.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    net.shell(&format!(
        "python3 -c 'import fcntl, os, struct
tun = os.open(\"/dev/net/tun\", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack(\"16sH\", b\"tun0\", 0x1001))
[os.write(tun, bytes.fromhex(packet)) for packet in \"{}\".split()]'",
        packets.join(" ")
    ));
    graph.wait("all.count", "10");
    let out = graph.end();
    add_up(&out);
    assert_eq!(value(&out, "dns.count"), "4", "{out}");
    // A word that such packets do not answer is refused by name.
    let text = "FromDevice(tun0, BPF_FILTER \"ether host 1:2:3:4:5:6\") -> Discard";
    let out = net.command(&flame()).args(["click", "-e", text]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("for packets of link type 101"), "{said}");
}

#[test]
fn frames_that_an_interface_refuses_are_named_and_it_comes_back() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> Queue -> to :: ToDevice(out0) -> sent :: Counter -> Discard;
        to [1] -> refused :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account", "-h", "refused.count"]);
    let frames = |size: usize| vec![ipv4(&[], 17, (1, 1), (2, 53), size); 10];
    net.shell("ip link set out0 mtu 1000");
    net.send(&[frames(1000), frames(1200)].concat(), 1);
    graph.wait("sent.count", "10");
    graph.wait("refused.count", "10");
    net.shell("ip link set out0 down");
    net.send(&frames(100), 1);
    graph.wait("refused.count", "20");
    // The receiving interface goes down and comes back.
    net.shell("ip link set out0 up && ip link set rx0 down");
    wait_for("the message", || graph.said().contains("interface rx0 is down"));
    net.shell("ip link set rx0 up");
    net.send(&frames(100), 1);
    graph.wait("sent.count", "20");
    net.shell("ip link del rx0");
    wait_for("the message", || graph.said().contains("the interface was removed"));
    add_up(&graph.end());
}

/// Interfaces that are made again are opened again, and a renamed one stays in use.
#[test]
fn interfaces_that_are_made_again_are_opened_again() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> Queue -> to :: ToDevice(out0) -> sent :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-R", "-h", "*.account"]);
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 100); 10];
    let opened = |device: &str| graph.said().matches(&format!("interface {device} by ")).count();
    net.shell("ip link del rx0");
    wait_for("the message", || graph.said().contains("the interface was removed"));
    net.link();
    wait_for("the interface", || opened("rx0") == 2);
    net.send(&frames, 1);
    graph.wait("sent.count", "10");
    // That to which is sent: what waits is sent when it is there again.
    net.shell("ip link del out0");
    net.send(&frames, 1);
    wait_for("the message", || graph.said().contains("interface out0: it was removed"));
    net.shell("ip link add out0 type veth peer name far0 && ip link set out0 up && ip link set far0 up");
    graph.wait("sent.count", "20");
    // It is the same interface by another name, until a configuration asks for the name.
    net.shell("ip link set rx0 down && ip link set rx0 name old0 && ip link set old0 up");
    net.send(&frames, 1);
    graph.wait("sent.count", "30");
    net.shell("ip link set tx0 name old1");
    net.link();
    let answer = graph.ask(&format!("WRITEDATA hotconfig {}\n{text}", text.len()));
    assert!(answer.contains("200 "), "{answer}");
    wait_for("the interface", || opened("rx0") == 3);
    net.send(&frames, 1);
    graph.wait("sent.count", "40");
    add_up(&graph.end());
}

/// The other end of a link refuses frames that are longer than its MTU, which the interface here does not
/// know: each is given up after a while, and those after it leave.
pub fn a_refused_frame_is_given_up(method: &str) {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> Queue(5000) -> to :: ToDevice(out0, METHOD {method})
          -> sent :: Counter -> Discard; to [1] -> refused :: Counter -> Discard;
        FromDevice(far0, PROMISC true, RING 1024) -> ToDump(far.pcap) -> far :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account"]);
    let frames_of = |from: u16, size: usize, count: u16| -> Vec<Vec<u8>> {
        (from..from + count).map(|i| ipv4(&[], 17, (1, i), (2, 53), size)).collect()
    };
    net.shell("ip link set far0 mtu 1000");
    let (long, short) = (frames_of(0, 1400, 12), frames_of(100, 300, 500));
    net.send(&[&long[..1], &short[..250], &long[1..], &short[250..]].concat(), 1);
    graph.wait("refused.count", "12");
    graph.wait("far.count", "500");
    add_up(&graph.end());
    assert!(frames(&graph.path().join("far.pcap")) == short);
}

#[test]
fn a_frame_that_the_other_end_refuses_does_not_stop_the_others() {
    a_refused_frame_is_given_up("LINUX");
}

/// A link of 500 kbit a second with a short queue: frames wait, and none is lost.
#[test]
fn a_slow_link_is_waited_for() {
    let Some(net) = net() else { return };
    if !net.command("sh").args(["-c", SLOW]).status().unwrap().success() {
        return eprintln!("skipped: this kernel has no token bucket filter");
    }
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> Queue(5000) -> to :: ToDevice(out0)
          -> sent :: Counter -> Discard;
        FromDevice(far0, PROMISC true) -> far :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account", "-h", "to.drops"]);
    let sent: Vec<Vec<u8>> = (0..150_u16).map(|i| ipv4(&[], 17, (1, i), (2, 53), 1400)).collect();
    net.send(&sent, 1);
    graph.wait("far.count", "150");
    let out = graph.end();
    add_up(&out);
    assert_eq!(value(&out, "to.drops"), "0");
}

const SLOW: &str = "tc qdisc add dev out0 root tbf rate 500kbit burst 2000 limit 4000";

/// Interfaces that come back with their numbers, as those that a tool for containers moves, are not those
/// that were opened.
pub fn an_interface_with_the_same_number_is_opened_again(method: &str) {
    let (Some(net), Some(other)) = (net(), Net::new()) else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true, METHOD {method}) -> Queue
          -> to :: ToDevice(out0, METHOD {method})
          -> sent :: Counter -> Discard;
        back :: FromDevice(out0, PROMISC true, METHOD {method}) -> c :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account"]);
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 100); 10];
    net.send(&frames, 1);
    graph.wait("sent.count", "10");
    let opened = |device: &str| graph.said().matches(&format!("interface {device} by ")).count();
    let number = |device: &str| net.said(&format!("cat /sys/class/net/{device}/ifindex"));
    other.shell("ip link del tx0");
    for (device, expected, count) in [("rx0", 1, "20"), ("out0", 2, "30")] {
        let before = number(device);
        net.shell(&format!("ip link set {device} netns {}", other.namespace));
        other.shell(&format!("ip link set {device} netns {}", net.namespace));
        net.shell(&format!("ip link set {device} up"));
        assert_eq!(number(device), before, "{device}");
        wait_for("the receiver", || opened(device) > expected);
        if device == "out0" {
            // The element that sends finds out by a frame.
            net.send(&frames, 1);
            wait_for("the sender", || opened(device) > expected + 1);
        } else {
            net.send(&frames, 1);
        }
        graph.wait("sent.count", count);
    }
    // Both directions of the interface that was moved work.
    let send = format!("python3 -c \"{ONE}\"");
    net.shell(&send);
    graph.wait("c.count", "1");
    add_up(&graph.end());
}

/// Sends a frame from `far0`.
const ONE: &str = "
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('far0', 0))
s.send(b'\\xff' * 6 + bytes(54))
";

#[test]
fn an_interface_that_comes_back_with_its_number_is_opened_again() {
    an_interface_with_the_same_number_is_opened_again("LINUX");
}

/// Returns a graph that sends by a device what `rx0` receives, with counters of both other ends.
pub fn towards(device: &str, method: &str) -> String {
    format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> c :: Counter -> Queue
          -> to :: ToDevice({device}, METHOD {method}) -> sent :: Counter -> Discard;
        FromDevice(tx0, PROMISC true) -> near :: Counter -> Discard;
        FromDevice(far0, PROMISC true) -> far :: Counter -> Discard;"
    )
}

impl Graph {
    /// Replaces the configuration.
    pub fn swap(&self, text: &str) {
        let answer = self.ask(&format!("WRITEDATA hotconfig {}\n{text}", text.len()));
        assert!(answer.contains("200 "), "{answer}");
    }

    pub fn wait_for_account(&self, element: &str, line: &str) {
        wait_for(line, || self.ask(&format!("READ {element}.account")).contains(line));
    }
}

/// Frames that wait for an interface, since its other end refuses them for now, do not leave by another one.
#[test]
fn frames_that_wait_do_not_leave_by_another_interface() {
    let Some(net) = net() else { return };
    let mut graph = Graph::start(&net, &towards("out0", "LINUX"), &["-R", "-h", "*.account"]);
    net.shell("ip link set far0 mtu 500");
    let frames: Vec<Vec<u8>> = (0..50_u16).map(|i| ipv4(&[], 17, (1, i), (2, 53), 600)).collect();
    net.send(&frames, 1);
    graph.wait_for_account("to", "held 50");
    graph.swap(&towards("rx0", "LINUX"));
    graph.wait_for_account("to", " replaced");
    net.send(&frames[..10], 1);
    graph.wait("near.count", "10");
    add_up(&graph.end());
}

/// Sends a frame of 60,000 bytes whose segments are said to have one byte each.
const TINY: &str = "
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('tx0', 0))
s.setsockopt(263, 15, 1)
ip = struct.pack('>BBHHHBBH', 0x45, 0, 60040, 1, 0, 64, 6, 0) + bytes([10, 0, 0, 1, 10, 0, 0, 2])
tcp = struct.pack('>HHIIBBHHH', 7, 8, 1, 2, 0x50, 0x10, 999, 0, 0)
frame = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]) + ip + tcp + bytes(60000)
s.send(struct.pack('=BBHHHH', 1, 1, 54, 1, 34, 16) + frame)
";

#[test]
fn a_frame_of_very_many_segments_is_dropped() {
    let Some(net) = net() else { return };
    let text = format!("{CONTROL} from :: FromDevice(rx0, PROMISC true) -> c :: Counter -> Discard");
    let mut graph = Graph::start(&net, &text, &["-h", "*.account"]);
    assert!(net.command("python3").args(["-c", TINY]).status().unwrap().success());
    net.send(&[ipv4(&[], 17, (1, 1), (2, 53), 100)], 1);
    graph.wait("c.count", "1");
    let out = graph.end();
    add_up(&out);
    assert!(value(&out, "from.account").contains("dropped 1 too many joined segments"), "{out}");
}

/// Under traffic, another configuration loses no frame, and sees none twice.
#[test]
fn another_configuration_takes_the_devices_over() {
    let Some(net) = net() else { return };
    let text = |more: &str| {
        format!(
            "{CONTROL} from :: FromDevice(rx0, PROMISC true) -> {more} q :: Queue(100000) -> to :: ToDevice(out0);
            far :: FromDevice(far0, PROMISC true) -> c :: Counter -> Discard"
        )
    };
    let handlers = ["-R", "-h", "*.account", "-h", "far.kernel_drops", "-h", "from.kernel_drops"];
    let mut graph = Graph::start(&net, &text(""), &handlers);
    wait_for("the socket", || graph.path().join("control").exists());
    let sent: Vec<Vec<u8>> = (0..2000_u16).map(|i| ipv4(&[], 17, (1, i), (2, 53), 100)).collect();
    let mut sender = net.sender(&sent, 10, "");
    for round in 0..8 {
        let new = text(&"Null -> ".repeat(round % 2));
        let answer = graph.ask(&format!("WRITEDATA hotconfig {}\n{new}", new.len()));
        assert!(answer.contains("200 "), "{answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(sender.wait().unwrap().success());
    graph.wait("c.count", "20000");
    let out = graph.end();
    add_up(&out);
    assert_eq!((value(&out, "far.kernel_drops"), value(&out, "from.kernel_drops")), ("0", "0"));
}

/// A router whose interfaces are quiet uses next to no processor time.
#[test]
fn quiet_interfaces_cost_nothing() {
    let Some(net) = net() else { return };
    let graph = Graph::start(&net, "FromDevice(rx0) -> Queue -> ToDevice(out0)", &[]);
    assert!(graph.is_quiet());
}

#[test]
fn without_the_right_the_error_names_it() {
    let Some(net) = net() else { return };
    for graph in ["FromDevice(rx0) -> Discard", "Idle -> ToDevice(rx0)"] {
        let mut command = net.command("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all", &flame(), "click", "-e", graph]);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("interface rx0: socket: ") && said.contains("CAP_NET_RAW"), "{said}");
    }
}
