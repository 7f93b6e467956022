# Shared by the jobs in which programs under opsrun connect by SDP over RDMA devices. A rule selects SDP,
# because both ends are on one host, where connections otherwise use the protocol `local`.
#
#   under COMMAND...              runs a client under opsrun, with $rules, for $limit seconds at most
#   serve PORT COMMAND...         starts a server under opsrun and waits until peers can find it at the port; with
#                                 $is_on_tcp, until it listens
#   trial DEVICE NAME COMMAND...  checks that the command succeeds, and that the device carried connections
#   finish                        prints the number of trials, and exits

work=/tmp/sdp-programs
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$DAT_STAGE/lib
opsrun=$DAT_STAGE/bin/opsrun
rules=$work/rules
trials=0 failed=0
servers=() watcher=
# The time limit of an event, which is long enough for a busy machine, and the time limit of a program.
patience=60 limit=120

mkdir -p "$work"
chmod 755 "$work"
cat > "$rules" <<'R'
use both listen  * *:* protocol=sdp within=20s
use both connect * *:* protocol=sdp within=20s
R

under() {
    timeout $limit "$opsrun" --rules "$rules" "$@"
}

# wait_until COMMAND...: waits until the command succeeds; fails at the time limit.
wait_until() {
    local end=$((SECONDS + patience))
    until "$@"; do
        [ $SECONDS -lt $end ] || { echo "not reached within $patience s: $*"; return 1; }
        sleep 0.05
    done
}

listens() {
    ss -Htln "sport = :$1" | grep -q .
}

# is_offered PORT: true if the port mapper names the service, a moment after the kernel listens. A peer that asks
# before uses TCP.
is_offered() {
    local at
    at=$(ss -Htln "sport = :$1" | awk '{ print $4; exit }')
    case $at in "0.0.0.0:"* | "*:"* | "[::]:"*) at=127.0.0.1:$1 ;; esac
    under --explain connect "$at" | grep -q "offers it at"
}

serve() {
    local port=$1
    shift
    # The server is not started by the function, because the process would be a shell with the server as child.
    "$opsrun" --rules "$rules" "$@" > "$work/server" 2>&1 &
    servers+=($!)
    wait_until listens "$port" && { [ -n "${is_on_tcp:-}" ] || wait_until is_offered "$port"; }
}

# Ends the servers of a trial. A server that does not end by SIGTERM is a failure.
end_servers() {
    local server status=0
    for server in "${servers[@]}"; do
        kill "$server" 2> /dev/null
    done
    for server in "${servers[@]}"; do
        wait_until is_gone "$server" || { status=1; kill -KILL "$server"; }
        wait "$server" 2> /dev/null
    done
    servers=()
    return $status
}

# A zombie counts as ended.
is_gone() {
    ! grep -qs "^State:[[:space:]]*[^Z]" "/proc/$1/status" || grep -qs "^State:[[:space:]]*Z" "/proc/$1/status"
}

# Lists the sockets repeatedly until it is ended, because connections may be short.
watch_sockets() {
    : > "$work/listed"
    while :; do
        "$opsrun" ss -H >> "$work/listed" 2>&1
        sleep 0.1
    done &
    watcher=$!
}

end_watch() {
    kill "$watcher" 2> /dev/null
    wait "$watcher" 2> /dev/null
    watcher=
}

# carried DEVICE: true if connections used the device, and had bytes or were accepted by a listener, and no
# listener accepted a connection over TCP. A short transfer may be between two samples.
carried() {
    awk -v device="$1" '
        $1 == "sdp" && $NF == device && $5 + $6 >= most { most = $5 + $6; line = $0 }
        / accepted [1-9][0-9]* offloaded and 0 over TCP$/ { accepted = 1 }
        / accepted .* over TCP$/ && !/ and 0 over TCP$/ { tcp = $0 }
        END {
            if (tcp) { print "over TCP: " tcp; exit 1 }
            if (!line || !most && !accepted) { print "no connection was carried by " device; exit 1 }
            print line
        }' "$work/listed"
}

trial() {
    local device=$1 name=$2 begun=$SECONDS wrong=
    shift 2
    trials=$((trials + 1))
    dmesg --clear
    watch_sockets
    "$@" > "$work/said" 2>&1 || wrong="exit status $?"
    "$opsrun" ss -H >> "$work/listed" 2>&1
    end_watch
    end_servers >> "$work/said" 2>&1 || wrong+=" a server does not end"
    carried "$device" > "$work/carried" || wrong+=" $(cat "$work/carried")"
    ! dmesg | grep -E "BUG|Oops|general protection|Call Trace|segfault" >> "$work/said" || wrong+=" kernel"
    if [ -z "$wrong" ]; then
        echo "ok $device $name, $((SECONDS - begun)) s: $(cat "$work/carried")"
        grep "^FIGURE " "$work/said"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $device $name, $((SECONDS - begun)) s: $wrong"
    tail -n 40 "$work/said" | sed 's/^/    /'
    tail -n 20 "$work/server" | sed 's/^/    server: /'
    sort -u "$work/listed" | tail -n 20 | sed 's/^/    /'
    dmesg | tail -n 10 | sed 's/^/    kernel: /'
}

finish() {
    echo "$trials trials, $failed failed"
    [ "$failed" = 0 ]
    exit
}

leave() {
    [ -z "$watcher" ] || kill "$watcher" 2> /dev/null
    kill -KILL "${servers[@]}" 2> /dev/null
}
trap leave EXIT
