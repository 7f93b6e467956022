#!/bin/bash
# The link of an RDMA device goes down while the endpoints of two processes transfer over it. Each
# process hears of it, sees all its work completed, closes its adapter, and opens it again when the
# link is back.
#
#   link-down [TYPE...]
#
# Of siw, unless types are named. On rxe (Linux 6.1) all goes as well until the link is back, and then no
# connection request arrives at the device any more; why is not known.
. "$(dirname "$0")/../interop/removal.sh"

happens() {
    ip link set g0 down
    # siw ends its TCP connections in good order, which is what the other end is told. With rxe an
    # end notices when its requests are not answered; all hear of the port.
    check_end "broken=[0-9]* disconnected=[0-9]*"
    [ "$1" = rxe ] || ! said "^GOES ON" || wrong "connections live on"
    ip link set g0 up
    wait_until 30 is_active || wrong "the device does not come back"
    move_over goes $address
}

for type in ${*:-siw}; do
    trial "$type"
done
