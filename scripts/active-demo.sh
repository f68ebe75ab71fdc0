#!/usr/bin/env bash
# Three active nodes in namespaces, n1 - n2 - n3, and a host beside n1: ping and trace, authenticated.
# Usage: active-demo.sh FLAME [COMMAND]; COMMAND runs in place of the demo, in its folder, with the nodes.
set -euo pipefail
flame=$(realpath "$1")
shift
if [ "$(id -u)" != 0 ]; then
  echo "active-demo: it makes network namespaces, for which it needs root" >&2
  exit 1
fi
programs=$(realpath "$(dirname "$0")/../crates/active/language/programs")
folder=$(mktemp -d)
net=flame-a$$
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for n in 1 2 3; do ip netns delete "$net-$n" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap end EXIT
cd "$folder"

# The network: 10.12.0.1 - 10.12.0.2, 10.23.0.2 - 10.23.0.3.
for n in 1 2 3; do
  ip netns add "$net-$n"
  ip -n "$net-$n" link set lo up
done
join() {
  ip -n "$net-$1" link add "v$2" type veth peer name "v$1" netns "$net-$2"
  ip -n "$net-$1" address add "10.$1$2.0.$1/24" dev "v$2"
  ip -n "$net-$2" address add "10.$1$2.0.$2/24" dev "v$1"
  ip -n "$net-$1" link set "v$2" up
  ip -n "$net-$2" link set "v$1" up
}
join 1 2
join 2 3
ip netns exec "$net-2" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip -n "$net-1" route add 10.23.0.0/24 via 10.12.0.2
ip -n "$net-3" route add 10.12.0.0/24 via 10.23.0.2

# Credentials: nodes have the role relay, the host has the role host.
root=$("$flame" key new root.key)
for name in n1 n2 n3 alice; do
  "$flame" key new "$name.key" > "$name.public"
  cat > "$name.policy" <<POLICY
[node]
name = "$name"
key = "$name.key"
revocations = "revoked"
[roots]
operator = "$root"
[roles.relay]
roots = ["operator"]
select = "ip"
expose = "count"
calls = "records"
code = "any"
[roles.host]
roots = ["operator"]
select = "ip"
expose = "count"
calls = "records"
code = "any"
POLICY
  role=relay
  if [ "$name" = alice ]; then role=host; fi
  "$flame" grant mint --key root.key --to "$name" --role "$role" --policy "$name.policy" \
    --holder "$(cat "$name.public")" --code any --expires "$(date -u -d '+1 day' +%Y-%m-%dT%H:%M:%SZ)" \
    -o "$name.credential"
done
touch revoked

config() {
  cat > "$1.toml" <<CONFIG
listen = "$2"
policy = "$1.policy"
credential = "$1.credential"
identity = "$1.key"
time = "$1.time"
CONFIG
  cat >> "$1.toml"
  cat >> "$1.toml" <<CONFIG
[accounts.alice]
calls = ["send", "deliver", "leave", "service", "times"]
resolution = 1
CONFIG
}
config n1 0.0.0.0:4747 <<'TABLES'
[neighbours]
n2 = "10.12.0.2:4747"
[ways]
n3 = "n2"
TABLES
config n2 0.0.0.0:4747 <<'TABLES'
[neighbours]
n1 = "10.12.0.1:4747"
n3 = "10.23.0.3:4747"
TABLES
config n3 0.0.0.0:4747 <<'TABLES'
[neighbours]
n2 = "10.23.0.2:4747"
[ways]
n1 = "n2"
TABLES
config alice 127.0.0.1:0 <<'TABLES'
[neighbours]
n1 = "127.0.0.1:4747"
[ways]
n2 = "n1"
n3 = "n1"
TABLES

for n in 1 2 3; do
  ip netns exec "$net-$n" "$flame" active -c "n$n.toml" > "n$n.out" 2>&1 &
  pids+=($!)
done
# Hosts ask again until their node listens.
host() { ip netns exec "$net-1" "$flame" "$@" -c alice.toml; }
if [ $# -gt 0 ]; then
  export FLAME=$flame NET=$net PROGRAMS=$programs
  export -f host
  export flame net
  status=0
  "$@" || status=$?
  exit "$status"
fi
echo "== flame trace --active n3"
host trace --active n3
echo "== flame ping --active n3"
host ping --active n3 -n 5
echo "== a program of this folder: ping.capsule"
host capsule run "$programs/ping.capsule" ping @n3
echo "== the nodes at their end"
for pid in "${pids[@]}"; do kill "$pid"; done
wait "${pids[@]}" || true
pids=()
cat n1.out n2.out n3.out
