//! The two tenants of the README, for real: `demo/node.sh` runs a node on a link, where one of them attacks
//! it. It needs root, clang, python3 and the modules, and reports when it is skipped. `FLAME` names the
//! command under test.

use crate::common::{self, root};
use crate::network::Net;
use std::process::Command;

#[test]
fn a_tenant_gets_every_packet_beside_one_who_attacks() {
    if common::module("count").is_none() || Net::new().is_none() {
        return eprintln!("skipped: no module count (set FLAME_MODULES), or no network namespaces here");
    }
    let flame = std::env::var("FLAME").unwrap_or_else(|_| env!("CARGO_BIN_EXE_flame").to_owned());
    let out = Command::new("bash").arg(root().join("demo/node.sh")).arg(flame).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let whole = format!("{said}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{whole}");
    // Ten times 1,244 packets.
    assert!(said.contains("12440 packets were sent; alice's module counted 12440, lost 0, had 0 faults"));
    assert!(said.contains(" 12,440 "), "alice's record: {whole}");
    // Each attack of bob ends in an account, and the restarts that the node allows.
    for attack in ["loop", "memory", "beyond", "rows"] {
        let row = said.lines().rfind(|line| line.starts_with(attack) && line.contains("bob"));
        let row = row.unwrap_or_else(|| panic!("no line of {attack}: {whole}"));
        let numbers: Vec<u64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [packets, shed, rows, _] = numbers[..] else { panic!("{row}") };
        assert_eq!(packets, 12440, "{row}");
        // The flood is let out at 100 rows a second, for about ten seconds.
        let is_contained = if attack == "rows" { rows < 3000 } else { (shed, rows) == (packets, 0) };
        assert!(is_contained, "{row}");
    }
    let reason = |text: &str| said.contains(&format!("fault (worker 0): flame_batch: {text}"));
    assert!(reason("cut off: used up its budget") && reason("trap"), "{whole}");
}
