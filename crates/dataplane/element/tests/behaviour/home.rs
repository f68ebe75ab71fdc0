//! The graph of `demo/home.click`, with packets from files instead of interfaces and without modules.

use crate::running::{Run, environment};
use flame_element::Router;
use std::cell::RefCell;
use std::rc::Rc;

const GRAPH: &str = include_str!("../../../../../demo/home.click");

/// Runs the graph with lines `TIME SOURCE PORT DESTINATION PORT` of UDP packets from the house and outside.
fn run(house: &str, outside: &str) -> Run {
    let (before, rest) = GRAPH.split_once("elementclass Link {").unwrap();
    let (_, after) = rest.split_once("\n}\n").unwrap();
    let link = "elementclass Link { $dev, $ip, $own, $rate |
        FromIPSummaryDump($dev, TIMING true, CHECKSUM true, FIELDS timestamp ip_src sport ip_dst dport ip_proto)
          -> CheckIPHeader -> output;
        input -> sent :: Counter -> Discard; }\n";
    let text = format!("{before}{link}{after}")
        .replace("Module(ids, rules @$RULES, EXPOSE all, ENCAP IP)", "Null")
        .replace("Module(ecn, rate $ECN_RATE, threshold 15000, ENCAP IP)", "Null");
    let folder = tempfile::tempdir().unwrap();
    let variables = [("LAN", house), ("WAN", outside)].map(|(name, lines)| {
        let file = folder.path().join(name);
        // Times count from a file's first packet: one that neither side lets in.
        let lines = format!("1 1.1.1.1 1 1.1.1.1 1\n{lines}");
        std::fs::write(&file, lines.replace('\n', " U\n")).unwrap();
        (name.to_owned(), file.to_str().unwrap().to_owned())
    });
    let graph = (crate::common::LANGUAGE.read)(text.as_bytes(), "home", &variables).unwrap();
    let err = Rc::new(RefCell::new(Vec::new()));
    let router = Router::new(graph, &text, environment(err.clone())).unwrap_or_else(|e| panic!("{e}"));
    let run = Run { router, err };
    run.router.run();
    run.adds_up();
    run
}

const ASKS: &str = "1 192.168.7.2 5000 203.0.113.1 53\n";

#[test]
fn an_answer_comes_into_the_house() {
    let run = run(ASKS, "2 203.0.113.1 53 203.0.113.2 1024\n2 203.0.113.1 53 203.0.113.2 1025\n");
    assert_eq!(run.read("wan/sent.count"), "1", "{}", run.text());
    assert_eq!(run.read("lan/sent.count"), "1");
}

#[test]
fn nobody_outside_sends_as_the_house() {
    for address in ["192.168.7.2", "203.0.113.2", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        let run = run(ASKS, &format!("2 {address} 5000 203.0.113.1 53\n3 {address} 5000 203.0.113.2 53\n"));
        assert_eq!(run.read("wan/sent.count"), "1", "{address}: {}", run.text());
        assert_eq!(run.read("lan/sent.count"), "0", "{address}");
    }
}

#[test]
fn nobody_in_the_house_answers_as_a_server_outside() {
    let run = run(&format!("{ASKS}2 203.0.113.1 53 203.0.113.2 1024\n"), "");
    assert_eq!(run.read("wan/sent.count"), "1", "{}", run.text());
    assert_eq!(run.read("lan/sent.count"), "0");
    let dropped: u64 = run.account("own").dropped.values().sum();
    assert_eq!(dropped, 2);
}
