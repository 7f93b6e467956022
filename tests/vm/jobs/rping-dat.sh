#!/bin/bash
# rping, unmodified, on siw, and a DAT consumer with rping's protocol on the software provider over plain
# TCP: each is tested as the server, with texts of one segment and of many segments.
. "$(dirname "$0")/../interop/trials.sh"
set_up
# shellcheck disable=SC2086
gcc $flags -o "$work/rping_dat" "$here/rping_dat.c" -ldat2 || exit 1
count=10
# rping supports less than 64 KiB.
sizes="64 1500 65535"

rping_dat() {
    DAT_OVERRIDE=$work/ours.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=info,access_layer=warn \
        timeout $limit ip netns exec interop "$work/rping_dat" "$@" > "$work/ours" 2>&1
}

# ping_trial WHO SIZE: WHO is the server.
ping_trial() {
    local name="rping: server $1, $2 bytes"
    local ours_status="not started" theirs_status="not started"
    port=$((port + 1))
    : > "$work/ours"
    : > "$work/complaints"
    if [ "$1" = ours ]; then
        rping_dat server ours $port $count &
        if wait_ready "$work/ours" "our server" $!; then
            timeout $limit rping -c -a $ours -p $port -C $count -S "$2" -V -v > "$work/theirs" 2> "$work/complaints"
            theirs_status=$?
        fi
        wait $!
        ours_status=$?
    else
        timeout $limit rping -s -a $theirs -p $port -C $count -S "$2" -V -v > "$work/theirs" 2> "$work/complaints" &
        # Only the kernel's tables show that rping listens.
        if wait_for "rping listens on port $port" listens_in_kernel; then
            rping_dat client ours $port $count $theirs "$2"
            ours_status=$?
        fi
        wait $!
        theirs_status=$?
    fi
    dmesg --read-clear > "$work/kernel"
    trials=$((trials + 1))
    if [ "$ours_status" = 0 ] && [ "$theirs_status" = 0 ] &&
        grep -q "^PINGED $count" "$work/ours" &&
        [ "$(grep -c "ping data: rdma-ping-" "$work/theirs")" = $count ] &&
        ! grep -qE "BUG|Oops|general protection|Call Trace" "$work/kernel"; then
        echo "ok $name"
        return 0
    fi
    echo "failed $name: exit status of ours: $ours_status, of rping: $theirs_status"
    [ -z "$late" ] || echo "$late"
    sed 's/^/    ours: /' "$work/ours"
    sed 's/^/    rping says: /' "$work/complaints"
    cut -c 1-60 "$work/theirs" | tail -n 20 | sed 's/^/    rping: /'
    sed 's/^/    kernel: /' "$work/kernel"
    return 1
}

conf ours iwarp "i1 0"
for size in $sizes; do
    for server in ours theirs; do
        ping_trial $server "$size" || failed=$((failed + 1))
    done
done
finish
