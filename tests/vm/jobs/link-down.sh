#!/bin/bash
# The link of an RDMA device goes away while the endpoints of two processes transfer over it. Each
# process hears of it, sees all its work completed, closes its adapter, and opens it again when the
# link is back.
#
#   link-down [TYPE-HOW...]
#
# HOW is `link`, which takes the network device down, or `cable`, which takes down its other end. siw does
# not look at the carrier, so that it has no `cable`. rxe (Linux 6.1) has lost its connection manager
# after `link`: a message of its own that finds no route brings the queue pair for all of them into
# error, of which only the sending half comes back. No connection is made over such a device again,
# by anybody, and the processes use another one.
. "$(dirname "$0")/../interop/removal.sh"

happens() {
    local end=g0
    [ "$2" = link ] || end=g1
    ip link set $end down
    # siw ends its TCP connections in good order, which is what the other end is told. With rxe an
    # end notices when its requests are not answered; all hear of the port. A cable makes no
    # difference to packets that a device sends to itself.
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
    # An end of rxe that has nothing to send never notices: the process ends it.
    a_while=60
    [ "${trial%-*}" = siw ] || a_while=10
    trial "${trial%-*}" "${trial#*-}"
done
