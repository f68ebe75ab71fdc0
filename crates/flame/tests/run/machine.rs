//! Tests of a machine with several users, set up by the operators' page and used by the researchers' page, in
//! a mount namespace with its own /etc. They need root, and report when they are skipped.

use crate::common::root;
use std::path::Path;
use std::process::Command;

/// Returns the blocks of a page that begin with this line.
fn blocks(page: &str, first: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("```{first}\n");
    page.split(&fence).skip(1).map(|b| b.split("```").next().unwrap().to_owned()).collect()
}

/// Converts lines that must fail for a shell, which ignores the failure otherwise.
fn expecting(block: &str) -> String {
    let line = |line: &str| match line.strip_prefix("! ") {
        Some(fails) => {
            format!("if {fails}; then echo 'let through: {}'; exit 1; fi\n", fails.replace('\'', ""))
        }
        None => format!("{line}\n"),
    };
    block.lines().map(line).collect()
}

/// Preparations of the test besides those of the pages: a separate world, two users, and `sudo` as far as it
/// matters here.
const WORLD: &str = r#"
mkdir "$T/etc" && cp -a /etc/. "$T/etc" && mount --bind "$T/etc" /etc
for place in /var/lib /usr/libexec /usr/local; do mount -t tmpfs -o mode=755 tmpfs "$place"; done
mkdir -p /usr/local/bin /etc/sudoers.d
"#;

const USERS: &str = r#"
useradd --create-home --home-dir "$T/alice" alice && chmod 755 "$T/alice"
# sudo sets the user, and says who called; the test's root does the same.
cat > /usr/local/bin/flame-node <<END
#!/bin/sh
exec setpriv --reuid flame --regid flame --clear-groups env -i PATH=\$PATH HOME=/var/lib/flame \
    SUDO_UID=$(id -u alice) FLAME_MODULES=$T/modules /usr/libexec/flame/flame "\$@"
END
cd "$T/alice"
"$FLAME" key new alice.key > alice.pub
"$FLAME" grant mint --key "$T/root.key" --to alice --role researcher --code any --holder "$(cat alice.pub)" -o alice.cred
cp "$CAPTURE" mine.pcap && cp "$T/modules/flow.wasm" . && cp /etc/flame/policy.toml .
chown -R alice: . && chmod 644 alice.cred
cp "$CAPTURE" /var/lib/flame/kept.pcap && chown flame: /var/lib/flame/kept.pcap
export HOME="$T/alice"
# What the page reads without the wrapper she reads as herself.
cat() { setpriv --reuid alice --regid alice --clear-groups cat "$@"; }
"#;

const AFTERWARDS: &str = r#"
test "$(wc -l < flows.json)" -gt 5
runuser -u flame -- /usr/libexec/flame/flame audit show --policy /etc/flame/policy.toml > log
grep -q "install  alice" log && grep -q "end      alice" log && grep -q "(user $(id -u alice))" log
runuser -u flame -- /usr/libexec/flame/flame audit verify --policy /etc/flame/policy.toml | grep -q "counted apart"
# With a program of her own she has her own rights, which do not reach the node's key.
if setpriv --reuid alice --regid alice --clear-groups "$FLAME" run ./flow.wasm -r mine.pcap 2> err; then exit 1; fi
grep -q "node.key: Permission denied" err
if setpriv --reuid alice --regid alice --clear-groups "$FLAME" run ./flow.wasm -r mine.pcap --policy policy.toml 2> err; then exit 1; fi
grep -q "only root runs modules under another" err
# Graphs open devices, so the policy has to let its users run them.
if setpriv --reuid alice --regid alice --clear-groups "$FLAME" click -e 'Idle -> Discard' 2> err; then exit 1; fi
grep -q 'flame click opens devices of this machine, and the policy does not let it: options = \["click"\]' err
setpriv --reuid alice --regid alice --clear-groups "$FLAME" click check -e 'Idle -> Discard'
sed 's/^\[node\]$/[node]\noptions = ["click"]/' policy.toml > /etc/flame/policy.toml
setpriv --reuid alice --regid alice --clear-groups "$FLAME" click -e 'Idle -> Discard; DriverManager(stop)'
cat policy.toml > /etc/flame/policy.toml
# What the policy states is not for those who hold rights under it.
foreign=$("$FLAME" key new "$T/foreign.key")
sed "s|^operator = .*|operator = \"$foreign\"|" policy.toml > "$T/other.toml"
"$FLAME" grant mint --key "$T/foreign.key" --policy "$T/other.toml" --to alice --role researcher --code any -o foreign.cred
chown alice: foreign.cred && chmod 644 foreign.cred
if flame-node run ./flow.wasm -r mine.pcap --credential foreign.cred 2> err; then exit 1; fi
grep -q "not signed by a root of this node" err
if grep -q "(operator)" err; then exit 1; fi
runuser -u flame -- /usr/libexec/flame/flame audit show --policy /etc/flame/policy.toml > log
grep -q "roots (operator)" log || { cat log; exit 1; }
# A key that is held out to the node by name is not taken.
if flame-node run ./flow.wasm -r mine.pcap --credential alice.cred --identity alice.key 2> err; then exit 1; fi
grep -q "the key stays yours" err
# A file that becomes another between looking and reading is the one that was looked at: links are what they point at.
ln -s /var/lib/flame/kept.pcap link.pcap
if flame-node run ./flow.wasm -r link.pcap 2> err; then exit 1; fi
grep -q "files are read with your own rights only" err
# What her shell set for itself ends at the node: files that nobody can read, and half a line in the log.
(umask 0777; flame-node run ./flow.wasm -r mine.pcap -q > /dev/null)
flame-node run ./flow.wasm -r mine.pcap -q > /dev/null
if (ulimit -f 1; flame-node run ./flow.wasm -r mine.pcap -q > /dev/null 2> err); then exit 1; fi
grep -q "ulimit -f" err
# Stopped by her terminal it would hold a lock of the node's.
flame-node run ./flow.wasm -r - -q > /dev/null < <(sleep 3) 2> /dev/null &
sleep 1; node=$(pgrep -u flame -f 'flame run' | head -1); kill -TSTP "$node"; sleep 0.2
if grep -q "^State:.*stopped" "/proc/$node/status"; then exit 1; fi
wait $! || true
# The policy of the machine decides what is printed, whether or not an option names it.
# The probe works: root is told all.
env -u SUDO_UID FLAME_CACHE=$T/cache-of-root "$FLAME" run ./flow.wasm -r mine.pcap > /dev/null 2> err
all=$(sed -n 's/ packets read.*//p' err)
head -c 20011 mine.pcap > cut.pcap && chown alice: cut.pcap
if env -u SUDO_UID FLAME_CACHE=$T/cache-of-root "$FLAME" -vvv run ./flow.wasm -r cut.pcap > /dev/null 2> err; then exit 1; fi
grep -q "damaged at byte" err && grep -q "cache is asked" err
as_alice() { flame-node "$@" --credential narrow.cred --identity - < alice.key > /dev/null 2> err; }
"$FLAME" grant mint --key "$T/root.key" --to alice --role researcher --code any --select 'port 53' \
    --holder "$(cat alice.pub)" -o narrow.cred
chown alice: narrow.cred && chmod 644 narrow.cred
as_alice run ./flow.wasm -r mine.pcap
grep -q " packets shown$" err
if grep -q "$all\|packets read" err; then exit 1; fi
as_alice run ./flow.wasm -r mine.pcap --stats json
if grep -q "$(echo "$all" | tr -d ,)" err; then exit 1; fi
if as_alice -vvv run ./flow.wasm -r cut.pcap; then exit 1; fi
grep -q "the capture is damaged; the packets before the damage were read" err
if grep -q "at byte\|cache is asked\|TRACE\|DEBUG" err; then exit 1; fi
# Root needs no policy.
env -u SUDO_UID FLAME_CACHE=$T/cache-of-root "$FLAME" run ./flow.wasm -r mine.pcap -q --format json | grep -q '"src"'
# A policy that others may write holds for nobody.
chmod 666 /etc/flame/policy.toml
if flame-node run ./flow.wasm -r mine.pcap 2> err; then exit 1; fi
grep -q "only root may change" err
"#;

#[test]
fn researchers_use_a_node_without_its_key() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let modules = std::env::var_os("FLAME_MODULES");
    let able = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    let (true, true, Some(modules)) = (is_root, able, modules) else {
        eprintln!("skipped: needs root, unshare and FLAME_MODULES");
        return;
    };
    let setup = blocks("docs/operators.md", "sh as root");
    let use_ = blocks("docs/researchers.md", "sh as researcher");
    assert_eq!((setup.len(), use_.len()), (1, 1));
    let folder = tempfile::tempdir().unwrap();
    let t = folder.path();
    let run = |program: &str, arguments: &[&str]| {
        let out = Command::new(program).args(arguments).output().unwrap();
        assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let path = |name: &str| t.join(name).display().to_string();
    run("chmod", &["755", &path(".")]);
    run("cp", &[env!("CARGO_BIN_EXE_flame"), &path("flame")]);
    run("cp", &["-r", &Path::new(&modules).display().to_string(), &path("modules")]);
    run("chmod", &["-R", "a+rX", &path("modules")]);
    let public = run(&path("flame"), &["key", "new", &path("root.key")]);
    let script = [WORLD, &setup[0], USERS, &expecting(&use_[0]), AFTERWARDS].concat();
    let out = Command::new("unshare")
        .args(["-m", "--propagation", "private", "bash", "-euxc", &script])
        .env("T", t)
        .env("FLAME", path("flame"))
        .env("ROOT", public)
        .env("CAPTURE", root().join("demo/demo.pcap").canonicalize().unwrap())
        .env_remove("SUDO_UID")
        .output()
        .unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(out.status.success(), "{}\n{}", text(&out.stdout), text(&out.stderr));
}
