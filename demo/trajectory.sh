#!/usr/bin/env bash
# Two monitors at the ends of a path with a bottleneck, which UDP overloads for a third of the time, and the
# join of what they saw:
#   demo/trajectory.sh target/fast-build/flame [JOIN OPTIONS]
set -euo pipefail
flame=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
shift
net=flame-p-$$
tmp=$(mktemp -d)
cleanup() {
  ip netns pids $net 2>/dev/null | xargs -r kill 2>/dev/null || true
  ip netns del $net 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT
ip netns add $net
within() { ip netns exec $net "$@"; }
within sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
for i in 0 1; do
  within ip link add tx$i type veth peer name rx$i
  within ip link set tx$i up
  within ip link set rx$i up
done
monitors=()
for i in 0 1; do
  ip netns exec $net "$flame" run trajectory -i rx$i --expose payload:64 --set trajectory.sampling=0.5 -q \
    --format json -o "$tmp/$i.json" &
  monitors+=($!)
done
sleep 2
within python3 "$here/path.py" tx0 rx0 tx1 rx1 >/dev/null
kill -INT "${monitors[@]}"
wait "${monitors[@]}"
"$flame" join near="$tmp/0.json" far="$tmp/1.json" "$@"
