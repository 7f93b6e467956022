#!/bin/bash
# An RDMA device is removed while the endpoints of two processes transfer over it. Each process gets the
# event, sees all its work completed, and closes its adapter. After that, the removal completes while both
# processes still run. The processes open the device that replaces the removed one, and another device.
. "$(dirname "$0")/../interop/removal.sh"

remove_device() {
    rm -f "$work/removed"
    (rdma link delete gone && touch "$work/removed") 4>&- 5>&- &
}

inject_fault() {
    remove_device
    check_end "broken=$((2 * pairs)) disconnected=0"
    wait_until test -e "$work/removed" || fail_trial "the device is not removed while the processes run"
    step "the device is removed"
    create_device "$1" || fail_trial "the device cannot be created again"
    transfer_over lost $address
    transfer_over kept "$other_address"
}

# Removes the device of a process that has opened it without creating an object on it.
idle_trial() {
    step "$1, idle"
    set_up "$1"
    rm -f "$work"/[12]
    "$work/removal" lost > "$work/1" 2>&1 &
    consumers=($!)
    wait_until grep -q "^OPEN" "$work/1" || fail_trial "the device cannot be opened"
    remove_device
    wait_until test -e "$work/removed" || fail_trial "the device is not removed"
    wait "${consumers[0]}" || fail_trial "the process failed"
    grep -q "^ASYNC 0x08002" "$work/1" || fail_trial "no asynchronous event says that the adapter is lost"
    step "the process received the removal event, and closed"
    leave
}

for type in ${*:-rxe siw}; do
    idle_trial "$type"
    trial "$type"
done
