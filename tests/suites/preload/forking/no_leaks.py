"""Hundreds of connections that children use leave nothing behind."""

import os


def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def dial(client):
    client.sendall(b"bytes")
    assert receive(client, 5) == b"bytes"
    assert client.recv(1) == b""


def turn(number):
    server, client = connected(dial)
    child = forked(lambda: server.sendall(receive(server, 5)))
    if number % 2:
        server.close()
        ended(child)
    else:
        # The child's end is not the connection's.
        ended(child)
        server.close()
    ended(client)


import time

for number in range(4):
    turn(number)
before = held()
for number in range(60):
    turn(number)
for _ in range(100):
    after = held()
    if after == before:
        break
    time.sleep(0.05)
assert after == before, (before, after)
