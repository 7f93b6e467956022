#!/bin/bash
# SDP over OFA's provider (libdaplofa.so.2) and the registry of dat-rs, at both ends of a connection: dat.conf
# lists only this provider for the devices.
#
#   sdp-ofa [{echoes|redis}=DEVICE...]
. "$(dirname "$0")/../programs/sdp.sh"
port=7300
for device in rxe0:r0 siw0:w0; do
    echo "ofa-${device%:*} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"${device#*:} 0\" \"\""
done > "$work/dat.conf"
export DAT_OVERRIDE=$work/dat.conf

echoes() {
    serve $port python3 "$here/asyncio_echo.py" serve "$1" $port || return
    under python3 "$here/asyncio_echo.py" visit "$1" $port 4 4 200000
}

redis() {
    local cli
    serve $port redis-server --port $port --bind "$1" --protected-mode no --save "" --dir "$work" || return
    cli=(under redis-cli -h "$1" -p $port)
    head -c 1000000 /dev/urandom > "$work/value"
    "${cli[@]}" -x set key < "$work/value" | grep -q OK || { echo "SET failed"; return 1; }
    # redis-cli appends a line feed to its output.
    "${cli[@]}" get key | head -c 1000000 | cmp - "$work/value" || return
    under redis-benchmark -h "$1" -p $port -q -c 4 -n 40 -t set,get
}

chosen="echoes=rxe0 echoes=siw0 redis=siw0"
[ -z "${STACK_TESTS_FULL:-}" ] || chosen="$chosen redis=rxe0"
for one in ${*:-$chosen}; do
    port=$((port + 1))
    address=10.9.9.1
    [ "${one#*=}" = rxe0 ] || address=10.9.10.1
    trial "${one#*=}" "${one%=*}" "${one%=*}" $address
done
finish
