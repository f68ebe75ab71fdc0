#!/usr/bin/env bash
# Installs what is missing on Debian 12, which it lists first; does nothing, offline, when all is there.
#   setup.sh        to build, test and run
#   setup.sh bench  also the programs that benchmarks compare with
#   setup.sh prove  also z3, which proves the rules of bounds
set -euo pipefail

packages=(clang lld libpcap-dev tcpdump iproute2 python3-venv pkg-config gcc libc6-dev zstd)
if [ "${1:-}" = bench ]; then packages+=(softflowd nfdump libtrace-tools); fi
if [ "${1:-}" = prove ]; then packages+=(z3); fi

root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: Debian packages: ${missing[*]}"
  root apt-get update -qq
  root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null
fi

if ! command -v cargo >/dev/null; then
  echo "setup: the Rust toolchain, by rustup, into ~/.cargo"
  command -v curl >/dev/null || root apt-get install -y -qq curl ca-certificates >/dev/null
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal
  export PATH="$HOME/.cargo/bin:$PATH"
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
  echo "setup: the wasm32-unknown-unknown target"
  rustup -q target add wasm32-unknown-unknown
fi
