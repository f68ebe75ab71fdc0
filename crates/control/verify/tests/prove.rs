//! Proves the rules by z3, for all values of their widths, if z3 and Python are installed. `make prove`
//! installs the missing ones.

use std::process::Command;

#[test]
fn z3_proves_every_rule() {
    for program in ["z3", "python3", "bash"] {
        if !Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success()) {
            println!("skipped: {program} is missing; `make prove` installs it");
            return;
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/prove/run.sh");
    let out = Command::new("bash").arg(script).output().expect("bash runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let failed: Vec<&str> = text.lines().filter(|line| !line.ends_with(" unsat")).collect();
    assert!(
        out.status.success() && failed.is_empty(),
        "not proved:\n{}\n{}",
        failed.join("\n"),
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(text.lines().count() >= 75, "{text}");
}

/// A wrong rule is detected: the statements do not hold merely because their assumptions are unsatisfiable.
#[test]
fn assumptions_can_be_satisfied() {
    let folder = std::env::temp_dir().join(format!("flame-prove-{}", std::process::id()));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/prove/generate.py");
    let generated = Command::new("python3").arg(script).arg(&folder).status();
    if !generated.is_ok_and(|status| status.success())
        || Command::new("z3").arg("--version").output().is_err()
    {
        println!("skipped: z3 or python3 is missing; `make prove` installs it");
        return;
    }
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        // The rule's negation is left out. By induction, the claim itself is what cannot be satisfied.
        let without: String =
            text.lines().filter(|l| !l.starts_with("(assert (not ")).map(|l| format!("{l}\n")).collect();
        std::fs::write(&path, without).expect("writable");
        let out = Command::new("z3").arg("-T:20").arg(&path).output().expect("z3 runs");
        let answer = String::from_utf8_lossy(&out.stdout).lines().next().unwrap_or_default().to_owned();
        let induction = path.ends_with("induction_integers.smt2");
        if (answer == "unsat") != induction || text.matches("(assert (not ").count() < 1 {
            wrong.push(format!("{}: {answer}", path.display()));
        }
    }
    std::fs::remove_dir_all(&folder).expect("removable");
    assert!(wrong.is_empty(), "{wrong:?}");
}
