#!/bin/bash
# An RDMA device is taken away while the endpoints of two processes transfer over it. Each process
# hears of it, sees all its work completed, and closes its adapter; with that the removal is done,
# while both live on. They open the device that comes after it, and another one.
. "$(dirname "$0")/../interop/removal.sh"

happens() {
    rm -f "$work/removed"
    (rdma link delete gone && touch "$work/removed") 4>&- 5>&- &
    check_end "broken=$((2 * pairs)) disconnected=0"
    wait_until 20 test -e "$work/removed" || wrong "the device is not removed while they live"
    step "the device is removed"
    lay_device "$1" || wrong "no device comes after it"
    move_over goes $address
    move_over stays "$other_address"
}

for type in ${*:-rxe siw}; do
    trial "$type"
done
