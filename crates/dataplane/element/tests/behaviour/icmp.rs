//! ICMP errors: what they say, and where they go.

use crate::rewriter::{at, packet};
use crate::running::{refused, run};

/// Returns the packets that an element writes for a packet of IP, as hexadecimal digits.
fn made(element: &str, packet: &str) -> Vec<String> {
    let run = run(&format!(
        "e :: Null -> {element} -> CheckIPHeader -> CheckICMPHeader -> Print(x, 2000) -> Discard;\n{}",
        at(0.1, packet, "e")
    ));
    run.adds_up();
    let text = run.text();
    text.lines().filter_map(|l| l.split_once("| ").map(|(_, b)| b.replace(' ', ""))).collect()
}

/// Returns a long UDP packet.
fn long() -> String {
    packet(17, "1.0.0.1", "2.0.0.2", (1, 2), 0, 0, 900)
}

#[test]
fn errors_have_a_longest_length_and_report_that_of_the_way() {
    for (config, length, reported) in [
        ("unreachable, host", 576, "00000000"),
        ("unreachable, host, MTU 100", 100, "00000000"),
        ("unreachable, host, MTU 68, PMTU 1400", 68, "00000000"),
        ("unreachable, host, MTU 65535", 20 + 8 + 928, "00000000"),
        ("unreachable, needfrag", 576, "00000000"),
        ("unreachable, needfrag, MTU 100", 100, "00000000"),
        ("unreachable, needfrag, PMTU 1400", 576, "00000578"),
        ("unreachable, needfrag, MTU 200, PMTU 1400", 200, "00000578"),
    ] {
        let made = made(&format!("ICMPError(5.0.0.5, {config})"), &long());
        assert_eq!(made.len(), 1, "{config}");
        assert_eq!((made[0].len() / 2, &made[0][48..56]), (length, reported), "{config}");
        assert_eq!(made[0][4..8], format!("{length:04x}"), "{config}");
    }
    let error = refused("Idle -> ICMPError(1.1.1.1, unreachable, host, MTU 67) -> Discard");
    assert!(error.contains("MTU: expected at least 68, found 67"), "{error}");
}

#[test]
fn only_types_of_errors_are_accepted() {
    for kind in ["echo", "0", "timestamp", "routeradvert", "255"] {
        let error = refused(&format!("Idle -> ICMPError(1.1.1.1, {kind}) -> Discard"));
        assert!(error.contains("is not an error type"), "{kind}: {error}");
    }
    for (kind, number) in [
        ("unreachable", "03"),
        ("sourcequench", "04"),
        ("redirect", "05"),
        ("timeexceeded", "0b"),
        ("parameterproblem", "0c"),
        ("12", "0c"),
    ] {
        let made = made(&format!("ICMPError(1.1.1.1, {kind})"), &long());
        assert_eq!(made.iter().map(|m| &m[40..42]).collect::<Vec<_>>(), [number], "{kind}");
    }
}

#[test]
fn a_parameter_problem_points_at_the_byte_at_fault() {
    // The option is behind one without effect.
    for (option, place) in [
        // A length beyond the header, none, and one that is too small.
        ("07ff040000000000000000", Some(22)),
        ("8800000000000000000000", Some(22)),
        // None is there, as far as the header goes.
        ("0101010101010101010107", Some(31)),
        // Record Route: without a pointer, and pointers before, between and beyond the addresses.
        ("0702000000000000000000", Some(22)),
        ("0707030000000000000000", Some(23)),
        ("0707050000000000000000", Some(23)),
        ("0706040000000000000000", Some(23)),
        ("0707040000000000000000", None),
        ("0707080000000000000000", None),
        // Timestamp: its pointer, its flags, and its count of overflows.
        ("4403050000000000000000", Some(22)),
        ("4408040000000000000000", Some(23)),
        ("4408080000000000000000", Some(23)),
        ("440809f000000000000000", Some(24)),
        ("4408050000000000000000", None),
    ] {
        let option = format!("{option:0<22}");
        let packet = format!("\\<480000280000000040010000 01000001 02000002 01{option} 0800f7ff00000000>");
        let made = made(
            "g :: IPGWOptions(9.9.9.9) -> Discard; g [1] -> ICMPError(5.0.0.5, parameterproblem)",
            &packet,
        );
        let places: Vec<&str> = made.iter().map(|m| &m[48..56]).collect();
        let wanted: Vec<String> = place.iter().map(|place| format!("{place:02x}000000")).collect();
        assert_eq!(places, wanted, "{option}");
    }
}

/// An option that is at fault may come after one that was written.
#[test]
fn options_at_fault_leave_a_checksum_that_is_right() {
    for options in ["07070400000000 44040400 00", "4408050000000000 070300 00", "44040510 070301 0000000000"]
    {
        let packet = format!(
            "\\<480000280000000040010000 01000001 02000002 {} 0800f7ff00000000>",
            options.replace(' ', "")
        );
        let run = run(&format!(
            "n :: Null -> SetIPChecksum -> g :: IPGWOptions(9.9.9.9) -> Discard;
             g [1] -> c :: CheckIPHeader -> d :: Discard; c [1] -> Print(bad) -> Discard;\n{}",
            at(0.1, &packet, "n")
        ));
        run.adds_up();
        assert_eq!((run.text(), run.read("d.count")), (String::new(), "1".into()), "{options}");
    }
}

#[test]
fn only_errors_to_the_sender_of_the_quoted_packet_go_elsewhere() {
    for (dst, wanted) in [("1.0.0.1", "10.0.0.7"), ("3.0.0.3", "3.0.0.3")] {
        // The annotation is shown as the source.
        let run = run(&format!(
            "rw :: IPRewriter(pattern 1.0.0.1 1024-1030# - - 0 1, drop, REAP_INTERVAL 0);
             rw [0] -> ICMPError(9.0.0.9, unreachable, port) -> SetIPAddress({dst}) -> StoreIPAddress(dst)
               -> SetIPChecksum -> ICMPRewriter(rw) -> StoreIPAddress(src) -> SetIPChecksum
               -> CheckIPHeader -> CheckICMPHeader -> IPPrint(in, TIMESTAMP false)
               -> Strip(28) -> CheckIPHeader -> IPPrint(quoted, TIMESTAMP false) -> Discard;
             rw [1] -> Discard; Idle -> [1] rw;\n{}",
            at(1.0, &packet(17, "10.0.0.7", "2.0.0.2", (5, 6), 0, 0, 0), "rw"),
        ));
        run.adds_up();
        let wanted = format!(
            "in: {wanted} > {wanted}: icmp 2.0.0.2 unreachable port\nquoted: 10.0.0.7.5 > 2.0.0.2.6: udp 8\n"
        );
        assert_eq!(run.text(), wanted, "{dst}");
    }
}

#[test]
fn no_error_goes_to_an_address_of_no_host() {
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1"] {
        let packet = packet(17, source, "2.0.0.2", (1, 2), 0, 0, 8);
        let run = run(&format!(
            "e :: ICMPError(5.0.0.5, unreachable, host) -> d :: Discard;\n{}",
            at(0.1, &packet, "e")
        ));
        run.adds_up();
        assert_eq!(run.read("d.count"), "0", "{source}");
    }
}
