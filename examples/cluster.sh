#!/bin/sh
# Three nodes that count together, on one machine: starts a Redis and the nodes on loopback, counts on each of them, shows
# what they know, and ends all that it started.
#
# Needs redis-server and lately. LATELY, REDIS_SERVER and REDIS_PORT name others:
#   LATELY=target/release/lately REDIS_SERVER=valkey-server REDIS_PORT=7101 examples/cluster.sh
set -eu

lately=${LATELY:-lately}
port=${REDIS_PORT:-7100}
folder=$(mktemp -d)
nodes=
redis=

end() {
    # The nodes first: they send what is left.
    for pid in $nodes $redis; do
        kill "$pid" && wait "$pid" || :
    done
    rm -r "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

# Waits until a file has a line; ends if the process that writes it has.
wait_for() {
    until grep -q "$1" "$2"; do
        kill -0 "$3" || { cat "$2" >&2; exit 1; }
        sleep 0.1
    done
}

# Tries again and again, for some twenty seconds.
becomes() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "given up: $*" >&2; exit 1; }
        sleep 0.1
    done
}

has_all() { [ "$("$lately" hits page --server "$1")" = 21 ]; }
lists_all() { "$lately" cluster --json --server "$1" | grep -q '"node":"a",.*"node":"b",.*"node":"c",'; }

"${REDIS_SERVER:-redis-server}" --bind 127.0.0.1 --port "$port" --save "" --dir "$folder" >"$folder/redis" &
redis=$!
wait_for 'eady to accept connections' "$folder/redis" "$redis"

for node in a b c; do
    "$lately" serve --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0 --data "$folder/data-$node" \
        --cluster "redis://127.0.0.1:$port" --node "$node" >"$folder/$node" 2>&1 &
    nodes="$nodes $!"
    wait_for '^grpc ' "$folder/$node" "$!"
done
a=$(sed -n 's/^resp //p' "$folder/a")
b=$(sed -n 's/^resp //p' "$folder/b")
c=$(sed -n 's/^resp //p' "$folder/c")

echo "a, HIT page 1:  $("$lately" hit page 1 --server "$a")"
echo "b, HIT page 20: $("$lately" hit page 20 --server "$b")"
# The first answer about a key may lack the hits of the others.
becomes has_all "$c"
echo "c, HITS page:   $("$lately" hits page --server "$c")"
echo

# The nodes tell each other of themselves every two seconds.
becomes lists_all "$c"
"$lately" cluster --server "$c"
echo
echo "page belongs to node $("$lately" route a b c --key page)"
