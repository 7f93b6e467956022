# Shared by the interop jobs: a cable with Linux siw on one end and the software provider, over plain
# TCP, on the other end; trials between them; the kernel's log, in which there must be no crash.
#
#   set_up                      makes the cable and the device
#   compile                     compiles the peers, once for all jobs of a boot
#   begin                       does both
#   try ROLE LINE COMMON OURS THEIRS [OUR-LOG [KERNEL-LOG]]
#                               runs the peer of dat-rs in ROLE with the settings LINE of its IA, and siw's
#                               peer in the other role. COMMON are arguments for both peers, OURS for that
#                               of dat-rs, THEIRS for siw's. OUR-LOG is a pattern that the output of the
#                               peer of dat-rs must contain, KERNEL-LOG one for the kernel's log.
#   finish                      prints the number of trials, and exits

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ours=10.9.20.2 theirs=10.9.20.1
work=/tmp/interop
trials=0 failed=0 port=7000
# The time limit of an event, which is long enough for a busy machine; and the time limit of a peer for
# a whole trial.
patience=60 limit=240
[ -z "${STACK_TESTS_FULL:-}" ] || limit=600
# The program that uses siw: verbs_peer, or dat_peer over provider-ib.
their_peer=verbs
flags="-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I $DAT_STAGE/include -L $DAT_STAGE/lib"

leave() {
    rdma link delete siwi 2> /dev/null
    ip link delete i0 2> /dev/null
    ip netns delete interop 2> /dev/null
}

# wait_for WHAT COMMAND...: waits until the command succeeds. At the time limit, sets $late to WHAT and
# fails.
wait_for() {
    local what=$1 end=$((SECONDS + patience))
    shift
    late=
    until "$@"; do
        if [ $SECONDS -ge $end ]; then
            late="not reached within $patience s: $what"
            return 1
        fi
        sleep 0.05
    done
}

is_active() {
    [ "$(cat /sys/class/infiniband/siwi/ports/1/state)" = "4: ACTIVE" ]
}

set_up() {
    # A job that was killed has left its cable.
    leave
    trap leave EXIT
    mkdir -p "$work" /run/netns
    ip netns add interop
    ip link add i0 type veth peer name i1
    ip link set i1 netns interop
    ip address add "$theirs/24" dev i0
    ip -n interop address add "$ours/24" dev i1
    ip link set i0 up
    ip -n interop link set i1 up
    ip -n interop link set lo up
    rdma link add siwi type siw netdev i0 || exit 1
    wait_for "siwi becomes active" is_active || { echo "$late"; exit 1; }
    dmesg --clear
}

compile() {
    mkdir -p "$work"
    cd "$here" || exit 1
    # The peer that is compiled last shows that an earlier job has compiled both.
    [ ! -x "$work/verbs_peer" ] || return 0
    # shellcheck disable=SC2086
    gcc $flags -o "$work/dat_peer" dat_peer.c conversation.c -ldat2 || exit 1
    # shellcheck disable=SC2086
    gcc $flags -o "$work/verbs_peer" verbs_peer.c conversation.c -lrdmacm -libverbs || exit 1
}

begin() {
    set_up
    compile
}

# conf END PROVIDER PARAMETERS: writes the registry of an end, whose adapter has the end's name.
conf() {
    echo "$1 u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-$2.so.2 dat-rs.1.0 \"$3\" \"\"" \
        > "$work/$1.conf"
}

# run_dat END ARGUMENT...: runs the DAT peer with that end's adapter.
run_dat() {
    local who=$1 words=(timeout $limit)
    shift
    [ "$who" != ours ] || words+=(ip netns exec interop)
    DAT_OVERRIDE=$work/$who.conf LD_LIBRARY_PATH=$DAT_STAGE/lib \
        DAT_LOG=${DAT_LOG:-info,access_layer=warn} \
        "${words[@]}" "$work/dat_peer" "$@" "ia=$who" > "$work/$who" 2>&1
}

run_ours() {
    run_dat ours "$@"
}

run_theirs() {
    if [ "$their_peer" = dat ]; then
        run_dat theirs "$@"
    else
        timeout $limit "$work/verbs_peer" "$@" > "$work/theirs" 2>&1
    fi
}

# wait_ready FILE PEER PROCESS: waits until the peer prints that it listens. Otherwise the trial has
# failed.
wait_ready() {
    wait_for "$2 prints READY" has_reported "$1" "$3" && ! is_gone "$1" "$3" && return
    late=${late:-$2 ended before it was READY}
    return 1
}

is_ready() {
    grep -q READY "$1"
}

is_gone() {
    ! is_ready "$1" && ! kill -0 "$2" 2> /dev/null
}

has_reported() {
    is_ready "$1" || is_gone "$1" "$2"
}

listens_in_kernel() {
    rdma resource show cm_id | grep -q "state LISTEN.*:$port "
}

# Runs both peers. Sets $our_status and $their_status to their exit statuses. If the listening peer is not
# ready, the other peer is not started, and its status is "not started".
run_peers() {
    local role=$1 common=$2 for_ours=$3 for_theirs=$4
    port=$((port + 1))
    our_status="not started" their_status="not started"
    : > "$work/ours"
    : > "$work/theirs"
    # shellcheck disable=SC2086
    case $role in
        listen | ssp)
            run_ours "$role" host=$ours port=$port $common $for_ours &
            if wait_ready "$work/ours" "our peer" $!; then
                run_theirs connect host=$ours port=$port $common $for_theirs
                their_status=$?
            fi
            wait $!
            our_status=$?
            ;;
        *)
            run_theirs listen host=$theirs port=$port $common $for_theirs &
            if wait_ready "$work/theirs" "siw's peer" $!; then
                run_ours "$role" host=$theirs port=$port $common $for_ours
                our_status=$?
            fi
            wait $!
            their_status=$?
            ;;
    esac
}

# Prints the faults of the last trial, one per line.
faults() {
    [ -z "$late" ] || echo "$late"
    [ "$our_status" = 0 ] || echo "our peer: exit status $our_status"
    [ "$their_status" = 0 ] || echo "siw's peer: exit status $their_status"
    [ -z "$1" ] || grep -qE "$1" "$work/ours" || echo "our peer does not print: $1"
    [ -z "$2" ] || grep -qE "$2" "$work/kernel" || echo "the kernel does not log: $2"
    grep -E "BUG|Oops|general protection|Call Trace" "$work/kernel"
}

try() {
    local role=$1 line=$2 common=$3 name found
    name="ours=$role line=\"$line\" $common ours: ${4:--} siw ($their_peer): ${5:--}"
    conf ours iwarp "i1 0 $line"
    conf theirs ib "i0 0"
    run_peers "$role" "$common" "$4" "$5"
    dmesg --read-clear > "$work/kernel"
    trials=$((trials + 1))
    found=$(faults "$6" "$7")
    if [ -z "$found" ]; then
        echo "ok $name"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name"
    echo "$found"
    sed 's/^/    ours: /' "$work/ours"
    sed 's/^/    siw: /' "$work/theirs"
    sed 's/^/    kernel: /' "$work/kernel"
    # After a crash of the kernel, further trials are meaningless.
    ! grep -qE "BUG|Oops" "$work/kernel" || finish
}

finish() {
    echo "$trials trials, $failed failed"
    [ "$failed" = 0 ]
    exit
}
