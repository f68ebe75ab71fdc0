#!/usr/bin/env bash
# Runs a command on a live interface with traffic for about six seconds, then ends it with Ctrl-C:
#   demo/live.sh target/fast-build/flame run count,rtt -i mirror
# The interface is called mirror; see setup.sh.
set -euo pipefail
# shellcheck source=setup.sh
. "$(dirname "$0")/setup.sh"
# Not by the function: the process itself is to get the signal.
ip netns exec $link "$@" &
command=$!
sleep 1
end=$((SECONDS + ${SECONDS_OF_TRAFFIC:-5}))
while [ $SECONDS -lt $end ]; do
  get http://10.9.0.2/; get 'http://[fd00:9::2]/'; get http://10.9.42.2/; get http://10.9.0.2/bulk
  within $client ping -q -c 2 -i 0.1 10.9.0.2 >/dev/null
done
kill -INT $command
wait $command
