# What the interop jobs share: a cable with Linux siw on one end and the software provider, over
# plain TCP, on the other; trials between them; the kernel's log, in which no trial may leave a crash.
#
#   lay                         lays the cable and makes the device
#   begin                       does so, and compiles both peers
#   try ROLE LINE COMMON OURS THEIRS [OUR-LOG [KERNEL-LOG]]
#                               our peer in ROLE with the settings LINE of its IA, siw's in the other
#                               role; arguments for both, for ours, for theirs; patterns that our
#                               log and output, and the kernel's log, must hold
#   finish                      says how many trials there were, and exits

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ours=10.9.20.2 theirs=10.9.20.1
work=/tmp/interop
trials=0 failed=0 port=7000

leave() {
    rdma link delete siwi 2> /dev/null
    ip link delete i0 2> /dev/null
    ip netns delete interop 2> /dev/null
}

lay() {
    # A job that was killed has left its own.
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
    for _ in $(seq 100); do
        [ "$(cat /sys/class/infiniband/siwi/ports/1/state)" = "4: ACTIVE" ] && break
        sleep 0.1
    done
    dmesg --clear
}

begin() {
    lay
    flags="-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I $DAT_STAGE/include -L $DAT_STAGE/lib"
    cd "$here" || exit 1
    # shellcheck disable=SC2086
    gcc $flags -o "$work/dat_peer" dat_peer.c conversation.c -ldat2 || exit 1
    # shellcheck disable=SC2086
    gcc $flags -o "$work/verbs_peer" verbs_peer.c conversation.c -lrdmacm -libverbs || exit 1
}

# conf LINE: the registry of our end.
conf() {
    echo "ours u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-iwarp.so.2 dat-rs.1.0 \"i1 0 $1\" \"\"" \
        > "$work/ours.conf"
}

run_ours() {
    DAT_OVERRIDE=$work/ours.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=info,access_layer=warn \
        timeout 60 ip netns exec interop "$work/dat_peer" "$@" > "$work/ours" 2>&1
}

run_theirs() {
    timeout 60 "$work/verbs_peer" "$@" > "$work/theirs" 2>&1
}

wait_ready() {
    for _ in $(seq 300); do
        grep -q READY "$1" && return
        sleep 0.05
    done
}

# Both peers; their exit statuses in $our_status and $their_status.
talk() {
    local role=$1 common=$2 for_ours=$3 for_theirs=$4
    port=$((port + 1))
    : > "$work/ours"
    : > "$work/theirs"
    # shellcheck disable=SC2086
    case $role in
        listen | ssp)
            run_ours "$role" ia=ours host=$ours port=$port $common $for_ours &
            wait_ready "$work/ours"
            run_theirs connect host=$ours port=$port $common $for_theirs
            their_status=$?
            wait $!
            our_status=$?
            ;;
        *)
            run_theirs listen host=$theirs port=$port $common $for_theirs &
            wait_ready "$work/theirs"
            run_ours "$role" ia=ours host=$theirs port=$port $common $for_ours
            our_status=$?
            wait $!
            their_status=$?
            ;;
    esac
}

# What is wrong with the trial just made, a line each.
complaints() {
    [ "$our_status" = 0 ] || echo "our peer exits with $our_status"
    [ "$their_status" = 0 ] || echo "siw's peer exits with $their_status"
    [ -z "$1" ] || grep -qE "$1" "$work/ours" || echo "our peer does not say: $1"
    [ -z "$2" ] || grep -qE "$2" "$work/kernel" || echo "the kernel does not say: $2"
    grep -E "BUG|Oops|general protection|Call Trace" "$work/kernel"
}

try() {
    local role=$1 line=$2 common=$3 name wrong
    name="ours=$role line=\"$line\" $common ours: ${4:--} siw: ${5:--}"
    conf "$line"
    talk "$role" "$common" "$4" "$5"
    dmesg --read-clear > "$work/kernel"
    trials=$((trials + 1))
    wrong=$(complaints "$6" "$7")
    if [ -z "$wrong" ]; then
        echo "ok $name"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name"
    echo "$wrong"
    sed 's/^/    ours: /' "$work/ours"
    sed 's/^/    siw: /' "$work/theirs"
    sed 's/^/    kernel: /' "$work/kernel"
    # A kernel that has crashed has nothing to say about what comes after.
    ! grep -qE "BUG|Oops" "$work/kernel" || finish
}

finish() {
    echo "$trials trials, $failed failed"
    [ "$failed" = 0 ]
    exit
}
