#!/usr/bin/env bash
# Runs a server, three nodes with traffic that enrol, an archive, installs by the fleet, one query over all
# three, and a revocation:
#   scripts/fleet-demo.sh target/fast-build/flame target/fast-build/modules
# flame-fleet lies beside the command; NATS_SERVER names the server. As root, each node captures from a link
# in a network namespace; otherwise each replays the recorded capture.
set -euo pipefail
flame=$(realpath "$1") modules=$(realpath "$2")
cd "$(dirname "$0")/.."
demo=$PWD/demo nats=$(command -v "${NATS_SERVER:-nats-server}")
nodes=(penn maryland ssfnet)
children=()
began=$EPOCHREALTIME
took() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f s", to - from }'; }
say() { printf '%-60s %s\n' "$1" "$(took "$2")"; }

if [ "$(id -u)" = 0 ]; then
  # It makes $tmp, and removes it.
  # shellcheck source=../demo/namespaces.sh
  . demo/namespaces.sh
  make_namespaces "${nodes[@]}"
  removed=cleanup
else
  echo "not root: nodes replay the recorded capture in place of links in namespaces"
  tmp=$(mktemp -d)
  removed='rm -rf "$tmp"'
fi
end() {
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  sleep 0.3
  eval "$removed"
}
trap end EXIT
run() { "$@" >>"$tmp/log" 2>&1 & children+=($!); }
until_there() { # until_there WHAT COMMAND...
  local what=$1 tries=0
  shift
  until "$@" >/dev/null 2>&1; do
    ((++tries < 600)) || { echo "waited too long for $what"; cat "$tmp/log"; exit 1; }
    sleep 0.1
  done
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export FLAME_FLEET=$tmp/fleet FLAME_NODES=$tmp/nodes.toml
from=$EPOCHREALTIME
root=$("$flame" key new "$tmp/root.key")
"$flame" fleet init demo --server "tls://127.0.0.1:$port" --listen "127.0.0.1:$port" --root "$tmp/root.key" \
  >>"$tmp/log" 2>&1
run "$nats" -c "$tmp/fleet/server.conf"
until_there "the server" bash -c ": </dev/tcp/127.0.0.1/$port"
run "$flame" fleet control
say "a server with TLS and users, which syncs each message, and the control" "$from"

from=$EPOCHREALTIME
cat >"$tmp/archive.toml" <<END
[archive]
folder = "archive"
server = "tls://127.0.0.1:$port"
authority = "fleet/ca.pem"
key = "fleet/archive.key"
END
run "$flame" fleet archive -c "$tmp/archive.toml"
for node in "${nodes[@]}"; do
  mkdir "$tmp/$node"
  if [ "$(id -u)" = 0 ]; then
    ip netns exec "${!node}" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
      ip link add tx0 type veth peer name tap0 && ip link set tx0 up && ip link set tap0 up'
    source="interface = \"tap0\"" within=(ip netns exec "${!node}")
  else
    source="file = \"$demo/demo.pcap\""$'\n'"repeat = true" within=()
  fi
  "$flame" key new "$tmp/$node/node.key" >/dev/null
  touch "$tmp/$node/revoked"
  cat >"$tmp/$node/policy.toml" <<END
[node]
name = "$node"
key = "node.key"
revocations = "revoked"
audit = "audit.log"
[roots]
operator = "$root"
[roles.fleet]
select = ""
expose = "headers"
calls = "records, messages"
code = "any"
END
  cat >"$tmp/$node/node.toml" <<END
[node]
storage = "state"
policy = "policy.toml"
[socket]
path = "node.sock"
[sources.tap]
$source
[fleet]
name = "$node"
spool = "spool"
member = "member"
principal = "fleet"
labels = { site = "$node", speed = "10G" }
END
  run "${within[@]}" "$flame" node run -c "$tmp/$node/node.toml"
  until_there "node $node" "$flame" list --node "unix:$tmp/$node/node.sock"
done
say "three nodes, an archive" "$from"

from=$EPOCHREALTIME
for node in "${nodes[@]}"; do
  "$flame" fleet enrol "$node" -o "$tmp/$node/token"
  applied=$("$flame" fleet enrol --token - -c "$tmp/$node/node.toml" <"$tmp/$node/token" 2>>"$tmp/log")
  key=${applied#* } key=${key%%: *}
  "$flame" fleet approve "$node" "$key" --root "$tmp/root.key" >>"$tmp/log" 2>&1
  run "$flame" fleet agent -c "$tmp/$node/node.toml"
done
reported() { [ "$("$flame" fleet members | grep -c reported)" = 3 ]; }
until_there "reports of all nodes" reported
say "three nodes enrolled, each with a token and its key approved" "$from"

from=$EPOCHREALTIME
for module in "count" "flow --set idle_timeout=1s --set linger=1s"; do
  # shellcheck disable=SC2086
  set -- $module
  printf '\n$ flame fleet install %s.wasm --where "speed >= 10G"%s\n' "$1" "${module#"$1"}"
  "$flame" fleet install "$modules/$1.wasm" --where "speed >= 10G" "${@:2}"
done
say "count and flow on three nodes, in waves of one and the rest" "$from"

from=$EPOCHREALTIME
if [ "$(id -u)" = 0 ]; then
  for node in "${nodes[@]}"; do
    run ip netns exec "${!node}" python3 demo/replay.py demo/demo.pcap tx0 20 2000
  done
fi
export FLAME_ARCHIVE=$tmp/archive
has_all() {
  [ "$("$flame" query 'SELECT count(DISTINCT node) AS n FROM flow.flow' --format csv | tail -1)" = 3 ]
}
until_there "flows of all nodes" has_all
say "first flows of all three in the archive, begun with the traffic" "$from"
sleep 3
from=$EPOCHREALTIME
sql="SELECT node, count(*) AS flows, sum(packets_fwd + packets_rev) AS packets, max(last_ns) AS last
  FROM flow.flow GROUP BY node ORDER BY node"
printf '\n$ flame query "%s"\n' "$sql"
"$flame" query "$sql"
say "a query over three nodes" "$from"
printf '\n$ flame query "SELECT * FROM fleet.losses"\n'
"$flame" query "SELECT * FROM fleet.losses"
from=$EPOCHREALTIME
printf '\n$ flame fleet top --once\n'
"$flame" fleet top --once
say "two lists of the modules of each node" "$from"
from=$EPOCHREALTIME
printf '\n$ flame fleet revoke flow\n'
"$flame" fleet revoke flow
for node in "${nodes[@]}"; do "$flame" list --node "unix:$tmp/$node/node.sock" | tail -n +2; done
say "flow revoked on three nodes, which run count only" "$from"
say "all" "$began"
