//! Fragments of IP datagrams: what divides them, and what joins them again.

use crate::running::{Run, run};
use flame_element::Account;

const MORE: u16 = 0x2000;
const DF: u16 = 0x4000;

/// Returns a source of a packet at `time` in seconds: its identification, the field of flags and offset, and
/// how often which byte of data.
fn packet(time: f64, id: u16, field: u16, count: usize, byte: &str) -> String {
    let length = 20 + count;
    let data = byte.repeat(count);
    format!(
        "TimedSource({time}, \\<4500{length:04x}{id:04x}{field:04x}4011000001000001 02000002{data}>, LIMIT 1)
            -> MarkIPHeader(0) -> "
    )
}

/// Returns the bytes that `Print(x, …)` shows.
fn printed(run: &Run) -> Vec<String> {
    run.text().lines().filter_map(|l| l.split_once("| ")).map(|(_, b)| b.replace(' ', "")).collect()
}

/// Joins fragments, given as (field, count, byte), and shows the data of what is whole.
fn joined(parts: &[(u16, usize, &str)]) -> (Vec<String>, Account) {
    let mut text = String::from("r :: IPReassembler -> StripIPHeader -> Print(x, 2000) -> Discard;\n");
    for (i, (field, count, byte)) in parts.iter().enumerate() {
        text += &format!("{} r;\n", packet(0.1 + i as f64 / 10.0, 7, *field, *count, byte));
    }
    let run = run(&text);
    run.adds_up();
    let account = run.account("r");
    assert_eq!(account.held, 0, "{account:?}");
    (printed(&run), account)
}

/// Two halves of a datagram come at these times of the clock, with these annotations.
fn halves(clock: [f64; 2], marks: [&str; 2]) -> Run {
    let run = run(&format!(
        "r :: IPReassembler; r [0] -> d :: Discard; r [1] -> e :: Discard;
         {} SetTimestamp({}) -> r; {} SetTimestamp({}) -> r;",
        packet(clock[0], 7, MORE, 8, "aa"),
        marks[0],
        packet(clock[1], 7, 1, 8, "bb"),
        marks[1]
    ));
    run.adds_up();
    assert_eq!(run.account("r").held, 0);
    run
}

#[test]
fn fragments_of_a_capture_are_as_old_as_its_times_say() {
    let is_joined = |clock, marks| halves(clock, marks).read("d.count") == "1";
    assert!(is_joined([0.1, 0.2], ["1000", "1029.9"]));
    assert!(!is_joined([0.1, 0.2], ["1000", "1030"]));
    assert!(!is_joined([0.1, 0.2], ["1000", "9000"]));
    // Of the other order, too: another capture follows.
    assert!(!is_joined([0.1, 0.2], ["9000", "1000"]));
    // One without a time says nothing.
    assert!(is_joined([0.1, 0.2], ["9000", "0"]));
    // Nothing is held for longer than that by the clock.
    assert!(is_joined([0.1, 30.0], ["1000", "1000"]));
    assert!(!is_joined([0.1, 30.2], ["1000", "1000"]));
    assert!(!is_joined([0.1, 30.2], ["0", "0"]));
    let late = halves([0.1, 0.2], ["1000", "9000"]);
    assert_eq!((late.read("e.count"), late.account("r").dropped.get("timeout")), ("1".into(), Some(&1)));
}

#[test]
fn no_two_fragments_of_a_datagram_are_far_apart() {
    // Each is near to the first one, or that has no time.
    for times in [["1000", "1029", "971"], ["0", "1000", "1030"]] {
        let run = run(&format!(
            "r :: IPReassembler -> d :: Discard; {} SetTimestamp({}) -> r; {} SetTimestamp({}) -> r;
             {} SetTimestamp({}) -> r;",
            packet(0.1, 7, MORE, 8, "aa"),
            times[0],
            packet(0.2, 7, MORE | 1, 8, "bb"),
            times[1],
            packet(0.3, 7, 2, 8, "cc"),
            times[2]
        ));
        run.adds_up();
        assert_eq!(run.read("d.count"), "0", "{times:?}");
        assert_eq!(run.account("r").dropped.get("timeout"), Some(&3), "{times:?}");
    }
}

#[test]
fn a_fragment_that_is_dropped_makes_others_none_of_their_room() {
    let run = run(&format!(
        "r :: IPReassembler(HIMEM 4096) -> d :: Discard; {} r; {} r; {} r; {} r;",
        packet(0.1, 1, MORE, 8, "aa"),
        packet(0.2, 2, MORE, 8, "bb"),
        packet(0.3, 2, MORE, 8, "bb"),
        packet(0.4, 1, 1, 8, "aa")
    ));
    run.adds_up();
    let account = run.account("r");
    assert_eq!(account.dropped.get("overlapping fragment"), Some(&1), "{account:?}");
    // The last one makes room by the oldest, which is its own.
    assert_eq!(account.dropped.get("too many fragments"), Some(&1), "{account:?}");
}

#[test]
fn one_fragment_that_is_larger_than_the_bound_outlasts_a_change() {
    let run = run(&format!(
        "r :: IPReassembler(HIMEM 100) -> d :: Discard; {} r; Script(wait 0.2s, writeq r.config \"HIMEM 50\",
             wait 1s, print r.account); {} r;",
        packet(0.1, 1, MORE, 8, "aa"),
        packet(31.0, 1, 1, 8, "aa")
    ));
    run.adds_up();
    assert!(run.text().contains("held 1"), "{}", run.text());
}

#[test]
fn a_fragment_whose_parts_would_lie_beyond_any_datagram_is_dropped() {
    let run = run(&format!(
        "f :: IPFragmenter(600) -> d :: Discard; {} f; {} f;",
        packet(0.1, 7, MORE | 8100, 736, "aa"),
        packet(0.2, 7, MORE | 8100, 728, "aa")
    ));
    run.adds_up();
    assert_eq!((run.read("d.count"), run.account("f").dropped.get("bad fragment")), ("2".into(), Some(&1)));
}

#[test]
fn a_time_gives_up_other_datagrams_that_are_too_old() {
    let run = run(&format!(
        "r :: IPReassembler -> Discard; r [1] -> e :: Discard;
         {} SetTimestamp(1000) -> r; {} SetTimestamp(1010) -> r; {} SetTimestamp(1035) -> r;
         Script(wait 0.5s, print e.count)",
        packet(0.1, 1, MORE, 8, "aa"),
        packet(0.2, 2, MORE, 8, "aa"),
        packet(0.3, 3, MORE, 8, "aa")
    ));
    assert_eq!(run.text(), "1\n");
    run.adds_up();
}

#[test]
fn a_whole_packet_has_the_time_of_the_last_that_came() {
    let run = run(&format!(
        "r :: IPReassembler -> Print(x, 0, TIMESTAMP true) -> Discard;
         {} SetTimestamp(1000) -> r; {} SetTimestamp(1007) -> r;",
        packet(0.1, 7, MORE, 8, "aa"),
        packet(0.2, 7, 1, 8, "bb")
    ));
    assert!(run.text().contains("1007.000000"), "{}", run.text());
}

#[test]
fn a_fragment_fills_what_is_missing_and_no_more() {
    let (a, b, c) = ("aa".repeat(16), "bb".repeat(8), "cc".repeat(16));
    let (whole, account) = joined(&[(MORE, 16, "aa"), (3, 16, "cc"), (MORE | 1, 24, "bb")]);
    assert_eq!(whole, [format!("{a}{b}{c}")]);
    assert_eq!(account.dropped.get("joined"), Some(&2));
    // Three holes at once, with the end.
    let (whole, _) =
        joined(&[(MORE | 3, 8, "aa"), (MORE | 1, 8, "bb"), (0, 8, "ee"), (MORE, 48, "cc"), (6, 1, "dd")]);
    assert_eq!(whole[1..], ["cc".repeat(8) + &b + &"cc".repeat(8) + &"aa".repeat(8) + &c + "dd"]);
    // The first fragment again, but longer.
    let (whole, _) = joined(&[(MORE, 8, "aa"), (MORE | 2, 8, "bb"), (MORE, 24, "cc"), (3, 1, "dd")]);
    assert_eq!(whole, ["aa".repeat(8) + &"cc".repeat(8) + &b + "dd"]);
    // Nothing new but the end.
    let (whole, account) = joined(&[(MORE, 16, "aa"), (1, 8, "bb")]);
    assert_eq!((whole, account.dropped.get("joined")), (vec![a.clone()], Some(&1)));
}

#[test]
fn a_fragment_that_brings_nothing_or_contradicts_the_end_is_dropped() {
    let (whole, account) = joined(&[(MORE, 16, "aa"), (MORE, 16, "bb"), (MORE | 1, 8, "bb"), (2, 1, "cc")]);
    assert_eq!(whole, ["aa".repeat(16) + "cc"]);
    assert_eq!(account.dropped.get("overlapping fragment"), Some(&2));
    // Beyond the end, another end, and an end before bytes that have come.
    let (whole, account) = joined(&[(2, 1, "cc"), (MORE | 2, 8, "bb"), (1, 8, "bb"), (MORE, 16, "aa")]);
    assert_eq!((whole.len(), account.dropped.get("bad fragment")), (1, Some(&2)));
    let (whole, account) = joined(&[(MORE | 2, 8, "aa"), (1, 4, "bb"), (MORE, 16, "aa"), (3, 1, "cc")]);
    assert_eq!((whole.len(), account.dropped.get("bad fragment")), (1, Some(&1)));
}

#[test]
fn parts_of_a_datagram_are_bounded() {
    let some: Vec<_> = (0..514).map(|i| (MORE | (2 * i), 8, "aa")).collect();
    let mut text = String::from("r :: IPReassembler(HIMEM 10000000) -> Discard;\n");
    for (i, (field, count, byte)) in some.iter().enumerate() {
        text += &format!("{} r;\n", packet(0.1 + i as f64 / 100.0, 7, *field, *count, byte));
    }
    let run = run(&text);
    run.adds_up();
    assert_eq!(run.account("r").dropped.get("too many fragments"), Some(&2));
}

#[test]
fn fragments_that_a_capture_cut_are_not_joined() {
    let run = run(&format!(
        "r :: IPReassembler -> d :: Discard; {} r; {} Truncate(28) -> r; {} Truncate(39) -> r;",
        packet(0.1, 7, MORE, 8, "aa"),
        packet(0.2, 7, 1, 16, "bb"),
        packet(0.3, 7, MORE | 1, 24, "bb")
    ));
    run.adds_up();
    assert_eq!(run.read("d.count"), "0");
    assert_eq!(run.account("r").dropped.get("truncated"), Some(&2));
}

#[test]
fn fragments_of_a_cut_packet_state_what_belongs_to_it() {
    let divided = |field, cut| {
        let run = run(&format!(
            "{} Truncate({cut}) -> b :: Counter -> IPFragmenter(600) -> a :: Counter
                -> Print(x, 8) -> IPReassembler -> w :: Counter -> Discard;",
            packet(0.1, 7, field, 1480, "aa")
        ));
        run.adds_up();
        assert_eq!(run.read("b.byte_count"), "1500");
        let headers: Vec<_> = printed(&run).iter().map(|h| format!("{} {}", &h[4..8], &h[12..])).collect();
        (headers.join(", "), run.read("a.byte_count"), run.read("w.count"))
    };
    let expect = |headers: &str, bytes: &str, whole: &str| (headers.into(), bytes.into(), whole.into());
    assert_eq!(divided(0, 1500), expect("0254 2000, 0254 2048, 015c 0090", "1540", "1"));
    // The second fragment is cut, or nothing of the third one is there.
    assert_eq!(divided(0, 900), expect("0254 2000, 0254 2048", "1520", "0"));
    assert_eq!(divided(0, 20 + 2 * 576), expect("0254 2000, 0254 2048", "1520", "0"));
    assert_eq!(divided(0, 1499), expect("0254 2000, 0254 2048, 015c 0090", "1540", "0"));
    assert_eq!(divided(MORE | 1, 1499), expect("0254 2001, 0254 2049, 015c 2091", "1540", "0"));
    // What is there of it fits.
    assert_eq!(divided(0, 600), expect("05dc 0000", "1500", "1"));
}

#[test]
fn a_packet_whose_df_is_ignored_gets_an_identification() {
    let divided = |field| {
        let run = run(&format!(
            "f :: IPFragmenter(36, HONOR_DF false) -> Print(x, 20) -> c :: CheckIPHeader -> Discard;
             {} f; {} f;",
            packet(0.1, 0, field, 40, "aa"),
            packet(0.2, 0, field, 40, "aa")
        ));
        run.adds_up();
        assert_eq!(run.account("c").given, 6);
        let all: Vec<_> = printed(&run).iter().map(|h| (h[8..12].to_owned(), h[12..16].to_owned())).collect();
        all
    };
    let all = divided(DF);
    let fields: Vec<_> = all.iter().map(|(_, field)| &**field).collect();
    assert_eq!(fields, ["2000", "2002", "0004", "2000", "2002", "0004"]);
    let ids: Vec<_> = all.iter().map(|(id, _)| id).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3] && ids[3] == ids[5], "{ids:?}");
    assert_eq!(divided(DF), all);
    // The other fragments of its datagram have the same identification, which must stay.
    let fields: Vec<_> = divided(DF | MORE | 1).into_iter().take(3).map(|(id, f)| id + &f).collect();
    assert_eq!(fields, ["00002001", "00002003", "00002005"]);
    assert!(divided(0).iter().all(|(id, _)| id == "0000"));
}

/// It comes after the fragment for which it was given up: a cycle would otherwise never end within a step.
#[test]
fn what_is_given_up_may_come_back() {
    let old = packet(0.1, 1, MORE, 8, "aa");
    for (config, first, second, wanted) in [
        // Each makes room for the other until the first comes for the second time.
        ("HIMEM 2048", format!("{old} r;"), format!("{} r;", packet(0.2, 2, MORE, 8, "aa")), "3\n"),
        // The second one is so much newer that the first is given up.
        (
            "",
            format!("{old} SetTimestamp(1000) -> r;"),
            format!("{} SetTimestamp(1030) -> r;", packet(0.2, 2, MORE, 8, "aa")),
            "1\n",
        ),
    ] {
        let run = run(&format!(
            "r :: IPReassembler({config}) -> Discard; {first} {second}
             r [1] -> c :: Counter -> p :: CheckPaint(7) -> Discard; p [1] -> Paint(7) -> r;
             Script(wait 0.3s, print c.count)"
        ));
        assert_eq!(run.text(), wanted, "{config}");
        run.adds_up();
    }
}

/// A packet may become thousands of fragments, and a batch of such packets more than fit into memory.
#[test]
fn fragments_leave_before_all_are_made() {
    let run = run(&format!(
        "q :: Queue -> Unqueue(BURST 2, ACTIVE false, LIMIT 2) -> f :: IPFragmenter(28);
         {} q; {} q; f [0] -> Print(x, 8) -> Discard; f [1] -> Print(df, 8) -> Discard;
         Script(wait 0.3s, write Unqueue@2.active true)",
        packet(0.1, 7, 0, 2600, "aa"),
        packet(0.2, 7, DF, 2600, "bb"),
    ));
    run.adds_up();
    let all = printed(&run);
    let place = run.text().lines().position(|l| l.starts_with("df:"));
    assert_eq!((all.len(), run.read("f.fragments"), place), (326, "325".into(), Some(256)));
    let offsets = all.iter().map(|h| u16::from_str_radix(&h[12..16], 16).unwrap()).filter(|o| o & DF == 0);
    assert!(offsets.enumerate().all(|(i, o)| usize::from(o & 0x1fff) == i), "{all:?}");
}

#[test]
fn the_reserved_bit_stays_in_the_whole_packet() {
    for bits in [0, 0x8000, DF, 0x8000 | DF] {
        let run = run(&format!(
            "r :: IPReassembler -> Print(x, 8) -> Discard; {} r; {} r;",
            packet(0.1, 7, bits | MORE, 8, "aa"),
            packet(0.2, 7, 1, 8, "bb")
        ));
        assert_eq!(printed(&run)[0][12..16], format!("{bits:04x}"));
    }
}

#[test]
fn the_oldest_datagrams_make_room_for_others_in_a_smaller_reassembler() {
    // Three datagrams of one fragment, and their ends after a change to a room of two, and back.
    let first: String = (1..=3).map(|id| packet(f64::from(id) / 10.0, id, MORE, 8, "aa") + "r;").collect();
    let last: String = (1..=3).map(|id| packet(1.0, id, 1, 8, "bb") + "r;").collect();
    let run = run(&format!(
        "r :: IPReassembler -> Print(x, 8) -> Discard; {first} {last}
         Script(wait 0.5s, writeq r.config \"HIMEM 4096\", writeq r.config \"\")"
    ));
    run.adds_up();
    let ids: Vec<_> = printed(&run).iter().map(|h| h[8..12].to_owned()).collect();
    assert_eq!(ids, ["0002", "0003"], "{:?}", run.account("r"));
}
