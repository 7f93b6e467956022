#!/bin/bash
# The cost of an SDP connection over a device at each end: its descriptor and at most 2 more. The
# memory is printed.
. "$(dirname "$0")/../programs/sdp.sh"
port=7600
# The library's end of the pair, whose other end the program has, and the kernel socket of the program.
# A client that waits longer than 100 ms is offered over TCP, and keeps one descriptor more: the server
# is that slow for some clients here. So the mean is rounded down.
most=2

costs() {
    local address=$1 end
    serve $port python3 "$here/counted.py" serve "$address" $port 20 || return
    under python3 "$here/counted.py" visit "$address" $port 20 < /dev/null > "$work/visitor" 2>&1 || { cat "$work/visitor"; return 1; }
    wait_until grep -q DESCRIPTORS "$work/server" || return
    for end in server visitor; do
        sed -n "s/^DESCRIPTORS/FIGURE $end, of each connection: descriptors beyond its own/p" "$work/$end"
        awk -v most=$most '/^DESCRIPTORS/ { has = $2; seen = 1 } END { exit !(seen && int(has) <= most) }' "$work/$end" ||
            { echo "$end: more than $most descriptors"; return 1; }
    done
}

for device in rxe0=10.9.9.1 ${STACK_TESTS_FULL:+siw0=10.9.10.1}; do
    port=$((port + 1))
    trial "${device%=*}" descriptors costs "${device#*=}"
done
finish
