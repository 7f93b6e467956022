"""Hundreds of connections that children use leave nothing behind."""

import os
import time


def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def settled():
    """What is held when connections that are over have had time to go."""
    seen, same = held(), 0
    while same < 20:
        time.sleep(0.05)
        now = held()
        seen, same = now, same + 1 if now == seen else 0
    return seen


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


for number in range(4):
    turn(number)
before = settled()
for number in range(60):
    turn(number)


def nothing_is_left():
    return all(now <= then for now, then in zip(held(), before))


until(nothing_is_left, f"more than the {before} from before")
