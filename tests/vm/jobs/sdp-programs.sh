#!/bin/bash
# Unmodified programs under opsrun, both ends on one RDMA device: redis, nginx with curl, iperf3 and an asyncio
# server. Received bytes are compared with sent bytes, and `opsrun ss` names the device.
#
#   sdp-programs [PROGRAM=DEVICE...]
. "$(dirname "$0")/../programs/sdp.sh"
port=7100
full=${STACK_TESTS_FULL:-}

redis() {
    local address=$1 bytes=$((full ? 8000000 : 1000000)) requests=$((full ? 5000 : 100)) sum
    serve $port redis-server --port $port --bind "$address" --protected-mode no --save "" --appendonly no --dir "$work" || return
    local cli=(under redis-cli -h "$address" -p $port)
    head -c $bytes /dev/urandom > "$work/value"
    "${cli[@]}" -x set key < "$work/value" | grep -q OK || { echo "SET failed"; return 1; }
    # redis-cli appends a line feed to its output.
    "${cli[@]}" get key | head -c $bytes | cmp - "$work/value" || return
    under redis-benchmark -h "$address" -p $port -q \
        -c 10 -n $requests -d 1000 -t set,get > "$work/benchmark" || { cat "$work/benchmark"; return 1; }
    tr '\r' '\n' < "$work/benchmark" | grep "requests per second"
    sum=$("${cli[@]}" get key | head -c $bytes | cmp - "$work/value" && echo same)
    [ "$sum" = same ]
}

make_site() {
    mkdir -p "$work/site/put" "$work/temporary"
    chmod -R 777 "$work/site" "$work/temporary"
    local size
    for size in 0 1 1460 65536 1000003 $((full ? 20000000 : 3000000)); do
        head -c "$size" /dev/urandom > "$work/site/$size"
    done
    (cd "$work/site" && sha256sum ./*[0-9] > "$work/sums")
    cat > "$work/nginx.conf" <<N
worker_processes 2;
daemon off;
user root;
pid $work/nginx.pid;
error_log stderr warn;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path $work/temporary;
    client_max_body_size 100m;
    server {
        listen $1:$port;
        root $work/site;
        location /put/ { dav_methods PUT; }
    }
}
N
}

nginx_and_curl() {
    local address=$1 url=http://$1:$port size urls=() times=$((full ? 20 : 1))
    make_site "$address"
    serve $port nginx -c "$work/nginx.conf" || return
    rm -rf "$work/got"
    mkdir -p "$work/got"
    # All files over one connection, and then each file over a separate connection.
    for size in "$work"/site/*[0-9]; do
        urls+=("$url/${size##*/}" -o "$work/got/${size##*/}")
    done
    under curl -sSf --write-out '%{num_connects}\n' "${urls[@]}" \
        > "$work/connects" || return
    (cd "$work/got" && sha256sum --quiet -c "$work/sums") || return
    [ "$(awk '{ n += $1 } END { print n }' "$work/connects")" = 1 ] || { echo "not one connection"; return 1; }
    for _ in $(seq $times); do
        rm -f "$work/got"/*
        under curl -sSf --parallel -H "Connection: close" "${urls[@]}" || return
        (cd "$work/got" && sha256sum --quiet -c "$work/sums") || return
    done
    # Uploads with a known length, and in chunks.
    under curl -sSf -T "$work/site/1000003" "$url/put/known" || return
    under curl -sSf -T - "$url/put/chunks" < "$work/site/1000003" || return
    cmp "$work/site/1000003" "$work/site/put/known" && cmp "$work/site/1000003" "$work/site/put/chunks"
}

# iperf_for SECONDS ADDRESS STREAMS: the status is 3 if no byte was received in this time.
iperf_for() {
    local seconds=$1 address=$2 streams=$3
    serve $port iperf3 -s -1 -B "$address" -p $port || return
    under iperf3 -c "$address" -p $port -P "$streams" -t "$seconds" -J \
        > "$work/iperf" || { grep error "$work/iperf"; return 1; }
    wait_until is_gone "${servers[-1]}" || return 1
    python3 - "$work/iperf" "$streams" <<'P'
import json, sys
end = json.load(open(sys.argv[1]))["end"]
sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
print(f"FIGURE iperf3 -P {sys.argv[2]}: {received / end['sum_received']['seconds'] / 1e6:.1f} MB/s")
# The last bytes are in the buffers of the sockets when the time is over, on a slow machine most of the bytes.
assert len(end["streams"]) == int(sys.argv[2]) and received <= sent
sys.exit(0 if received else 3)
P
}

# On a busy machine the processes may not run in the first time.
iperf() {
    local seconds status
    for seconds in $((full ? 10 : 2)) 20 60; do
        iperf_for $seconds "$@"
        status=$?
        [ $status = 3 ] || break
    done
    return $status
}

asyncio() {
    local address=$1
    serve $port python3 "$here/asyncio_echo.py" serve "$address" $port || return
    under python3 "$here/asyncio_echo.py" visit "$address" $port \
        8 $((full ? 40 : 6)) 200000
}

# The quick run has each program on one device.
chosen="redis=siw0 nginx_and_curl=rxe0 iperf:4=siw0 asyncio=rxe0"
if [ -n "$full" ]; then
    chosen=
    for program in redis nginx_and_curl iperf:1 iperf:4 asyncio; do
        chosen+=" $program=rxe0 $program=siw0"
    done
fi
for one in ${*:-$chosen}; do
    program=${one%=*} device=${one#*=}
    port=$((port + 1))
    address=10.9.9.1
    [ "$device" = rxe0 ] || address=10.9.10.1
    argument=${program#*:}
    # shellcheck disable=SC2086
    trial "$device" "$program" "${program%:*}" $address ${argument#"$program"}
done
finish
