#!/bin/bash
# One unmodified TCP program (programs/stream.c) over each stack in one guest: plain TCP, SDP over the device
# under opsrun, and librdmacm's rsocket preload library on the same device. Rounds alternate between the
# stacks. `cargo xtask vm run tests/vm/sockets.sh [ROUNDS]` prints the medians as rows of
# docs/rdma-performance.md. No process is bound to a processor, because those of opsrun have several threads.
#
# This script is not in `jobs`, because figures are not a test.
. "$(dirname "$0")/programs/sdp.sh"
rounds=${1:-5} port=18900 listed= pings=${2:-3000} pieces=${3:-400}
rsocket=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -o "$work/stream" "$here/stream.c" || exit 1

by() {
    local stack=$1
    shift
    case $stack in
        tcp) timeout $limit "$@" ;;
        sdp) timeout $limit "$opsrun" --rules "$rules" "$@" ;;
        rsocket) LD_PRELOAD=$rsocket timeout $limit "$@" ;;
    esac
}

one() {
    local stack=$1 address=$2 what=$3 count=$4 server
    port=$((port + 1))
    by "$stack" "$work/stream" serve "$address" $port 1 > "$work/server" 2>&1 &
    server=$!
    wait_until grep -q LISTENS "$work/server" || return
    by "$stack" "$work/stream" visit "$address" $port "$what" "$count" > "$work/figure" 2> "$work/said" &
    local client=$!
    # A connection is not listed while it is measured.
    while [ "$what" = "$listed" ] && kill -0 $client 2> /dev/null; do
        "$opsrun" ss -H >> "$work/listed"
        sleep 0.1
    done
    wait $client || { echo "$stack $what failed: $(cat "$work/said" "$work/server")" >&2; kill $server; }
    wait $server
    cat "$work/figure"
}

median() {
    sort -g | awk '{ it[NR] = $1 } END { if (NR) print it[int((NR + 1) / 2)] }'
}

for device in rxe0=10.9.9.1 siw0=10.9.10.1; do
    : > "$work/listed"
    rm -f "$work"/figures-*
    listed=bulk one sdp "${device#*=}" bulk "$pieces" > /dev/null
    carried "${device%=*}"
    for _ in $(seq "$rounds"); do
        for what in ping wait-ping epoll-ping bulk; do
            count=$pings
            [ $what != bulk ] || count=$pieces
            for stack in tcp sdp rsocket; do
                # rsocket in Debian 12 has no epoll.
                [ $what.$stack != epoll-ping.rsocket ] || continue
                one $stack "${device#*=}" $what $count >> "$work/figures-$what-$stack"
            done
        done
    done
    for what in "ping:64 B ping-pong, half a round trip:us" "wait-ping:the same, by poll:us" \
        "epoll-ping:the same, by epoll:us" "bulk:64 KiB writes, one way:MB/s"; do
        IFS=: read -r key title unit <<< "$what"
        row="| ${device%=*} | $title | $unit |"
        for stack in tcp sdp rsocket; do
            figure=$(median 2> /dev/null < "$work/figures-$key-$stack")
            row+=" ${figure:--} |"
        done
        echo "$row"
    done
done
