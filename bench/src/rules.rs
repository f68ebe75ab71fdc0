//! `ids` with ten thousand rules against `ids` with ten, over packets that no rule was made for.

use crate::fixture::{Error, instance, plan, run_slot};
use crate::generate::Random;
use crate::modules::whole;
use crate::row::{Row, Target, Way, in_turn};
use flame_abi::MAX_BATCH;
use flame_admit::Protection;
use flame_block::Pool;
use flame_run::Engines;
use flame_view::View;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

const GROUP: &str = "rules: read, decode, view and call of ids, one core";
const FEW: u32 = 10;
const MANY: u32 = 10_000;
const PACKETS: u32 = 20_000;
/// The bytes of a packet's payload.
const PAYLOAD: usize = 1000;
/// The words of requests, of which most rules have one as a second content.
const WORDS: [&str; 12] = [
    "GET /",
    "POST /",
    "Host: ",
    "User-Agent: ",
    "Mozilla/5.0",
    ".php?id=",
    "Cookie: ",
    "Accept: ",
    "/images/",
    "index.html",
    "HTTP/1.1\r\n",
    "Referer: ",
];

/// Returns a word of lower-case letters.
fn word(random: &mut Random) -> String {
    let len = random.between(5, 12);
    (0..len).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// Measures the time of a run with [`MANY`] rules against one with [`FEW`], and the memory of the first.
pub fn rows(engine: &Engines, folder: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let scratch = tempfile::tempdir()?;
    let trace = scratch.path().join("requests.pcap");
    std::fs::write(&trace, capture()?)?;
    let wasm = std::fs::read(folder.join("ids.wasm"))?;
    let pool = RefCell::new(Pool::new(1)?);
    let mut runs = Vec::new();
    for count in [FEW, MANY] {
        let plan = plan(&wasm, Protection::Auto, &[("rules", &rules(count))])?;
        let started = instance(engine, &plan, &pool.borrow())?;
        runs.push((View::new(&plan.view, None)?, started));
    }
    let mut runs = runs.into_iter();
    let (Some((mut few_view, mut few)), Some((mut many_view, mut many))) = (runs.next(), runs.next()) else {
        return Err("two instances".into());
    };
    let (times, ratios) = {
        let mut ways: [Way<'_, Error>; 2] = [
            Box::new(|| {
                whole(&trace, &pool, &mut few_view, &mut |n| run_slot(&mut few, 0, n, MAX_BATCH)).map(drop)
            }),
            Box::new(|| {
                whole(&trace, &pool, &mut many_view, &mut |n| run_slot(&mut many, 0, n, MAX_BATCH)).map(drop)
            }),
        ];
        in_turn(rounds, &mut ways)?
    };
    let megabytes = f64::from(PACKETS) * (PAYLOAD + 54) as f64 / 1e6;
    let detail = format!("{:.1} / {:.1} ms", times[1] * 1e3, times[0] * 1e3);
    let rate = format!("{megabytes:.0} MB of packets");
    let memory = many.owned_memory().len() as f64 / (1 << 20) as f64;
    Ok(vec![
        Row::ratio(GROUP, format!("{MANY} rules / {FEW} rules"), ratios[1], detail),
        Row::ratio(GROUP, format!("{MANY} rules"), megabytes / times[1], rate)
            .unit("MB/s")
            .target(Target::AtLeast(100.0)),
        Row::ratio(GROUP, format!("memory of {MANY} rules"), memory, "of the instance".to_owned())
            .unit("MiB")
            .target(Target::AtMost(128.0)),
    ])
}

/// Returns rules of the shapes that public sets have, each with a content of its own.
fn rules(count: u32) -> String {
    let (mut random, mut text) = (Random(1), String::new());
    for sid in 1..=count {
        let (first, path) = (word(&mut random), word(&mut random));
        let second = WORDS[random.below(WORDS.len() as u64) as usize].replace("\r\n", "|0d 0a|");
        let second = second.replace(':', "|3a|");
        let (head, options) = match sid % 10 {
            0 => ("udp any any -> any 53", format!("content:\"|00 01|{first}\"; nocase; fast_pattern;")),
            1 => ("tcp any any -> any any", format!("content:\"{first}\"; offset:4; depth:64; dsize:>40;")),
            2 | 3 => (
                "tcp any any -> any any",
                format!("content:\"{path}.php?{first}=\"; pcre:\"/{first}=[a-f0-9]{{8,32}}(&|\\s|$)/i\";"),
            ),
            4 => (
                "tcp any any -> any 80",
                format!("content:\"{first}\"; content:\"{path}\"; distance:0; within:100; nocase;"),
            ),
            _ => (
                "tcp any any -> any any",
                format!(
                    "flow:established,to_server; content:\"{second}\"; content:\"/{path}/{first}\"; nocase;"
                ),
            ),
        };
        let _ = writeln!(text, "alert {head} (msg:\"Bench {sid}\"; {options} sid:{sid}; rev:1;)");
    }
    text
}

/// Returns a capture of TCP segments: half of them requests of common words, half of them random bytes.
fn capture() -> Result<Vec<u8>, Error> {
    let mut random = Random(2);
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65535, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for n in 0..PACKETS {
        let mut payload = Vec::with_capacity(PAYLOAD + 32);
        while payload.len() < PAYLOAD {
            if n % 2 == 0 {
                let common = WORDS[random.below(WORDS.len() as u64) as usize];
                payload.extend(common.bytes().chain(word(&mut random).bytes()));
            } else {
                payload.extend(random.next().to_le_bytes());
            }
        }
        payload.truncate(PAYLOAD);
        let len = (PAYLOAD + 54) as u32;
        for word in [1_700_000_000 + n / 1000, n % 1000 * 1_000_000, len, len] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])?;
        let total = (PAYLOAD + 40) as u16;
        file.write_all(&[0x45, 0])?;
        file.write_all(&total.to_be_bytes())?;
        file.write_all(&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, (n % 200) as u8, 10, 1, 0, 1])?;
        file.write_all(&(40_000 + (n % 1000) as u16).to_be_bytes())?;
        file.write_all(&80_u16.to_be_bytes())?;
        file.write_all(&n.to_be_bytes())?;
        // Acknowledgement, header of five words, PSH and ACK, window, no checksum, no urgent data.
        file.write_all(&[0, 0, 0, 1, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0])?;
        file.write_all(&payload)?;
    }
    Ok(file)
}
