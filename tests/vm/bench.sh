#!/bin/bash
# Latency and bandwidth in one guest: the software provider with and without CRC (siw uses CRC only if
# the peer requests it), siw and rxe through provider-ib, each with raw TCP in the same rounds, and
# siw through perftest. `cargo xtask vm bench` runs this script and makes a table of its output:
#
#   == CONTENDER          the rows of `dat-bench --json` of the contender follow, one a line
#   perftest CASE: FIGURE in the unit of dat-bench's row of that name
#
# This script is not in `jobs`, because figures are not a test. All addresses belong to this machine, so
# TCP, and iWARP over TCP, uses the loopback device, whatever device has the address.
rounds=${1:-3}
work=/tmp/bench
address=10.9.10.1
port=18600
mkdir -p "$work"

# The software provider uses TCP only, because siw and rxe are compared with TCP.
for contender in "soft iwarp w0 local=off" "soft-no-crc iwarp w0 local=off crc=off" "siw ib w0" "rxe ib r0"; do
    read -r name provider device settings <<< "$contender"
    echo "$name u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-$provider.so.2 dat-rs.1.0" \
        "\"$device 0 $settings\" \"\""
done > "$work/dat.conf"
pings=send-ping:64:1,blocked-ping:64:1,write-ping:64:1,read-ping:64:1
bulk=
for size in 65536 1048576; do
    bulk+=,send:$size:16,write:$size:16,read:$size:16
done

# Each process of dat-bench and of perftest is bound to a processor: otherwise two polling processes may
# share a processor for a while, and the figures of a round would be random.
#
# dat-bench starts itself a second time by the path that the kernel reports, which may be wrong for a
# file of the host.
cp "$DAT_STAGE/bin/dat-bench" "$work/"

dat_bench() {
    rm -f "$work/rows"
    DAT_OVERRIDE=$work/dat.conf LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_LOG=error timeout 600 \
        "$work/dat-bench" --no-namespace --rounds "$rounds" --sample-ms 200 --json "$work/rows" --ia "$@" ||
        echo "$1: exit status $?"
}

# A polling consumer competes for its processor with the kernel threads that send its data, so bulk is
# also measured with sleeping consumers, under separate titles.
for name in soft soft-no-crc siw rxe; do
    echo "== $name"
    dat_bench $name --cases "$pings$bulk"
    cat "$work/rows"
    dat_bench $name --cases "${bulk#,}" --sleep-on-bulk
    sed 's/, 16 queued"/, 16, blocking"/' "$work/rows"
done

listens() {
    rdma resource show cm_id | grep -q "state LISTEN.*:$port "
}

# perftest CASE FORMULA TOOL ARGUMENT...: the formula converts the tool's figure to dat-bench's unit.
perftest() {
    local case=$1 formula=$2
    shift 2
    port=$((port + 1))
    taskset -c 0 timeout 160 "$@" -R -F -p $port > "$work/server" 2>&1 &
    for _ in $(seq 600); do
        listens && break
        sleep 0.1
    done
    listens || echo "perftest $case: nobody listens" >&2
    if taskset -c 1 timeout 90 "$@" -R -F -p $port $address > "$work/client" 2>&1; then
        # The last line that contains only a figure.
        awk -v title="$case" '/^[ \t]*[0-9.]+[ \t]*$/ { it = $1 }
            END { if (it) printf "perftest %s: %.6f\n", title, '"$formula"' }' "$work/client"
    else
        echo "perftest $case failed"
        tail -n 5 "$work/client" "$work/server"
    fi
    wait
}

echo "== perftest"
# Latency is half a round trip; a read takes a whole one. MiB/s is converted to GB/s.
perftest "64 B send ping-pong" it ib_send_lat -s 64 -n 100 --output=latency
perftest "64 B send ping-pong, blocking" it ib_send_lat -e -s 64 -n 100 --output=latency
perftest "64 B RDMA write ping-pong" it ib_write_lat -s 64 -n 100 --output=latency
perftest "64 B RDMA read, one at a time" it/2 ib_read_lat -s 64 -n 100 --output=latency
for size in "64 KiB:65536:500" "1 MiB:1048576:50"; do
    IFS=: read -r title bytes count <<< "$size"
    # siw ends a connection without a posted receive, so all receives are posted at once.
    perftest "$title send, 16 queued" it*1.048576e-3 \
        ib_send_bw -s "$bytes" -n "$count" -t 16 -r "$count" --output=bandwidth
    perftest "$title RDMA write, 16 queued" it*1.048576e-3 \
        ib_write_bw -s "$bytes" -n "$count" -t 16 --output=bandwidth
    perftest "$title RDMA read, 16 queued" it*1.048576e-3 \
        ib_read_bw -s "$bytes" -n "$count" -t 16 --output=bandwidth
done
