#!/bin/bash
# The kernel's RDMA devices work: librdmacm's own ping over each of them.
for address in 10.9.9.1 10.9.10.1; do
    timeout 20 rping -s -a "$address" -C 3 > /dev/null 2>&1 &
    server=$!
    for _ in $(seq 50); do
        timeout 20 rping -c -a "$address" -C 3 -v > /tmp/rping 2>&1 && break
        sleep 0.2
    done
    grep -q "ping data: rdma-ping-2" /tmp/rping || { cat /tmp/rping; exit 1; }
    wait "$server" || { echo "the server on $address: status $?"; exit 1; }
done
