//! What Click's manual states where it could be read otherwise.

use crate::running::{graph, run, start};
use flame_element::Router;

/// An IP packet from 192.168.x.x to 10.0.0.1 whose header states `length`, and bytes after the datagram.
fn source(host: &str, length: u16, more: &str) -> String {
    format!(
        "InfiniteSource(\\<4500{length:04x} 00000000 40110000 c0a8{host} 0a000001 0001 0002 0008 0000 {more}>,
            LIMIT 3)"
    )
}

#[test]
fn names_of_networks_are_prefixes_where_a_prefix_is_asked_for() {
    let (inside, own) = (source("0203", 28, ""), source("0101", 28, ""));
    let text = format!(
        "AddressInfo(INSIDE 192.168.0.0/16, GATE 192.168.1.1/16, HOST 192.168.1.1);
        {inside} -> MarkIPHeader(0) -> t :: Tee(9); {own} -> MarkIPHeader(0) -> t;
        t[0] -> IPFilter(deny src INSIDE, allow all) -> named :: Counter -> Discard;
        t[1] -> IPFilter(deny src 192.168.0.0/16, allow all) -> literal :: Counter -> Discard;
        t[2] -> IPFilter(deny src net GATE, allow all) -> gate :: Counter -> Discard;
        t[3] -> IPFilter(deny src INSIDE:ipnet, allow all) -> suffix :: Counter -> Discard;
        t[4] -> IPFilter(deny src GATE, allow all) -> address :: Counter -> Discard;
        t[5] -> IPFilter(deny src HOST, allow all) -> host :: Counter -> Discard;
        t[6] -> GetIPAddress(12) -> r :: StaticIPLookup(INSIDE 0, 0/0 1);
        r[0] -> rin :: Counter -> Discard; r[1] -> rout :: Counter -> Discard;
        t[7] -> GetIPAddress(12) -> s :: RadixIPLookup(GATE 0, 0/0 1);
        s[0] -> sin :: Counter -> Discard; s[1] -> sout :: Counter -> Discard;
        t[8] -> c :: IPClassifier(src host INSIDE:bcast, -); c[0] -> Discard; c[1] -> Discard"
    );
    let run = run(&text);
    run.adds_up();
    let counts = ["named", "literal", "gate", "suffix", "address", "host", "rin", "rout", "sin", "sout"];
    let found = counts.map(|name| run.read(&format!("{name}.count")));
    assert_eq!(found, ["0", "0", "0", "0", "3", "3", "6", "0", "6", "0"]);
    assert!(run.read("r.table").contains("192.168.0.0/16"), "{}", run.read("r.table"));
}

#[test]
fn the_length_of_a_summary_is_the_field_of_the_header() {
    // Padding after the datagram, and a datagram that was cut.
    for (length, more) in [(30, "0102 00000000000000000000"), (40, "0102"), (1000, "0102")] {
        let text = format!(
            "{} -> MarkIPHeader(0) -> ToIPSummaryDump(-, FIELDS ip_len, HEADER false)",
            source("0101", length, more)
        );
        assert_eq!(run(&text).text(), format!("{length}\n").repeat(3));
    }
}

#[test]
fn a_file_that_cannot_be_written_fails_the_run_and_shows_in_the_account() {
    // Both fewer bytes than are written at once, and more.
    for limit in [3, 2000] {
        for to in ["ToDump(/dev/full)", "ToIPSummaryDump(/dev/full, FIELDS ip_src ip_dst ip_len)"] {
            let source = source("0101", 28, "").replace("LIMIT 3", &format!("LIMIT {limit}"));
            let run = run(&format!("{source} -> MarkIPHeader(0) -> f :: {to}"));
            run.adds_up();
            let account = run.account("f");
            assert_eq!(account.dropped, [("not written", limit)].into(), "{to}");
            assert!(run.router.past.has_failed());
            run.router.cleanup();
            let said = run.text();
            assert!(said.lines().count() == 1 && said.contains("/dev/full: No space left"), "{said}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let run =
        run(&format!("{} -> MarkIPHeader(0) -> f :: ToDump({})", source("0101", 28, ""), file.display()));
    assert_eq!(run.account("f").dropped, [("written", 3)].into());
    assert!(!run.router.past.has_failed());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 24 + 3 * (16 + 28));
}

#[test]
fn a_hot_swap_keeps_the_accounts_of_elements_without_successor() {
    let first =
        format!("{} -> a :: Counter -> q :: Queue -> Idle; Idle -> both :: Discard", source("0101", 28, ""));
    let old = start(&first);
    old.router.run();
    let new = Router::new(graph("Idle -> both :: Discard"), "", crate::running::environment(old.err.clone()));
    let new = new.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(new.read(None, "former_accounts", "").unwrap(), "");
    new.take_state(&old.router);
    let kept = new.read(None, "former_accounts", "").unwrap();
    for line in ["a taken 3", "a given 3", "q taken 3", "q held 0", "q dropped 3 replaced"] {
        assert!(kept.lines().any(|l| l == line), "{line}: {kept}");
    }
    assert!(!kept.contains("both"), "{kept}");
}

#[test]
fn functions_of_scripts_are_those_of_the_manual() {
    let run = run("s :: Script(TYPE PASSIVE); c :: Counter; Idle -> c -> Discard");
    let call = |handler: &str, argument: &str| run.router.read(None, &format!("s.{handler}"), argument);
    for _ in 0..200 {
        let value: i64 = call("random", "5 7").unwrap().parse().unwrap();
        assert!((5..=7).contains(&value), "{value}");
        let value: i64 = call("random", "-3 -2").unwrap().parse().unwrap();
        assert!((-3..=-2).contains(&value), "{value}");
        assert_eq!(call("random", "4 4").unwrap(), "4");
        assert_eq!(call("random", "1").unwrap(), "0");
    }
    for bad in ["0", "-1", "7 5", "x", "1 2 3"] {
        assert!(call("random", bad).is_err(), "{bad}");
    }
    let truths =
        [("true true", ["false", "false"]), ("true false", ["true", "false"]), ("false false", ["true"; 2])];
    for (words, [nand, nor]) in truths {
        assert_eq!((call("nand", words).unwrap(), call("nor", words).unwrap()), (nand.into(), nor.into()));
    }
    for (words, readable, writable) in [
        ("c.count", "true", "false"),
        ("c.reset", "false", "true"),
        ("c.none", "false", "false"),
        ("x.count", "false", "false"),
        ("c.count c.rate", "true", "false"),
    ] {
        assert_eq!(call("readable", words).unwrap(), readable, "{words}");
        assert_eq!(call("writable", words).unwrap(), writable, "{words}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, "a b\"c").unwrap();
    let name = file.display().to_string();
    assert_eq!(call("cat", &name).unwrap(), "a b\"c");
    assert_eq!(flame_click::text::unquote(&call("catq", &name).unwrap()), "a b\"c");
}

#[test]
fn scripts_signal_processes() {
    let run = run("s :: Script(TYPE PASSIVE, return $$); Idle -> Discard");
    let call = |handler: &str, argument: &str| run.router.read(None, &format!("s.{handler}"), argument);
    assert_eq!(call("run", "").unwrap(), std::process::id().to_string());
    for (signal, number) in [("TERM", 15), ("9", 9), ("SIGUSR1", 10), ("0xc", 12)] {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(call("kill", &format!("0 {}", child.id())).unwrap(), "", "it is there");
        assert_eq!(call("kill", &format!("{signal} {}", child.id())).unwrap(), "");
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(number), "{signal}");
    }
    let gone =
        std::process::Command::new("true").spawn().map(|mut child| (child.id(), child.wait())).unwrap().0;
    for (words, expected) in [
        ("TERM", "expected a signal and the numbers of processes"),
        ("", "expected a signal and the numbers of processes"),
        ("TREM 1", "expected a signal, as TERM or 15, found 'TREM'"),
        ("32 1", "expected a signal, as TERM or 15, found '32'"),
        ("-1 1", "expected a signal, as TERM or 15, found '-1'"),
        // Groups of processes, and all that may be signalled.
        ("0 0", "expected the number of a process, above 0, found '0'"),
        ("0 -1", "expected the number of a process, above 0, found '-1'"),
        (&format!("0 {gone}"), "No such process"),
    ] {
        let said = call("kill", words).unwrap_err();
        assert!(said.starts_with("kill: ") && said.contains(expected), "{words}: {said}");
    }
}
