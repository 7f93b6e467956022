#!/bin/bash
# Programs under opsrun connect over an RDMA device, by SDP: both ends are on one device. A rule selects
# SDP, because connections within a host otherwise use the protocol `local`.
work=/tmp/sdp-devices
mkdir -p "$work"
export LD_LIBRARY_PATH=$DAT_STAGE/lib
opsrun=$DAT_STAGE/bin/opsrun
trials=0 failed=0
printf 'use both listen * *:* protocol=sdp within=20s\nuse both connect * *:* protocol=sdp within=20s\n' > "$work/rules"

cat > "$work/echo.py" <<'P'
import socket, sys
address = (sys.argv[2], int(sys.argv[3]))
if sys.argv[1] == "serve":
    with socket.create_server(address) as listener:
        print("LISTENS", flush=True)
        peer, _ = listener.accept()
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)
else:
    with socket.create_connection(address) as peer:
        sent = bytes(range(256)) * 256
        for length in (1, 64, 4096, 65536):
            peer.sendall(sent[:length])
            got = b""
            while len(got) < length:
                got += peer.recv(65536)
            assert got == sent[:length]
        print("SAME", flush=True)
        sys.stdin.readline()
P

trial() {
    local device=$1 address=$2 server client
    trials=$((trials + 1))
    "$opsrun" --rules "$work/rules" python3 "$work/echo.py" serve "$address" 7000 > "$work/server" 2>&1 &
    server=$!
    for _ in $(seq 600); do grep -q LISTENS "$work/server" && break; sleep 0.1; done
    mkfifo -m 600 "$work/go" 2> /dev/null
    "$opsrun" --rules "$work/rules" python3 "$work/echo.py" connect "$address" 7000 < "$work/go" > "$work/client" 2>&1 &
    client=$!
    exec 4> "$work/go"
    for _ in $(seq 1200); do grep -q SAME "$work/client" && break; sleep 0.1; done
    "$opsrun" ss > "$work/listed" 2>&1
    cat "$work/listed"
    exec 4>&-
    wait $client; local status=$?
    wait $server
    cat "$work/server" "$work/client"
    grep -q SAME "$work/client" && grep -q "sdp.*$device" "$work/listed" && [ $status = 0 ] && echo "ok $device" && return
    failed=$((failed + 1))
    echo "FAILED $device"
}
"$opsrun" --rules "$work/rules" --explain connect --program python3 10.9.9.1:7000
trial rxe0 10.9.9.1
trial siw0 10.9.10.1
# Without a rule, software devices carry no socket, because they are slower than TCP.
for pair in "rxe0 10.9.9.1" "siw0 10.9.10.1"; do
    read -r device address <<< "$pair"
    trials=$((trials + 1))
    "$opsrun" --explain listen --program python3 "$address:7001" > "$work/explained" 2>&1
    if grep -q "^sdp .*no: $device is slower than TCP" "$work/explained"; then
        echo "ok $device without a rule"
    else
        failed=$((failed + 1))
        echo "FAILED $device without a rule"
        cat "$work/explained"
    fi
done
# A server suspends its connection over a device, and another process continues it. The private data of
# rxe's connection manager has no room for a Hello.
trials=$((trials + 1))
echo "siw u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0 \"siw0 0\" \"\"" > "$work/dat.conf"
if DAT_OVERRIDE=$work/dat.conf timeout 120 "$DAT_STAGE/bin/dat-example-hand-over" siw > "$work/handed" 2>&1 &&
    grep -q "no answer lost" "$work/handed"; then
    echo "ok a suspension over siw0"
else
    failed=$((failed + 1))
    echo "FAILED a suspension over siw0"
    cat "$work/handed"
fi
echo "$trials trials, $failed failed"
[ "$failed" = 0 ]
