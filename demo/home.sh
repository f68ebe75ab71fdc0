#!/usr/bin/env bash
# Fetches a page through a home router of untrusted modules, between a house and an internet, and shows what
# the modules report and that no packet is lost count of:
#   demo/home.sh target/fast-build/flame
# It needs root, iproute2, curl and python3.
set -euo pipefail
flame=$(realpath "$1")
cd "$(dirname "$0")/.."
. demo/namespaces.sh
make_namespaces house router internet
for n in $house $router $internet; do
  within "$n" sh -c 'for c in all default; do echo 1 >/proc/sys/net/ipv6/conf/$c/disable_ipv6; done'
done
ip link add eth0 netns $house type veth peer name lan0 netns $router
ip link add eth0 netns $internet type veth peer name wan0 netns $router
within $house sh -c 'ip addr add 192.168.7.2/24 dev eth0 && ip link set eth0 up
  ip route add default via 192.168.7.1 && echo 1 >/proc/sys/net/ipv4/tcp_ecn'
within $internet sh -c 'ip addr add 203.0.113.1/24 dev eth0 && ip link set eth0 up
  echo 1 >/proc/sys/net/ipv4/tcp_ecn'
within $router sh -c 'ip link set lan0 up && ip link set wan0 up'

mkdir "$tmp/www"
head -c 1500000 /dev/urandom >"$tmp/www/page"
(cd "$tmp/www" && within $internet python3 -m http.server 80 >/dev/null 2>"$tmp/log" &)

ip netns exec $router "$flame" click demo/home.click --format json --records "$tmp/records" \
  -h '*.account' -h lan/from.kernel_drops -h wan/from.kernel_drops >"$tmp/handlers" 2>"$tmp/said" &
command=$!
ready() { [ "$(grep -c sendmmsg "$tmp/said")" = 2 ]; }
for _ in $(seq 600); do ready && break; kill -0 $command 2>/dev/null || break; sleep 0.1; done
cat "$tmp/said"
ready

echo "* a page, over the router"
until [ -n "$(within $internet ss -Hltn 'sport = :80')" ]; do sleep 0.1; done
within $house curl -sS -m 120 -o "$tmp/got" \
  -w '%{size_download} bytes, %{speed_download} bytes a second\n' http://203.0.113.1/page
cmp "$tmp/got" "$tmp/www/page" && echo "the page is the same"
sed 's/ - - .*"GET/ asked: GET/; s/ HTTP.*//' "$tmp/log" | grep GET

echo "* ping, and an error from behind the router"
within $house python3 - <<'CLIENT'
import socket, struct
p = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
p.settimeout(60)
received = 0
for i in range(3):
    request = struct.pack(">BBHHH", 8, 0, 0xF7FF - 7 - i, 0, 7 + i)
    p.sendto(request, ("203.0.113.1", 0))
    while True:
        answer = p.recv(2000)
        if answer[20:28] == struct.pack(">BBHHH", 0, 0, 0xFFFF - 7 - i, 0, 7 + i):
            received += 1
            break
print(f"3 pings, {received} received")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.connect(("203.0.113.1", 9))
s.send(b"anyone?")
try:
    s.recv(1)
except ConnectionRefusedError:
    print("port 9: unreachable")
CLIENT
sleep 0.5
kill -INT $command
wait $command

echo "* what the modules report"
python3 - "$tmp/records" <<'RECORDS'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
alerts = [r for r in rows if r.get("table") == "alert"]
for r in alerts:
    print(f"ids: {r['msg']}: {r['src']} to {r['dst']}, port {r['dport']}")
for r in rows:
    if r["module"] == "ecn":
        print(f"ecn: {r['packets']} packets, {r['marked']} marked")
RECORDS

echo "* the account of each element"
python3 - "$tmp/handlers" <<'ACCOUNTS'
import sys
names, table, wrong = {}, [], 0
for part in open(sys.argv[1]).read().split("\n\n"):
    name, _, body = part.strip().partition(":\n")
    if name.endswith(".account"):
        lines = [line.split(" ", 2) for line in body.splitlines()]
        of = {l[0]: int(l[1]) for l in lines if l[0] != "dropped"}
        causes = [(int(l[1]), l[2]) for l in lines if l[0] == "dropped"]
        dropped = sum(n for n, _ in causes)
        table.append((name[:-8], of, dropped, ", ".join(f"{n} {c}" for n, c in causes)))
        wrong += of["taken"] + of["made"] != of["given"] + of["held"] + dropped
    elif name.endswith("kernel_drops"):
        print(f"{name}: {body}")
print(f"{'element':26} {'taken':>7} {'made':>6} {'given':>6} {'held':>5} {'dropped':>7}")
for name, of, dropped, causes in table:
    if of["taken"] + of["made"]:
        counts = f"{of['taken']:7} {of['made']:6} {of['given']:6} {of['held']:5} {dropped:7}"
        print(f"{name:26} {counts}  {causes}")
print(f"{len(table)} elements, {wrong} whose account does not add up")
ACCOUNTS
