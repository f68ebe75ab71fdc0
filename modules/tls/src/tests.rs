use super::*;
use flame_module::testing::{Native, Parameters, Traffic};
use tables::{Client, ClientTransport, Params, Server, State};

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:443";

fn native() -> Native<Tls> {
    Native::new(&Parameters::of(Params::DEFAULTS), 0)
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes(), content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &vector16(content)[..]].concat()
}

/// Returns a handshake message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn client_hello(name: &str, padding: usize) -> Vec<u8> {
    let host = [&[0], &vector16(name.as_bytes())[..]].concat();
    let extensions = [
        extension(0x1a1a, &[]),
        extension(0, &vector16(&host)),
        extension(16, &vector16(b"\x02h2\x08http/1.1")),
        extension(43, &[6, 0x2a, 0x2a, 3, 4, 3, 3]),
        extension(13, &vector16(&[4, 3, 8, 4])),
        extension(21, &vec![0; padding]),
    ]
    .concat();
    let ciphers = vector16(&[0x3a, 0x3a, 0x13, 1, 0x13, 2]);
    message(1, &[&[3, 3], &[7; 32][..], &[0], &ciphers, &[1, 0], &vector16(&extensions)].concat())
}

fn server_hello() -> Vec<u8> {
    let extensions = extension(43, &[3, 4]);
    message(2, &[&[3, 3], &[9; 32][..], &[0, 0x13, 1, 0], &vector16(&extensions)].concat())
}

/// Returns messages in records of `len` bytes.
fn records(messages: &[u8], len: usize) -> Vec<u8> {
    messages.chunks(len).flat_map(|part| [&[22, 3, 1], &vector16(part)[..]].concat()).collect()
}

fn names(native: &Native<Tls>) -> Vec<String> {
    native.of::<Client>().iter().map(|row| row.server_name.to_owned()).collect()
}

#[test]
fn both_hellos_have_a_row() {
    let mut traffic = Traffic::default();
    traffic.tcp(CLIENT, SERVER).payload(&records(&client_hello("www.example", 9), 9000)).seq(1).at(1000);
    // A server may warn first, and other messages follow in its record.
    let hello = records(&[server_hello(), vec![11, 0, 9, 9]].concat(), 9000);
    traffic.tcp(SERVER, CLIENT).payload(&[&[21, 3, 3, 0, 2, 1, 112], &hello[..]].concat()).at(5000);
    // The same segment again, and data.
    traffic.tcp(CLIENT, SERVER).payload(&records(&client_hello("www.example", 9), 9000)).seq(1).at(6000);
    traffic.tcp(CLIENT, SERVER).payload(&[23, 3, 3, 0, 9, 9]).seq(900).at(7000);
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    let [client] = &native.of::<Client>()[..] else { panic!("{:?}", native.rows) };
    let [server] = &native.of::<Server>()[..] else { panic!("{:?}", native.rows) };
    assert_eq!((client.server_name, client.alpn, client.version), ("www.example", "h2,http/1.1", "1.3"));
    assert_eq!((client.ciphers, client.extensions, client.packets), (2, 5, 1));
    assert!(client.ja4.starts_with("t13d0205h2_"), "{}", client.ja4);
    let found = (server.server_name, server.version, server.cipher, server.time_ns, server.dport);
    assert_eq!(found, ("www.example", "1.3", "0x1301", 4000, 4000));
    assert!(native.of::<State>().is_empty());
}

#[test]
fn a_hello_may_come_in_any_pieces() {
    let hello = client_hello("pieces.example", 3000);
    for of_record in [9000, 700] {
        let stream = records(&hello, of_record);
        for size in [1, 2, 5, 300, 1000, 1460] {
            let mut traffic = Traffic::default();
            let mut pieces: Vec<_> = stream.chunks(size).enumerate().collect();
            // After the first, the last comes first; one comes twice.
            pieces[1..].reverse();
            pieces.push(pieces[1]);
            for (n, piece) in pieces {
                traffic
                    .tcp(CLIENT, SERVER)
                    .payload(piece)
                    .seq((u32::MAX - 500).wrapping_add((n * size) as u32));
            }
            let mut native = native();
            native.run(&traffic);
            native.end(0);
            assert_eq!(names(&native), ["pieces.example"], "{of_record} {size}");
            let packets = native.of::<Client>()[0].packets;
            assert_eq!(usize::from(packets), stream.len().div_ceil(size), "{of_record} {size}");
        }
    }
}

#[test]
fn a_byte_that_begins_no_hello_keeps_nothing() {
    let mut traffic = Traffic::default();
    let hello = records(&client_hello("later.example", 9), 9000);
    let mut seq = 1;
    for piece in [&[22][..], &[22], &[3, 3], &[22, 3, 1, 0, 5], &[2, 9], &hello] {
        traffic.tcp(CLIENT, SERVER).payload(piece).seq(seq);
        seq += piece.len() as u32;
    }
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert_eq!(names(&native), ["later.example"]);
    assert!(native.of::<State>().is_empty(), "{:?}", native.of::<State>());
}

#[test]
fn what_is_too_long_or_never_whole_is_counted() {
    let mut traffic = Traffic::default();
    traffic.tcp(CLIENT, SERVER).payload(&records(&client_hello("a", 8400), 9000)[..1000]);
    for port in 1..=300 {
        let stream = records(&client_hello("b", 3000), 9000);
        traffic.tcp(&format!("10.0.0.9:{port}"), SERVER).payload(&stream[..1000]);
    }
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    let state = &native.of::<State>()[0];
    assert_eq!((state.too_long, state.incomplete, state.malformed), (1, 300, 0));
}

/// The client's first datagrams of a real connection, from a capture of Zeek's tests.
#[test]
fn real_initials_are_decrypted() {
    let Some(folder) = flame_testing::traces() else { return };
    for (file, name, version) in [
        ("zeek--quic_quicv2-http3-443.pcap", "", "1.3"),
        ("zeek--quic_firefox-102.13.0esr-blog-cloudflare-com.pcap", "blog.cloudflare.com", "1.3"),
        ("zeek--quic_quic-multiple-initial-fragmented-crypto.pcap", "", "1.3"),
    ] {
        let mut native = native();
        assert!(flame_testing::blocks(folder.join("files").join(file), |d, memory| native.packets(d, memory)));
        native.end(0);
        let rows: Vec<Client> = native.of();
        // The last one has packets of the client only.
        assert!(!rows.is_empty() && native.of::<Server>().is_empty() == file.contains("multiple"), "{file}");
        for row in rows {
            assert!(row.transport == ClientTransport::Quic && row.version == version, "{file}: {row:?}");
            assert!(row.server_name.contains(name) && row.ja4.starts_with("q13"), "{file}: {row:?}");
        }
    }
}

#[test]
fn any_cut_and_any_change_is_handled() {
    let streams = [records(&client_hello("www.example", 9), 9000), records(&server_hello(), 20)];
    let mut traffic = Traffic::default();
    for stream in &streams {
        for cut in 0..stream.len() {
            traffic.tcp(&format!("10.0.1.1:{}", cut + 1), SERVER).payload(&stream[..cut]);
        }
    }
    let mut random = 1u64;
    for round in 0..20_000u64 {
        random = flame_module::mix(random);
        let mut stream = streams[random as usize % 2].clone();
        for n in 0..1 + random % 4 {
            random = flame_module::mix(random + n);
            let at = random as usize % stream.len();
            stream[at] = (random >> 32) as u8 & [0xff, 3][random as usize >> 20 & 1];
        }
        let client = format!("10.1.{}.{}:9", round >> 8, round & 255);
        traffic.tcp(&client, SERVER).payload(&stream);
        // The same bytes as a datagram of QUIC.
        stream[..5].copy_from_slice(&[0xc0 | random as u8, 0, 0, 0, 1]);
        traffic.udp(&client, SERVER).payload(&stream);
    }
    // Another client is read as before.
    traffic.tcp("10.0.0.9:9", SERVER).payload(&records(&client_hello("last.example", 9), 9000));
    let mut native = native();
    native.run(&traffic);
    native.end(0);
    assert!(names(&native).contains(&"last.example".to_owned()) && native.lost == 0);
    let state = &native.of::<State>()[0];
    assert!(state.malformed > 1000 && state.undecrypted > 100, "{state:?}");
}
