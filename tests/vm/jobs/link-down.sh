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

happens() {
    local end=g0
    [ "$2" = link ] || end=g1
    ip link set $end down
    # siw ends its TCP connections in good order, which the other end sees. With rxe an end notices when its
    # requests are not answered; every process gets the event of the port. A cable does not affect packets
    # that a device sends to itself.
    check_end "broken=[0-9]* disconnected=[0-9]*"
    [ "$1" = rxe ] || ! said "^GOES ON" || wrong "connections live on"
    ip link set $end up
    wait_until is_active || wrong "the device does not come back"
    if [ "$1-$2" = rxe-link ]; then
        move_over stays "$other_address"
    else
        move_over goes $address
    fi
}

chosen="siw-link rxe-cable"
[ -z "${STACK_TESTS_FULL:-}" ] || chosen+=" rxe-link"
for trial in ${*:-$chosen}; do
    # An end of rxe that sends nothing never notices, so the process disconnects it.
    a_while=60
    [ "${trial%-*}" = siw ] || a_while=10
    trial "${trial%-*}" "${trial#*-}"
done
