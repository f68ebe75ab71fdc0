//! Tables of bounded size: addresses of hosts, and fragments.

use crate::account::adds_up;
use crate::reconfigure::run_to;
use crate::running::{Run, environment, graph, run, start};
use flame_element::{Environment, Router};

/// Returns a source of an IP packet with this destination, at `time` in seconds.
fn to(time: f64, ip: u8, element: &str) -> String {
    format!(
        "TimedSource({time}, \\<4500001c00010000401100000100000102000{:03x}0001000200080000>, LIMIT 1)
            -> MarkIPHeader(0) -> GetIPAddress(16) -> {element};\n",
        ip
    )
}

#[test]
fn old_addresses_make_room_for_new_ones() {
    let queried = |packets: &[(f64, u8)], inserts: &str, keys: &str| -> Run {
        let sources: String = packets.iter().map(|(t, ip)| to(*t, *ip, "q")).collect();
        run(&format!(
            "q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, ENTRY_CAPACITY 3{keys}); q [0] -> out :: Discard;
             q [1] -> asked :: Discard; Script({inserts});\n{sources}"
        ))
    };
    let insert = |ip: u8| format!("write q.insert 2.0.0.{ip} 2:2:2:2:2:{ip}, ");
    // All known: the oldest goes.
    let known = queried(
        &[(1.0, 4)],
        &format!(
            "{}wait 0.1s, {}wait 0.1s, {}wait 3s, {}wait 1s",
            insert(1),
            insert(2),
            insert(3),
            insert(4)
        ),
        "",
    );
    let table = known.read("q.table");
    assert!(
        !table.contains("2.0.0.1 ") && table.contains("2.0.0.2 ") && table.contains("2.0.0.4 "),
        "{table}"
    );
    assert_eq!(known.read("out.count"), "1");
    // An unanswered one goes before all known ones.
    let mixed = queried(
        &[(1.0, 9)],
        &format!("{}{}wait 2s, {}wait 1s, print q.table", insert(1), insert(2), insert(3)),
        "",
    );
    assert!(mixed.text().contains("2.0.0.1 1") && mixed.text().contains("2.0.0.3 1"), "{}", mixed.text());
    assert_eq!(mixed.account("q").dropped.get("table full"), Some(&1));
    // Many new hosts find room.
    let packets: Vec<(f64, u8)> = (1..40).map(|i| (f64::from(i), i)).collect();
    let scanned = queried(&packets, "", "");
    assert_eq!(scanned.read("asked.count"), "39");
    scanned.adds_up();
}

#[test]
fn packets_do_not_wait_for_ever() {
    let sources: String = (1..6).map(|i| to(f64::from(i), i, "q")).collect();
    let unanswered =
        run(&format!("q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, CAPACITY 3) -> Discard;\n{sources}"));
    let account = unanswered.account("q");
    assert_eq!(
        (account.held, account.dropped.get("no answer"), account.dropped.get("queue full")),
        (0, Some(&3), Some(&2))
    );
    assert_eq!(unanswered.read("q.table"), "");
    unanswered.adds_up();
}

#[test]
fn packets_that_wait_longest_make_room_until_half_are_left() {
    // Eight packets to four hosts, of which six may wait: the seventh lets four go.
    let sources: String = (0..8).map(|i| to(1.0 + f64::from(i) / 100.0, 2 + i % 4, "q")).collect();
    let full = run(&format!(
        "q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, CAPACITY 6) -> out :: Discard; q [1] -> Discard;
         {sources}
         Script(wait 2s, print q.length, print q.drops, write q.insert 2.0.0.2 2:2:2:2:2:2, print out.count,
            write q.insert 2.0.0.3 2:2:2:2:2:2, print out.count, write q.insert 2.0.0.4 2:2:2:2:2:2,
            print out.count, write q.insert 2.0.0.5 2:2:2:2:2:2, print out.count)"
    ));
    // Those for hosts 2 and 3 went.
    assert_eq!(full.text(), "4\n4\n0\n0\n2\n4\n");
    full.adds_up();
    // Each address has its share.
    let shared = run(&format!(
        "q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, ENTRY_PACKET_CAPACITY 1) -> Discard; {sources}
         Script(wait 2s, print q.length, print q.stats, print q.count)"
    ));
    assert_eq!(shared.text(), "4\n4 packets killed\n4 ARP queries sent\n4\n");
    shared.adds_up();
}

#[test]
fn an_answer_is_good_for_the_time_of_the_table() {
    let queries = |table: &str, keys: &str| {
        let ended = run(&format!(
            "{table} q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1{keys}) -> out :: Discard; q [1] -> Discard;
             Idle -> [1] q; {}{}{}{}
             Script(write q.insert 2.0.0.2 2:2:2:2:2:2, wait 5s, print q.table)",
            to(0.5, 2, "q"),
            to(1.5, 2, "q"),
            to(2.5, 3, "q"),
            to(3.5, 2, "q"),
        ));
        let table: String =
            ended.text().lines().map(|l| l.split(' ').next().unwrap().to_owned() + " ").collect();
        ended.adds_up();
        (ended.read("q.queries"), ended.read("out.count"), table)
    };
    // The oldest first: host 3 is younger than the wait for host 2.
    let wanted = ("3".to_owned(), "1".to_owned(), "2.0.0.2 2.0.0.3 ".to_owned());
    assert_eq!(queries("", ", TIMEOUT 1"), wanted);
    assert_eq!(queries("t :: ARPTable(TIMEOUT 1);", ", TABLE t"), wanted);
    assert_eq!(queries("t :: ARPTable(TIMEOUT 1);", ", TABLE t, TIMEOUT 300"), wanted);
    assert_eq!(queries("t :: ARPTable;", ", TABLE t, TIMEOUT 1").0, "1");
}

#[test]
fn a_querier_that_is_replaced_knows_whom_it_asked() {
    let replaced = run(&format!(
        "q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1) -> out :: Discard; q [1] -> Discard; Idle -> [1] q; {}{}
         Script(wait 1.05s, writeq q.config \"1.0.0.1, 2:0:0:0:0:1, CAPACITY 9\", wait 0.02s, print q.queries,
            print q.length, write q.insert 2.0.0.2 2:2:2:2:2:2, print out.count)",
        to(1.0, 2, "q"),
        to(1.06, 2, "q"),
    ));
    assert_eq!(replaced.text(), "1\n2\n2\n");
    replaced.adds_up();
}

/// Replaces a router by another one at once.
fn replaced(old: &Run, text: &str) -> Router {
    let env = Environment { clock: old.router.clock.clone(), ..environment(old.err.clone()) };
    let new = Router::new(graph(text), text, env).unwrap_or_else(|e| panic!("{text}\n{e}"));
    new.take_state(&old.router);
    old.adds_up();
    new
}

#[test]
fn a_table_tells_the_queriers_of_its_own_router() {
    const QUERIER: &str = "t :: ARPTable; q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, TABLE t)";
    // In the old router the querier has another number, that of no element or of another one in the new.
    let (many, few) = ("Idle -> Null -> Null -> Null -> Null -> Null -> Discard;".to_owned(), String::new());
    for (before, after) in [(&many, &few), (&few, &many)] {
        let old = start(&format!("{before} {QUERIER} -> Discard; q [1] -> Discard; {}", to(0.5, 2, "q")));
        run_to(&old.router, old.router.clock.now(), 1.0);
        assert_eq!(old.read("q.length"), "1");
        let new = replaced(
            &old,
            &format!("{after} {QUERIER} -> out :: Discard; q [1] -> Discard; Idle -> q; Idle -> [1] q;"),
        );
        assert_eq!(new.read(None, "q.length", "").as_deref(), Ok("1"));
        new.write(None, "t.insert", "2.0.0.2 2:2:2:2:2:2").unwrap();
        new.run();
        assert_eq!(new.read(None, "out.count", "").as_deref(), Ok("1"), "{before:?} {after:?}");
    }
}

/// An address without waiting packets takes no look at addresses with some.
#[test]
fn a_querier_that_is_replaced_hears_of_addresses_in_its_table() {
    let ended = run(&format!(
        "t :: ARPTable; q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, TABLE t) -> out :: Discard; q [1] -> Discard;
         p :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, TABLE t) -> Discard; Idle -> p; Idle -> [1] p; Idle -> [1] q; {}{}
         Script(wait 1s, writeq q.config \"1.0.0.1, 2:0:0:0:0:1, TABLE t, CAPACITY 9\",
            writeq t.config \"TIMEOUT 100\", writeq p.config \"1.0.0.1, 2:0:0:0:0:1\",
            write t.insert 2.0.0.9 2:2:2:2:2:2, wait 0.1s, print q.length,
            write t.insert 2.0.0.2 2:2:2:2:2:2, wait 0.1s, print q.length, print out.count)",
        to(0.5, 2, "q"),
        to(0.6, 3, "q"),
    ));
    assert_eq!(ended.text(), "2\n1\n1\n");
    ended.adds_up();
}

#[test]
fn what_an_element_takes_over_is_within_its_limits() {
    let sources: String = (0..6).map(|_| to(0.5, 2, "q")).collect();
    let old =
        start(&format!("q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1) -> Discard; q [1] -> Discard; {sources}"));
    run_to(&old.router, old.router.clock.now(), 1.0);
    assert_eq!(old.read("q.length"), "6");
    let new = replaced(
        &old,
        "q :: ARPQuerier(1.0.0.1, 2:0:0:0:0:1, ENTRY_PACKET_CAPACITY 4) -> Discard; q [1] -> Discard; Idle -> q;",
    );
    assert_eq!(new.read(None, "q.length", "").as_deref(), Ok("4"));
    adds_up(&new);
}

#[test]
fn rewriters_share_a_capacity_from_the_swap_on() {
    let flows = |count: u32, to: &str| -> String {
        let flow = |n| {
            format!(
                "InfiniteSource(\\<4500001c00010000401100000100000102000002{n:04x}000200080000>, LIMIT 1)
                    -> MarkIPHeader(0) -> {to};\n"
            )
        };
        (1..=count).map(flow).collect()
    };
    let old = start(&format!(
        "a :: IPRewriter(keep 0 0) -> Discard; b :: IPRewriter(keep 0 0) -> Discard; {}{}",
        flows(6, "a"),
        flows(5, "b")
    ));
    run_to(&old.router, old.router.clock.now(), 0.1);
    assert_eq!((old.read("a.size"), old.read("b.size")), ("6".into(), "5".into()));
    let new = replaced(
        &old,
        "Idle -> a :: IPRewriter(keep 0 0, MAPPING_CAPACITY 4) -> Discard;
         Idle -> b :: IPRewriter(keep 0 0, MAPPING_CAPACITY a) -> Discard;
         Idle -> c :: IPRewriter(keep 0 0, MAPPING_CAPACITY 9) -> Discard;",
    );
    assert_eq!(new.read(None, "b.size", "").as_deref(), Ok("4"));
    // One that others share cannot share that of another, which would leave them without a limit.
    let refused = new.write(None, "a.config", "keep 0 0, MAPPING_CAPACITY c").unwrap_err();
    assert!(refused.contains("others share that of 'a' itself"), "{refused}");
    assert_eq!(new.read(None, "b.capacity", "").as_deref(), Ok("4"));
    new.write(None, "b.config", "keep 0 0, MAPPING_CAPACITY c").unwrap();
    new.write(None, "a.config", "keep 0 0, MAPPING_CAPACITY c").unwrap();
    assert_eq!(new.read(None, "a.capacity", "").as_deref(), Ok("9"));
}

/// Returns a source of `count` fragments of `length` bytes, of datagram `id`, without the last one.
fn fragments(id: u16, count: usize, length: usize, every: &str, last: bool) -> String {
    let mut all = String::new();
    for i in 0..count {
        let more = if last && i + 1 == count { 0 } else { 0x2000 };
        let field = more | (i * length / 8);
        all.push_str(&format!(
            "TimedSource({every}, \\<4500{:04x}{id:04x}{field:04x}40110000{}{}>, LIMIT 1) -> MarkIPHeader(0) -> r;\n",
            20 + length,
            "0100000102000002",
            "00".repeat(length)
        ));
    }
    all
}

#[test]
fn fragments_are_bounded_in_bytes() {
    // Ten fragments of 2 KB buffers have room for four.
    let text: String = (0..10).map(|id| fragments(id, 1, 8, &format!("0.{}", id + 1), false)).collect();
    let bounded = run(&format!(
        "r :: IPReassembler(HIMEM 8192); r [0] -> d :: Discard; r [1] -> e :: Discard;\n{text}
        Script(wait 2s, print r.account)"
    ));
    assert!(bounded.text().contains("held 4"), "{}", bounded.text());
    // Each has byte 0 and leaves by output 1, at the bound or after 30 s.
    assert_eq!(bounded.read("e.count"), "10");
    bounded.adds_up();
    // The default is 256 KB.
    let text: String = (0..200).map(|id| fragments(id, 1, 8, "0.1", false)).collect();
    let bounded = run(&format!("r :: IPReassembler -> Discard;\n{text} Script(wait 2s, print r.account)"));
    assert!(bounded.text().contains("held 128"), "{}", bounded.text());
    bounded.adds_up();
}

#[test]
fn whole_datagrams_are_joined_and_too_long_ones_are_dropped() {
    let joined = run(&format!(
        "r :: IPReassembler -> Print(x, CONTENTS NONE) -> d :: Discard;\n{}",
        fragments(7, 3, 1024, "0.1", true)
    ));
    assert_eq!((joined.read("d.count"), joined.text()), ("1".into(), "x: 3092\n".into()));
    joined.adds_up();
    // A first header of 60 bytes and 65,512 bytes of data.
    let header = |length: usize, words: u8, field: u16| {
        format!(
            "4{words:x}00{length:04x}0001{field:04x}401100000100000102000002{}",
            "01".repeat(usize::from(words - 5) * 4)
        )
    };
    let data = |n: usize| "00".repeat(n);
    let text = format!(
        "r :: IPReassembler(HIMEM 1000000) -> d :: Discard;
         TimedSource(0.1, \\<{}{}>, LIMIT 1) -> MarkIPHeader(0) -> r; TimedSource(0.2, \\<{}{}>, LIMIT 1) -> MarkIPHeader(0) -> r;",
        header(60 + 32_768, 15, 0x2000), data(32_768), header(20 + 32_744, 5, 32_768 / 8), data(32_744)
    );
    let long = run(&text);
    assert_eq!(long.read("d.count"), "0");
    assert_eq!(long.account("r").dropped.get("too long"), Some(&2));
    long.adds_up();
}
