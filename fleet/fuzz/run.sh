#!/usr/bin/env bash
# Fuzzes every target of the fleet (or those named) for SECONDS each: fleet/fuzz/run.sh SECONDS [TARGET…]
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
# The seeds of the tests, which run the targets without a fuzzer.
FLAME_CORPUS="$PWD/fuzz/corpus" cargo test --profile fast-build -p flame-fleet-protocol --test all -- parsers
FLAME_CORPUS="$PWD/fuzz/corpus" cargo test --profile fast-build -p flame-fleet --lib -- fuzz_tests
for target in "${@:-$(cargo +nightly fuzz list)}"; do
    for one in $target; do
        echo "fuzz: $one for $seconds s"
        cargo +nightly fuzz run "$one" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
            -seed="${SEED:-0}" -print_final_stats=1 -verbosity=0
    done
done
