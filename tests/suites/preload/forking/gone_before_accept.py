"""A client that has connected, written and ended before the accept is still accepted, and its bytes
can be read."""

import os
import select
import signal
import socket
import time

CLIENTS = 5


def says_and_exits(address):
    client = socket.create_connection(address)
    client.sendall(b"said")


def says_and_closes(address):
    with socket.create_connection(address) as client:
        client.sendall(b"said")


def shuts_and_waits(address):
    with socket.create_connection(address) as client:
        client.sendall(b"said")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def says_and_is_killed(address):
    client = socket.create_connection(address)
    client.sendall(b"said")
    # The kernel sends the bytes of a killed process, but a provider in user space ends with it.
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


for way in (says_and_exits, says_and_closes, shuts_and_waits, says_and_is_killed):
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [forked(way, listener.getsockname()) for _ in range(CLIENTS)]
    if way is not shuts_and_waits:
        for client in clients:
            os.waitpid(client, 0)
    for _ in clients:
        assert select.select([listener], [], [], DEADLINE)[0], way.__name__
        peer, _ = listener.accept()
        assert is_offloaded(peer), way.__name__
        with peer:
            assert receive(peer, 4) == b"said", way.__name__
            if way is not says_and_is_killed:
                assert peer.recv(1) == b"", way.__name__
    if way is shuts_and_waits:
        ended(*clients)
    listener.close()
