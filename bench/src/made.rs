//! Modules that the measurements make themselves.

use crate::fixture::Error;

/// Returns a capture of frames, each at a time in microseconds.
pub fn capture(frames: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for (at, frame) in frames {
        let (second, length) = (1_600_000_000 + (at / 1_000_000) as u32, frame.len() as u32);
        file.extend([second, (at % 1_000_000) as u32, length, length].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

/// Returns a module from its text, with its manifest.
pub fn module(text: &str, manifest: &str) -> Result<Vec<u8>, Error> {
    use wasm_encoder::{CustomSection, Section};
    let mut wasm = wat::parse_str(text)?;
    let name = flame_abi::layout::names::MANIFEST_SECTION.into();
    CustomSection { name, data: manifest.as_bytes().into() }.append_to(&mut wasm);
    Ok(wasm)
}

/// Returns a module that ignores the packets it gets.
pub fn empty(expose: &str) -> Result<Vec<u8>, Error> {
    let text = r#"(module (memory (export "memory") 1)
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;
    let manifest = "abi = 1\nname = \"empty\"\nversion = \"1\"\ndescription = \"does nothing\"\n[needs]\n";
    module(text, &format!("{manifest}expose = \"{expose}\"\n"))
}

/// Returns a module that takes `steps` steps for each packet, within a bound.
pub fn spin(name: &str, steps: u32) -> Result<Vec<u8>, Error> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_batch") (param $batch i32) (result i64)
                (local $left i32) (local $i i32)
                (local.set $left (i32.load offset=4 (local.get $batch)))
                (block $done
                    (loop $packets
                        (br_if $done (i32.eqz (local.get $left)))
                        (local.set $i (i32.const {steps}))
                        (loop $again
                            (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
                        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                        (br $packets)))
                (i64.const 0)))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"busy\"\n[needs]\nexpose = \"none\"\n\
         [limits]\npacket_budget = 100000000\n"
    );
    module(&text, &manifest)
}

/// Returns a module that sends frames of UDP on its channel, at each batch `frames` of `length` bytes: `rate`
/// bits a second, and more while the link is idle.
pub fn sending(frames: usize, length: usize, rate: u64) -> Result<Vec<u8>, Error> {
    // The number of the channel is 0.
    let head = [&(length as u32 + 4).to_le_bytes()[..], &[0xfa, 0xff], &[0; 6]].concat();
    let output = [head, crate::send::frame(0, length)].concat().repeat(frames);
    let data: String = output.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let result = (output.len() as u64) << 32;
    let text = format!(
        r#"(module (memory (export "memory") 4) (data (i32.const 0) "{data}")
            (func (export "flame_batch") (param i32) (result i64) (i64.const {result})))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"sending\"\nversion = \"1\"\ndescription = \"\"\n[[channels]]\nname = \"a\"\n\
         filter = \"udp\"\nrate = \"{rate} bit/s\"\nextra = true\n"
    );
    module(&text, &manifest)
}

/// Returns a module that works on each batch for tens of milliseconds.
pub fn busy() -> Result<Vec<u8>, Error> {
    let text = r#"(module
      (memory (export "memory") 1)
      (func (export "flame_batch") (param i32) (result i64) (local i32)
        (loop $l
          (i32.store (i32.const 64) (i32.mul (i32.load (i32.const 64)) (i32.const 7)))
          (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 4000000))))
        (i64.const 0)))"#;
    module(text, "abi=1\nname=\"busy\"\nversion=\"1\"\ndescription=\"\"\n[limits]\npacket_budget=80000000\n")
}
