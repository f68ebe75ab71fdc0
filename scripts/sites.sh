#!/usr/bin/env bash
# Two nodes at two sites, in namespaces, whose wide area network is a graph of Click elements with known
# delays. Traffic runs for SECONDS between the sites, with an overload in the middle, and from both to the
# same targets. The records of both nodes are left in FOLDER: trajectory-SITE.json, rtt-SITE.json.
# Usage: sites.sh FLAME MODULES FOLDER SECONDS
set -euo pipefail
flame=$(realpath "$1") modules=$(realpath "$2") folder=$(realpath "$3") seconds=$4
if [ "$(id -u)" != 0 ]; then
  echo "sites: it makes network namespaces, for which it needs root" >&2
  exit 1
fi
net=flame-s$$
work=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for n in 1 2 3 w; do ip netns delete "$net-$n" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT
run() { "$@" >>"$work/log" 2>&1 & pids+=($!); }
until_there() { # until_there WHAT COMMAND...
  local what=$1 tries=0
  shift
  until "$@" >/dev/null 2>&1; do
    ((++tries < 300)) || { echo "sites: waited too long for $what: $(tail -3 "$work/log")" >&2; exit 1; }
    sleep 0.1
  done
}

# Site 1 is well connected, site 2 is behind a slow link, place 3 has the targets. One subnet, whose frames
# the network w forwards.
for n in 1 2 3 w; do
  ip netns add "$net-$n"
  ip netns exec "$net-$n" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'
  ip -n "$net-$n" link set lo up
done
for n in 1 2 3; do
  ip -n "$net-$n" link add tap type veth peer name "w$n" netns "$net-w"
  ip -n "$net-$n" link set tap address "02:00:00:00:00:0$n"
  ip -n "$net-$n" address add "10.7.$n.100/16" dev tap
  ip -n "$net-$n" link set tap up
  ip -n "$net-w" link set "w$n" up
done
# One-way delays in milliseconds: of the slow link, and from the backbone to each target.
slow=12 targets=(1 2 4 7 11 16 25 40)
for n in 1 2; do
  ip -n "$net-$n" neighbor add "10.7.$((3 - n)).100" lladdr "02:00:00:00:00:0$((3 - n))" dev tap
  ip -n "$net-3" neighbor add "10.7.$n.100" lladdr "02:00:00:00:00:0$n" dev tap
  for t in "${!targets[@]}"; do
    ip -n "$net-$n" neighbor add "10.7.3.$((t + 1))" lladdr 02:00:00:00:00:03 dev tap
  done
done
for t in "${!targets[@]}"; do ip -n "$net-3" address add "10.7.3.$((t + 1))/16" dev tap; done

# Frames by destination, then by target. The slow link carries 2 Mbit/s, and 50 packets wait for it.
{
  from1="0/020000000002" from2="0/020000000001" from3=""
  for t in "${!targets[@]}"; do
    from1+=", 30/0a0703$(printf %02x $((t + 1)))" from2+=", 30/0a0703$(printf %02x $((t + 1)))"
    for n in 1 2; do from3+="${from3:+, }0/02000000000$n 26/0a0703$(printf %02x $((t + 1)))"; done
  done
  for n in 1 2 3; do echo "out$n :: Queue(1000) -> ToDevice(w$n);"; done
  echo "c1 :: Classifier($from1, -); c2 :: Classifier($from2, -); c3 :: Classifier($from3, -);"
  for n in 1 2 3; do echo "FromDevice(w$n, SNIFFER false) -> c$n;"; done
  echo "c1[0] -> Queue(50) -> LinkUnqueue(${slow}ms, 2Mbps) -> out2;"
  echo "c2[0] -> Queue(1000) -> DelayUnqueue(${slow}ms) -> out1;"
  for t in "${!targets[@]}"; do
    delay=${targets[t]} far=$((targets[t] + slow))
    echo "c1[$((t + 1))] -> Queue(1000) -> DelayUnqueue(${delay}ms) -> out3;"
    echo "c2[$((t + 1))] -> Queue(1000) -> DelayUnqueue(${far}ms) -> out3;"
    echo "c3[$((2 * t))] -> Queue(1000) -> DelayUnqueue(${delay}ms) -> out1;"
    echo "c3[$((2 * t + 1))] -> Queue(1000) -> DelayUnqueue(${far}ms) -> out2;"
  done
  last=$((${#targets[@]} + 1))
  echo "c1[$last] -> Discard; c2[$last] -> Discard; c3[$((2 * ${#targets[@]}))] -> Discard;"
} >"$work/network.click"
run ip netns exec "$net-w" "$flame" click "$work/network.click"

for n in 1 2; do
  mkdir "$work/$n"
  printf '[node]\nstorage = "state"\n[socket]\npath = "node.sock"\n[sources.tap]\ninterface = "tap"\n' \
    >"$work/$n/node.toml"
  run ip netns exec "$net-$n" "$flame" node run -c "$work/$n/node.toml"
  node=unix:$work/$n/node.sock
  until_there "node $n" "$flame" list --node "$node"
  "$flame" install "$modules/trajectory.wasm" --set sampling=1 --node "$node" >>"$work/log" 2>&1
  "$flame" install "$modules/rtt.wasm" --node "$node" >>"$work/log" 2>&1
done

# Traffic: the targets accept connections; both sites connect to each of them in turn; site 1 sends datagrams
# to site 2, and in the middle fifth of the time twice as many bytes as the slow link carries.
cat >"$work/targets.py" <<'PY'
import socket
listener = socket.create_server(("", 80), backlog=128)
while True:
    listener.accept()[0].close()
PY
cat >"$work/connect.py" <<'PY'
import socket, sys, time
end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    try:
        socket.create_connection((f"10.7.3.{n % int(sys.argv[2]) + 1}", 80), timeout=2).close()
    except OSError:
        pass
    n += 1
    time.sleep(0.02)
PY
cat >"$work/send.py" <<'PY'
import os, socket, sys, time
out, seconds = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), float(sys.argv[1])
begin, sent, flood = time.monotonic(), 0, 0.0
while (at := time.monotonic() - begin) < seconds:
    if at * 100 >= sent:
        out.sendto(os.urandom(100), ("10.7.2.100", 5000))
        sent += 1
    if 0.4 * seconds < at < 0.6 * seconds and (at - 0.4 * seconds) * 500 >= flood:
        out.sendto(os.urandom(958), ("10.7.2.100", 5001))
        flood += 1
    time.sleep(0.0005)
PY
run ip netns exec "$net-3" python3 "$work/targets.py"
run ip netns exec "$net-2" python3 -c 'import socket, time
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for n, s in enumerate(sockets):
    s.bind(("", 5000 + n))
time.sleep(3600)'
reached() {
  ip netns exec "$net-2" python3 -c 'import socket; socket.create_connection(("10.7.3.1", 80), 1)'
}
until_there "the network" reached
traffic=()
for n in 1 2; do
  ip netns exec "$net-$n" python3 "$work/connect.py" "$seconds" "${#targets[@]}" & traffic+=($!)
done
ip netns exec "$net-1" python3 "$work/send.py" "$seconds" & traffic+=($!)
for pid in "${traffic[@]}"; do wait "$pid"; done
# What waits for the slow link arrives.
sleep 0.5
for n in 1 2; do
  node=unix:$work/$n/node.sock
  for module in trajectory rtt; do
    "$flame" stop "$module" --node "$node" >>"$work/log" 2>&1
    "$flame" records "$module" --node "$node" -q -o "$folder/$module-$n.json" >>"$work/log" 2>&1
  done
done
echo "slow $slow"
echo "targets ${targets[*]}"
