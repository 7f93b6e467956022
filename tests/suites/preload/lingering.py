"""A close that lingers ends when the last byte has left, also where the peer has ended its side long
before and nothing else changes then; and with a signal."""

import contextlib
import select
import signal
import socket
import struct
import threading
import time

MUCH = 256 << 20
LINGER = 40
QUIET = 2


def scene():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(client) and is_offloaded(server)
    return client, server


def full():
    """A connection whose reader has ended its side and takes nothing."""
    client, server = scene()
    server.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"", "the end of the peer is told before anything else"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    client.setblocking(False)
    sent = 0
    # One refused send is no sign: what drains the queue may only be late. It is full where it has
    # stayed so for a while.
    while select.select([], [client], [], QUIET)[1]:
        with contextlib.suppress(BlockingIOError):
            sent += client.send(bytes(1 << 16))
        assert sent < MUCH, "what nobody reads does not fill the connection"
    client.setblocking(True)
    return client, server, sent


def closing(client):
    began = time.monotonic()
    client.close()
    took = time.monotonic() - began
    assert took < LINGER / 2, f"the close took {took} s"


client, server, sent = full()
got = 0


def read_later():
    global got
    time.sleep(1)
    while data := server.recv(1 << 16):
        got += len(data)


reader = threading.Thread(target=read_later)
reader.start()
closing(client)
reader.join()
assert got == sent, (got, sent)

# A signal ends the wait, and the connection goes on without it.
rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
client, server, sent = full()
signal.setitimer(signal.ITIMER_REAL, 1)
closing(client)
assert rung
got = 0
read_later()
assert got == sent, (got, sent)
