"""Both directions of a connection that a child has inherited have ended: the process that made the
connection can end when all bytes were read, and its child can still read the rest."""

import ctypes
import os
import select
import socket
import time

C = ctypes.CDLL(None)
REST = b"the rest"


def leaves_soon(process):
    """The process ends soon and with success. A wait for the peer would take longer."""
    handle = os.pidfd_open(process)
    is_over = select.select([handle], [], [], 25)[0]
    os.close(handle)
    assert is_over, "it is still there"
    ended(process)


def read_all(client, go, tell):
    os.read(go, 1)
    got = bytearray()
    while chunk := client.recv(100):
        got += chunk
    os.write(tell, bytes(got) + b".")


def end(client):
    assert client.recv(1) == b""
    client.shutdown(socket.SHUT_WR)


def child_is_gone(client, go, tell):
    ended(forked(lambda: None))
    end(client)
    os.write(tell, b".")


def shut_before_the_child(client, go, tell):
    client.shutdown(socket.SHUT_WR)
    ended(forked(lambda: None))
    assert client.recv(1) == b""
    os.write(tell, b".")


def child_reads_the_end(client, go, tell):
    forked(read_all, client, go, tell)
    end(client)
    client.close()


def child_reads_the_rest(client, go, tell):
    client.shutdown(socket.SHUT_WR)
    # The bytes and the end of the stream have been received.
    time.sleep(0.3)
    forked(read_all, client, go, tell)
    client.close()


def leaves_open(client, go, tell):
    """The exit of the process closes the connection."""
    client.shutdown(socket.SHUT_WR)
    forked(read_all, client, go, tell)


def play(way, leave, says, awaits_child, pause):
    told, tell = os.pipe()
    go, starts = os.pipe()

    def dial(client):
        os.close(starts)
        way(client, go, tell)
        leave(0)

    server, client = connected(dial)
    os.close(tell)
    os.close(go)
    time.sleep(pause)
    server.sendall(says)
    server.shutdown(socket.SHUT_WR)
    if not awaits_child:
        leaves_soon(client)
    os.close(starts)
    with open(told, "rb") as answer:
        got = answer.read()
    assert got == says + b".", (way.__name__, got)
    if awaits_child:
        leaves_soon(client)
    server.close()


for leave in (os._exit, C.exit):
    # The peer sends before the fork, or after the close.
    for pause in (0, 0.6):
        # No bytes are left to read, so the process must not wait for a child.
        for way in (child_is_gone, shut_before_the_child, child_reads_the_end):
            play(way, leave, b"", False, pause)
        for way in (child_reads_the_rest, leaves_open):
            play(way, leave, REST, True, pause)
