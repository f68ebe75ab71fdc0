# Sourced: make_namespaces NAME... makes a network namespace for each name and sets the variable NAME to it.
# When the script ends, they, their processes and $tmp are removed. within() runs a command in one.
tmp=$(mktemp -d)
namespaces=()
cleanup() {
  for n in "${namespaces[@]}"; do ip netns pids "$n" 2>/dev/null | xargs -r kill 2>/dev/null || true; done
  sleep 0.3
  for n in "${namespaces[@]}"; do ip netns del "$n" 2>/dev/null || true; done
  rm -rf "$tmp"
}
trap cleanup EXIT
within() { ip netns exec "$@"; }
make_namespaces() {
  for name in "$@"; do
    declare -g "$name=flame-${name:0:1}-$$"
    namespaces+=("${!name}")
    ip netns add "${!name}"
    within "${!name}" ip link set lo up
  done
}
