//! A node uses its own subjects only, as the server holds it.

use crate::world::{World, wait_for};
use async_nats::{Client, Event, ServerError};
use flame_fleet_nats::{Access, Log as _, Nats, Published};
use flame_fleet_protocol::{Mark, Subject};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;

/// A client that publishes and subscribes as it likes, and what the server said.
struct Raw {
    runtime: Runtime,
    client: Client,
    said: Arc<Mutex<Vec<String>>>,
}

impl Raw {
    fn new(access: &Access) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let to = said.clone();
        let options = access.options().event_callback(move |event| {
            let to = to.clone();
            async move {
                if let Event::ServerError(ServerError::Other(text)) = event {
                    to.lock().unwrap().push(text);
                }
            }
        });
        let client = runtime.block_on(options.connect(&access.server)).unwrap();
        Self { runtime, client, said }
    }

    /// Publishes, with a place for a reply.
    fn publish(&self, subject: &str, reply: &str, text: &str) {
        let (subject, reply, text) = (subject.to_owned(), reply.to_owned(), text.to_owned().into());
        self.runtime.block_on(self.client.publish_with_reply(subject, reply, text)).unwrap();
        self.runtime.block_on(self.client.flush()).unwrap();
    }

    /// Publishes with a header.
    fn publish_with(&self, subject: &str, header: (&str, &str), text: &str) {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(header.0, header.1);
        let (subject, text) = (subject.to_owned(), text.to_owned().into());
        self.runtime.block_on(self.client.publish_with_headers(subject, headers, text)).unwrap();
        self.runtime.block_on(self.client.flush()).unwrap();
    }

    /// Waits until the server has said that this is not allowed.
    fn is_denied(&self, what: &str, subject: &str) {
        let expected = format!("permissions violation for {what} to \"{}", subject.to_lowercase());
        wait_for(&expected, || {
            let said = self.said.lock().unwrap();
            said.iter().any(|text| text.to_lowercase().contains(&expected))
        });
    }
}

#[test]
fn a_node_uses_its_own_subjects_only() {
    let Some(world) = World::start() else { return };
    let (a, b) = (world.enrol("a"), world.enrol("b"));
    let subject = |node: &str| Subject::new(node, "alice", "flow", "flows").unwrap();
    let own = |access: &Access, subject: &Subject| {
        let mut log = None;
        // The server may not know the user yet.
        wait_for("a connection", || {
            log = Nats::connect_as(access).ok();
            log.is_some()
        });
        let mut log = log.unwrap();
        log.open(subject, 1 << 20).unwrap();
        assert_eq!(log.last(subject).unwrap(), None);
        assert!(matches!(log.publish(subject, b"rows".to_vec(), Some(0)).unwrap(), Published::Taken(_)));
        assert_eq!(log.last(subject).unwrap().unwrap().bytes, b"rows");
        log
    };
    let (mut of_a, mut of_b) = (own(&a.access(), &subject("a")), own(&b.access(), &subject("b")));
    let mut archive = Nats::connect_as(&world.access("archive")).unwrap();
    assert_eq!(archive.pull(&subject("a"), 0, 10).unwrap().len(), 2);
    archive.put(&subject("a"), Mark::default().to_bytes()).unwrap();
    assert_eq!(of_a.mark(&subject("a")).unwrap(), Some(Mark::default().to_bytes()));
    assert!(of_a.last(&subject("b")).is_err(), "the last message of another node");
    assert!(of_a.mark(&subject("b")).is_err(), "the mark of another node");

    let raw = Raw::new(&a.access());
    let of = subject("b").to_string();
    let direct = format!("$JS.API.DIRECT.GET.REC_alice.{of}");
    let mark = format!("$JS.API.DIRECT.GET.MARKS.{}", subject("b").mark());
    let last = format!("{{\"last_by_subj\":\"{of}\"}}");
    let consumer =
        "{\"stream_name\":\"REC_alice\",\"config\":{\"deliver_subject\":\"flame.inbox.node.a.x\"}}";
    let mirror = "{\"name\":\"M\",\"mirror\":{\"name\":\"REC_alice\"}}";
    for (to, text) in [
        (direct.as_str(), ""),
        (mark.as_str(), ""),
        ("$JS.API.DIRECT.GET.REC_alice", last.as_str()),
        ("$JS.API.STREAM.MSG.GET.REC_alice", last.as_str()),
        ("$JS.API.DIRECT.GET.REC_alice", "{\"multi_last\":[\"flame.records.>\"],\"batch\":100}"),
        ("$JS.API.DIRECT.GET.REC_alice.flame.records.>", ""),
        ("$JS.API.DIRECT.GET.REC_alice.flame.records.*.alice.flow.flows", ""),
        ("$JS.API.DIRECT.GET.MARKS.flame.marks.>", ""),
        ("$JS.API.INFO", ""),
        ("$JS.API.SERVER.REMOVE", "{}"),
        ("$JS.API.META.LEADER.STEPDOWN", "{}"),
        ("$JS.API.STREAM.RESTORE.REC_alice", "{}"),
        ("$JS.API.STREAM.MSG.DELETE.REC_alice", "{\"seq\":1}"),
        ("$JS.API.STREAM.LEADER.STEPDOWN.REC_alice", ""),
        ("$JS.API.CONSUMER.DURABLE.CREATE.REC_alice.c", consumer),
        ("$JS.API.CONSUMER.CREATE.REC_alice.c.>", consumer),
        ("$JS.API.CONSUMER.CREATE.REC_alice.c.flame.records.*.alice.flow.flows", consumer),
        ("$JS.API.CONSUMER.CREATE.MARKS", consumer),
        ("$JS.API.CONSUMER.LIST.REC_alice", ""),
        ("$JS.API.CONSUMER.INFO.REC_alice.archive", ""),
        ("$JS.API.CONSUMER.DELETE.REC_alice.archive", ""),
        ("$JS.API.CONSUMER.PAUSE.REC_alice.archive", "{}"),
        ("$JS.API.CONSUMER.UNPIN.REC_alice.archive", "{}"),
        ("$JS.FC.REC_alice.c.x", ""),
        ("$SYS.ACCOUNT.CONTROL.CONNECT", "{}"),
        ("$SYS.REQ.USER.INFO", ""),
        ("_INBOX.x", "a reply"),
        ("$JS.API.STREAM.INFO.REC_alice", "{\"subjects_filter\":\">\"}"),
        ("$JS.API.STREAM.NAMES", ""),
        ("$JS.API.STREAM.LIST", ""),
        ("$JS.API.STREAM.CREATE.M", mirror),
        ("$JS.API.STREAM.UPDATE.REC_alice", ""),
        ("$JS.API.STREAM.PURGE.REC_alice", ""),
        ("$JS.API.STREAM.DELETE.REC_alice", ""),
        ("$JS.API.STREAM.SNAPSHOT.REC_alice", ""),
        ("$JS.API.CONSUMER.CREATE.REC_alice", consumer),
        ("$JS.API.CONSUMER.CREATE.REC_alice.c.flame.records.a.>", consumer),
        ("$JS.API.CONSUMER.NAMES.REC_alice", ""),
        ("$JS.API.CONSUMER.MSG.NEXT.REC_alice.c", "10"),
        ("$JS.ACK.REC_alice.c.1.1.1.1.1", "+ACK"),
        ("$SYS.REQ.SERVER.PING", ""),
        ("flame.records.b.alice.flow.flows", "rows of another"),
        ("flame.marks.a.alice.flow.flows", "a mark of its own"),
        ("flame.to.all", "a statement"),
        ("flame.to.node.b", "a statement"),
        ("flame.from.b", "{}"),
        ("flame.ask.b", "{\"ask\":\"leave\"}"),
        ("flame.inbox.node.b.x", "a reply"),
        ("flame.inbox.archive.x", "a reply"),
        ("flame.enrol.x", "{}"),
    ] {
        raw.publish(to, "flame.inbox.node.a.x", text);
        raw.is_denied("publish", to);
    }
    for from in [
        ">",
        "flame.>",
        "flame.records.>",
        "flame.records.a.>",
        "flame.to.node.b",
        "flame.from.b",
        "flame.inbox.node.b.>",
        "flame.inbox.archive.>",
        "flame.inbox.>",
        "flame.inbox.*.*.>",
        "flame.marks.>",
        "flame.*.b",
        "flame.records.*.alice.flow.flows",
        "flame.records.b.alice.flow.flows",
        "*",
        "*.>",
        "*.*.*.*.*.*",
        "_INBOX.>",
        "_R_.>",
        "$JS.>",
        "$JS.ACK.>",
        "$JS.EVENT.>",
        "$SYS.>",
        "$SYS.ACCOUNT.>",
    ] {
        let _subscription = raw.runtime.block_on(raw.client.subscribe(from.to_owned())).unwrap();
        raw.runtime.block_on(raw.client.flush()).unwrap();
        raw.is_denied("subscription", from);
    }
    assert_eq!(of_b.last(&subject("b")).unwrap().unwrap().bytes, b"rows", "the record of b");

    // What a header would have the stream do beside taking a record: none of these is taken.
    for header in [
        ("Nats-Rollup", "all"),
        ("Nats-Rollup", "sub"),
        ("Nats-TTL", "1s"),
        ("Nats-Schedule", "@at 2020-01-01T00:00:00Z"),
        ("Nats-Incr", "+1"),
        ("Nats-Expected-Stream", "MARKS"),
        ("Nats-Expected-Last-Sequence", "999"),
    ] {
        raw.publish_with(subject("a").as_str(), header, "a header");
    }
    // A message with an id keeps no other one out, since records have none.
    raw.publish_with(subject("a").as_str(), ("Nats-Msg-Id", "1"), "an id");

    // The server acknowledges a record where its publisher says, but within the account of the node.
    let inbox = subject("b").to_string().replace("flame.records", "flame.inbox.node");
    for reply in ["$JS.API.STREAM.PURGE.REC_alice", of.as_str(), &inbox, "flame.to.node.b", "flame.from.b"] {
        raw.publish(subject("a").as_str(), reply, "rows");
    }
    assert!(matches!(of_a.publish(&subject("a"), b"last".to_vec(), None).unwrap(), Published::Taken(_)));
    let mut found = Vec::new();
    wait_for("the records", || {
        found = archive.pull(&subject("a"), 0, 20).unwrap();
        found.last().is_some_and(|record| record.bytes == b"last")
    });
    assert_eq!(found[0].sequence, 1, "nothing was purged");
    let others = found.iter().filter(|record| record.subject == subject("b")).count();
    assert_eq!((found.len(), others), (9, 1), "{found:?}");
    assert!(found.iter().all(|record| record.bytes != b"a header"), "{found:?}");
}

/// A node that left, or was refused, has no connection any more.
#[test]
fn a_node_that_is_refused_is_shut_out() {
    let Some(world) = World::start() else { return };
    let a = world.enrol("a");
    wait_for("a connection", || Nats::connect_as(&a.access()).is_ok());
    let mut log = Nats::connect_as(&a.access()).unwrap();
    world.run(&["refuse", "a"]).unwrap();
    let subject = Subject::new("a", "alice", "flow", "flows").unwrap();
    wait_for("the end of the connection", || {
        log.last(&subject).is_err() && Nats::connect_as(&a.access()).is_err()
    });
}
