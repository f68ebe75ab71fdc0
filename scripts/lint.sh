#!/usr/bin/env bash
# Lints crates and builds their documentation with what a build has of their dependencies. cargo clippy and
# cargo doc would check each dependency once more, which takes longer than both.
#   LINTS=FOLDER RUSTC_WORKSPACE_WRAPPER=scripts/lint.sh cargo ...
#       lints tests, and libraries with their tests, as they are compiled, and notes all others in FOLDER
#   scripts/lint.sh FOLDER
#       lints the programs that are noted there, and documents them and the libraries; the notes of those that
#       fail are kept, since Cargo does not compile them again
set -euo pipefail

if [ $# -gt 1 ]; then
  # For Cargo. It also asks for the compiler's properties; modules are linted when they are built natively.
  if [[ -n ${LINTS:-} && " $* " == *" --out-dir "* && " $* " != *" --target "* ]]; then
    # Clippy compiles as well, but what it compiles is optimized less, so that is only for tests.
    if [[ " $* " == *" --test "* ]]; then exec clippy-driver "$@" -D warnings; fi
    # Crate, source and kind. A later note takes its place.
    of=" $* "
    note=$LINTS/$(cksum <<< "${of%% --emit*}" | tr ' ' -)
    mkdir -p "$note"
    # Not by the shell, which has no variables with some names of Cargo's.
    cat "/proc/$$/environ" > "$note/environment"
    printf '%s\0' "$PWD" "${@:2}" > "$note/arguments"
    set -- "$@" -D warnings
  fi
  exec "$@"
fi

lint() { # lint NOTE
  local note=$1 out=$2 environment arguments given=()
  mapfile -d '' -t environment < "$note/environment"
  mapfile -d '' -t arguments < "$note/arguments"
  cd "${arguments[0]}"
  # Without Cargo's limit of processes, which is gone with it.
  in_place() { env -i "${environment[@]}" env -u CARGO_MAKEFLAGS -u MAKEFLAGS -u MFLAGS "$@"; }
  set -- "${arguments[@]:1}"
  arguments=" $* "
  while [ $# -gt 0 ]; do
    case $1 in
      --emit=* | --error-format=* | --json=*) ;;
      --out-dir) shift ;;
      *) given+=("$1") ;;
    esac
    shift
  done
  if [[ $arguments != *" --crate-type lib "* ]]; then
    in_place clippy-driver rustc "${given[@]}" --emit=metadata --out-dir "$out" -D warnings || return
  fi
  # As `cargo doc`: no build scripts, nor the command, whose comments are its help.
  if [[ ! $arguments =~ " build_script_"|"crates/flame/src/main.rs" ]]; then
    in_place rustdoc "${given[@]}" --document-private-items --out-dir "$out" \
      -D warnings -A rustdoc::private-intra-doc-links
  fi
}

cd "$1"
count=0 failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
shopt -s nullglob
for note in "$PWD"/*; do
  count=$((count + 1))
  if (lint "$note" "$out/$count"); then rm -rf "$note"; else failed=$((failed + 1)); fi
  rm -rf "${out:?}/$count"
done
echo "lint: $count crates, $failed with warnings"
[ "$failed" = 0 ]
