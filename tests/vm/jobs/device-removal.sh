#!/bin/bash
# An RDMA device is removed while the endpoints of two processes transfer over it. Each process gets the
# event, sees all its work completed, and closes its adapter. The removal is complete then, while both
# processes continue. They open the device that replaces it, and another device.
. "$(dirname "$0")/../interop/removal.sh"

remove_device() {
    rm -f "$work/removed"
    (rdma link delete gone && touch "$work/removed") 4>&- 5>&- &
}

happens() {
    remove_device
    check_end "broken=$((2 * pairs)) disconnected=0"
    wait_until test -e "$work/removed" || wrong "the device is not removed while they live"
    step "the device is removed"
    lay_device "$1" || wrong "no device comes after it"
    move_over goes $address
    move_over stays "$other_address"
}

# The same for a process that has opened the device without creating an object on it.
idle_trial() {
    step "$1, idle"
    lay "$1"
    rm -f "$work"/[12]
    "$work/removal" goes > "$work/1" 2>&1 &
    consumers=($!)
    wait_until grep -q "^OPEN" "$work/1" || wrong "the device cannot be opened"
    remove_device
    wait_until test -e "$work/removed" || wrong "the device is not removed"
    wait "${consumers[0]}" || wrong "the process failed"
    grep -q "^ASYNC 0x08002" "$work/1" || wrong "no asynchronous event says that the adapter is lost"
    step "the process received the removal event, and closed"
    leave
}

for type in ${*:-rxe siw}; do
    idle_trial "$type"
    trial "$type"
done
