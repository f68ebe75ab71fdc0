//! Packets that ask the modules of answers for as much work as they can: none is ended by its budget, and the
//! packets of others are read.

use crate::built::pcap;
use crate::common::module;
use flame_module::testing::Traffic;
use serde_json::Value;
use std::process::Command;

fn vector16(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes(), content].concat()
}

/// Returns a ClientHello in records of 16,000 bytes.
fn hello(ciphers: &[u8], extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3], &[7; 32][..], &[0], &vector16(ciphers), &[1, 0], &vector16(extensions)].concat();
    let message = [&[1, 0], &vector16(&body)[..]].concat();
    [&[22, 3, 1], &vector16(&message)[..]].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &vector16(content)[..]].concat()
}

/// Adds a stream in segments of `size` bytes.
fn stream(traffic: &mut Traffic, port: u16, bytes: &[u8], size: usize) {
    for (n, piece) in bytes.chunks(size).enumerate() {
        traffic
            .tcp(&format!("10.0.0.1:{}", 1000 + port), "10.0.0.2:443")
            .payload(piece)
            .seq((n * size) as u32);
    }
}

fn hostile() -> Traffic {
    let mut traffic = Traffic::default();
    let numbers = |n: u16| (0..n).rev().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    let protocols = |one: &[u8]| extension(16, &vector16(&one.repeat(7600 / one.len())));
    let hellos = [
        hello(&numbers(4000), &[]),
        hello(&[19, 1], &(0..1900).flat_map(|n| extension(n * 33, &[])).collect::<Vec<_>>()),
        hello(&[19, 1], &extension(13, &vector16(&numbers(3900)))),
        hello(&[19, 1], &extension(13, &[0, 2, 4, 3]).repeat(990)),
        hello(&[19, 1], &protocols(b"\x01\xff")),
        hello(&[19, 1], &protocols(b"\0")),
        hello(&[19, 1], &extension(0, &vector16(&[&[0], &vector16(&[0xff; 7000])[..]].concat()))),
    ];
    for (n, hello) in (0..).zip(&hellos) {
        stream(&mut traffic, n, hello, 1400);
    }
    for n in 0..20u8 {
        let initial = [&[0xc3, 0, 0, 0, 1, 8][..], &[n; 8], &[0, 0, 0x47, 0xe4], &[n; 2020]].concat();
        traffic.udp(&format!("10.0.1.{n}:9"), "10.0.0.2:443").payload(&initial.repeat(2));
    }
    let header = |questions: u8| [0, 7, 0x81, 0x80, 0, questions, 0, 24, 0, 0, 0, 0];
    let names = [b"\x01a".repeat(126), [&[63][..], &[0xff; 63]].concat().repeat(3)];
    for name in names.map(|name| [name, vec![0, 0, 1, 0, 1]].concat()) {
        for questions in [1u8, 6, 16] {
            let pointer = b"\xc0\x0c\0\x05\0\x01\0\0\0\x01\0\x02\xc0\x0c".repeat(24);
            let message = [&header(questions)[..], &name.repeat(questions.into()), &pointer].concat();
            traffic.udp("10.0.0.2:53", "10.0.0.1:999").payload(&message);
        }
    }
    let heads = [
        b"GET / HTTP/1.1\r\n\r\n".repeat(200),
        b"HTTP/1.1 200 \r\n\r\n".repeat(200),
        [b"GET ", &[0xff; 7000][..], b" HTTP/1.1\r\nHost: ", &[1; 900], b"\r\n\r\n"].concat(),
        [b"GET / HTTP/1.1\r\n", &b"a\n".repeat(4100)[..]].concat(),
        [b"GET / HTTP/1.1\r\n", &[b'b'; 8300][..]].concat(),
    ];
    for (n, head) in (100..).zip(&heads) {
        stream(&mut traffic, n, head, 4000);
        stream(&mut traffic, n + 50, head, 50);
    }
    // Of another client.
    let good = hello(&[19, 1], &extension(0, &vector16(b"\0\0\x04last")));
    traffic.tcp("10.0.0.9:9", "10.0.0.2:443").payload(&good);
    traffic.tcp("10.0.0.9:8", "10.0.0.2:80").payload(b"GET /last HTTP/1.1\r\n\r\n");
    traffic.udp("10.0.0.9:7", "10.0.0.2:53").payload(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x04last\0\0\x01\0\x01");
    traffic
}

#[test]
fn no_packet_ends_a_module_of_answers() {
    const MODULES: [&str; 6] = ["dns", "tls", "http", "tcp", "talkers", "scan"];
    if MODULES.iter().any(|name| module(name).is_none()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("worst.pcap");
    std::fs::write(&capture, pcap(&hostile())).unwrap();
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", &MODULES.join(","), "-q", "--format", "json", "--expose", "payload:4096", "-r"]);
    let output = flame.arg(&capture).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (column, value) in [("server_name", "last"), ("target", "/last"), ("name", "last")] {
        assert!(rows.iter().any(|row| row[column] == value), "{column}");
    }
}
