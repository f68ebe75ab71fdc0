//! Rules made up in the shapes of large public rule sets, for tests of size and speed. The same numbers give
//! the same rules.

use std::fmt::Write;

/// A source of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Returns a word of `n` letters.
    fn word(&mut self, n: usize) -> String {
        (0..n)
            .map(|i| char::from(*self.pick(if i % 2 == 0 { b"bcdfghklmnprstvwxz" } else { b"aeiouy" })))
            .collect()
    }

    fn pick<'a>(&mut self, of: &'a [u8]) -> &'a u8 {
        &of[self.below(of.len())]
    }

    fn hex(&mut self, n: usize) -> String {
        (0..n).map(|_| format!("{:02x}", self.next() as u8)).collect::<Vec<_>>().join(" ")
    }

    fn host(&mut self) -> String {
        let n = 6 + self.below(8);
        let end = self.one(&["com", "net", "top", "xyz", "info", "ru"]);
        format!("{}.{end}", self.word(n))
    }

    fn address(&mut self) -> String {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        format!("{}.{b}.{c}.{d}", a % 200 + 20)
    }
}

/// The definitions that the rules refer to.
pub const VARS: &str = "HOME_NET = [10.0.0.0/8,172.16.0.0/12,192.168.0.0/16]\nEXTERNAL_NET = any\n\
    HTTP_PORTS = [80,8080]\nDNS_SERVERS = $HOME_NET\n";

/// Returns `count` rules, each of which has at least one content, except for a list of addresses now and
/// then. Of a thousand, `streams` need streams, which this module does not reassemble.
pub fn rules(count: usize, streams: usize) -> String {
    let mut r = Random(count as u64);
    let mut text = String::from("# Made up.\n\n");
    for sid in 2_000_000..2_000_000 + count {
        let family = r.word(7);
        let kind = r.one(&["MALWARE", "EXPLOIT", "PHISHING", "POLICY", "SCAN", "INFO"]);
        let (header, body) = if r.below(1000) < streams { in_a_stream(&mut r) } else { in_packets(&mut r) };
        let class = r.one(&["trojan-activity", "bad-unknown", "attempted-recon", "misc-activity"]);
        let (year, severity) = (2010 + r.below(15), r.one(&["Major", "Minor", "Critical"]));
        let reference = r.host();
        let _ = writeln!(
            text,
            "alert {header} (msg:\"MADE UP {kind} {family} Activity\"; {body} reference:url,{reference}/{family}; \
             classtype:{class}; sid:{sid}; rev:{}; metadata:affected_product Any, attack_target Client_Endpoint, \
             created_at {year}_01_02, deployment Perimeter, signature_severity {severity}, updated_at 2024_05_06;)",
            1 + r.below(9)
        );
        if r.below(6) == 0 {
            let _ = writeln!(
                text,
                "# alert tcp any any -> any any (msg:\"switched off\"; sid:{};)",
                sid + 1_000_000
            );
        }
    }
    text
}

fn in_packets(r: &mut Random) -> (String, String) {
    let out = "tcp $HOME_NET any -> $EXTERNAL_NET any";
    let server = "flow:established,to_server;";
    match r.below(100) {
        0..25 => {
            let (path, name, n) = (r.word(6), r.word(9), 4 + r.below(12));
            let method = r.one(&["GET", "POST"]);
            let more = match r.below(3) {
                0 => format!(" pcre:\"/{name}=[a-f0-9]{{{n}}}(&|\\s)/Ri\";"),
                1 => {
                    format!(" content:!\"Referer|3a|\"; content:\"|0d 0a|{}|3a 20|\"; distance:0;", r.word(7))
                }
                _ => String::new(),
            };
            let file = r.one(&["php", "asp", "jsp", "exe"]);
            let body = format!(
                "{server} content:\"{method} /\"; startswith; content:\"/{path}/{name}.{file}?\"; nocase; fast_pattern;{more}"
            );
            (out.to_owned(), body)
        }
        25..45 => {
            let host = r.host();
            let body = match r.below(2) {
                0 => format!("dns.query; content:\"{host}\"; nocase; bsize:{};", host.len()),
                _ => format!("dns.query; dotprefix; content:\".{host}\"; nocase; endswith;"),
            };
            ("dns $HOME_NET any -> any any".to_owned(), body)
        }
        45..65 => {
            let host = r.host();
            let body = match r.below(2) {
                0 => format!("{server} tls.sni; content:\"{host}\"; bsize:{}; fast_pattern;", host.len()),
                _ => format!("{server} tls.sni; dotprefix; content:\".{host}\"; endswith; fast_pattern;"),
            };
            ("tls $HOME_NET any -> $EXTERNAL_NET any".to_owned(), body)
        }
        65..80 => {
            let (n, size) = (6 + r.below(10), 20 + r.below(400));
            let body = match r.below(3) {
                0 => format!("dsize:>{size}; content:\"|{}|\"; depth:{n};", r.hex(n)),
                1 => format!("content:\"|{}|\"; offset:{}; depth:{};", r.hex(n), r.below(9), n + r.below(40)),
                _ => format!(
                    "content:\"|{}|\"; byte_test:2,>,{size},{},relative; content:\"{}\"; distance:0;",
                    r.hex(n),
                    r.below(4),
                    r.word(5)
                ),
            };
            let header = r.one(&[
                "tcp $EXTERNAL_NET any -> $HOME_NET any",
                "udp $EXTERNAL_NET any -> $HOME_NET any",
                "tcp $HOME_NET any -> $EXTERNAL_NET 1024:",
                "tcp-pkt any any -> $HOME_NET [139,445]",
                "udp any any -> any 53",
            ]);
            (header.to_owned(), body)
        }
        80..90 => {
            let (a, b) = (r.word(8), r.word(6));
            let body = format!(
                "{server} content:\"User-Agent|3a 20|{a}\"; nocase; content:\"{b}\"; distance:1; within:{}; \
                 threshold:type limit, track by_src, count 1, seconds 300;",
                30 + r.below(90)
            );
            (out.to_owned(), body)
        }
        90..97 => {
            let (name, content) = (r.word(6), r.word(12));
            let mark = r.one(&["set", "isset", "isnotset"]);
            let quiet = if mark == "set" { " flowbits:noalert;" } else { "" };
            (
                out.to_owned(),
                format!("{server} flowbits:{mark},MADE.{name};{quiet} content:\"{content}\"; fast_pattern;"),
            )
        }
        _ => {
            let list: Vec<_> = (0..50).map(|_| r.address()).collect();
            let header = format!("ip [{}] any -> $HOME_NET any", list.join(","));
            (
                header,
                "threshold:type limit, track by_src, count 1, seconds 3600; flowbits:set,MADE.evil;"
                    .to_owned(),
            )
        }
    }
}

fn in_a_stream(r: &mut Random) -> (String, String) {
    let (a, b) = (r.word(9), r.host());
    let body = match r.below(4) {
        0 => format!(
            "flow:established,to_server; http.uri; content:\"/{a}.php\"; endswith; http.host; content:\"{b}\";"
        ),
        1 => format!("flow:established,to_server; content:\"{a}\"; http_uri; content:\"{b}\"; http_header;"),
        2 => format!("flow:established,to_client; file.data; content:\"{a}\"; fast_pattern;"),
        _ => format!("flow:established,to_server; http.user_agent; content:\"{a}\"; bsize:9;"),
    };
    ("http $HOME_NET any -> $EXTERNAL_NET any".to_owned(), body)
}
