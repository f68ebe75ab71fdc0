//! Filters of any bytes, as text and as programs: refused with a reason, or machine code and
//! interpreter agree on every packet.
#![no_main]

use flame_abi::LinkType;
use flame_filter::{Filter, Instruction, Program, reference};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    text(data);
    let Some((count, rest)) = data.split_first() else { return };
    let code = (8 * usize::from(*count)).min(rest.len());
    let (code, packet) = rest.split_at(code);
    let code: Vec<Instruction> = code
        .chunks_exact(8)
        .map(|c| Instruction {
            code: u16::from_le_bytes([c[0], c[1]]),
            jt: c[2],
            jf: c[3],
            k: u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
        })
        .collect();
    if let Ok(program) = Program::check(&code) {
        agree(&program, packet);
    }
});

fn text(data: &[u8]) {
    let Ok(expression) = std::str::from_utf8(data) else { return };
    // Names are refused before libpcap is called, so nothing is looked up.
    if expression.len() > 400 {
        return;
    }
    if let Ok(form) = flame_plan::normalize_filter(expression) {
        assert_eq!(flame_plan::normalize_filter(&form).as_deref(), Ok(form.as_str()), "one form");
    }
    for link in [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL2, LinkType::NULL] {
        match Program::compile(expression, link) {
            Ok(program) => agree(&program, data),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}

fn agree(program: &Program, packet: &[u8]) {
    let filter = Filter::from_program(program).expect("a checked program compiles");
    for bytes in [packet, &[0; 64]] {
        let wire_len = bytes.len() as u32 + 7;
        assert_eq!(filter.run(bytes, wire_len), reference::run(program, bytes, wire_len));
    }
}
