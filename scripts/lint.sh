#!/usr/bin/env bash
# Lints crates and builds their documentation with what a build has of their dependencies. cargo clippy and
# cargo doc would check each dependency once more, which takes longer than both.
#   LINTS=FOLDER RUSTC_WORKSPACE_WRAPPER=scripts/lint.sh cargo ...   notes in FOLDER how crates are compiled
#   scripts/lint.sh FOLDER                                           lints and documents these crates
set -euo pipefail

if [ $# -gt 1 ]; then
  # For Cargo. It also asks for the compiler's properties; modules are linted when they are built natively.
  if [[ -n ${LINTS:-} && " $* " == *" --out-dir "* && " $* " != *" --target "* ]]; then
    note=$(mktemp "$LINTS/XXXXXXXX")
    { echo "cd $(printf %q "$PWD")"; declare -px; printf 'set --'; printf ' %q' "${@:2}"; } > "$note"
    set -- "$@" -D warnings
  fi
  exec "$@"
fi

lint() { # lint NOTE
  (
    set +u
    # shellcheck source=/dev/null
    source "$1"
    set -u
    # Cargo's limit of processes is gone with it.
    unset CARGO_MAKEFLAGS MAKEFLAGS MFLAGS
    arguments=" $* " given=()
    while [ $# -gt 0 ]; do
      case $1 in
        --emit=* | --error-format=* | --json=*) ;;
        --out-dir) shift ;;
        *) given+=("$1") ;;
      esac
      shift
    done
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    # A library is linted with its tests.
    if [[ $arguments == *" --test "* || $arguments != *" --crate-type lib "* ]]; then
      clippy-driver rustc "${given[@]}" --emit=metadata --out-dir "$out" -D warnings || exit
    fi
    # As `cargo doc`: no tests and build scripts, nor the command, whose comments are its help.
    if [[ ! $arguments =~ " --test "|" build_script_" && ${CARGO_BIN_NAME:-} != flame ]]; then
      rustdoc "${given[@]}" --document-private-items --out-dir "$out" \
        -D warnings -A rustdoc::private-intra-doc-links
    fi
  )
}

count=0 failed=0
shopt -s nullglob
for note in "$1"/*; do
  count=$((count + 1))
  lint "$note" || failed=$((failed + 1))
done
echo "lint: $count crates, $failed with warnings"
[ "$failed" = 0 ]
