"""A process that has accepted a connection executes another program: all written bytes are received,
and then the peer and the new program see that the connection is broken. A failed exec changes
nothing."""

import ctypes
import os
import select
import socket
import sys
import time

if LOCAL:
    # The connection is a socket of the kernel, which the new program continues to use.
    raise SystemExit(0)

NEW_PROGRAM = """
import errno, os, sys
number, unread = int(sys.argv[2]), sys.argv[3].encode()
def read():
    try:
        return os.read(number, 100)
    except ConnectionResetError:
        return None
got = read()
# After the dup2 to standard input, the descriptor carries the bytes itself, so bytes that were received
# before the exec can be read, as with TCP.
if number == 0 and got and got == unread:
    got = read()
assert got is None, got
assert os.read(number, 100) == b""
try:
    os.write(number, b"z")
    raise AssertionError("written")
except BrokenPipeError:
    pass
os.write(int(sys.argv[1]), b"well")
"""
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
WORDS = os.urandom(400000)
UNREAD = b" than it reads"


def become(listener, tell, environment, unread, number):
    peer = listener.accept()[0]
    assert is_offloaded(peer)
    # The first attempts to execute the program fail.
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
    os.dup2(peer.fileno(), number)
    peer.close()
    os.set_inheritable(tell, True)
    words = [str(tell), str(number), UNREAD.decode() if unread else ""]
    os.execve(sys.executable, [sys.executable, "-c", NEW_PROGRAM, *words], environment)


for unread, number in ((False, 0), (True, 0), (False, 99), (True, 99)):
    for environment in (plain, dict(os.environ)):
        told, tell = os.pipe()
        started = os.pipe()

        def serve():
            listener = socket.create_server(("127.0.0.1", 0))
            os.write(started[1], str(listener.getsockname()[1]).encode())
            become(listener, tell, environment, unread, number)

        server = forked(serve)
        service = "127.0.0.1", int(os.read(started[0], 5))
        with socket.create_connection(service) as client:
            assert is_offloaded(client)
            client.sendall(b"hello")
            assert receive(client, len(WORDS)) == WORDS
            if unread:
                client.sendall(b"more" + UNREAD)
            try:
                assert not client.recv(1), "bytes of nobody"
                raise AssertionError("no reset")
            except ConnectionResetError:
                pass
        ended(server)
        assert os.read(told, 9) == b"well"

# If exec fails, bytes that are received meanwhile are still reported.
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
