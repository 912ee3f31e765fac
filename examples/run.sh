#!/bin/sh
# Runs an example against a server of its own: starts the server with the config of the example, in memory and on free ports, runs
# the example, and stops the server.
#
#   examples/run.sh heartbeat
#
# LATELY and PYTHON name other programs: LATELY=target/release/lately examples/run.sh heartbeat
set -eu

here=$(dirname "$0")
name=$1
lately=${LATELY:-lately}
folder=$(mktemp -d)
: >"$folder/addresses"
server=

end() {
    [ -z "$server" ] || { kill "$server" && wait "$server" || :; }
    rm -r "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

set -- --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0 --in-memory
[ ! -f "$here/$name.toml" ] || set -- "$@" --config "$here/$name.toml"
"$lately" serve "$@" >"$folder/addresses" 2>"$folder/messages" &
server=$!
until grep -q '^grpc ' "$folder/addresses"; do
    kill -0 "$server" 2>"$folder/gone" || { cat "$folder/messages" >&2; exit 1; }
    sleep 0.05
done

# Where the example finds the server.
PORT=$(sed -n 's/^resp .*://p' "$folder/addresses")
HTTP=$(sed -n 's/^http //p' "$folder/addresses")
export PORT HTTP

if [ -f "$here/$name.py" ]; then
    "${PYTHON:-python3}" "$here/$name.py"
else
    sh "$here/$name.sh"
fi
