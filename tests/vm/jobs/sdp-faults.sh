#!/bin/bash
# Devices that fail during SDP, or do not exist: a socket error after the first byte, TCP before it and for
# later connections, and never a hang. `opsrun ss` and `opsrun --explain` show the reason.
#
#   sdp-faults [FAULT...]
. "$(dirname "$0")/../programs/sdp.sh"
port=7400 address=10.9.30.1 visitor=
# This dat.conf does not list the software provider, which the rule permits.
for adapter in gone:g0 rxe0:r0; do
    echo "ib-${adapter%:*} u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0" \
        "\"${adapter#*:} 0\" \"\""
done > "$work/dat.conf"

leave_device() {
    kill $visitor 2> /dev/null
    rdma link delete gone 2> /dev/null
    ip link delete g0 2> /dev/null
    chmod a+rw /dev/infiniband/*
}
trap 'leave; leave_device' EXIT

is_active() {
    [ "$(cat /sys/class/infiniband/gone/ports/1/state 2> /dev/null)" = "4: ACTIVE" ]
}

create_device() {
    ip link add g0 type veth peer name g1
    ip address add $address/24 dev g0
    ip link set g0 up
    ip link set g1 up
    rdma link add gone type "$1" netdev g0 && wait_until is_active
}

visitor_printed() {
    grep -q "$1" "$work/visitor"
}

has_reconnected_twice() {
    [ "$(grep -c "AGAIN SAME" "$work/visitor")" = 2 ]
}

# start_visitor ADDRESS: starts a client, whose standard input is descriptor 4.
start_visitor() {
    rm -f "$work/lines"
    mkfifo "$work/lines"
    "$opsrun" --rules "$rules" python3 "$here/load.py" visit "$1" $port < "$work/lines" > "$work/visitor" 2>&1 4>&- &
    visitor=$!
    exec 4> "$work/lines"
    wait_until visitor_printed LOADED
}

# again: makes the client open another connection, which stays open.
again() {
    echo again >&4
    wait_until visitor_printed "AGAIN SAME"
}

end_visitor() {
    exec 4>&-
    wait $visitor || { echo "the visitor failed"; return 1; }
    visitor=
}

# lists WORDS: true if the list of sockets has a line that matches.
lists() {
    "$opsrun" ss -H > "$work/now" 2>&1
    cat "$work/now"
    grep -qE "$1" "$work/now" || { echo "not listed: $1"; return 1; }
}

# Both ends get an error, and the next connection is on TCP, with a listed reason.
breaks_and_falls_back() {
    wait_until visitor_printed "^ERROR" || return
    wait_until grep -q "^SERVED UNTIL" "$work/server" || return
    again || return
    lists "^tcp .* $address:$port +[^ ]+ +[^ ]+ +python3.* $1" || return
    grep -E "^(ERROR|SERVED)" "$work/visitor" "$work/server" | sed 's/.*://'
}

under_load() {
    create_device "$1" || return
    serve $port python3 "$here/load.py" serve $address $port || return
    start_visitor $address
}

removal() {
    under_load "$1" || return
    (rdma link delete gone; echo removed > "$work/removed") 4>&- &
    breaks_and_falls_back "(.*lists no adapter|failed: )" && end_visitor
}

link_down() {
    under_load "$1" || return
    ip link set g0 down
    breaks_and_falls_back ".*lists no adapter" || return
    # When the link is up again, connections use SDP again.
    ip link set g0 up
    wait_until is_active || return
    echo again >&4
    wait_until has_reconnected_twice || return
    lists "^sdp +ESTAB .* $address:$port .* gone$" || return
    end_visitor
}

# Neither end may open the device.
no_access() {
    create_device "$1" || return
    chmod 600 /dev/infiniband/*
    serve $port setpriv --reuid postgres --regid postgres --clear-groups python3 "$here/load.py" serve $address $port || return
    rm -f "$work/lines"
    mkfifo "$work/lines"
    "$opsrun" --rules "$rules" setpriv --reuid postgres --regid postgres --clear-groups \
        python3 "$here/load.py" visit $address $port < "$work/lines" > "$work/visitor" 2>&1 4>&- &
    visitor=$!
    exec 4> "$work/lines"
    wait_until visitor_printed LOADED || return
    lists "^tcp .* $address:$port .*python3"
    local status=$?
    setpriv --reuid postgres --regid postgres --clear-groups \
        "$opsrun" --rules "$rules" --explain connect --program python3 $address:$port
    kill $visitor
    wait $visitor
    exec 4>&-
    return $status
}

# dat.conf lists another device.
other_device() {
    local is_on_tcp=yes
    serve $port python3 "$here/load.py" serve 10.9.10.1 $port || return
    start_visitor 10.9.10.1 || return
    lists "^tcp .* 10.9.10.1:$port .*python3.* lists no adapter" || lists "^tcp .* 10.9.10.1:$port .*python3" || return
    "$opsrun" --rules "$rules" --explain connect --program python3 10.9.10.1:$port | tee "$work/explained"
    kill $visitor
    wait $visitor
    exec 4>&-
    grep -q "^verdict  tcp" "$work/explained" && grep -q "^sdp .*no: .*lists no adapter" "$work/explained"
}

# fault NAME TYPE
fault() {
    local name=$1 type=$2 begun=$SECONDS wrong=
    trials=$((trials + 1))
    port=$((port + 1))
    dmesg --clear
    rm -f "$work/removed" "$work/visitor"
    "${name//-/_}" "$type" > "$work/said" 2>&1 || wrong="exit status $?"
    exec 4>&-
    end_servers >> "$work/said" 2>&1 || wrong+=" a server does not end"
    # A process keeps the device that it has opened until it ends.
    [ "$name" != removal ] || wait_until test -s "$work/removed" || wrong+=" the device is not removed"
    leave_device
    ! dmesg | grep -E "BUG|Oops|general protection|Call Trace" >> "$work/said" || wrong+=" kernel"
    if [ -z "$wrong" ]; then
        echo "ok $name $type, $((SECONDS - begun)) s: $(grep -E "^ERROR|^tcp .*$port" "$work/said" | head -n 2 | tr '\n' ' ')"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name $type, $((SECONDS - begun)) s: $wrong"
    sed 's/^/    /' "$work/said"
    sed 's/^/    server: /' "$work/server"
    sed 's/^/    visitor: /' "$work/visitor"
    dmesg | tail -n 10 | sed 's/^/    kernel: /'
}

export DAT_OVERRIDE=$work/dat.conf
chosen="removal:siw link-down:siw no-access:siw"
[ -z "${STACK_TESTS_FULL:-}" ] || chosen+=" removal:rxe no-access:rxe other-device:siw"
for one in ${*:-$chosen}; do
    fault "${one%:*}" "${one#*:}"
done
finish
