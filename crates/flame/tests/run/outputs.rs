//! Tests of hostile strings from all sources: a terminal receives nothing that it would obey.

use crate::common::{MANIFEST, pcap, tcp_packet, with_manifest};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

/// A window's title, colours by C1, a line break, a reversed direction, and a formula.
const HOSTILE: &str = "=1+1\u{1b}]0;owned\u{7}\u{9b}31m\u{85}\u{7f}\u{202e}x";

/// The text above without control characters, as a manifest may have it.
const STATED: &str = "=1+1]0;owned31m\u{202e}x";

fn flame(folder: &Path, arguments: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(arguments.iter().map(|a| std::ffi::OsStr::from_bytes(a.as_bytes())))
        .current_dir(folder)
        .env("FLAME_CACHE", folder.join("cache"))
        .env("FLAME_MODULES", folder.join("modules"))
        .output();
    command.unwrap()
}

/// Writes a capture of one packet.
fn capture(path: &Path) {
    std::fs::write(path, pcap([(1_700_000_000_000, tcp_packet(1, 80))])).unwrap();
}

/// Returns the text as a TOML string.
fn toml(text: &str) -> String {
    let escaped: String = text.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
    format!("\"{escaped}\"")
}

/// Returns a module that emits one hostile row at its end, reports the same text when it traps, and whose
/// manifest holds `stated`.
fn module(traps: bool, stated: &str) -> Vec<u8> {
    let bytes: String = HOSTILE.bytes().map(|b| format!("\\{b:02x}")).collect();
    let n = HOSTILE.len();
    let row = format!("\\{:02x}\\00\\00\\00\\00\\00\\00\\00\\{n:02x}\\00{bytes}", n + 2);
    let end = if traps {
        "(unreachable)".to_owned()
    } else {
        format!("(i64.const {})", ((n as u64 + 10) << 32) | 1024)
    };
    let text = format!(
        "(module (memory (export \"memory\") 1) (data (i32.const 1024) \"{row}\") (data (i32.const 2048) \"{bytes}\")
          (global (export \"flame_panic_text\") i32 (i32.const 2048))
          (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))
          (func (export \"flame_end\") (param i64) (result i64) {end}))"
    );
    let mut wasm = wat::parse_str(text).unwrap();
    // The name of the function that traps.
    let mut names = wasm_encoder::NameSection::new();
    let mut functions = wasm_encoder::NameMap::new();
    functions.append(1, HOSTILE);
    names.functions(&functions);
    use wasm_encoder::Section;
    names.append_to(&mut wasm);
    let said = toml(stated);
    let manifest = format!(
        "abi = 1\nname = \"m\"\nversion = {said}\ndescription = {said}\n[parameters.p]\ntype = \"integer\"\ndefault = 1\n\
         description = {said}\n[[tables]]\nname = \"t\"\ndescription = {said}\ncolumns = [{{ name = \"x\", type = \"text\", unit = {said} }}]\n"
    );
    with_manifest(wasm, manifest.as_bytes())
}

/// Returns the first character that a terminal would obey.
fn steers(text: &str) -> Option<char> {
    text.chars().find(|c| *c != '\n' && flame_record::escape::steers(*c))
}

#[test]
fn no_output_steers_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    std::fs::create_dir(folder.path().join("modules")).unwrap();
    file("m.wasm", &module(false, STATED));
    file("traps.wasm", &module(true, STATED));
    file("modules/m.wasm", &module(false, STATED));
    file("controls.wasm", &module(false, HOSTILE));
    let raw = |line: &str| {
        with_manifest(wat::parse_str("(module)").unwrap(), format!("{MANIFEST}{line}").as_bytes())
    };
    file("key.wasm", &raw(&format!("\"{HOSTILE}\" = 1\n")));
    file("syntax.wasm", &raw(&format!("{HOSTILE}\n")));
    file("modules/broken.wasm", &raw(&format!("{HOSTILE}\n")));
    file("policy.toml", format!("[node]\nname = \"{HOSTILE}\"\n").as_bytes());
    file("named.toml", format!("[node]\nname = {}\nkey = \"k\"\n", toml(HOSTILE)).as_bytes());
    file("some.cred", HOSTILE.as_bytes());
    file(
        "rows.json",
        format!("{{\"module\":\"trajectory\",\"table\":\"{HOSTILE}\",\"x\":\"{HOSTILE}\"}}\n").as_bytes(),
    );
    capture(&folder.path().join("c.pcap"));
    let hostile = HOSTILE;
    let run = |more: &[&'static str]| [&["run", "./m.wasm", "-r", "c.pcap"][..], more].concat();
    let mut commands: Vec<Vec<&str>> = vec![
        run(&["--format", "table"]),
        run(&["--format", "json", "--stats", "json"]),
        run(&["--format", "csv"]),
        run(&["--format", "csv", "--guard-formulas"]),
        run(&["--format", "eve"]),
        run(&["--plot", "term"]),
        vec!["run", "./traps.wasm", "-r", "c.pcap"],
        vec!["run", "./key.wasm", "-r", "c.pcap"],
        vec!["run", "./controls.wasm", "-r", "c.pcap"],
        vec!["inspect", "./controls.wasm"],
        vec!["run", "./syntax.wasm", "-r", "c.pcap"],
        vec!["inspect", "./m.wasm"],
        vec!["inspect", "./key.wasm"],
        vec!["inspect", "./syntax.wasm"],
        vec!["modules"],
        vec!["check", "./traps.wasm", "--explain"],
        vec!["check", "./traps.wasm", "--explain", "--format", "json"],
        vec!["run", "./m.wasm", "-r", "c.pcap", "--policy", "policy.toml"],
        vec!["run", "./m.wasm", "-r", "c.pcap", "--policy", "named.toml"],
        vec!["grant", "inspect", "some.cred"],
        vec!["audit", "verify", "policy.toml", "--key", hostile],
        vec!["join", "rows.json"],
        vec!["key", "show", hostile],
    ];
    let set = format!("m.p={hostile}");
    let at = format!("m.p=@{hostile}");
    let unknown = format!("{hostile}.p=1");
    for odd in [&set, &at, &unknown] {
        commands.push(vec!["run", "./m.wasm", "-r", "c.pcap", "--set", odd]);
    }
    commands.push(vec!["run", "./m.wasm", "-r", hostile]);
    commands.push(vec!["run", "./m.wasm", "-r", "c.pcap", "--select", hostile]);
    commands.push(vec!["run", "./m.wasm", "-r", "c.pcap", "--table", hostile]);
    commands.push(vec!["run", hostile, "-r", "c.pcap"]);
    let mut said = 0;
    for command in &commands {
        let out = flame(folder.path(), command);
        for bytes in [&out.stdout, &out.stderr] {
            let text = String::from_utf8(bytes.clone()).unwrap_or_else(|_| panic!("{command:?}: not UTF-8"));
            assert_eq!(steers(&text), None, "{command:?}: {text:?}");
            said += usize::from(text.contains("owned"));
        }
    }
    assert!(said >= 15, "the strings came out in {said} places: is the test still about anything?");
}

#[test]
fn records_survive_their_escaping() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.wasm"), module(false, STATED)).unwrap();
    capture(&folder.path().join("c.pcap"));
    let text = |more: &[&str]| {
        let out = flame(
            folder.path(),
            &[&["run", "./m.wasm", "-r", "c.pcap", "-q", "--format"][..], more].concat(),
        );
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let row: serde_json::Value = serde_json::from_str(&text(&["json"])).unwrap();
    assert_eq!(row["x"], HOSTILE);
    assert!(text(&["csv"]).lines().nth(1).unwrap().starts_with("=1+1\\u{1b}"), "{}", text(&["csv"]));
    assert!(text(&["csv", "--guard-formulas"]).lines().nth(1).unwrap().starts_with("'=1+1"));
}
