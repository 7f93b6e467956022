#!/bin/bash
# OFA's programs, unmodified, at both ends: OFA's library and provider on siw at one end, the software
# provider over plain TCP at the other end. Each end is tested as the server.
. "$(dirname "$0")/../interop/trials.sh"
set_up
# The adapter has one name at both ends, because dtest's client opens the adapter that its server names.
line="wire u2.0 nonthreadsafe default"
echo "$line $DAT_STAGE/lib/libdapl-iwarp.so.2 dat-rs.1.0 \"i1 0\" \"\"" > "$work/ours.conf"
echo "$line libdaplofa.so.2 dapl.2.0 \"i0 0\" \"\"" > "$work/theirs.conf"

at_ours() {
    DAT_OVERRIDE=$work/ours.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=warn \
        timeout $limit ip netns exec interop "$@" > "$work/$name.ours" 2>&1
}

at_theirs() {
    DAT_OVERRIDE=$work/theirs.conf timeout $limit "$@" > "$work/$name.theirs" 2>&1
}

# A server may listen for TCP, in either network, or only in siw.
listens() {
    { ss -Htln "sport = :$port"; ip netns exec interop ss -Htln "sport = :$port"; } | grep -q . ||
        listens_in_kernel
}

# attempt SERVER PROGRAM SAYS SERVER-ARGUMENTS CLIENT-ARGUMENTS: SERVER is ours or theirs. HOST in the
# client's arguments is the server's address. The client must print SAYS. Prints the faults.
attempt() {
    local server=$1 client=theirs host=$ours program=$2 says=$3 server_args=$4 client_args=$5
    local status="not started"
    [ "$server" = ours ] || { client=ours host=$theirs; }
    name="$program-$server"
    : > "$work/$name.ours"
    : > "$work/$name.theirs"
    # shellcheck disable=SC2086
    "at_$server" "$program" $server_args &
    if wait_for "$program listens on port $port" listens; then
        # shellcheck disable=SC2086
        "at_$client" "$program" ${client_args//HOST/$host}
        status=$?
    fi
    if [ "$program" = dapltest ]; then
        cp "$work/$name.$client" "$work/said"
        "at_$client" dapltest -T Q -s "$host" -D wire -n "$port"
        cp "$work/said" "$work/$name.$client"
    fi
    wait $!
    dmesg --read-clear > "$work/kernel"
    [ "$status" = 0 ] && grep -q "$says" "$work/$name.$client" &&
        ! grep -iE "error|fail|mismatch|corrupt" "$work/$name".* &&
        ! grep -E "BUG|Oops|general protection|Call Trace" "$work/kernel" && return
    [ -z "$late" ] || echo "$late"
    echo "the client's exit status: $status"
    for end in ours theirs; do
        tail -n 40 "$work/$name.$end" | sed "s/^/    $end: /"
    done
    sed 's/^/    kernel: /' "$work/kernel"
    return 1
}

# OFA's library is unloaded while one of its threads may still run, so its programs crash occasionally at
# their end, and siw occasionally loses a first message. Three failures in a row have another cause.
pair_trial() {
    trials=$((trials + 1))
    for _ in 1 2 3; do
        attempt "$@" && echo "ok $2, server: $1" && return
        echo "AGAIN $2, server: $1"
    done
    failed=$((failed + 1))
}

for server in ours theirs; do
    # Without options, the program makes 2000 writes of 4 MiB each way, which take minutes under emulation.
    port=15828
    options="-P wire -b 4096 -B 10"
    pair_trial $server dtest "DAPL Test Complete. PASSED" "$options -s" "$options -h HOST"
    port=62000
    pair_trial $server dapltest "End of Work" "-T S -D wire -n $port" \
        "-T T -s HOST -D wire -n $port -i 10 -t 1 -w 1 client RW 4096 1 server RW 2048 4 \
         server RR 1024 1 client RR 2048 1 client SR 1024 3 -f server SR 256 3 -f"
done
finish
