#!/bin/bash
# PostgreSQL under opsrun, server and psql on one RDMA device: rows are inserted through the device, and their
# checksum is computed at both ends. The server accepts in one process and serves in another, a child.
#
# The job takes long, so without arguments it runs in full runs only.
#
#   sdp-postgresql [DEVICE=ADDRESS...]
. "$(dirname "$0")/../programs/sdp.sh"
port=7200
full=${STACK_TESTS_FULL:-}
if [ -z "$full$*" ]; then
    echo "part of a full run"
    exit 0
fi
programs=$(echo /usr/lib/postgresql/*/bin)
[ -x "$programs/postgres" ] || { echo "NOT RUN: no PostgreSQL"; exit 0; }
rm -rf "$work/database"
install -d -o postgres -m 700 "$work/database"
install -d -o postgres "$work/unix"

as_postgres() {
    setpriv --reuid postgres --regid postgres --clear-groups "$@"
}

# The transaction log is as short as possible, because files are in memory.
if ! as_postgres timeout $limit "$programs/initdb" -D "$work/database" -A trust --no-sync --no-instructions \
    --locale=C --wal-segsize=1 > "$work/initdb" 2>&1; then
    cat "$work/initdb"
    exit 1
fi
echo "host all all 10.9.0.0/16 trust" >> "$work/database/pg_hba.conf"

is_ready() {
    grep -q "ready to accept connections" "$work/server"
}

# psql_at ADDRESS ARGUMENT...
psql_at() {
    local address=$1
    shift
    under "$programs/psql" -h "$address" -p $port -U postgres -qAtX \
        -v ON_ERROR_STOP=1 "$@" postgres
}

rows() {
    local address=$1 rows=$((full ? 20000 : 2000)) there
    serve $port setpriv --reuid postgres --regid postgres --clear-groups "$programs/postgres" \
        -D "$work/database" -h "$address" -p $port -k "$work/unix" -F || return
    wait_until is_ready || return
    # About a kilobyte each.
    python3 -c "
import random
noise = random.Random(7)
for row in range($rows):
    print(row, noise.randbytes(500).hex(), sep='\t')" > "$work/rows"
    {
        echo "DROP TABLE IF EXISTS kept; CREATE TABLE kept (id int PRIMARY KEY, bytes text);"
        echo "COPY kept FROM STDIN;"
        cat "$work/rows"
        echo "\\."
        echo "INSERT INTO kept SELECT id + 1000000, reverse(bytes) FROM kept;"
    } > "$work/script"
    psql_at "$address" -f "$work/script" || return
    there=$(psql_at "$address" -c "SELECT count(*), md5(string_agg(bytes, '' ORDER BY id)) FROM kept WHERE id < 1000000") || return
    [ "$there" = "$rows|$(cut -f 2 "$work/rows" | tr -d '\n' | md5sum | cut -d ' ' -f 1)" ] || { echo "other: $there"; return 1; }
    # All rows are read back.
    psql_at "$address" -c "COPY (SELECT id, bytes FROM kept WHERE id < 1000000 ORDER BY id) TO STDOUT" | cmp - "$work/rows"
}

for device in ${*:-rxe0=10.9.9.1 siw0=10.9.10.1}; do
    port=$((port + 1))
    trial "${device%=*}" postgresql rows "${device#*=}"
done
finish
