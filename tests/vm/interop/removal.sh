# Shared by the jobs that remove a device, or its link, during transfers: two processes whose endpoints
# transfer over a device made for the trial, and the lines that they must print at the end.
#
#   trial TYPE [HOW]          makes the device, starts both transfers, calls `inject_fault TYPE HOW`, which
#                             the job defines, and checks that both processes end with success
#   check_end EVENTS          checks that the processes received these events, and have closed
#   transfer_over IA ADDRESS  makes both processes open an adapter and transfer data over it
#   fail_trial WHY            ends the job, because the trial has failed

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=/tmp/removal
address=10.9.30.1
pairs=6
# The time limit of an event, which is long enough for a busy machine.
patience=240
# The time in seconds in which connections must end by themselves.
end_limit=60
consumers=()

leave() {
    # A running process keeps its device.
    kill "${consumers[@]}" 2> /dev/null
    consumers=()
    rdma link delete gone 2> /dev/null
    ip link delete g0 2> /dev/null
}
trap leave EXIT
# The write fails if the process has ended.
trap '' PIPE
mkdir -p "$work"
# An earlier job of this boot may have compiled it.
[ -x "$work/removal" ] || gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I "$DAT_STAGE/include" \
    -o "$work/removal" "$here/removal.c" -L "$DAT_STAGE/lib" -ldat2 -lpthread || exit 1
for adapter in "lost g0" "kept ${other:=r0}"; do
    echo "${adapter% *} u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0" \
        "\"${adapter#* } 0\" \"\""
done > "$work/dat.conf"
other_address=$(ip -o -4 address show "$other" | sed 's/.*inet \([0-9.]*\).*/\1/')
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=${DAT_LOG:-warn}
dmesg --clear

step() {
    echo "$SECONDS s: $1"
}

fail_trial() {
    step "WRONG: $1"
    tail -n 20 "$work/1" "$work/2"
    dmesg | tail -n 20
    exit 1
}

# wait_until COMMAND...: waits until the command succeeds or one of the processes has failed.
wait_until() {
    local end=$((SECONDS + patience))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        ! grep -qE "^(RETURN|ABORTED)" "$work/1" "$work/2" 2> /dev/null || return 1
        sleep 0.2
    done
}

is_active() {
    local state
    read -r state 2> /dev/null < /sys/class/infiniband/gone/ports/1/state
    [ "$state" = "4: ACTIVE" ]
}

# both_printed TEXT: true if both processes have printed the text.
both_printed() {
    grep -q "$1" "$work/1" && grep -q "$1" "$work/2"
}

create_device() {
    rdma link add gone type "$1" netdev g0 && wait_until is_active
}

# set_up TYPE: makes a cable for the trial, and a device on it.
set_up() {
    # A job that was killed has left its cable.
    leave
    ip link add g0 type veth peer name g1
    ip address add $address/24 dev g0
    ip link set g0 up
    ip link set g1 up
    create_device "$1" || fail_trial "the device does not become active"
}

# Starts two processes, whose standard inputs are the descriptors 4 and 5.
start_consumers() {
    consumers=()
    rm -f "$work"/lines[12] "$work"/[12]
    mkfifo "$work/lines1" "$work/lines2"
    for number in 1 2; do
        "$work/removal" lost $address 730$number $pairs $end_limit \
            < "$work/lines$number" > "$work/$number" 2>&1 &
        consumers+=($!)
    done
    exec 4> "$work/lines1" 5> "$work/lines2"
    wait_until both_printed "^TRANSFERRING" || fail_trial "no transfers"
    step "both transfer"
}

# Makes both processes open an adapter and transfer data over it.
transfer_over() {
    echo "$1 $2 7311" >&4
    wait_until grep -q "^MOVED $1" "$work/1" || fail_trial "the first cannot use $1"
    echo "$1 $2 7312" >&5
    wait_until grep -q "^MOVED $1" "$work/2" || fail_trial "the second cannot use $1"
    step "both have moved data over $1"
}

# check_end EVENTS: checks the lines of both consumers after the loss of their connections.
check_end() {
    wait_until both_printed "^CLOSED" || fail_trial "an adapter was not closed"
    both_printed "^ASYNC 0x08002" || fail_trial "no asynchronous event says that the adapter is lost"
    both_printed "^ENDED $1 other=0 flushed=[1-9]" || fail_trial "connections did not end with these events: $1"
    step "both have closed their adapters"
}

trial() {
    step "$*"
    set_up "$1"
    start_consumers
    inject_fault "$@"
    exec 4>&- 5>&-
    for consumer in "${consumers[@]}"; do
        wait "$consumer" || fail_trial "a process failed"
    done
    head -n 20 "$work/1" "$work/2"
    leave
    ! dmesg | grep -E "BUG|Oops|general protection|Call Trace" || fail_trial "the kernel logged a crash"
}
