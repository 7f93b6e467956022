# Shared by the jobs that remove a device, or its link, during transfers: two processes whose endpoints
# transfer over a device made for the trial, and the lines that they must print at the end.
#
#   trial TYPE [HOW]      makes the device, starts both transfers, calls `happens TYPE HOW`, which the
#                         job defines, and checks that both processes end with success
#   check_end HOW         checks that the processes received the events HOW, and have closed
#   move_over IA ADDRESS  both processes open an adapter and move data over it
#   wrong WHY             the trial has failed

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=/tmp/removal
address=10.9.30.1
pairs=6
# The time limit of an event, which is long enough for a busy machine.
patience=240
# The time in seconds in which connections must end by themselves.
a_while=60
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
gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I "$DAT_STAGE/include" \
    -o "$work/removal" "$here/removal.c" -L "$DAT_STAGE/lib" -ldat2 -lpthread || exit 1
for adapter in "goes g0" "stays ${other:=r0}"; do
    echo "${adapter% *} u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0" \
        "\"${adapter#* } 0\" \"\""
done > "$work/dat.conf"
other_address=$(ip -o -4 address show "$other" | sed 's/.*inet \([0-9.]*\).*/\1/')
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=${DAT_LOG:-warn}
dmesg --clear

step() {
    echo "$SECONDS s: $1"
}

wrong() {
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
        ! grep -qE "^(FAILED|GAVE UP)" "$work/1" "$work/2" 2> /dev/null || return 1
        sleep 0.2
    done
}

is_active() {
    local state
    read -r state 2> /dev/null < /sys/class/infiniband/gone/ports/1/state
    [ "$state" = "4: ACTIVE" ]
}

# said TEXT: true if both processes have printed the text.
said() {
    grep -q "$1" "$work/1" && grep -q "$1" "$work/2"
}

lay_device() {
    rdma link add gone type "$1" netdev g0 && wait_until is_active
}

# lay TYPE: makes a cable for the trial, and a device on it.
lay() {
    # A job that was killed has left its cable.
    leave
    ip link add g0 type veth peer name g1
    ip address add $address/24 dev g0
    ip link set g0 up
    ip link set g1 up
    lay_device "$1" || wrong "no device"
}

# Starts two processes, whose standard inputs are the descriptors 4 and 5.
start_consumers() {
    consumers=()
    rm -f "$work"/lines[12] "$work"/[12]
    mkfifo "$work/lines1" "$work/lines2"
    for number in 1 2; do
        "$work/removal" goes $address 730$number $pairs $a_while \
            < "$work/lines$number" > "$work/$number" 2>&1 &
        consumers+=($!)
    done
    exec 4> "$work/lines1" 5> "$work/lines2"
    wait_until said "^TRANSFERRING" || wrong "no transfers"
    step "both transfer"
}

# Makes both processes open an adapter and move data over it.
move_over() {
    echo "$1 $2 7311" >&4
    wait_until grep -q "^MOVED $1" "$work/1" || wrong "the first cannot use $1"
    echo "$1 $2 7312" >&5
    wait_until grep -q "^MOVED $1" "$work/2" || wrong "the second cannot use $1"
    step "both have moved data over $1"
}

# check_end HOW: checks the lines of both consumers after the loss of their connections.
check_end() {
    wait_until said "^CLOSED" || wrong "an adapter was not closed"
    said "^ASYNC 0x08002" || wrong "no asynchronous event says that the adapter is lost"
    said "^ENDED $1 other=0 flushed=[1-9]" || wrong "connections did not end so: $1"
    step "both have closed their adapters"
}

trial() {
    step "$*"
    lay "$1"
    start_consumers
    happens "$@"
    exec 4>&- 5>&-
    for consumer in "${consumers[@]}"; do
        wait "$consumer" || wrong "a process failed"
    done
    head -n 20 "$work/1" "$work/2"
    leave
    ! dmesg | grep -E "BUG|Oops|general protection|Call Trace" || wrong "the kernel complains"
}
