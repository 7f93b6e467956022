"""The child of a clone by number uses a connection that its parent has accepted and closed, as a
session of an FTP server does. Its descendants use the connection too."""

import platform

CLONE = 56 if platform.machine() == "x86_64" else 220
CLONE_NEWPID = 0x20000000
DATA = os.urandom(300000)


def clone(flags):
    child = C.syscall(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return child


def dial(server):
    server.sendall(b"hello")
    assert receive(server, len(DATA)) == DATA
    server.sendall(DATA[::-1])
    server.shutdown(socket.SHUT_WR)
    assert server.recv(10) == b"bye"
    assert server.recv(10) == b""


def end_session(peer):
    assert receive(peer, len(DATA)) == DATA[::-1]
    assert peer.recv(1) == b""
    peer.sendall(b"bye")


def serve(peer, fork):
    assert is_offloaded(peer)
    assert peer.recv(5) == b"hello"
    peer.sendall(DATA)
    ended(forked(end_session, peer, fork=fork))


kinds = [lambda: clone(0), lambda: clone(CLONE_NEWPID)]
for make in kinds:
    for fork in (os.fork, make):
        peer, client = connected(dial)
        try:
            session = forked(serve, peer, fork, fork=make)
        except PermissionError:
            # Only privileged programs can make namespaces.
            session = forked(serve, peer, fork)
        peer.close()
        ended(session, client)

# The parent continues to accept.
peer, client = connected(lambda server: server.sendall(b"x"))
assert is_offloaded(peer) and peer.recv(1) == b"x" and peer.recv(1) == b""
peer.close()
ended(client)
