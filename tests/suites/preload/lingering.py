"""A close that lingers ends when the last byte has left, also where the peer has ended its side long
before and nothing else changes then; and with a signal."""

import signal
import socket
import struct
import threading

# Longer than the suite waits: a close that does not end by itself hangs.
LINGER = 3600


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
    return client, server, fill(client)


client, server, sent = full()
got = 0


def read_all():
    global got
    while data := server.recv(1 << 16):
        got += len(data)


reader = while_asleep(read_all)
client.close()
reader.join()
assert got == sent, (got, sent)

# A signal ends the wait, and the connection goes on without it.
rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
client, server, sent = full()
main = threading.get_ident()
ringing = while_asleep(lambda: signal.pthread_kill(main, signal.SIGALRM))
client.close()
ringing.join()
assert rung
got = 0
read_all()
assert got == sent, (got, sent)
