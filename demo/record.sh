#!/usr/bin/env bash
# Records demo/demo.pcap from real protocol stacks in network namespaces: two hosts, a link of 10 ms each
# way with loss. Touches no network of the machine. Needs root and (Debian) iproute2 ethtool tcpdump curl
# openssl dnsmasq-base dnsutils iputils-ping python3.
#   demo/record.sh [OUT]
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "$0")/demo.pcap}")
# shellcheck source=setup.sh
. "$(dirname "$0")/setup.sh"

within $link tcpdump -q -i mirror -s 160 --time-stamp-precision=nano -U -w "$tmp/demo.pcap" 2>/dev/null &
sleep 1
within $client ping -q -c 5 -i 0.2 10.9.0.2 >/dev/null
within $client ping -q -6 -c 5 -i 0.2 fd00:9::2 >/dev/null
dig() { within $client dig +tries=1 +time=2 @10.9.0.2 "$@" >/dev/null || true; }
dig demo.test A; dig demo.test AAAA; dig nothing.test A; dig +tcp demo.test A
for _ in 1 2 3 4 5; do get http://10.9.0.2/; get 'http://[fd00:9::2]/'; get http://10.9.42.2/; done
for _ in 1 2 3; do get https://10.9.0.2/; done
get http://10.9.0.2:81/    # refused: RST
get http://10.9.0.2:8081/  # its first SYN is lost
# Nobody listens: ICMP port unreachable.
within $client python3 -c '
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    u.sendto(b"flame" * 20, ("10.9.0.2", 9))'
get http://10.9.0.2/bulk
get 'http://[fd00:9::2]/bulk'
sleep 0.5
for p in $(ip netns pids $link); do
  if [ "$(cat "/proc/$p/comm")" = tcpdump ]; then kill -INT "$p"; fi
done
sleep 0.5
cp "$tmp/demo.pcap" "$out"
echo "$out: $(stat -c %s "$out") bytes, $(tcpdump -r "$out" 2>/dev/null | wc -l) packets"
