#!/usr/bin/env bash
# Proves each rule with z3, with one line of output per rule; fails if one is not proved. SECONDS_EACH limits
# the time of each (60 by default).
set -uo pipefail
cd "$(dirname "$0")"
folder=$(mktemp -d) failed=0
trap 'rm -rf "$folder"' EXIT
python3 generate.py "$folder" || exit 1
for file in "$folder"/*.smt2; do
  answer=$(z3 -T:"${SECONDS_EACH:-60}" "$file" 2>&1 | head -n 1)
  printf '%-24s %-32s %s\n' "$(basename "$file" .smt2)" "$(head -n 1 "$file" | cut -c 3-)" "$answer"
  [ "$answer" = unsat ] || failed=1
done
exit $failed
