"""Counts the descriptors and the memory that connections cost at each end.

serve ADDRESS PORT | visit ADDRESS PORT COUNT
Each end opens one connection, counts its resources, and then opens COUNT more connections, which stay open and
carry bytes. It prints DESCRIPTORS, the additional descriptors of each connection, and RSS and LCK in kB of each.
"""
import os
import socket
import sys


def usage():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    kib = [int(lines[name].split()[0]) for name in ("VmRSS", "VmLck", "VmPin")]
    return [len(os.listdir("/proc/self/fd")), *kib]


def report(before, after, count):
    fds, rss, locked, pinned = ((it - was) / count for it, was in zip(after, before))
    print(f"DESCRIPTORS {fds - 1:.2f} RSS {rss:.0f} LCK {locked:.0f} PIN {pinned:.0f}", flush=True)


role, address, count = sys.argv[1], (sys.argv[2], int(sys.argv[3])), int(sys.argv[4])
peers = []
if role == "serve":
    listener = socket.create_server(address, backlog=64)
for at in range(count + 1):
    peer = listener.accept()[0] if role == "serve" else socket.create_connection(address)
    peers.append(peer)
    if role == "serve":
        peer.sendall(peer.recv(100))
    else:
        peer.sendall(b"one")
        assert peer.recv(100) == b"one"
    if at == 0:
        before = usage()
report(before, usage(), count)
if role == "serve":
    for peer in peers:
        peer.recv(1)
else:
    print("OPEN", flush=True)
    sys.stdin.readline()
