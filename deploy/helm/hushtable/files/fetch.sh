#!/bin/sh
# Brings the wanted version of a bundle into a pod's volume, and leads `current` to it.
#
#     fetch.sh once|follow --shard 3        (or --front: what `hushtable shard fetch` is told)
#
# FETCH_SOURCE is a file with the wanted source, which may change under it; FETCH_FOLDER the volume. A server
# watches FETCH_FOLDER/bundles, where the newest folder is the version that it serves.
set -u
mode=$1
shift
bundles=$FETCH_FOLDER/bundles
current=$FETCH_FOLDER/current
child=

bring() {
    hushtable shard fetch "$(cat "$FETCH_SOURCE")" -o "$bundles" "$@" >"$FETCH_FOLDER/.fetched" &
    child=$!
    wait "$child" || return 1
    child=
    made=$(tail -n 1 "$FETCH_FOLDER/.fetched")
    if [ ! -d "$made" ]; then
        echo "fetch: shard fetch ended well, but '$made' is no folder" >&2
        return 1
    fi
    [ "$(readlink "$current")" = "$made" ] && return 0
    # One that was there before and is wanted again becomes the newest, and so the one that is served.
    [ "$(ls -1td "$bundles"/*/ | head -n 1)" = "$made/" ] || touch "$made" || return 1
    ln -sfn "$made" "$current.next" && mv -T "$current.next" "$current" || return 1
    echo "fetch: $made is current"
    prune
}

# Servers hold rows in memory, so that an older version's files may go. A rename first: no folder is seen half gone.
prune() {
    rm -rf "$bundles"/.gone-*
    ls -1td "$bundles"/*/ | tail -n "+$((FETCH_KEEP + 1))" | while read -r old; do
        gone=$bundles/.gone-$(basename "$old")
        mv "$old" "$gone" && rm -rf "$gone"
    done
}

trap 'kill $child 2>/dev/null; exit 0' TERM INT
mkdir -p "$bundles"
if [ "$mode" = once ]; then
    bring "$@" && exit
    # A pod that has a version starts with it: a store that is down stops no server.
    [ -d "$current" ] || exit 1
    echo "fetch: going on with $(readlink "$current")" >&2
    exit 0
fi
while :; do
    sleep "$FETCH_EVERY_S" &
    child=$!
    wait "$child"
    bring "$@" || echo "fetch: $(cat "$FETCH_SOURCE") was not brought; again in $FETCH_EVERY_S s" >&2
done
