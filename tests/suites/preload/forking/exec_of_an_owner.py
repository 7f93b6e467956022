"""A program that has accepted a connection becomes another one: what it wrote arrives, and then both
sides see that the connection is broken, the peer and the new program. An exec that fails changes
nothing."""

import ctypes
import os
import select
import socket
import sys
import time

if LOCAL:
    # The connection is the kernel's, and the new program goes on with it.
    raise SystemExit(0)

NEW_PROGRAM = """
import errno, os, sys
try:
    got = os.read(0, 100)
except ConnectionResetError:
    got = None
assert got is None, got
assert os.read(0, 100) == b""
try:
    os.write(0, b"z")
    raise AssertionError("written")
except BrokenPipeError:
    pass
os.write(int(sys.argv[1]), b"well")
"""
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
WORDS = os.urandom(400000)


def become(listener, tell, environment, unread):
    peer = listener.accept()[0]
    assert is_offloaded(peer)
    # The program that comes is not found at first.
    for _ in range(3):
        try:
            os.execve("/nowhere/program", ["program"], environment)
        except FileNotFoundError:
            pass
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    assert poll.poll(DEADLINE * 1000) and receive(peer, 5) == b"hello"
    peer.sendall(WORDS)
    if unread:
        assert receive(peer, 4) == b"more"
        assert poll.poll(DEADLINE * 1000)
    os.dup2(peer.fileno(), 0)
    peer.close()
    os.set_inheritable(tell, True)
    os.execve(sys.executable, [sys.executable, "-c", NEW_PROGRAM, str(tell)], environment)


for unread in (False, True):
    for environment in (plain, dict(os.environ)):
        told, tell = os.pipe()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        started = os.pipe()

        def serve():
            listener.listen()
            os.write(started[1], b"x")
            become(listener, tell, environment, unread)

        server = forked(serve)
        os.read(started[0], 1)
        with socket.create_connection(listener.getsockname()) as client:
            assert is_offloaded(client)
            client.sendall(b"hello")
            assert receive(client, len(WORDS)) == WORDS
            if unread:
                client.sendall(b"more than it reads")
            try:
                assert not client.recv(1), "bytes of nobody"
                raise AssertionError("no reset")
            except ConnectionResetError:
                pass
        ended(server)
        assert os.read(told, 9) == b"well"
        listener.close()

# It fails, and bytes that come meanwhile are told of.
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
peer = listener.accept()[0]
watching = select.epoll()
watching.register(peer, select.EPOLLIN | select.EPOLLET)
execl = ctypes.CDLL(None).execl


def with_words_as_arguments(program, words):
    assert execl(program.encode(), words[0].encode(), None) == -1
    raise FileNotFoundError


for name in (os.execv, os.execvp, with_words_as_arguments):
    try:
        name("/nowhere/program", ["program"])
    except FileNotFoundError:
        pass
    client.sendall(b"now")
    assert watching.poll(DEADLINE), name
    assert receive(peer, 3) == b"now"
