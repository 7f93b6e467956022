#!/bin/bash
# Programs of the suite itapi over both devices, by our provider and by OFA's.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=$(cd "$(dirname "$0")/../../c" && pwd)
for program in connect transfer; do
    gcc -std=gnu11 -O1 -Wall -Wextra -Werror -I "$DAT_STAGE/include" -o "$work/$program" \
        "$sources/itapi_$program.c" -L "$DAT_STAGE/lib" -litapi || exit 1
done
export LD_LIBRARY_PATH=$DAT_STAGE/lib DAT_OVERRIDE=$work/dat.conf
{
    echo "ib-rxe u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0 \"r0 0\" \"\""
    echo "ib-siw u2.0 nonthreadsafe default $DAT_STAGE/lib/libdapl-ib.so.2 dat-rs.1.0 \"w0 0\" \"\""
    echo "ofa-rxe u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"r0 0\" \"\""
} > "$DAT_OVERRIDE"
failed=0

# trials ADAPTER PROGRAM TRIAL...
trials() {
    local adapter=$1 program=$2 trial
    shift 2
    for trial; do
        if ITAPI_ADAPTER=$adapter timeout 240 "$work/$program" "$trial" > "$work/out" 2>&1; then
            echo "ok $adapter $program $trial"
        else
            echo "FAILED $adapter $program $trial"
            sed 's/^/    /' "$work/out"
            failed=1
        fi
    done
}

trials ib-rxe connect life reject no-listener refused
trials ib-rxe transfer sends rdma atomics wide-window shared-queue
trials ib-siw connect life reject
trials ib-siw transfer sends
# Completions of OFA's provider do not name the operation, except for atomics.
trials ofa-rxe connect life reject
trials ofa-rxe transfer atomics
exit $failed
