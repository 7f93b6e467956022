#!/bin/bash
# Behaviour of provider-ib that does not depend on the device. It repeats a refused request, because the
# service may listen soon, and aborts after a while.
. "$(dirname "$0")/../interop/trials.sh"
compile
export DAT_LOG=info,provider_ib=debug
refusals="Refused .*again: true"

# Both ends are on one device. `theirs` connects; the other end has its adapter open and listens a moment
# later, or never.
late_service() {
    local service status
    conf other ib "$1 0"
    mkfifo "$work/go"
    run_dat other listen late=1 host="$2" port=$port exchange=greet < "$work/go" &
    service=$!
    exec 4<> "$work/go"
    wait_for "the service's adapter is open" grep -q "^OPEN" "$work/other" || return
    run_theirs connect host="$2" port=$port exchange=greet &
    wait_for "the first refusal" grep -q "$refusals" "$work/theirs" || return
    echo >&4
    exec 4>&-
    wait $!
    status=$?
    wait $service && [ $status = 0 ] && grep -q "^CONNECTED" "$work/theirs"
}

no_service() {
    run_theirs connect host="$2" port=$port
    grep -q "$refusals" "$work/theirs" && grep -q "^EVENT non-peer-rejected" "$work/theirs"
}

# attempt CASE LINK ADDRESS
attempt() {
    port=$((port + 1)) late=
    rm -f "$work"/{go,other,theirs}
    conf theirs ib "$2 0"
    "$1" "$2" "$3" && return
    echo "AGAIN $1 on $2: ${late:-it ended otherwise}"
    sed 's/^/    /' "$work/theirs" "$work/other" 2> /dev/null
    jobs -p | xargs --no-run-if-empty kill
    wait
    return 1
}

# The provider repeats requests for three seconds only, and this machine may be busy.
trial() {
    trials=$((trials + 1))
    for _ in 1 2 3 4 5 6; do
        attempt "$@" && echo "ok $1 on $2" && return
    done
    failed=$((failed + 1))
}

their_peer=dat
for device in "r0 10.9.9.1" "w0 10.9.10.1"; do
    read -r link address <<< "$device"
    trial late_service "$link" "$address"
    trial no_service "$link" "$address"
done
finish
