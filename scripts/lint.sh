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
  # For Cargo, which compiles this project's crates in its folder, and those that tests write in theirs. It
  # also asks for the compiler's properties; modules are linted when they are built natively.
  of=" $* " here=$(dirname "$0")/..
  if [[ -n ${LINTS:-} && $PWD -ef $here && $of == *" --out-dir "* && $of != *" --target "* ]]; then
    # Clippy compiles as well, but what it compiles is optimized less, so that is only for tests. Those in
    # libraries run for seconds in all, and took two minutes to optimize; so they check for overflows too.
    if [[ $of == *" --test "* ]]; then
      if [[ $of == *"/src/lib.rs "* ]]; then set -- "$@" -C opt-level=0; fi
      exec clippy-driver "$@" -D warnings
    fi
    # Crate, source and kind. A later note takes its place.
    note=$LINTS/$(cksum <<< "${of%% --emit*}" | tr ' ' -)
    mkdir -p "$note"
    # Not by the shell, which has no variables with some names of Cargo's.
    cat "/proc/$$/environ" > "$note/environment"
    printf '%s\0' "${@:2}" > "$note/arguments"
    set -- "$@" -D warnings
  fi
  exec "$@"
fi

lint() { # lint NOTE
  local note=$1 out=$2 environment arguments given=() source
  mapfile -d '' -t environment < "$note/environment"
  mapfile -d '' -t arguments < "$note/arguments"
  # Without Cargo's limit of processes, which is gone with it.
  in_place() { env -i "${environment[@]}" env -u CARGO_MAKEFLAGS -u MAKEFLAGS -u MFLAGS "$@"; }
  set -- "${arguments[@]}"
  arguments=" $* "
  while [ $# -gt 0 ]; do
    case $1 in
      --emit=* | --error-format=* | --json=*) ;;
      --out-dir) shift ;;
      *.rs) source=$1 ;;&
      *) given+=("$1") ;;
    esac
    shift
  done
  if [[ ! -e $source ]]; then return; fi # The note is old.
  if [[ $arguments != *" --crate-type lib "* ]]; then
    in_place clippy-driver rustc "${given[@]}" --emit=metadata --out-dir "$out" -D warnings || return
  fi
  # As `cargo doc`: no build scripts, nor the command, whose comments are its help.
  if [[ ! $arguments =~ " build_script_"|"crates/flame/src/main.rs" ]]; then
    in_place rustdoc "${given[@]}" --document-private-items --out-dir "$out" \
      -D warnings -A rustdoc::private-intra-doc-links
  fi
}

notes=$(realpath "$1")
cd "$(dirname "$0")/.."
count=0 failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
shopt -s nullglob
for note in "$notes"/*; do
  count=$((count + 1))
  if (lint "$note" "$out/$count"); then rm -rf "$note"; else failed=$((failed + 1)); fi
  rm -rf "${out:?}/$count"
done
echo "lint: $count crates, $failed with warnings"
[ "$failed" = 0 ]
