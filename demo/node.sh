#!/usr/bin/env bash
# Runs a node with two tenants on a live link, of whom Bob means harm, and shows what each got:
#   demo/node.sh target/fast-build/flame
# It needs root, iproute2 and python3.
set -euo pipefail
flame=$(realpath "$1")
cd "$(dirname "$0")/.."
demo=$PWD/demo
. demo/namespaces.sh
make_namespaces link
within $link sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
  ip link add tx0 type veth peer name tap0 && ip link set tx0 up && ip link set tap0 up'
"$flame" build demo/hostile --output "$tmp" >/dev/null
cd "$tmp"

# The operator: keys, a policy, a node, and a credential for each tenant.
"$flame" key new root.key >root.pub
"$flame" key new node.key >/dev/null
touch revoked
cat >policy.toml <<POLICY
[node]
name = "tap"
key = "node.key"
revocations = "revoked"
audit = "audit.log"
[roots]
operator = "$(cat root.pub)"
[roles.tenant]
select = ""
expose = "headers"
calls = "records, messages"
code = "any"
cpu = "100ms/1s"
memory = "32MiB"
records_per_second = 100
POLICY
cat >node.toml <<NODE
[node]
storage = "state"
policy = "policy.toml"
[socket]
path = "node.sock"
[sources.tap]
interface = "tap0"
NODE
export FLAME_NODE=unix:$tmp/node.sock FLAME_NODES=$tmp/nodes.toml
for who in alice bob; do
  "$flame" key new $who.key >$who.pub
  "$flame" grant mint --key root.key --to $who --role tenant --code any --holder "$(cat $who.pub)" \
    --policy policy.toml -o $who.cred
done
ip netns exec $link "$flame" node run -c node.toml 2>node.log &
node=$!
until grep -q 'node: ready' node.log; do kill -0 $node || { cat node.log; exit 1; }; sleep 0.1; done

show() { printf '\n$ flame %s\n' "$*"; "$flame" "$@"; }
as() { # as WHO COMMAND...: runs a command with the credential of a tenant.
  local who=$1
  shift
  "$flame" "$@" --credential "$who.cred" --identity "$who.key"
}
show_as() {
  printf '\n%s$ flame %s\n' "$1" "${*:2}"
  as "$@"
}

show_as alice install count 2>/dev/null
attempts="loop memory rows beyond"
for by in $attempts; do
  show_as bob install ./hostile.wasm --name $by --set by=$by 2>/dev/null
done

printf '\n* the packets of demo.pcap, ten times, at 2,000 a second\n'
within $link python3 "$demo/replay.py" "$demo/demo.pcap" tx0 10 2000 >sent &
sender=$!
sleep 2
show top --once --interval 3s
wait $sender
# The rest of the packets waits in a block for at most a tick.
all() { "$flame" list --format json | grep -c "\"adds_up\":true" || true; }
for _ in $(seq 100); do [ "$(all)" = 5 ] && break; sleep 0.1; done

show node status
show list
for by in $attempts; do
  printf '\nbob$ flame logs %s | cut -d " " -f 2- | uniq -c\n' $by
  as bob logs $by | cut -d ' ' -f 2- | uniq -c
done
as alice stop count >stopped
show_as alice records count --table count -q
"$flame" show count --principal alice --format json >account
kill $node
wait $node || true
python3 - <<'CHECK'
import json
sent = int(open("sent").read())
account = json.load(open("account"))["account"]
counted, shed, faults = account["processed"], sum(account["shed"].values()), account["faults"]
print(f"\n{sent} packets were sent; alice's module counted {counted}, lost {shed}, had {faults} faults")
raise SystemExit((sent, 0, 0) != (counted, shed, faults))
CHECK
