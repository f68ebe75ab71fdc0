use super::*;
use flame_module::Descriptor;
use flame_module::testing::{Native, Parameters};

fn parameters(base: &str, [offset, width, mask, value]: [i64; 4]) -> Parameters {
    let p = Parameters::default().integer("port", 80).with("base", base.as_bytes());
    let p = p.integer("offset", offset).integer("width", width);
    p.with("mask", format!("{mask:#x}").as_bytes()).with("value", value.to_string().as_bytes())
}

fn native(parameters: &Parameters) -> Native<Port, Total> {
    Native::with_slow(parameters, 0)
}

/// Returns a packet: Ethernet (14 bytes), IPv4 with time to live 64, ports, sequence number and `GET `, with
/// the additional flags `extra`.
fn packet(memory: &mut Vec<u8>, [sport, dport]: [u16; 2], proto: u8, extra: u8) -> Descriptor {
    let addr = memory.len() as u32;
    memory.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    memory.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    memory.extend([sport.to_be_bytes(), dport.to_be_bytes()].concat());
    memory.extend([1, 2, 3, 4]);
    memory.extend(b"GET ");
    let (l4_len, flags) = (8, flags::IPV4 | flags::TRANSPORT | extra);
    Descriptor {
        addr,
        cap_len: 46,
        wire_len: 60,
        l3: 14,
        l4: 34,
        l4_len,
        proto,
        flags,
        ..Descriptor::default()
    }
}

/// Returns four packets: from port 1 to 80, from 80 to 1, one that is not TCP, and a later fragment.
fn four(memory: &mut Vec<u8>) -> Vec<Descriptor> {
    let mut all = vec![packet(memory, [1, 80], TCP, 0), packet(memory, [80, 1], TCP, 0)];
    all.push(packet(memory, [1, 80], 17, 0));
    let mut later = packet(memory, [1, 80], TCP, flags::LATER_FRAGMENT);
    later.flags &= !flags::TRANSPORT;
    all.push(later);
    all
}

#[test]
fn only_the_destination_port_of_tcp_counts() {
    let mut memory = Vec::new();
    let packets = four(&mut memory);
    let mut native = native(&parameters("", [0, 1, 0, 0]));
    native.packets(&packets, &memory);
    native.end(0);
    assert_eq!(native.rows.len(), 1);
    assert_eq!(native.of::<tables::Port>(), [tables::Port { port: 80, packets: 1, wire_bytes: 60 }]);
}

#[test]
fn any_field_is_compared_under_its_mask() {
    let all = 0xffff_ffff;
    // Base, offset, width, mask, value; then the number of packets that match and that lack the field.
    let cases = [
        ("transport", [2, 2, all, 80], 2, 1),
        ("transport", [0, 4, all, 0x0001_0050], 2, 1),
        ("transport", [3, 1, 0xf0, 0x50], 2, 1),
        ("link", [12, 2, all, 0x0800], 4, 0),
        ("link", [42, 4, all, 0x4745_5420], 4, 0),
        ("link", [43, 4, all, 0x4745_5420], 0, 4),
        ("link", [65535, 1, 0, 0], 0, 4),
        ("network", [8, 1, all, 64], 4, 0),
        ("network", [9, 1, all, 17], 1, 0),
        ("network", [0, 1, 0x0f, 5], 4, 0),
        ("payload", [0, 4, all, 0x4745_5420], 3, 1),
        ("payload", [3, 2, all, 0], 0, 4),
        ("payload", [0, 1, 0, 0], 3, 1),
    ];
    for (base, numbers, matching, without) in cases {
        let mut memory = Vec::new();
        let packets = four(&mut memory);
        let mut native = native(&parameters(base, numbers));
        native.packets(&packets, &memory);
        native.end(0);
        let rows: Vec<tables::Field> = native.of();
        assert_eq!((native.rows.len(), rows.len()), (1, 1));
        let counts = [rows[0].packets, rows[0].wire_bytes, rows[0].without];
        assert_eq!(counts, [matching, 60 * matching, without], "{base} {numbers:?}");
    }
}

#[test]
fn a_wrong_field_is_named_with_what_was_expected() {
    let cases = [
        ("ip", [0, 1, 0, 0], "base: expected link, network"),
        ("link", [0, 3, 0, 0], "width: expected 1, 2 or 4"),
        ("link", [0, 1, 0xf0, 0x11], "0x11 has bits outside the mask 0xf0"),
        ("link", [0, 1, 0x1_0000_0000, 0], "mask: expected a number up to 0xffffffff"),
        ("link", [0, 1, 0, -1], "value: expected a number"),
        ("link", [0, 1, 0xffff, 0x100], "0x100 has bits outside the mask 0xff"),
    ];
    for (base, numbers, expected) in cases {
        let p = parameters(base, numbers);
        let panic = std::panic::catch_unwind(|| native(&p)).err().expect("refused");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains(expected), "{text}");
    }
}
