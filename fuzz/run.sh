#!/usr/bin/env bash
# Fuzzes every target (or those named) for SECONDS each: fuzz/run.sh SECONDS [TARGET…]
# With SEED=N a run tries what another with that seed tried, as far as time allows.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
shift || true
for tool in "cargo fuzz --version" "cargo +nightly --version"; do
    $tool > /dev/null 2>&1 || {
        echo "fuzz: \`$tool\` fails: rustup toolchain install nightly && cargo install cargo-fuzz" >&2
        exit 1
    }
done
fuzz/seed.sh
for target in "${@:-$(cargo +nightly fuzz list)}"; do
    for one in $target; do
        echo "fuzz: $one for $seconds s"
        cargo +nightly fuzz run "$one" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
            -seed="${SEED:-0}" -print_final_stats=1 -verbosity=0
    done
done
