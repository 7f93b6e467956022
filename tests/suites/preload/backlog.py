"""A server that does not accept keeps no more peers than its backlog; later they all are served."""

import os
import select
import socket
import sys
import time
import traceback

BACKLOG = 1
# What has no place within the host waits at the kernel's TCP, which lets it in seconds later.
CLIENTS = 2 * (BACKLOG + 1) if LOCAL else 40


def dial(ports, ends):
    """All at once, each waiting for its greeting."""
    port = int(os.read(ports, 16))
    clients = [socket.socket() for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
    for client in clients:
        client.settimeout(DEADLINE)
        assert select.select([], [client], [], DEADLINE)[1], "never connected"
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        client.sendall(b"?")
    for client in clients:
        assert client.recv(1) == b"!"
    os.read(ends, 1)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


ports, port = os.pipe()
ends, end = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.close(end)
        dial(ports, ends)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)

listener = socket.socket()
listener.bind(("0.0.0.0", 0))
listener.listen(BACKLOG)
before = descriptors()
os.write(port, str(listener.getsockname()[1]).encode())
most = 0
until = time.monotonic() + 2
while time.monotonic() < until:
    most = max(most, descriptors() - before)
    time.sleep(0.02)
# What waits, and what comes to waiting, each with what its connection needs, and threads of ours.
assert most < 60, f"{most} descriptors for {CLIENTS} peers that nobody accepts"

listener.settimeout(DEADLINE)
accepted = []
for _ in range(CLIENTS):
    accepted.append(listener.accept()[0])
offloaded = sum(is_offloaded(sock) for sock in accepted)
assert offloaded > BACKLOG, f"{offloaded} were offloaded"
for sock in accepted:
    sock.settimeout(DEADLINE)
    assert sock.recv(1) == b"?"
    sock.sendall(b"!")
os.close(end)
assert os.waitpid(child, 0)[1] == 0
