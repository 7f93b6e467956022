#!/bin/bash
# A line of dat.conf names an adapter of provider-ib by its network device, its address, a host name, or
# its verbs device and port. The log has a separate message for each kind of wrong name.
work=/tmp/adapter-names
mkdir -p "$work"
export DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=info
cp /etc/hosts "$work/hosts"
trap 'cp "$work/hosts" /etc/hosts' EXIT
echo "10.9.9.1 rxe-host" >> /etc/hosts
echo "10.9.10.1 siw-host" >> /etc/hosts
trials=0 failed=0

# check_datinfo PARAMETERS PATTERN...: checks the output of datinfo for an adapter with these parameters.
check_datinfo() {
    local pattern parameters=$1
    shift
    echo "named u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0" \
        "\"$parameters\" \"\"" > "$work/dat.conf"
    timeout 240 "$DAT_STAGE/bin/datinfo" named > "$work/output" 2>&1
    trials=$((trials + 1))
    for pattern in "$@"; do
        grep -qE "$pattern" "$work/output" && continue
        failed=$((failed + 1))
        echo "FAILED \"$parameters\": the output of datinfo has no line with: $pattern"
        sed 's/^/    /' "$work/output"
        return
    done
    echo "ok \"$parameters\""
}

for device in "rxe0 r0 10.9.9.1 rxe-host" "siw0 w0 10.9.10.1 siw-host"; do
    read -r verbs link address host <<< "$device"
    for parameters in "$link 0" "$link" "$address 0" "$host 0" "$verbs 1" "$verbs 0" "$verbs"; do
        check_datinfo "$parameters" "DAT_IB_DEVICE_NAME +$verbs" "DAT_IB_PORT_NUMBER +1" "$address"
    done
    check_datinfo "$verbs 2" "no device: $verbs port 2"
done
check_datinfo "10.9.9.77 0" "no device: 10.9.9.77"
check_datinfo "no-such-host 0" "no device: no-such-host"
check_datinfo "r0 1024" "bad ia_params: .1024.: a port from 1 to 255"
echo "$trials trials, $failed failed"
[ "$failed" = 0 ]
