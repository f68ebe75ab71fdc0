//! Every parser of bytes from outside, on its seeds and on thousands of changes of them.
//!
//! FLAME_REPLAY multiplies the number of changed seeds; 1 without it.

// Targets have `no_main` for a fuzzer.
#![allow(unused_attributes)]

#[path = "../../fuzz/fuzz_targets/batches.rs"]
mod batches;
#[path = "../../fuzz/fuzz_targets/intents.rs"]
mod intents;

use crate::{Fleet, secret};
use flame_fleet_protocol::talk::{self, Application, Ask, Counters, Listed, Report};
use flame_fleet_protocol::{Condition, Delegated, Labels, Mark, Message, Missing, Secret, Subject};
use flame_spool::{Batch, Epoch, Frame, Hash, Position, Range, Stamp, Totals};

fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch: Epoch(epoch), sequence }
}

fn message(epoch: u64, sequence: u64) -> Vec<u8> {
    let before = Totals { rows: 5, bytes: 50, until: 7 };
    let batch = Batch { rows: 3, first: 8, last: 9, body: b"rows" };
    let frame = Frame::new(at(epoch, sequence), before, Hash([9; 16]), &batch).unwrap();
    let range = |epoch, floor, last| Range { epoch: Epoch(epoch), floor, last, totals: before };
    let mut bytes = Vec::new();
    Message { ranges: vec![range(1, 3, 2), range(epoch, 1, sequence + 1)], frame }.write(&mut bytes);
    bytes
}

#[test]
fn messages() {
    let missing = Missing { at: at(2, 1), early: at(2, 5) };
    let mark = Mark { archived: None, restored: None, missing: Some(missing) };
    let seeds = [message(2, 1), message(2, 5), mark.to_bytes(), Mark::default().to_bytes()];
    flame_replay::target("batches", batches::run, &seeds, 20_000);
}

#[test]
fn marks() {
    let stamp = |sequence| Stamp { position: at(1, sequence), hash: Hash([3; 16]) };
    let missing = Missing { at: at(2, 1), early: at(2, 5) };
    let whole = Mark { archived: Some(stamp(4)), restored: Some(stamp(2)), missing: Some(missing) };
    for mark in [whole, Mark::default(), Mark { missing: None, ..whole }] {
        assert_eq!(Mark::read(&mark.to_bytes()), Ok(mark));
    }
}

#[test]
fn statements() {
    flame_replay::target("intents", intents::run, &intents::SIGNED, 20_000);
}

/// What nodes and operator send each other beside statements, and the files of keys.
#[test]
fn talks_and_keys() {
    let modules = [("m".to_owned(), Counters::default())].into();
    let listed = Some(Listed { ms: 1, modules, fault: None });
    let report = Report { asks: Some(7), listed, ..Report::default() };
    let ask = Ask::Module { hash: "00".repeat(32), offset: 1 };
    let (token, name, key, signature) = ("0".to_owned(), "n".to_owned(), "k".to_owned(), "s".to_owned());
    let application = Application { token, name, key, signature };
    let fleet = Fleet::new(2, 1);
    let seeds = [
        serde_json::to_vec(&report).unwrap(),
        ask.to_bytes(),
        serde_json::to_vec(&application).unwrap(),
        talk::reply(Ok(b"content".to_vec())),
        talk::reply(Err("why not".to_owned())),
        fleet.delegated.to_bytes(),
        secret(1).to_pem().into_bytes(),
    ];
    flame_replay::target(
        "talks",
        |bytes| {
            let _ = serde_json::from_slice::<Report>(bytes);
            let _ = serde_json::from_slice::<Application>(bytes);
            if let Ok(ask) = serde_json::from_slice::<Ask>(bytes) {
                assert_eq!(serde_json::from_slice::<Ask>(&ask.to_bytes()).unwrap(), ask);
            }
            let _ = talk::read_reply(bytes);
            if let Some((delegated, _)) = Delegated::read(bytes) {
                assert_eq!(delegated.to_bytes(), bytes);
            }
            if let Some(secret) = std::str::from_utf8(bytes).ok().and_then(Secret::from_pem) {
                assert_eq!(Secret::from_pem(&secret.to_pem()).unwrap().public(), secret.public());
            }
        },
        &seeds,
        20_000,
    );
}

#[test]
fn conditions_and_subjects() {
    let seeds = ["site = \"penn\" and speed >= 10G", "not (a != 1 or b < 2k)", "flame.records.n.%2E.m.t"];
    flame_replay::target(
        "conditions",
        |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(condition) = Condition::parse(text) {
                condition.holds(&Labels::new());
            }
            if let Ok(subject) = Subject::parse(text) {
                let parts = subject.parts();
                let again = Subject::new(&parts.node, &parts.principal, &parts.module, &parts.table);
                assert_eq!(again, Ok(subject));
            }
        },
        &seeds.map(|seed| seed.as_bytes().to_vec()),
        20_000,
    );
}
