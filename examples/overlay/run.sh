#!/bin/sh
# Three brokers in a row, north - middle - south, until Ctrl-C. Their data is kept in ./overlay-data.
#   ./examples/overlay/run.sh
#   weft status --broker weft://localhost:7002
set -eu
here=$(cd "$(dirname "$0")" && pwd)
weft=${WEFT:-weft}
data=${DATA:-overlay-data}
pids=
stop() {
    trap - INT TERM EXIT
    for pid in $pids; do kill -TERM "$pid" 2>/dev/null || true; done
    wait
}
trap stop INT TERM EXIT
for name in north south middle; do
    # shellcheck disable=SC2086 # a command may have several words
    $weft serve --config "$here/$name.toml" --data "$data/$name" &
    pids="$pids $!"
done
wait
