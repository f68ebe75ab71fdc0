//! Compares random expressions, packet by packet, with display filters of tshark that state the same.
//!
//! Needs `tshark`; reports and passes without it. The packets are generated, of the project, and of the
//! shared captures if they are there. The words are those that a display filter can state: hosts, networks,
//! ports, protocols, MAC addresses, tags, labels and lengths. A display filter is true of a field that is
//! not there if it is negated, and an expression reads bytes, so all packets are whole.

mod frames;

use super::captures;
use super::language::Packet;
use super::random::Numbers;
use flame_abi::LinkType;
use flame_filter::Filter;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

/// An expression, and the display filter that means the same.
struct Pair {
    text: String,
    shows: String,
}

/// The words of a side: none for either one.
const SIDES: [&str; 5] = ["", "src ", "dst ", "src or dst ", "src and dst "];

/// Returns the display filter of a test of the sides of a packet. `of` tests one field, by the suffixes of
/// its name for source and destination.
fn sides(side: &str, of: impl Fn(bool) -> String) -> String {
    match side {
        "src " => of(true),
        "dst " => of(false),
        "src and dst " => format!("({} && {})", of(true), of(false)),
        _ => format!("({} || {})", of(true), of(false)),
    }
}

/// Generates terms, with values that packets have.
struct Terms<'a> {
    n: Numbers,
    packets: &'a [Packet],
    /// The number of tags behind which terms are read.
    tags: usize,
}

impl Terms<'_> {
    /// Returns bytes of a packet at a place behind the EtherType `kind`, whichever tags come before it.
    fn bytes<const N: usize>(&mut self, kind: &[u16], at: usize) -> Option<[u8; N]> {
        (0..40).find_map(|_| {
            let bytes = &self.packets[self.n.below(self.packets.len() as u64) as usize].bytes;
            let of = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
            let behind =
                [14, 18, 22].into_iter().find(|end| of(end - 2).is_some_and(|k| kind.contains(&k)))?;
            bytes.get(behind + at..behind + at + N)?.try_into().ok()
        })
    }

    fn address(&mut self) -> Ipv4Addr {
        let at = self.n.of(&[12, 16]);
        self.bytes::<4>(&[0x800], at).map_or(Ipv4Addr::LOCALHOST, Ipv4Addr::from)
    }

    fn address6(&mut self) -> Ipv6Addr {
        let at = self.n.of(&[8, 24]);
        self.bytes::<16>(&[0x86dd], at).map_or(Ipv6Addr::LOCALHOST, Ipv6Addr::from)
    }

    fn port(&mut self) -> u16 {
        let at = self.n.of(&[20, 22]);
        self.bytes(&[0x800], at).map_or(53, u16::from_be_bytes)
    }

    fn mac(&mut self) -> String {
        let packet = &self.packets[self.n.below(self.packets.len() as u64) as usize];
        let at = self.n.of(&[0, 6]);
        packet.bytes[at..at + 6].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
    }

    /// Returns the display filter of an EtherType.
    fn link(&self, kind: u16) -> String {
        match self.tags {
            0 => format!("eth.type#1 == {kind}"),
            n => format!("vlan.etype#{n} == {kind}"),
        }
    }

    /// Returns the display filter of a protocol.
    fn proto(&self, number: u8, (ip, ip6): (bool, bool)) -> String {
        let next =
            format!("(ipv6.nxt#1 == {number} || (ipv6.nxt#1 == 44 && ipv6.fraghdr.nxt#1 == {number}))");
        let ways = [
            ip.then(|| format!("({} && ip.proto#1 == {number})", self.link(0x800))),
            ip6.then(|| format!("({} && {next})", self.link(0x86dd))),
        ];
        format!("({})", ways.into_iter().flatten().collect::<Vec<_>>().join(" || "))
    }

    /// Returns the display filter of an address or network of IPv4, for a kind of packet or those that apply.
    fn net(&self, word: &str, side: &str, value: &str) -> String {
        let ip = |is_src: bool| format!("ip.{}#1 == {value}", if is_src { "src" } else { "dst" });
        let arp =
            |is_src: bool| format!("arp.{}.proto_ipv4#1 == {value}", if is_src { "src" } else { "dst" });
        let of = |kind, test: String| format!("({} && {test})", self.link(kind));
        let ways = [
            ("ip ", of(0x800, sides(side, ip))),
            ("arp ", of(0x806, sides(side, arp))),
            ("rarp ", of(0x8035, sides(side, arp))),
        ];
        let applies = ways.into_iter().filter(|(kind, _)| word.is_empty() || word == *kind);
        format!("({})", applies.map(|(_, test)| test).collect::<Vec<_>>().join(" || "))
    }

    /// Returns the display filter of ports, of a transport protocol or all that have ports.
    fn ports(&self, word: &str, side: &str, (from, to): (u16, u16)) -> String {
        let all = [("tcp", 6), ("udp", 17), ("sctp", 132)];
        let of = |(name, number): (&str, u8)| {
            let within = sides(side, |is_src| {
                let field = format!("{name}.{}port#1", if is_src { "src" } else { "dst" });
                format!("({field} >= {from} && {field} <= {to})")
            });
            let ip = format!("{} && ip.proto#1 == {number} && ip.frag_offset#1 == 0", self.link(0x800));
            let ip6 = format!("{} && ipv6.nxt#1 == {number}", self.link(0x86dd));
            format!("((({ip}) || ({ip6})) && {within})")
        };
        let applies = all.into_iter().filter(|(name, _)| word.is_empty() || word.trim_end() == *name);
        format!("({})", applies.map(of).collect::<Vec<_>>().join(" || "))
    }

    /// Returns a term of one value, or in parentheses of two that share their qualifiers.
    fn shared(&mut self, words: &str, mut one: impl FnMut(&mut Self) -> (String, String)) -> Pair {
        let (first, shows) = one(self);
        match self.n.below(6) {
            0 => {
                let ((second, other), word) = (one(self), self.n.of(&["or", "and"]));
                Pair {
                    text: format!("({words}{first} {word} {second})"),
                    shows: format!("({shows} {word} {other})"),
                }
            }
            _ => Pair { text: format!("{words}{first}"), shows },
        }
    }

    fn term(&mut self) -> Pair {
        let pair = |text: &str, shows: String| Pair { text: text.to_owned(), shows };
        let side = self.n.of(&SIDES);
        match self.n.below(17) {
            0 => {
                let kinds = [("ip", 0x800), ("ip6", 0x86dd), ("arp", 0x806), ("rarp", 0x8035)];
                let (word, kind) = self.n.of(&kinds);
                pair(word, self.link(kind))
            }
            1 | 2 => {
                let (ip, both) = ((true, false), (true, true));
                let words = [
                    ("tcp", 6, both),
                    ("udp", 17, both),
                    ("sctp", 132, both),
                    ("icmp", 1, ip),
                    ("igmp", 2, ip),
                    ("icmp6", 58, (false, true)),
                    ("esp", 50, both),
                    ("ah", 51, both),
                ];
                let (word, number, of) = self.n.of(&words);
                pair(word, self.proto(number, of))
            }
            3 => {
                let (word, of) = self.n.of(&[
                    ("ip proto ", (true, false)),
                    ("ip6 proto ", (false, true)),
                    ("proto ", (true, true)),
                ]);
                self.shared(word, |terms| {
                    let number = terms.n.of(&[1, 2, 6, 17, 44, 58, 132]);
                    (number.to_string(), terms.proto(number, of))
                })
            }
            4..=6 => {
                let word = self.n.of(&["", "", "", "ip ", "arp ", "rarp "]);
                self.shared(&format!("{word}{side}host "), |terms| {
                    let address = terms.address().to_string();
                    let shows = terms.net(word, side, &address);
                    (address, shows)
                })
            }
            7 | 8 => {
                let word = self.n.of(&["", "ip "]);
                self.shared(&format!("{word}{side}net "), |terms| {
                    let bits = terms.n.of(&[0, 4, 8, 16, 23, 24, 30, 32]);
                    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                    let net = format!("{}/{bits}", Ipv4Addr::from(u32::from(terms.address()) & mask));
                    let shows = terms.net(word, side, &net);
                    (net, shows)
                })
            }
            9 => {
                let (word, most) = self.n.of(&[("host", 1), ("net", 5)]);
                self.shared(&format!("ip6 {side}{word} "), |terms| {
                    let bits = [128, 8, 10, 64, 100][terms.n.below(most) as usize];
                    let address = Ipv6Addr::from(u128::from(terms.address6()) & u128::MAX << (128 - bits));
                    let value = if most == 1 { address.to_string() } else { format!("{address}/{bits}") };
                    let of =
                        |is_src: bool| format!("ipv6.{}#1 == {value}", if is_src { "src" } else { "dst" });
                    let shows = format!("({} && {})", terms.link(0x86dd), sides(side, of));
                    (value, shows)
                })
            }
            10 | 11 => {
                let word = self.n.of(&["", "tcp ", "udp ", "sctp "]);
                self.shared(&format!("{word}{side}port "), |terms| {
                    let port = terms.port();
                    (port.to_string(), terms.ports(word, side, (port, port)))
                })
            }
            12 => {
                let word = self.n.of(&["", "tcp ", "udp "]);
                let (from, more) = (self.port(), self.n.of(&[0, 5, 1000]));
                let range = (from, from.saturating_add(more));
                pair(&format!("{word}{side}portrange {}-{}", range.0, range.1), self.ports(word, side, range))
            }
            13 => {
                let side = self.n.of(&["src ", "dst ", "host "]);
                self.shared(&format!("ether {side}"), |terms| {
                    let mac = terms.mac();
                    let of = |is_src: bool| format!("eth.{}#1 == {mac}", if is_src { "src" } else { "dst" });
                    let shows = sides(side, of);
                    (mac, shows)
                })
            }
            14 => {
                let of_ip = |terms: &Self, test: &str| format!("({} && {test})", terms.link(0x800));
                let words = [
                    ("ether multicast", "eth.dst.ig#1 == 1".to_owned()),
                    ("broadcast", "eth.dst#1 == ff:ff:ff:ff:ff:ff".to_owned()),
                    ("ip multicast", of_ip(self, "ip.dst#1 == 224.0.0.0/4")),
                    ("ip broadcast", of_ip(self, "(ip.dst#1 == 255.255.255.255 || ip.dst#1 == 0.0.0.0)")),
                    ("ip6 multicast", format!("({} && ipv6.dst#1 == ff00::/8)", self.link(0x86dd))),
                ];
                let (word, shows) = &words[self.n.below(5) as usize];
                pair(word, shows.clone())
            }
            15 => {
                let kind = self.n.of(&[0x800, 0x806, 0x86dd, 0x8847, 0x88b5]);
                pair(&format!("ether proto {kind:#x}"), self.link(kind))
            }
            _ => {
                let length = 50 + self.n.below(120);
                let (word, relation) = self.n.of(&[("greater", ">="), ("less", "<=")]);
                pair(&format!("{word} {length}"), format!("frame.len {relation} {length}"))
            }
        }
    }

    /// Returns terms that are combined. Both operators bind alike, from the left.
    fn combined(&mut self, depth: u32) -> Pair {
        let Pair { mut text, mut shows } = self.part(depth);
        while depth < 3 && self.n.below(2) == 0 {
            let (word, sign) = self.n.of(&[("and", "&&"), ("or", "||"), ("&&", "&&"), ("||", "||")]);
            let right = self.part(depth + 1);
            (text, shows) =
                (format!("{text} {word} {}", right.text), format!("({shows} {sign} {})", right.shows));
        }
        Pair { text, shows }
    }

    /// Returns a term, or several in parentheses, or either negated.
    fn part(&mut self, depth: u32) -> Pair {
        match self.n.below(6) {
            0 | 1 if depth < 3 => {
                let Pair { text, shows } = self.combined(depth + 1);
                Pair { text: format!("({text})"), shows }
            }
            2 => {
                let (not, Pair { text, shows }) = (self.n.of(&["not ", "!"]), self.part(depth + 1));
                Pair { text: format!("{not}{text}"), shows: format!("!({shows})") }
            }
            _ => self.term(),
        }
    }

    /// Returns an expression. Tags and labels move all that follows in the text, so they come last, and what
    /// follows is read where they are there.
    fn expression(&mut self) -> Pair {
        let first = self.combined(0);
        let kind = self.n.below(8);
        if kind > 2 || self.tags == 2 {
            return first;
        }
        let mut last = match kind {
            0 => {
                let shows = self.link(0x8847);
                match self.n.below(2) {
                    0 => Pair { text: "mpls".to_owned(), shows },
                    _ => {
                        Pair { text: "mpls 17".to_owned(), shows: format!("({shows} && mpls.label#1 == 17)") }
                    }
                }
            }
            _ => {
                let tag = self.link(0x8100);
                self.tags += 1;
                match self.n.below(2) {
                    0 => Pair { text: "vlan".to_owned(), shows: format!("({tag})") },
                    _ => {
                        let (id, at) = (1 + self.n.below(3), self.tags);
                        Pair {
                            text: format!("vlan {id}"),
                            shows: format!("(({tag}) && vlan.id#{at} == {id})"),
                        }
                    }
                }
            }
        };
        if kind > 0 {
            let inner = self.expression();
            last.text = format!("({} and ({}))", last.text, inner.text);
            last.shows = format!("({} && {})", last.shows, inner.shows);
        }
        let (word, sign) = self.n.of(&[("and", "&&"), ("or", "||"), ("or not", "|| !"), ("and not", "&& !")]);
        Pair {
            text: format!("{} {word} {}", first.text, last.text),
            shows: format!("({} {sign}({}))", first.shows, last.shows),
        }
    }
}

/// Returns whole frames: generated ones, those of the project, and some of each shared capture.
fn packets() -> Vec<Packet> {
    let mut n = Numbers(5);
    let mut all: Vec<Packet> = (0..1000).map(|_| frames::frame(&mut n)).collect();
    all.extend(captures::captured().into_iter().step_by(4));
    let mut files: Vec<_> =
        captures::traces().into_iter().flat_map(|f| f.read_dir().unwrap().flatten()).collect();
    files.sort_by_key(|file| file.file_name());
    for file in files {
        let capture = captures::classic(&std::fs::read(file.path()).unwrap());
        let ethernet = capture.filter(|capture| capture.link == 1);
        all.extend(ethernet.into_iter().flat_map(|capture| capture.packets.into_iter().take(8)));
    }
    all.retain(frames::is_sound);
    all
}

/// Returns a capture file with a packet each second, and one more, with which the last interval is whole.
fn capture(packets: &[Packet]) -> Vec<u8> {
    let words = |all: &[u32]| all.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 1 << 18, 1]);
    for (second, packet) in (1_600_000_000..).zip(packets.iter().chain(packets.first())) {
        file.extend(words(&[second, 0, packet.wire_len, packet.wire_len]));
        file.extend(&packet.bytes);
    }
    file
}

/// Returns which display filters tshark finds true of each packet: a table with a row for each second.
fn shown(file: &[u8], filters: &[&str]) -> Vec<Vec<bool>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-q", "-r", "-", "-z", &format!("io,stat,1,{}", filters.join(","))]);
    for layer in ["ip.defragment", "ipv6.defragment", "tcp.desegment_tcp_streams"] {
        command.args(["-o", &format!("{layer}:FALSE")]);
    }
    let mut tshark =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = tshark.stdin.take().unwrap();
    let out = std::thread::scope(|scope| {
        // One that refuses a filter reads nothing.
        scope.spawn(move || drop(input.write_all(file)));
        tshark.wait_with_output().unwrap()
    });
    let (table, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}");
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).skip(2).step_by(2).take(filters.len()).collect();
        cells.into_iter().map(|cell| cell != "0").collect()
    };
    table.lines().filter(|line| line.contains("<>")).map(row).collect()
}

/// The comparison of expressions with what tshark shows.
#[derive(Default)]
struct Compared {
    comparisons: u64,
    matched: u64,
    /// The first packet with another result, of each expression that has one.
    different: Vec<String>,
}

impl Compared {
    /// Compares an expression with column `at` of a table. Packets that Wireshark does not count are left
    /// out.
    fn add(&mut self, text: &str, packets: &[Packet], shown: &[Vec<bool>], at: usize) {
        let filter = Filter::compile(text, LinkType::ETHERNET).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut different = None;
        for (packet, shown) in packets.iter().zip(shown).filter(|(_, shown)| shown[0]) {
            let matches = filter.matches(&packet.bytes, packet.wire_len);
            self.comparisons += 1;
            self.matched += u64::from(matches);
            if matches != shown[at] {
                different.get_or_insert_with(|| format!("{text}: {matches} for {:02x?}", packet.bytes));
            }
        }
        self.different.extend(different);
    }
}

#[test]
fn random_expressions_select_the_packets_that_tshark_selects() {
    if !Command::new("tshark").arg("--version").output().is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no tshark");
        return;
    }
    let packets = packets();
    let file = capture(&packets);
    let mut n = Numbers(17);
    let (mut found, mut planted) = (Compared::default(), Compared::default());
    for _ in 0..4 {
        let terms = |n: &mut Numbers| Terms { n: Numbers(n.next()), packets: &packets, tags: 0 };
        let pairs: Vec<Pair> = (0..60).map(|_| terms(&mut n).expression()).collect();
        let counted = std::iter::once("frame && !_ws.malformed");
        let shown = shown(&file, &counted.chain(pairs.iter().map(|pair| &*pair.shows)).collect::<Vec<_>>());
        assert_eq!(shown.len(), packets.len(), "a row for each packet");
        for (at, pair) in (1..).zip(&pairs) {
            found.add(&pair.text, &packets, &shown, at);
            planted.add(&pair.text.replace(" or ", " and "), &packets, &shown, at);
        }
    }
    let Compared { comparisons, matched, different } = found;
    println!("{comparisons} comparisons, {matched} packets matched");
    assert!(different.is_empty(), "{different:#?}");
    assert!(comparisons > 200_000 && matched > comparisons / 20, "the comparison is idle");
    assert!(planted.different.len() > 10, "a fault is not found: {:?}", planted.different);
}
