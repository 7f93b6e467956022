"""A child that writes a snapshot holds connections and does not touch them: redis."""

import os
import select
import signal
import socket
import time

BLOCK = bytes(range(256)) * 64


def dial(client):
    for _ in range(200):
        client.sendall(BLOCK)
        assert receive(client, len(BLOCK)) == BLOCK
    # The parent has closed, and a child that holds the connection lives: no end is seen.
    assert client.recv(1) == b"c"
    assert select.select([client], [], [], 0.2)[0] == []
    client.sendall(b"kill")
    assert client.recv(1) == b""


server, client = connected(dial)
ready, release = os.pipe()
children = []
for turn in range(200):
    if turn % 50 == 10:
        # It exits while the parent goes on.
        children.append(forked(time.sleep, 0.01))
    server.sendall(receive(server, len(BLOCK)))
ended(*children)


def hold():
    # The client says when; this end is not touched before that.
    os.close(release)
    os.read(ready, 1)
    assert server.recv(10) == b"kill"
    os.kill(os.getpid(), signal.SIGKILL)


holder = forked(hold)
os.close(ready)
server.sendall(b"c")
server.close()
time.sleep(0.3)
os.close(release)
_, status = os.waitpid(holder, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
ended(client)
