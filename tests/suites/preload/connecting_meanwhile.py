"""Connecting without waiting for it: the call returns at once, and what is seen until the connection
stands, and afterwards, is what is seen of a TCP socket."""

import errno
import os
import select
import socket
import subprocess
import sys
import threading


def refused(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def begin(address):
    sock = socket.socket()
    sock.setblocking(False)
    result = sock.connect_ex(address)
    assert result == errno.EINPROGRESS, errno.errorcode.get(result, result)
    return sock


# Peers without us: the kernel's connection comes in the same place. The port mapper takes its time
# with every question, and nobody waits for it.
mapper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mapper.bind(("127.0.0.1", 3935))


def reject_all():
    while True:
        question, peer = mapper.recvfrom(64)
        if len(question) < 48:
            return
        mapper.sendto(bytes([3 << 4 | question[0] & 15, question[1], 0, 0]) + question[4:48], peer)


PLAIN_SERVER = """
import socket
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(100)]
print(*(listener.getsockname()[1] for listener in listeners), flush=True)
kept = [listener.accept() for listener in listeners]
for sock, _ in kept:
    assert sock.recv(1) == b"x"
    sock.send(b"z")
"""


def wait_in_poll(sock):
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    seen[sock] = poll.poll(20000)


def wait_in_select(sock):
    seen[sock] = select.select([], [sock], [], 20)[1]


def fall_back(ports, expected):
    socks = [begin(("127.0.0.1", port)) for port in ports]
    if "OPS_TEST_PROTOCOL" not in os.environ:
        # Those begun last, so that a busy machine has not come to a decision.
        for port, sock in list(zip(ports, socks))[-5:]:
            assert sock.getsockname()[0] == "127.0.0.1"
            assert refused(sock.getpeername) == "ENOTCONN"
            assert refused(sock.connect, ("127.0.0.1", port)) == "EALREADY"
            assert refused(sock.recv, 1) == refused(sock.send, b"x") == "EAGAIN"
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    watching = select.epoll()
    threads = []
    for number, sock in enumerate(socks):
        if number % 4 < 2:
            watching.register(sock, select.EPOLLOUT | (number % 4 and select.EPOLLET))
        elif number < 40:
            wait = wait_in_poll if number % 4 == 2 else wait_in_select
            threads.append(threading.Thread(target=wait, args=[sock]))
            threads[-1].start()
    answering = threading.Thread(target=reject_all)
    answering.start()
    waiting = {sock.fileno() for number, sock in enumerate(socks) if number % 4 < 2}
    while waiting:
        found = watching.poll(20)
        assert found, waiting
        for fd, _ in found:
            waiting.discard(fd)
            watching.unregister(fd)
    for thread in threads:
        thread.join()
    mapper.sendto(b"", mapper.getsockname())
    answering.join()
    assert all(seen.values()), seen
    for port, sock in zip(ports, socks):
        assert select.select([], [sock], [], 20)[1]
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert error == expected, (errno.errorcode.get(error), expected)
        if not expected:
            assert sock.getpeername() == ("127.0.0.1", port)
            sock.send(b"x")
    for sock in socks if not expected else []:
        sock.setblocking(True)
        assert sock.recv(1) == b"z"
        sock.close()


seen = {}
environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
plain = subprocess.Popen(
    [sys.executable, "-c", PLAIN_SERVER], env=environment, stdout=subprocess.PIPE, text=True
)
fall_back([int(port) for port in plain.stdout.readline().split()], 0)
assert plain.wait() == 0
seen = {}
fall_back(range(1, 101), errno.ECONNREFUSED)
mapper.close()


def dial(host):
    """What a program sees that connects and looks in every way."""
    told = {}
    listener = socket.create_server((host, 0))
    address = listener.getsockname()
    sock = begin(address)
    told["named"] = "0.0.0.0" not in sock.getsockname() and sock.getsockname()[1] > 0
    assert select.select([], [sock], [], 20)[1]
    told["error"] = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    told["connect"] = [refused(sock.connect, address) for _ in range(2)]
    told["peer"] = sock.getpeername() == address
    server, name = listener.accept()
    assert name == sock.getsockname()
    sock.send(b"x")
    told["carried"] = server.recv(1)
    return told


for host in ("127.0.0.1", "127.0.0.2"):
    assert dial(host) == {
        "named": True,
        "error": 0,
        "connect": [None, "EISCONN"],
        "peer": True,
        "carried": b"x",
    }, (host, dial(host))

# Every way to wait, begun before the decision and after it.
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
address = listener.getsockname()
for edge in (0, select.EPOLLET, select.EPOLLONESHOT):
    for first in (False, True):
        sock = socket.socket()
        sock.setblocking(False)
        watching = select.epoll()
        if first:
            watching.register(sock, select.EPOLLIN | select.EPOLLOUT | edge)
        assert sock.connect_ex(address) == errno.EINPROGRESS
        if not first:
            watching.register(sock, select.EPOLLIN | select.EPOLLOUT | edge)
        assert watching.poll(20) == [(sock.fileno(), select.EPOLLOUT)]
        assert bool(watching.poll(0)) == (not edge)
        watching.unregister(sock)
        listener.accept()[0].close()

# A program that waits after all, duplicates, closes.
for use in ("send", "dup", "shutdown", "close", "fork"):
    listener = socket.create_server(("127.0.0.1", 0))
    sock = begin(listener.getsockname())
    if use == "send":
        sock.setblocking(True)
        sock.sendall(b"y")
        assert listener.accept()[0].recv(1) == b"y"
    elif use == "dup":
        twin = sock.dup()
        assert select.select([], [twin], [], 5)[1]
        sock.close()
        twin.send(b"y")
        assert listener.accept()[0].recv(1) == b"y"
    elif use == "shutdown":
        sock.shutdown(socket.SHUT_WR)
        assert listener.accept()[0].recv(1) == b""
    elif use == "fork":
        if not (child := os.fork()):
            select.select([], [sock], [], 20)
            sock.send(b"y")
            os._exit(0)
        assert listener.accept()[0].recv(1) == b"y"
        assert os.waitpid(child, 0)[1] == 0
    sock.close()
