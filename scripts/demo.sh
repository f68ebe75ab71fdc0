#!/usr/bin/env bash
# The main job on the recorded capture: what `make demo` prints.
set -euo pipefail
flame=$1
capture=$(dirname "$0")/../demo/demo.pcapng
show() { echo; echo "\$ flame $*"; "$flame" "$@"; }

show run count,http,flow,rtt -r "$capture"
show run flow -r "$capture" --transform ip=truncate:16,mac=zero --format json --quiet tcp port 443 | head -4
