"""A child sends all of its bytes and ends before the peer has sent any: no process waits for the
peer."""

import ctypes
import os
import select
import socket
import time

C = ctypes.CDLL(None)


def leaves_soon(process):
    """The process ends soon and with success. A wait for the peer would take longer."""
    handle = os.pidfd_open(process)
    is_over = select.select([handle], [], [], 25)[0]
    os.close(handle)
    assert is_over, "it is still there"
    ended(process)


def say(client):
    client.sendall(b"all")
    client.shutdown(socket.SHUT_WR)


def say_and_read_on(client, tell):
    say(client)
    os.write(tell, client.recv(100) + client.recv(1) + b".")


def leaves_a_child(client, tell):
    ended(forked(say, client))


def closes_before_its_child(client, tell):
    child = forked(lambda: (time.sleep(0.1), say(client)))
    client.close()
    ended(child)


def child_reads_on(client, tell):
    forked(say_and_read_on, client, tell)


def talk(server):
    """Sends to a peer that has ended, until an error is reported."""
    try:
        while True:
            server.sendall(b"?")
            time.sleep(0.01)
    except (ConnectionResetError, BrokenPipeError):
        pass


def play(way, leave, answers, talks=False):
    told, tell = os.pipe()
    go, goes = os.pipe()

    def dial(client):
        os.close(told)
        way(client, tell)
        os.read(go, 1)
        leave(0)

    server, client = connected(dial)
    os.close(tell)
    assert receive(server, 3) == b"all"
    assert server.recv(1) == b""
    os.write(goes, b".")
    if answers:
        time.sleep(0.1)
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)
    if talks:
        talk(server)
    leaves_soon(client)
    with open(told, "rb") as answer:
        assert answer.read() == (b"answer." if answers else b"")
    server.close()
    os.close(go)
    os.close(goes)


def fill(client, tell, leave):
    """Sends more bytes than the peer has received when the process ends."""
    client.setblocking(False)
    sent = 0
    try:
        while True:
            sent += client.send(bytes(65536))
    except BlockingIOError:
        os.write(tell, b"%d" % sent)
        leave(0)


def says_much(leave):
    told, tell = os.pipe()
    server, client = connected(lambda sock: fill(sock, tell, leave))
    sent = int(os.read(told, 20))
    # The client is ending.
    time.sleep(0.1)
    assert receive(server, sent) == bytes(sent)
    assert server.recv(1) == b""
    leaves_soon(client)


EXIT_GROUP = 231
by_number = lambda status: C.syscall(EXIT_GROUP, status)

for leave in (os._exit, C.exit, C.quick_exit, by_number):
    says_much(leave)
    for way in (leaves_a_child, closes_before_its_child):
        play(way, leave, False)
        play(way, leave, False, talks=True)
    play(child_reads_on, leave, True)
