#!/usr/bin/env bash
# The part of test-deb.sh that runs in the clean Debian root.
set -euo pipefail
step() { echo "test-deb: $*"; }
fail() { echo "test-deb: FAILED: $*"; exit 1; }

files() {
  local without=()
  for path in /proc /dev /run /tmp /root /var/cache /var/lib/apt /var/lib/dpkg /var/log; do
    without+=(-path "$path" -o)
  done
  find / -xdev \( "${without[@]}" -name '*.deb' \) -prune -o -print | sort
}

apt-get update -qq
# What the package depends on stays when it is purged, so it is there before the files are listed.
depends=$(dpkg-deb -f flame.deb Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g')
# shellcheck disable=SC2086 # one word for each package
apt-get install -y -qq --no-install-recommends $depends > /dev/null
files > /tmp/before

step "install"
apt-get install -y -qq --no-install-recommends ./flame.deb > /dev/null
flame --version
getent passwd flame > /dev/null || fail "no user flame"
[ "$(stat -c %U:%G:%a /var/lib/flame)" = flame:flame:700 ] || fail "others may enter the folder of state"
for file in man/man1/flame.1.gz bash-completion/completions/flame zsh/vendor-completions/_flame \
    fish/vendor_completions.d/flame.fish flame/sdk/c/flame.h flame/sdk/rust/Cargo.toml doc/flame/copyright; do
  [ -s "/usr/share/$file" ] || fail "no /usr/share/$file"
done
command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/flame-node.service)
[ -x "${command%% *}" ] || fail "the unit starts ${command%% *}, which is not there"

step "read a capture"
flame run count -r demo.pcap --format json -q | grep -q '"packets":1244' || fail "count"
flame run flow,dns,tcp -r demo.pcap --isolate -q > /dev/null || fail "processes of modules"

step "start a node, install a module"
cd /etc/flame
flame key new root.key > root.pub
flame key new node.key > node.pub
touch revoked
cat > policy.toml <<END
[node]
name = "tap1"
key = "node.key"
revocations = "revoked"
audit = "/var/lib/flame/audit.log"
[roots]
operator = "$(cat root.pub)"
[roles.tenant]
select = ""
expose = "headers"
calls = "records, messages"
code = "any"
END
cat > node.toml <<END
[node]
user = "flame"
storage = "/var/lib/flame"
policy = "policy.toml"
[socket]
path = "/run/flame/node.sock"
[sources.tap]
file = "/demo.pcap"
repeat = true
interval = "1s"
END
chown flame: node.key revoked
cd /
start() {
  install -d /run/flame
  $command > /var/log/flame-node.log 2>&1 & node=$!
  for _ in $(seq 300); do
    if grep -qs ready /var/log/flame-node.log; then return; fi
    sleep 0.1
  done
  cat /var/log/flame-node.log
  fail "the node is not ready"
}
stop() { kill "$node" && wait "$node" || fail "the node ended with $?"; }
rows() { # rows of the module, which come with the first second
  for _ in $(seq 100); do
    if flame records count --format json 2> /dev/null | grep -q packets; then return; fi
    sleep 0.1
  done
  flame logs count
  fail "no records"
}
start
flame install count
rows

step "upgrade"
apt-get install -y -qq --no-install-recommends ./later.deb > /dev/null
dpkg-query -W -f '${Version}' flame | grep -q later1 || fail "not upgraded"
stop
start
flame list | grep -q '^count .*running' || fail "the module did not continue after the upgrade"
rows
stop

step "remove"
apt-get remove -y -qq flame > /dev/null
[ ! -e /usr/bin/flame ] || fail "the command stays after its removal"
ls /var/lib/flame/* > /dev/null && [ -s /etc/flame/policy.toml ] || fail "state or configuration went with it"

step "purge"
rm /etc/flame/*
apt-get purge -y -qq flame > /dev/null
! getent passwd flame > /dev/null || fail "the user stays after the purge"
files > /tmp/after
# Tools of accounts leave backups: passwd-.
if diff /tmp/before /tmp/after | grep -v -e '-$' | grep '^[<>]'; then fail "files are left"; fi
step "nothing is left"
