//! The control side never touches a packet, so it names no type of packets, of their descriptors or of blocks
//! of them. Crates that have nothing else are none of its dependencies (`edges_go_down`).

use super::cycles::{code, paths};
use super::{files, root};

/// The crates of the dataplane that control uses for other things.
const CRATES: [&str; 4] = ["flame_element", "flame_source", "flame_view", "flame_worker"];

/// Their types of packets.
const PACKETS: [&str; 9] =
    ["Attached", "Batch", "Described", "Frame", "Packet", "Packets", "RawBlock", "RawPacket", "Written"];

/// Returns the types of packets that paths in this code lead to.
fn named(text: &str) -> Vec<String> {
    let code = code(text);
    let starts = CRATES.iter().flat_map(|name| {
        code.match_indices(&format!("{name}::")).map(|(at, found)| at + found.len()).collect::<Vec<_>>()
    });
    let named = starts.flat_map(|at| paths(&code[at..])).flatten();
    named.filter(|name| PACKETS.contains(name)).map(str::to_owned).collect()
}

#[test]
fn control_names_no_packets() {
    let mut all = Vec::new();
    files(&root().join("crates/control"), &mut all);
    let sources = all.iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let sources: Vec<_> = sources.filter(|path| path.components().any(|c| c.as_os_str() == "src")).collect();
    assert!(sources.len() > 100);
    for path in sources {
        let found = named(&std::fs::read_to_string(path).unwrap());
        assert!(found.is_empty(), "{}: {found:?} belong to the dataplane", path.display());
    }
}

/// The reader sees names in each form of a path, and nothing else.
#[test]
fn packets_are_found() {
    for code in [
        "use flame_source::RawBlock;",
        "use flame_source::{Progress, files::{FileOptions, Next}, RawBlock as Block};",
        "fn f(block: &flame_source::RawBlock) {}",
        "fn f(x: Vec<flame_worker::Attached>) {}",
    ] {
        assert_eq!(named(code).len(), 1, "{code}");
    }
    for code in [
        "use flame_source::{Next, Source};\nstruct Frame;",
        "// use flame_source::RawBlock;",
        "fn f(x: flame_source::Progress, y: Frame) {}",
        "impl flame_source::Source for Frame {}",
        "use flame_api::Frame;",
    ] {
        assert!(named(code).is_empty(), "{code}");
    }
}
