//! Modules in text that forward packets, and what they need.

use crate::common::{frame, pcap, tcp_packet, with_manifest};
use std::path::Path;

/// Writes a capture of Ethernet packets, one each millisecond.
pub fn capture(path: &Path, packets: &[Vec<u8>]) {
    std::fs::write(path, pcap((5_000_u64..).zip(packets.iter().cloned()))).unwrap();
}

/// Returns the bytes of the packets of a capture.
pub fn packets(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut all) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let n = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        all.push(bytes[at + 16..at + 16 + n].to_vec());
        at += 16 + n;
    }
    all
}

pub fn manifest(ports: &str) -> String {
    manifest_with("", ports)
}

pub fn manifest_with(more: &str, ports: &str) -> String {
    format!(
        "abi = 1\nname = \"fwd\"\nversion = \"1\"\ndescription = \"test\"\n{more}[needs]\nexpose = \"headers\"\n[ports]\n{ports}\n"
    )
}

/// Returns a module that sends each packet of which `keep` is not 0 from the output `port`, both expressions
/// of the index `$i` and of the address `$d` of the descriptor. `more` precedes the loop.
pub fn forwarding(keep: &str, port: &str, more: &str) -> String {
    format!(
        r#"(module (import "flame" "packet" (func $packet (param i32)))
          (memory (export "memory") 4)
          (func (export "flame_push") (param $in i32) (param $b i32) (result i64)
            (local $i i32) (local $at i32) (local $n i32) (local $d i32)
            {more}
            (local.set $n (i32.load offset=4 (local.get $b)))
            (local.set $d (i32.load (local.get $b)))
            (local.set $at (i32.const 1024))
            (block $done (loop $next
              (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
              (call $packet (local.get $i))
              (if {keep} (then
                (i64.store (local.get $at) (i64.const 0x0000fffb00000004))
                (i32.store16 offset=8 (local.get $at) (local.get $i))
                (i32.store16 offset=10 (local.get $at) {port})
                (local.set $at (i32.add (local.get $at) (i32.const 12)))))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (local.set $d (i32.add (local.get $d) (i32.const 32)))
              (br $next)))
            (i64.or (i64.const 1024)
              (i64.shl (i64.extend_i32_u (i32.sub (local.get $at) (i32.const 1024))) (i64.const 32)))))"#
    )
}

/// Returns a module that returns these frames from each call of `flame_push`.
pub fn returning(frames: &[Vec<u8>]) -> String {
    let bytes = frames.concat();
    let data: String = bytes.iter().map(|b| format!("\\{b:02x}")).collect();
    let value = 1024 | (bytes.len() as u64) << 32;
    format!(
        r#"(module (memory (export "memory") 4) (data (i32.const 1024) "{data}")
          (func (export "flame_push") (param i32 i32) (result i64) (i64.const {value})))"#
    )
}

pub fn send(index: u16, port: u16, bytes: &[u8]) -> Vec<u8> {
    frame(0xfffb, &[&index.to_le_bytes()[..], &port.to_le_bytes(), bytes].concat())
}

pub fn module(folder: &Path, name: &str, wat: &str, ports: &str) {
    let wasm = with_manifest(wat::parse_str(wat).unwrap(), manifest(ports).as_bytes());
    std::fs::write(folder.join(format!("{name}.wasm")), wasm).unwrap();
}

/// Returns a folder with a capture of 1,000 packets, every third one to port 443.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let port = |i: u16| if i.is_multiple_of(3) { 443 } else { 80 };
    let all: Vec<_> = (0..1000).map(|i| tcp_packet(i, port(i))).collect();
    capture(&folder.path().join("in.pcap"), &all);
    folder
}

pub fn handler(out: &str, name: &str) -> String {
    let at = out.find(&format!("{name}:\n")).unwrap_or_else(|| panic!("{name}: {out}"));
    out[at + name.len() + 2..].split("\n\n").next().unwrap().to_owned()
}
