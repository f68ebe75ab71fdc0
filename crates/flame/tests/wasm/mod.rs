//! Modules from text, without the engine.

pub const MANIFEST: &str = "abi = 1\nname = \"hostile\"\nversion = \"1\"\ndescription = \"test\"\n\
    [[tables]]\nname = \"t\"\ncolumns = [{ name = \"packets\", type = \"u64\" }]\n";

/// Returns a module with its manifest.
pub fn with_manifest(mut wasm: Vec<u8>, manifest: &[u8]) -> Vec<u8> {
    use wasm_encoder::{CustomSection, Section};
    CustomSection { name: "flame.manifest".into(), data: manifest.into() }.append_to(&mut wasm);
    wasm
}

/// Returns a frame of a module's output.
pub fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
    frame.extend(kind.to_le_bytes());
    frame.extend([0; 2]);
    frame.extend(payload);
    frame
}

/// Returns a module that takes `iterations` of a loop for each batch.
pub fn busy(name: &str, iterations: u32) -> Vec<u8> {
    looping(name, &format!("i32.const {iterations}"))
}

/// Returns a module that takes `iterations` of a loop, at most 5 million, for each packet of a batch. No
/// batch exceeds its budget.
pub fn busy_with_each(name: &str, iterations: u32) -> Vec<u8> {
    looping(name, &format!("i32.mul (i32.load offset=4 (local.get 0)) (i32.const {iterations})"))
}

fn looping(name: &str, iterations: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (memory (export "memory") 1)
          (func (export "flame_batch") (param i32) (result i64) (local i32)
            (loop $l
              (i32.store (i32.const 64) (i32.mul (i32.load (i32.const 64)) (i32.const 7)))
              (br_if $l
                (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) ({iterations}))))
            (i64.const 0)))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"test\"\n\
         [limits]\npacket_budget = 100000000\n"
    );
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}
