use super::*;
use flame_module::testing::{Native, Parameters, Traffic};
use head::{Found, Head, Kind, kind};
use tables::{Params, Request, RequestOutcome as Outcome, State};

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:8080";
const REQUEST: &[u8] = b"GET /a?b=1 HTTP/1.1\r\nHost: www.example\r\nUser-Agent: curl/8\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const SECOND: u64 = 1_000_000_000;

fn native() -> Native<Http> {
    Native::new(&Parameters::of(Params::DEFAULTS), 0)
}

/// Adds segments of one direction, each `gap` nanoseconds after the one before.
fn stream(traffic: &mut Traffic, is_client: bool, first: u64, pieces: &[&[u8]]) {
    let (from, to) = if is_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let mut seq = u32::MAX - 20;
    for (n, piece) in pieces.iter().enumerate() {
        traffic.tcp(from, to).payload(piece).seq(seq).at(first + n as u64);
        seq = seq.wrapping_add(piece.len() as u32);
    }
}

fn rows(native: &Native<Http>) -> Vec<(String, u16, Outcome, i64)> {
    let rows: Vec<Request> = native.of();
    rows.iter()
        .map(|r| (format!("{} {}{}", r.method, r.host, r.target), r.status, r.outcome, r.time_ns))
        .collect()
}

#[test]
fn a_request_and_its_answer_are_one_row() {
    let mut traffic = Traffic::default();
    stream(&mut traffic, true, SECOND, &[REQUEST]);
    stream(&mut traffic, false, 2 * SECOND, &[b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER]);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert_eq!(rows(&native), [("GET www.example/a?b=1".into(), 200, Outcome::Answered, SECOND as i64 + 1)]);
    let row = &native.of::<Request>()[0];
    assert_eq!((row.agent, row.version, row.response_length, row.dport), ("curl/8", "1.1", 5, 8080));
    assert!(native.of::<State>().is_empty());
}

#[test]
fn heads_may_come_in_any_pieces_and_many_in_one() {
    let pipelined = [
        REQUEST,
        b"HEAD /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /3 HTTP/1.0\nContent-Length: 30\n\n",
        b"GET /body HTTP/1.1\r\nX: y\r\n\r\n  ",
        b"DELETE /4 HTTP/1.1\r\nHost: h\r\n\r\n",
    ]
    .concat();
    let no_body = b"HTTP/1.1 204 No\r\nContent-Length: 500\r\n\r\n";
    // The answer to HEAD has no body, whatever its length.
    let answers =
        [ANSWER, b"HTTP/1.1 301 M\r\nContent-Length: 700\r\n\r\n", no_body, b"HTTP/1.1 404 N\r\n\r\n"]
            .concat();
    // The first segment may be shorter than a method.
    for size in [1, 2, 3, 8, 9, 30] {
        let mut traffic = Traffic::default();
        stream(&mut traffic, true, 0, &REQUEST.chunks(size).collect::<Vec<_>>());
        stream(&mut traffic, false, SECOND, &ANSWER.chunks(size).collect::<Vec<_>>());
        let mut native = native();
        native.run(&traffic);
        native.end(0);
        // From the packet that completes the request to the first one of the answer.
        let time = SECOND as i64 - REQUEST.len().div_ceil(size) as i64 + 1;
        assert_eq!(rows(&native), [("GET www.example/a?b=1".into(), 200, Outcome::Answered, time)], "{size}");
    }
    // A body that ends in a segment hides the head behind it: README.md. Here all lie in one.
    for size in [180, 1000] {
        let mut traffic = Traffic::default();
        stream(&mut traffic, true, 0, &pipelined.chunks(size).collect::<Vec<_>>());
        stream(&mut traffic, false, SECOND, &answers.chunks(size).collect::<Vec<_>>());
        let mut native = native();
        native.run(&traffic);
        native.end(0);
        let found: Vec<_> = rows(&native).into_iter().map(|row| (row.0, row.1, row.2)).collect();
        let expected =
            [("GET www.example/a?b=1", 200), ("HEAD h/2", 301), ("POST /3", 204), ("DELETE h/4", 404)];
        let expected = expected.map(|(text, status)| (text.to_owned(), status, Outcome::Answered));
        assert_eq!(found, expected, "{size}");
    }
}

#[test]
fn a_letter_that_begins_no_head_keeps_nothing() {
    let mut traffic = Traffic::default();
    stream(&mut traffic, true, 0, &[b"G", b"o", b"P", b"OS", b"x", b"HEAD", b"s up\n", REQUEST]);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert_eq!(rows(&native).len(), 1);
    assert!(native.of::<State>().is_empty(), "{:?}", native.of::<State>());
}

#[test]
fn what_has_no_answer_ends_at_the_timeout() {
    let mut traffic = Traffic::default();
    stream(&mut traffic, true, SECOND, &[REQUEST]);
    traffic.tcp("10.0.0.7:80", "10.0.0.8:9").payload(ANSWER).at(SECOND);
    let mut native = native();
    native.run(&traffic);
    native.tick(121 * SECOND);
    assert_eq!(rows(&native), [(" ".into(), 200, Outcome::Unasked, 0)]);
    native.tick(122 * SECOND);
    assert_eq!(rows(&native)[1], ("GET www.example/a?b=1".into(), 0, Outcome::Unanswered, 0));
}

#[test]
fn a_packet_that_is_cut_off_shows_what_it_has() {
    let mut traffic = Traffic::default();
    traffic.tcp(CLIENT, SERVER).payload(REQUEST).captured(54 + 30);
    traffic.tcp(SERVER, CLIENT).payload(ANSWER).captured(54 + 20);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert_eq!(rows(&native)[0].0, "GET /a?b=1");
    assert_eq!(rows(&native)[0].1, 200);
}

#[test]
fn lines_are_read_as_written() {
    let head = |text: &'static str, kind| match Head::read(text.as_bytes(), kind) {
        Found::Head(head) => Some((head.method, head.target, head.status, head.host, head.length)),
        _ => None,
    };
    let request = |text| head(text, Kind::Request);
    assert_eq!(
        request("GET  /x y  HTTP/1.0\nhOST:\t h \nContent-length:7\n\n"),
        Some((&b"GET"[..], &b"/x y"[..], 0, &b"h"[..], Some(7)))
    );
    assert_eq!(request("GET / SIP/2.0\r\n\r\n"), None);
    assert_eq!(request("GET /\r\n\r\n"), None);
    for (length, expected) in
        [("", None), ("-1", None), ("1 2", None), ("9999999999999999999999", None), ("010", Some(10))]
    {
        let text = format!("HTTP/1.1 200\r\nContent-Length: {length}\r\n\r\n");
        let Found::Head(head) = Head::read(text.as_bytes(), Kind::Answer) else { panic!("{text}") };
        assert_eq!((head.status, head.length), (200, expected), "{length}");
    }
    assert_eq!(kind(b"GETS / HTTP/1.1"), None);
    assert_eq!((kind(b"GET"), kind(b""), kind(b"HTTP/9")), (None, None, Some(Kind::Answer)));
}

#[test]
fn any_cut_and_any_change_is_handled() {
    let heads = [REQUEST, ANSWER];
    let mut traffic = Traffic::default();
    for head in heads {
        for cut in 0..head.len() {
            traffic.tcp(&format!("10.0.1.1:{}", cut + 1), SERVER).payload(&head[..cut]);
            traffic.tcp(&format!("10.0.1.2:{}", cut + 1), SERVER).payload(head).captured(54 + cut as u32);
        }
    }
    let mut random = 1u64;
    for round in 0..20_000u64 {
        random = flame_module::mix(random);
        let mut head = heads[random as usize % 2].to_vec();
        for n in 0..1 + random % 4 {
            random = flame_module::mix(random + n);
            let at = random as usize % head.len();
            head[at] = if random >> 20 & 1 == 0 {
                b"\r\n :0"[random as usize >> 32 & 3]
            } else {
                (random >> 32) as u8
            };
        }
        let client = format!("10.1.{}.{}:9", round >> 8, round & 255);
        traffic.tcp(&client, SERVER).payload(&head).seq(random as u32 & 0xff);
    }
    // A head without an end, to the limit.
    let mut seq = 0;
    traffic.tcp("10.9.9.9:9", SERVER).payload(b"GET / HTTP/1.1\r\n").seq(0);
    for _ in 0..10 {
        seq += 1000;
        traffic.tcp("10.9.9.9:9", SERVER).payload(&[b'x'; 1000]).seq(seq - 984);
    }
    // Another client is read as before.
    traffic.tcp("10.0.0.9:9", SERVER).payload(b"GET /last HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert!(rows(&native).iter().any(|row| row.0 == "GET h/last") && native.lost == 0);
    let state = &native.of::<State>()[0];
    assert!(state.malformed > 100 && state.too_long == 1, "{state:?}");
}
