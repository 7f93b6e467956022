#!/bin/bash
# The link of an RDMA device goes down while the endpoints of two processes transfer over it. Each
# process gets the event, sees all its work completed, closes its adapter, and opens it again when the
# link is up.
#
#   link-down [TYPE-HOW...]
#
# HOW is `link`, which takes the network device down, or `cable`, which takes down its other end. siw
# ignores the carrier, so it has no `cable`. After `link`, rxe (Linux 6.1) has lost its connection
# manager: a message without a route puts the queue pair of the connection manager into the error state,
# and only its sending half recovers. No process can connect over such a device again, so the processes
# use another device.
. "$(dirname "$0")/../interop/removal.sh"

inject_fault() {
    local end=g0
    [ "$2" = link ] || end=g1
    ip link set $end down
    # siw closes its TCP connections in order, which the other end sees. With rxe, an end notices the fault
    # only when its requests are not answered. Every process gets the event of the port. The state of the
    # cable does not affect packets that a device sends to itself.
    check_end "broken=[0-9]* disconnected=[0-9]*"
    [ "$1" = rxe ] || ! both_printed "^CONNECTED" || fail_trial "connections still exist"
    ip link set $end up
    wait_until is_active || fail_trial "the device does not become active again"
    if [ "$1-$2" = rxe-link ]; then
        transfer_over kept "$other_address"
    else
        transfer_over lost $address
    fi
}

chosen="siw-link rxe-cable"
[ -z "${STACK_TESTS_FULL:-}" ] || chosen+=" rxe-link"
for trial in ${*:-$chosen}; do
    # An end of rxe that sends nothing never notices the fault, so the process disconnects it after 10 s.
    end_limit=60
    [ "${trial%-*}" = siw ] || end_limit=10
    trial "${trial%-*}" "${trial#*-}"
done
