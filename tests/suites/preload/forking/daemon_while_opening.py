"""A server becomes a daemon while its first connection opens the adapter, and connects all the same."""

import ctypes
import os
import signal
import socket
import time

libc = ctypes.CDLL(None)


def greets(address):
    # It has the listener too, so that it hears of no end when the server is gone before.
    signal.alarm(DEADLINE)
    # The server may be gone by then.
    try:
        with socket.create_connection(address) as client:
            client.recv(1)
    except OSError:
        pass


def become_daemon(answers, pause):
    listener = socket.create_server(("127.0.0.1", 0))
    forked(greets, listener.getsockname())
    time.sleep(pause)
    # The process that called it exits within.
    assert libc.daemon(1, 1) == 0
    with socket.create_connection(answers) as client:
        client.sendall(b"said")
        assert client.recv(1) == b""


for number in range(24):
    with socket.create_server(("127.0.0.1", 0)) as answers:
        ended(forked(become_daemon, answers.getsockname(), 0.001 * (number % 12)))
        peer, _ = answers.accept()
        with peer:
            assert receive(peer, 4) == b"said"
