"""A process ends while its other threads are in calls on its connections. The threads see neither an
error nor an end, and the process ends with its own status."""

import ctypes
import os
import select
import signal
import socket
import threading
import time

C = ctypes.CDLL(None)
STATUS = 7

EXIT_GROUP = 231
exit_by_number = lambda status: C.syscall(EXIT_GROUP, status)


def never_returns(call, *arguments):
    """Runs a call in a thread. If the call returns, the process ends with a wrong status."""

    def run():
        try:
            print("a call returned:", call.__name__, call(*arguments), flush=True)
        except OSError as error:
            print("a call failed:", call.__name__, error, flush=True)
        os._exit(9)

    threading.Thread(target=run, daemon=True).start()


def send_for_ever(client):
    while True:
        client.send(bytes(65536))


def send_when_there_is_room(client):
    while True:
        select.select([], [client], [])
        try:
            client.send(bytes(1000), socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass


def wait_for_an_event(client):
    poll = select.poll()
    poll.register(client, select.POLLIN | select.POLLRDHUP)
    return poll.poll()


def receive_one(client):
    return client.recv(1)


def run(leave):
    reports, report = os.pipe()

    def dial(client):
        # Python ignores the signal.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        calls = send_for_ever, send_when_there_is_room, wait_for_an_event, receive_one
        for call in calls:
            never_returns(call, client)
        # The connection is full, so that its end waits for the peer.
        until(lambda: not select.select([], [client], [], 0)[1], "the connection is never full")
        os.write(report, b".")
        leave(STATUS)

    server, client = connected(dial)
    os.close(report)
    assert os.read(reports, 1) == b"."
    # The process is ending, and its threads are in their calls.
    time.sleep(0.3)
    received = 0
    while chunk := server.recv(1 << 20):
        received += len(chunk)
    assert received > 0
    _, status = os.waitpid(client, 0)
    assert status == STATUS << 8, (leave, status)
    server.close()
    os.close(reports)


for leave in (C.exit, C.quick_exit, os._exit, exit_by_number):
    run(leave)
