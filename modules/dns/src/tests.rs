use super::*;
use flame_module::testing::{Native, Parameters, Traffic};
use flame_module::{FixedText, Ip};
use tables::{Params, QuestionOutcome as Outcome, QuestionRcode as Rcode};

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:53";
const SECOND: u64 = 1_000_000_000;

fn native() -> Native<Dns, Merge> {
    Native::with_slow(&Parameters::of(Params::DEFAULTS), 0)
}

/// Returns a name as labels.
fn labels(name: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for label in name.split('.').filter(|l| !l.is_empty()) {
        all.push(label.len() as u8);
        all.extend(label.as_bytes());
    }
    all.push(0);
    all
}

fn header(id: u16, flags: u16, questions: u16, answers: u16) -> Vec<u8> {
    [id, flags, questions, answers, 0, 0].iter().flat_map(|n| n.to_be_bytes()).collect()
}

fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    [&header(id, 0x0100, 1, 0), &labels(name)[..], &kind.to_be_bytes(), &[0, 1]].concat()
}

/// Returns an answer to [`question`] with these records: type and data, of the name in the question.
fn answer(id: u16, rcode: u16, name: &str, kind: u16, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut all = header(id, 0x8180 | rcode, 1, records.len() as u16);
    all.extend([&labels(name)[..], &kind.to_be_bytes(), &[0, 1]].concat());
    for (kind, data) in records {
        all.extend([0xc0, 12]);
        all.extend(kind.to_be_bytes());
        all.extend([0, 1, 0, 0, 0, 9]);
        all.extend((data.len() as u16).to_be_bytes());
        all.extend(data);
    }
    all
}

/// Returns the rows as name, type, outcome, code, time, addresses and targets.
fn rows(native: &Native<Dns, Merge>) -> Vec<(String, String, Outcome, Rcode, i64, String)> {
    let rows: Vec<tables::Question> = native.of();
    let texts = |row: &tables::Question| [row.addresses, row.targets].join(" ");
    rows.iter().map(|r| (r.name.into(), r.r#type.into(), r.outcome, r.rcode, r.time_ns, texts(r))).collect()
}

#[test]
fn answers_are_found_by_number_and_name() {
    let mut traffic = Traffic::default();
    traffic.udp(CLIENT, SERVER).payload(&question(7, "www.Example", 28)).at(SECOND);
    traffic.udp(CLIENT, SERVER).payload(&question(8, "no.example", 1)).at(SECOND + 1);
    // Another number, another name, another client: not the answer.
    traffic.udp(SERVER, CLIENT).payload(&answer(7, 0, "evil.example", 28, &[])).at(SECOND + 2);
    let v6 = [[0x20, 1, 0xd, 0xb8].as_slice(), &[0; 11], &[1]].concat();
    let records = [(5, labels("web.example")), (28, v6), (99, vec![1])];
    traffic.udp(SERVER, CLIENT).payload(&answer(7, 0, "WWW.example", 28, &records)).at(2 * SECOND);
    traffic.udp(SERVER, CLIENT).payload(&answer(7, 0, "www.example", 28, &records)).at(2 * SECOND + 1);
    traffic.udp(SERVER, CLIENT).payload(&answer(8, 3, "no.example", 1, &[])).at(2 * SECOND);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    let none = |name: &str, kind: &str, outcome, code, time| {
        (name.to_owned(), kind.to_owned(), outcome, code, time, " ".to_owned())
    };
    let mut found = none("www.Example", "AAAA", Outcome::Answered, Rcode::Noerror, SECOND as i64);
    found.5 = "2001:db8::1 web.example".into();
    assert_eq!(
        rows(&native),
        [
            none("evil.example", "AAAA", Outcome::Unasked, Rcode::Noerror, 0),
            found,
            none("no.example", "A", Outcome::Answered, Rcode::Nxdomain, SECOND as i64 - 1),
        ]
    );
    let state = &native.of::<tables::State>()[0];
    assert_eq!((state.malformed, state.repeated), (0, 1));
}

#[test]
fn unanswered_questions_end_at_the_timeout_and_copies_count_once() {
    let mut traffic = Traffic::default();
    for n in 0..3 {
        traffic.udp(CLIENT, SERVER).payload(&question(7, "slow.example", 1)).at(n * SECOND);
    }
    traffic.udp("[fe80::1]:5353", "[ff02::fb]:5353").payload(&question(0, "printer.local", 12)).at(SECOND);
    let mut native = native();
    native.run(&traffic);
    native.tick(12 * SECOND);
    assert_eq!(rows(&native).len(), 1, "the one to a group");
    native.tick(13 * SECOND);
    let rows: Vec<tables::Question> = native.of();
    let found: Vec<_> = rows.iter().map(|r| (r.name, r.outcome, r.sent, r.ts_ns)).collect();
    assert_eq!(
        found,
        [("printer.local", Outcome::Group, 1, SECOND), ("slow.example", Outcome::Unanswered, 3, 0)]
    );
}

#[test]
fn messages_of_tcp_are_read_where_they_are_whole() {
    let message = question(7, "tcp.example", 1);
    let framed = [&(message.len() as u16).to_be_bytes(), &message[..]].concat();
    let mut traffic = Traffic::default();
    traffic.tcp(CLIENT, SERVER).payload(&[framed.clone(), framed.clone()].concat());
    traffic.tcp("10.0.0.9:9", SERVER).payload(&framed[..20]);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    let rows: Vec<tables::Question> = native.of();
    assert_eq!(rows.iter().map(|r| (r.name, r.sent)).collect::<Vec<_>>(), [("tcp.example", 2)]);
    assert_eq!(native.of::<tables::State>()[0].partial, 1);
}

#[test]
fn sums_are_those_of_the_rows() {
    let p =
        Parameters::of(Params::DEFAULTS).integer("clients", 1).integer("names", 1).integer("questions", 0);
    let mut native = Native::<Dns, Merge>::with_slow(&p, 0);
    let mut traffic = Traffic::default();
    for n in 0..5u16 {
        let name = ["a.example", "A.EXAMPLE", "b.example"][usize::from(n % 3)];
        traffic.udp(CLIENT, SERVER).payload(&question(n, name, 1)).at(u64::from(n) * SECOND);
        if n != 4 {
            let at = u64::from(n) * SECOND + 1000 * u64::from(n + 1);
            traffic.udp(SERVER, CLIENT).payload(&answer(n, n, name, 1, &[])).at(at);
        }
    }
    native.run(&traffic);
    native.end(0);
    let client = tables::Client {
        client: Ip::v4([10, 0, 0, 1]),
        questions: 5,
        answered: 4,
        unanswered: 1,
        nxdomain: 1,
        failed: 2,
        mean_ns: 2500,
        max_ns: 4000,
    };
    assert_eq!(native.of::<tables::Client>(), [client]);
    let names: Vec<tables::Name> = native.of();
    let found: Vec<_> = names.iter().map(|n| (n.name, n.questions, n.unanswered)).collect();
    assert_eq!(found, [("a.example", 4, 1), ("b.example", 1, 0)]);
    assert!(native.of::<tables::Question>().is_empty());
}

#[test]
fn pointers_end() {
    let text = |message: &[u8], at| {
        Name::read(message, at).map(|(name, after)| {
            let mut text = FixedText::<1020>::default();
            name::push(&mut text, &name);
            (text.as_str().to_owned(), after)
        })
    };
    assert_eq!(text(b"\x01a\xc0\x06xx\x02bc\0", 0), Some(("a.bc".into(), 4)));
    assert_eq!(text(b"\0", 0), Some(("<Root>".into(), 1)));
    assert_eq!(text(b"\xc0\0", 0), None, "to itself");
    assert_eq!(text(b"\x01a\xc0\0", 0), None, "a loop with a label");
    assert_eq!(text(b"\xc0\x02\xc0\0", 0), None, "two that point to each other");
    assert_eq!(text(b"\x40a\0", 0), None, "an unknown kind");
    let long = [&[63u8; 1][..], &[b'x'; 63]].concat();
    let name = |labels: usize, last: usize| {
        [long.repeat(labels), vec![last as u8], vec![b'y'; last], vec![0]].concat()
    };
    assert_eq!(text(&name(3, 61), 0).map(|(name, _)| name.len()), Some(253), "the longest");
    assert_eq!(text(&name(3, 62), 0), None);
    let chain: Vec<u8> = (1..=40u8).flat_map(|n| [0xc0, n * 2]).chain([0]).collect();
    assert_eq!(text(&chain, 0), None, "more pointers than any name needs");
}

#[test]
fn any_cut_and_any_change_is_handled() {
    let records = [
        (5, labels("web.example")),
        (1, vec![192, 0, 2, 1]),
        (33, [&[0; 6], &labels("s.example")[..]].concat()),
    ];
    let messages = [question(7, "www.example", 1), answer(7, 0, "www.example", 1, &records)];
    let mut traffic = Traffic::default();
    for message in &messages {
        for cut in 0..message.len() {
            traffic.udp(CLIENT, SERVER).payload(&message[..cut]);
            traffic.udp(SERVER, CLIENT).payload(message).captured(42 + cut as u32);
        }
    }
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = flame_module::mix(random);
        let mut message = messages[random as usize % 2].clone();
        for n in 0..1 + random % 4 {
            random = flame_module::mix(random + n);
            let at = random as usize % message.len();
            message[at] = (random >> 32) as u8 | [0, 0xc0][random as usize >> 20 & 1];
        }
        traffic.udp(SERVER, CLIENT).payload(&message);
    }
    // Another client is read as before.
    traffic.udp("10.0.0.9:9", SERVER).payload(&question(1, "last.example", 1));
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert!(rows(&native).iter().any(|row| row.0 == "last.example") && native.lost == 0);
    assert!(native.of::<tables::State>()[0].malformed > 1000);
}
