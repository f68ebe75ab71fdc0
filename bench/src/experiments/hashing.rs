//! The time to hash, as the Table 1 and the Figure 5 of SANE have it: by an interpreter of byte code, in Wasm
//! as its proved bound permits and metered, natively, and with the processor's instructions for it. All but
//! the last are one algorithm, written alike. Theirs is SHA-1, ours SHA-256, which takes more steps.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::fixture::{Error, blocks, instance, plan, run_slot, view_into};
use crate::made::{capture, module};
use crate::row::{Way, laps};
use crate::send::frame;
use flame_active_node::{Execute, Rights};
use flame_admit::Protection;
use flame_block::Pool;
use flame_capsule::{Payer, hash_of};
use flame_plan::ModuleClass;
use flame_plot::{Scale, Shape};
use flame_view::View;
use std::fmt::Write;
use std::process::Command;

/// The bytes that Table 1 hashes.
const WHOLE: f64 = (4 << 20) as f64;
/// The blocks of 64 bytes by which the plot goes.
const SIZES: [usize; 5] = [1, 4, 16, 64, 256];
/// The size whose time stands for long data.
const LONG: usize = 256;
/// Places in the memory of the Wasm: constants, then the words of a block, the state, and what is hashed.
const WORDS: u32 = 4096 + 256;
const STATE: u32 = WORDS + 256;
const DATA: u32 = 8192;

/// Returns the constants of SHA-256: the first 32 bits of the fractional parts of the roots of primes, square
/// roots for the state and cube roots for the rounds.
fn constants() -> ([u32; 8], [u32; 64]) {
    let is_prime = |n: &u64| (2..*n).all(|d| !n.is_multiple_of(d));
    let primes: Vec<u64> = (2..).filter(is_prime).take(64).collect();
    // The largest number whose power is at most the prime, shifted by 32 bits for each factor.
    let root = |prime: u64, power: u32| {
        let (mut low, mut high) = (0_u128, 1 << 40);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let is_below = middle.pow(power) <= u128::from(prime) << (32 * power);
            if is_below { low = middle } else { high = middle }
        }
        low as u32
    };
    (std::array::from_fn(|n| root(primes[n], 2)), std::array::from_fn(|n| root(primes[n], 3)))
}

/// Returns a message that fills `count` blocks with its padding, and these blocks.
fn padded(count: usize) -> (Vec<u8>, Vec<u8>) {
    let message: Vec<u8> = (0..count * 64 - 9).map(|n| (n * 7 + n / 251) as u8).collect();
    let bits = (message.len() as u64 * 8).to_be_bytes();
    let blocks = [&message[..], &[0x80], &bits].concat();
    (message, blocks)
}

/// The algorithm, as the Wasm and the Python below have it.
fn native(blocks: &[u8], (first, rounds): &([u32; 8], [u32; 64])) -> [u32; 8] {
    let mut state = *first;
    for block in blocks.chunks_exact(64) {
        let mut w = [0_u32; 64];
        for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..64 {
            let (x, y) = (w[i - 15], w[i - 2]);
            let x = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
            let y = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
            w[i] = w[i - 16].wrapping_add(x).wrapping_add(w[i - 7]).wrapping_add(y);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for i in 0..64 {
            let x = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let x = h.wrapping_add(x).wrapping_add(e & f ^ !e & g).wrapping_add(rounds[i]).wrapping_add(w[i]);
            let y = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let y = y.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(x), c, b, a, x.wrapping_add(y));
        }
        for (sum, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = sum.wrapping_add(new);
        }
    }
    state
}

/// Returns memory and functions of a Wasm module that hashes `blocks`: `$hash` leaves the digest in the
/// state, as words of the machine.
fn functions(blocks: &[u8], (first, rounds): &([u32; 8], [u32; 64])) -> String {
    let text = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "\\{byte:02x}");
            text
        })
    };
    let words = |words: &[u32]| text(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    let (constants, at) = (WORDS - 256, STATE + 32);
    let rotated = |name: &str, by: [u32; 3]| {
        let [a, b, c] = by.map(|by| format!("(i32.rotr (local.get ${name}) (i32.const {by}))"));
        format!("(i32.xor (i32.xor {a} {b}) {c})")
    };
    let mixed = |name: &str, by: [u32; 2], shift: u32| {
        let [a, b] = by.map(|by| format!("(i32.rotr (local.get ${name}) (i32.const {by}))"));
        format!("(i32.xor (i32.xor {a} {b}) (i32.shr_u (local.get ${name}) (i32.const {shift})))")
    };
    let before = |by: u32| format!("(i32.load (i32.sub (local.get $p) (i32.const {by})))");
    let next = "(local.set $p (i32.add (local.get $p) (i32.const 4)))";
    let again =
        |label: &str| format!("(br_if {label} (local.tee $i (i32.sub (local.get $i) (i32.const 1))))");
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let each = |of: &dyn Fn(usize, &str) -> String| {
        names.iter().enumerate().map(|(n, name)| of(n, name)).collect::<String>()
    };
    let load =
        each(&|n, name| format!("(local.set ${name} (i32.load offset={} (i32.const {STATE})))", 4 * n));
    let store = each(&|n, name| {
        let offset = 4 * n;
        format!(
            "(i32.store offset={offset} (i32.const {STATE})
               (i32.add (local.get ${name}) (i32.load offset={offset} (i32.const {STATE}))))"
        )
    });
    let (e, a) = (rotated("e", [6, 11, 25]), rotated("a", [2, 13, 22]));
    let (old, new) = (mixed("x", [7, 18], 3), mixed("y", [17, 19], 10));
    let (block, whole) = (blocks.len() / 64, blocks.len());
    format!(
        r#"(memory (export "memory") 1 1)
        (data (i32.const {constants}) "{}") (data (i32.const {at}) "{}") (data (i32.const {DATA}) "{}")
        (func $block (param $at i32)
            (local $i i32) (local $p i32) (local $x i32) (local $y i32) (local $a i32) (local $b i32)
            (local $c i32) (local $d i32) (local $e i32) (local $f i32) (local $g i32) (local $h i32)
            (local.set $p (i32.const {WORDS})) (local.set $i (i32.const 16))
            (loop $words
                (local.set $x (i32.load (local.get $at)))
                (i32.store (local.get $p) (i32.or
                    (i32.and (i32.rotl (local.get $x) (i32.const 8)) (i32.const 0x00ff00ff))
                    (i32.and (i32.rotr (local.get $x) (i32.const 8)) (i32.const 0xff00ff00))))
                (local.set $at (i32.add (local.get $at) (i32.const 4))) {next} {})
            (local.set $i (i32.const 48))
            (loop $more
                (local.set $x {}) (local.set $y {})
                (i32.store (local.get $p)
                    (i32.add (i32.add {} {old}) (i32.add {} {new})))
                {next} {})
            {load}
            (local.set $p (i32.const {WORDS})) (local.set $i (i32.const 64))
            (loop $rounds
                (local.set $x (i32.add (i32.add (i32.add (local.get $h) {e})
                    (i32.xor (i32.and (local.get $e) (local.get $f))
                        (i32.and (i32.xor (local.get $e) (i32.const -1)) (local.get $g))))
                    (i32.add {} (i32.load (local.get $p)))))
                (local.set $y (i32.add {a}
                    (i32.xor (i32.xor (i32.and (local.get $a) (local.get $b))
                        (i32.and (local.get $a) (local.get $c))) (i32.and (local.get $b) (local.get $c)))))
                (local.set $h (local.get $g)) (local.set $g (local.get $f)) (local.set $f (local.get $e))
                (local.set $e (i32.add (local.get $d) (local.get $x)))
                (local.set $d (local.get $c)) (local.set $c (local.get $b)) (local.set $b (local.get $a))
                (local.set $a (i32.add (local.get $x) (local.get $y)))
                {next} {})
            {store})
        (func $hash (local $left i32) (local $at i32)
            (memory.copy (i32.const {STATE}) (i32.const {at}) (i32.const 32))
            (local.set $left (i32.const {block}))
            (loop $blocks
                (call $block (i32.sub (i32.const {}) (i32.mul (local.get $left) (i32.const 64))))
                (br_if $blocks (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))"#,
        words(rounds),
        words(first),
        text(blocks),
        again("$words"),
        before(60),
        before(8),
        before(64),
        before(28),
        again("$more"),
        before(256),
        again("$rounds"),
        DATA as usize + whole,
    )
}

/// Returns a module that hashes `blocks` once for each packet.
fn hashing(blocks: &[u8], constants: &([u32; 8], [u32; 64])) -> Result<Vec<u8>, Error> {
    let text = format!(
        r#"(module {}
            (func (export "flame_batch") (param $batch i32) (result i64) (local $left i32)
                (local.set $left (i32.load offset=4 (local.get $batch)))
                (block $done
                    (loop $packets
                        (br_if $done (i32.eqz (local.get $left)))
                        (call $hash)
                        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                        (br $packets)))
                (i64.const 0)))"#,
        functions(blocks, constants)
    );
    let manifest = "abi = 1\nname = \"hashing\"\nversion = \"1\"\ndescription = \"\"\n[needs]\n\
        expose = \"none\"\n[limits]\npacket_budget = 100000000\n";
    module(&text, manifest)
}

/// Checks the Wasm and the native algorithm against the library, by a capsule that delivers the digest.
fn check(constants: &([u32; 8], [u32; 64])) -> Result<(), Error> {
    let (message, blocks) = padded(3);
    let text = format!(
        r#"(module (import "flame" "deliver" (func $deliver (param i32 i32))) {}
            (func (export "f") (param i32) (call $hash) (call $deliver (i32.const {STATE}) (i32.const 32))))"#,
        functions(&blocks, constants)
    );
    let mut sandbox = flame_active_sandbox::Sandbox::new(super::active::compile)?;
    let made = sandbox.compile(&wat::parse_str(text)?, Payer::default(), Rights::ALL).ok_or("later")?;
    let mut program = made.map_err(|failure| format!("{failure:?}"))?;
    let mut host = super::active::Nothing::default();
    let ran = sandbox.run(&mut program, 0, &[], 1_000_000, &mut host);
    ran.end.map_err(|failure| format!("{failure:?}"))?;
    let words = native(&blocks, constants);
    let bytes = |order: fn(u32) -> [u8; 4]| words.iter().flat_map(|word| order(*word)).collect::<Vec<u8>>();
    let is_right =
        bytes(u32::to_be_bytes) == hash_of(&message).0 && bytes(u32::to_le_bytes) == host.delivered;
    if is_right { Ok(()) } else { Err("the ways to hash differ".into()) }
}

/// The algorithm for Python's interpreter: blocks from the standard input, constants as arguments. It prints
/// the seconds and the digest.
const INTERPRETED: &str = r"
import sys, time
first, rounds = eval(sys.argv[1]), eval(sys.argv[2])
data = sys.stdin.buffer.read()
M = 0xffffffff
def rotr(x, n):
    return (x >> n | x << (32 - n)) & M
def digest(data):
    state = list(first)
    for at in range(0, len(data), 64):
        w = [int.from_bytes(data[i:i + 4], 'big') for i in range(at, at + 64, 4)]
        for i in range(16, 64):
            x, y = w[i - 15], w[i - 2]
            x = rotr(x, 7) ^ rotr(x, 18) ^ x >> 3
            y = rotr(y, 17) ^ rotr(y, 19) ^ y >> 10
            w.append(w[i - 16] + x + w[i - 7] + y & M)
        a, b, c, d, e, f, g, h = state
        for i in range(64):
            x = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + (e & f ^ ~e & g) + rounds[i] + w[i]
            y = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + (a & b ^ a & c ^ b & c)
            a, b, c, d, e, f, g, h = x + y & M, a, b, c, d + x & M, e, f, g
        state = [s + n & M for s, n in zip(state, (a, b, c, d, e, f, g, h))]
    return state
begun = time.process_time()
state = digest(data)
print(time.process_time() - begun, *state)
";

/// Returns the seconds in which an interpreter hashes blocks, or `None` without one.
fn interpreted(blocks: &[u8], constants: &([u32; 8], [u32; 64])) -> Result<Option<f64>, Error> {
    use std::io::Write;
    let python = std::env::var_os("FLAME_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.args(["-c", INTERPRETED, &format!("{:?}", constants.0), &format!("{:?}", constants.1)]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut child) = command.spawn() else { return Ok(None) };
    child.stdin.take().ok_or("no input")?.write_all(blocks)?;
    let said = String::from_utf8(child.wait_with_output()?.stdout)?;
    let mut words = said.split_whitespace();
    let seconds = words.next().and_then(|text| text.parse().ok());
    let state: Vec<u32> = words.filter_map(|text| text.parse().ok()).collect();
    match seconds {
        Some(_) if state != native(blocks, constants) => Err("Python hashes otherwise".into()),
        seconds => Ok(seconds),
    }
}

/// The nanoseconds to hash one message: in Wasm without counters and metered, natively, and by the library,
/// which has the processor's instructions.
fn compiled(
    setting: &Setting<'_>,
    count: usize,
    constants: &([u32; 8], [u32; 64]),
) -> Result<[f64; 4], Error> {
    let (message, padded) = padded(count);
    let wasm = hashing(&padded, constants)?;
    let plans = [plan(&wasm, Protection::Auto, &[])?, plan(&wasm, Protection::Metered, &[])?];
    if plans[0].class != ModuleClass::Bounded {
        return Err("the module that hashes has no bound".into());
    }
    let packets = if setting.quick { 8 } else { (16_384 / count).clamp(16, 256) };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("packets.pcap");
    std::fs::write(&file, capture((0..packets as u64).map(|n| (n, frame(n as u8 % 64, 64)))))?;
    let mut pool = Pool::new(1)?;
    let engines = flame_run::Engines::new()?;
    let mut proved = instance(&engines, &plans[0], &pool)?;
    let mut metered = instance(&engines, &plans[1], &pool)?;
    let mut view = View::new(&plans[0].view, None)?;
    let block = blocks(&file, 1)?.into_iter().next().ok_or("no packets")?;
    let filled = view_into(&mut pool, 0, &mut view, &block)?;
    let mut ways: [Way<'_, Error>; 4] = [
        Box::new(|| run_slot(&mut proved, 0, filled, filled)),
        Box::new(|| run_slot(&mut metered, 0, filled, filled)),
        Box::new(|| {
            for _ in 0..filled {
                std::hint::black_box(native(std::hint::black_box(&padded), constants));
            }
            Ok(())
        }),
        Box::new(|| {
            for _ in 0..filled {
                std::hint::black_box(hash_of(std::hint::black_box(&message)));
            }
            Ok(())
        }),
    ];
    let laps = laps(if setting.quick { 1 } else { 15 }, &mut ways)?;
    // The least of all rounds: what else the machine does only adds to it.
    let least = |n: usize| laps[n].iter().copied().fold(f64::INFINITY, f64::min);
    Ok(std::array::from_fn(|n| least(n) * 1e9 / filled as f64))
}

/// Measures all ways.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let constants = constants();
    check(&constants)?;
    let names = ["Wasm, proved", "Wasm, metered", "native", "with SHA instructions"];
    println!("hashing: nanoseconds of SHA-256 by size (SANE, Table 1 and Fig. 5)");
    println!("{:>7}  {}", "bytes", names.map(|name| format!("{name:>23}")).concat());
    let sizes = if setting.quick { &SIZES[..2] } else { &SIZES[..] };
    let mut lines = names.map(|name| (name.to_owned(), Vec::new()));
    let mut long = [f64::NAN; 4];
    for count in sizes {
        let times = compiled(setting, *count, &constants)?;
        println!("{:7}  {}", count * 64, times.map(|ns| format!("{ns:23.0}")).concat());
        lines.iter_mut().zip(times).for_each(|((_, line), ns)| line.push((*count as f64 * 64.0, ns / 1e3)));
        if *count == LONG || setting.quick {
            long = times.map(|ns| ns * 1e-9 * WHOLE / (*count as f64 * 64.0));
        }
    }
    let count = if setting.quick { 16 } else { 4096 };
    let slow = interpreted(&padded(count).1, &constants)?;
    let slow = slow.map_or(f64::NAN, |seconds| seconds * WHOLE / (count as f64 * 64.0));
    println!("4 MB: interpreted {} s, {}", short(slow), {
        let each = names.iter().zip(long).map(|(name, seconds)| format!("{name} {} s", short(seconds)));
        each.collect::<Vec<_>>().join(", ")
    });
    let grows = lines[0].1.is_sorted_by(|(_, a), (_, b)| a < b);
    Figure {
        name: "hashing",
        title: "Time to hash by size",
        notes: vec!["SHA-256; theirs is SHA-1".to_owned()],
        x: ("bytes", Scale::FromZero),
        y: ("time [µs]", Scale::FromZero),
        series: lines.into_iter().map(|(name, line)| (name, Shape::Line(line))).collect(),
    }
    .write(setting.folder)?;
    let [proved, metered, native, fast] = long;
    let table = |what: &str, theirs, ours| Finding::less("SANE Table 1", what, "s", theirs, ours);
    Ok(vec![
        table("4 MB interpreted (theirs Caml's byte code with ints, ours Python's)", 36.027, slow),
        table(
            "4 MB compiled from a safe language (theirs Caml, ours Wasm within a proved bound)",
            2.477,
            proved,
        ),
        table(
            "4 MB compiled from a safe language, and metered (theirs Caml without a meter)",
            2.477,
            metered,
        ),
        table("4 MB natively (theirs C, ours Rust without the processor's instructions)", 0.333, native),
        table("4 MB with the processor's instructions (theirs C without)", 0.333, fast),
        Finding::shape(
            "SANE Table 1",
            "interpreted, compiled and native, in this order",
            "108, 7.4 and 1 times the native time",
            format!("{}, {} and 1 times", short(slow / native), short(proved / native)),
            !(slow <= proved || proved < native * 0.8),
        ),
        Finding::shape(
            "SANE Fig. 5",
            "the time to hash by size",
            "grows linearly with the size",
            format!(
                "{} ns a byte in Wasm, {} natively",
                short(proved * 1e9 / WHOLE),
                short(native * 1e9 / WHOLE)
            ),
            grows,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured is SHA-256, in each way.
    #[test]
    fn all_ways_hash_alike() {
        let constants = constants();
        assert_eq!((constants.0[0], constants.1[63]), (0x6a09_e667, 0xc671_78f2));
        check(&constants).unwrap();
        let (_, blocks) = padded(2);
        // Without Python, that way is left out.
        interpreted(&blocks, &constants).unwrap();
        assert!(hashing(&blocks, &constants).is_ok());
    }
}
