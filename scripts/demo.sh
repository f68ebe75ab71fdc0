#!/usr/bin/env bash
# The main job on the recorded capture: what `make demo` prints.
set -euo pipefail
flame=$1
cd "$(dirname "$0")/.."
show() { printf '\n$ flame %s\n' "$*"; "$flame" "$@"; }

show run count,port,rtt -r demo/demo.pcap --set rtt.samples=false
show run flow -r demo/demo.pcap --quiet tcp port 443 or udp port 53
show run flow -r demo/demo.pcap --quiet --transform ip=truncate:16,mac=zero --format json icmp or port 53
