#!/bin/bash
# Two network namespaces. A connection uses SDP if both ends have a device and a rule names SDP, which software
# devices require. It uses TCP at once if an end has no device. siw makes its TCP connections in the namespace of the
# process, so a device on each end of a cable is sufficient. rxe of Linux 6.1 works in the initial namespace only.
. "$(dirname "$0")/../programs/sdp.sh"
ours=10.9.40.1 theirs=10.9.40.2 port=7500
# The time limit is long, because emulation is slow and the speed of answers is not tested.
printf 'use both listen * *:*\nuse both connect * *:* within=20s\n' > "$rules"

leave_cable() {
    rdma link delete near 2> /dev/null
    rdma link delete far 2> /dev/null
    ip link delete n0 2> /dev/null
    ip netns delete beyond 2> /dev/null
}
trap 'leave; leave_cable' EXIT

is_active() {
    [ "$(cat "/sys/class/infiniband/$1/ports/1/state" 2> /dev/null)" = "4: ACTIVE" ]
}

leave_cable
mkdir -p /run/netns
ip netns add beyond
ip link add n0 type veth peer name n1
ip link set n1 netns beyond
ip address add $ours/24 dev n0
ip -n beyond address add $theirs/24 dev n1
ip link set n0 up
ip -n beyond link set n1 up
ip -n beyond link set lo up
rdma link add near type siw netdev n0
wait_until is_active near || exit 1

# echoes: runs the asyncio server in the far namespace and a client in this one. Fails if an echo fails.
echoes() {
    "$opsrun" --rules "$rules" ip netns exec beyond python3 "$here/asyncio_echo.py" serve $theirs $port \
        > "$work/server" 2>&1 &
    servers+=($!)
    wait_until listens_beyond || return
    "$opsrun" --rules "$rules" --explain connect --program python3 $theirs:$port
    under python3 "$here/asyncio_echo.py" visit $theirs $port 4 4 200000
}

listens_beyond() {
    ip netns exec beyond ss -Htln "sport = :$port" | grep -q .
}

# Only this end has a device.
trials=$((trials + 1))
watch_sockets
begun=$SECONDS
echoes > "$work/said" 2>&1
status=$?
"$opsrun" ss -H >> "$work/listed"
end_watch
end_servers
over_tcp="$theirs:$port .* accepted 0 offloaded and 4 over TCP"
if [ $status = 0 ] && ! grep -q "^sdp .*ESTAB" "$work/listed" && grep -q "$over_tcp" "$work/listed"; then
    echo "ok one end without a device, $((SECONDS - begun)) s: $(grep "$over_tcp" "$work/listed" | head -n 1)"
else
    failed=$((failed + 1))
    echo "FAILED one end without a device"
    cat "$work/said"
    sort -u "$work/listed"
    cat "$work/server"
fi

# Both ends have a device.
if ip netns exec beyond rdma link add far type siw netdev n1 && wait_until is_active far; then
    port=$((port + 1))
    printf 'use both listen * *:* protocol=sdp\nuse both connect * *:* protocol=sdp within=20s\n' > "$rules"
    trial near "between namespaces" echoes
else
    echo "NOT RUN: the kernel makes no siw device in another namespace"
fi
finish
