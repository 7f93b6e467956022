"""Connections of a child that end: in order, by a reset, or before the child has read all bytes."""

RESET = struct.pack("ii", 1, 0)


def half_closed_early(client):
    client.sendall(b"request")
    client.shutdown(socket.SHUT_WR)
    assert receive(client, 12) == b"done request"
    assert client.recv(1) == b""


def answer(peer):
    got = bytearray()
    while chunk := peer.recv(3):
        got += chunk
    peer.sendall(b"done " + got)


# The peer's bytes and its end were received before the fork, and were not read.
server, client = connected(half_closed_early)
time.sleep(0.1)
child = forked(answer, server)
server.close()
ended(child, client)

# As before, but the end is received between the fork and the child's first read.
server, client = connected(half_closed_early)
child = forked(lambda peer: (time.sleep(0.2), answer(peer)), server)
server.close()
ended(child, client)


# The peer resets: bytes first, then the error, then the end.
def reset(client):
    client.sendall(b"bytes")
    assert client.recv(2) == b"go"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def see_reset(peer):
    assert receive(peer, 5) == b"bytes"
    peer.sendall(b"go")
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    events = poll.poll(DEADLINE * 1000)[0][1]
    assert events & select.POLLERR and events & select.POLLHUP, events
    try:
        peer.recv(10)
        raise AssertionError("no reset")
    except ConnectionResetError:
        pass
    assert peer.recv(10) == b""


# A Unix socket causes a reset only if it is closed with unread bytes.
if not LOCAL:
    server, client = connected(reset)
    child = forked(see_reset, server)
    server.close()
    ended(child, client)


# The child resets, or closes with unread bytes: the peer sees a reset.
def be_reset(client):
    client.sendall(b"unread bytes")
    poll = select.poll()
    poll.register(client, select.POLLIN)
    poll.poll(DEADLINE * 1000)
    try:
        while client.recv(10):
            pass
        raise AssertionError("no reset")
    except ConnectionResetError:
        pass


def close_by_reset(peer):
    receive(peer, 12)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


def leave_unread(peer):
    receive(peer, 6)
    peer.close()


for way in (leave_unread,) if LOCAL else (close_by_reset, leave_unread):
    server, client = connected(be_reset)
    child = forked(way, server)
    server.close()
    ended(child, client)


# The child shuts down its sending direction and continues to read.
def read_then_send(client):
    got = bytearray()
    while chunk := client.recv(100):
        got += chunk
    client.sendall(bytes(reversed(got)))


def shut_down(peer):
    peer.sendall(b"forwards")
    peer.shutdown(socket.SHUT_WR)
    assert receive(peer, 8) == b"sdrawrof"
    assert peer.recv(1) == b""


server, client = connected(read_then_send)
child = forked(shut_down, server)
server.close()
ended(child, client)
