#!/usr/bin/env bash
# Compiles a crate for Cargo (RUSTC_WORKSPACE_WRAPPER), then lints it and builds its documentation with what
# the build has of its dependencies. cargo clippy and cargo doc would check each dependency again, which takes
# longer than both. Warnings are errors, and the documentation is thrown away.
set -euo pipefail

rustc=$1
shift
arguments=" $* "
# Cargo also asks for the compiler's properties; modules for WebAssembly are linted when they are built here.
if [[ $arguments != *" --out-dir "* || $arguments == *" --target "* ]]; then exec "$rustc" "$@"; fi
"$rustc" "$@" -D warnings

given=()
while [ $# -gt 0 ]; do
  case $1 in
    --emit=*) ;;
    --out-dir) shift ;;
    # Cargo takes each artifact for its own.
    --json=*) given+=("${1//artifacts,/}") ;;
    *) given+=("$1") ;;
  esac
  shift
done

thrown=$(mktemp -d)
trap 'rm -rf "$thrown"' EXIT
is_test=false is_library=false
if [[ $arguments =~ " --test " ]]; then is_test=true; fi
if [[ $arguments =~ " --crate-type lib "|" --crate-type rlib " ]]; then is_library=true; fi
# A library is linted with its tests.
if $is_test || ! $is_library; then
  clippy-driver "$rustc" "${given[@]}" --emit=metadata --out-dir "$thrown" -D warnings
fi
# As `cargo doc`: no tests and build scripts, nor the command, whose comments are its help.
if ! $is_test && [[ ! $arguments =~ " build_script_" && ${CARGO_BIN_NAME:-} != flame ]]; then
  rustdoc "${given[@]}" --document-private-items --out-dir "$thrown/doc" \
    -D warnings -A rustdoc::private-intra-doc-links
fi
