"""The child of a clone by number, which calls no handlers of fork, closes its copy of a listener: the
parent continues to listen, and after the parent's close no process listens. The child gets the number
of a connection that it closed again, for another kind of socket."""

import platform

CLONE = 56 if platform.machine() == "x86_64" else 220


def clone():
    return C.syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0)


listener = socket.create_server(("127.0.0.1", 0))
service = listener.getsockname()
with socket.create_connection(service) as client:
    assert is_offloaded(client)
    listener.accept()[0].close()

closed, writer = os.pipe()
stop, go = os.pipe()
child = clone()
if child == 0:
    os.close(go)
    os.close(listener.fileno())
    os.write(writer, b".")
    os.read(stop, 1)
    os._exit(0)
assert child > 0 and os.read(closed, 1) == b"."

for _ in range(3):
    with socket.create_connection(service) as client:
        assert is_offloaded(client)
        server, _ = listener.accept()
        server.sendall(b"greeting")
        assert client.recv(8) == b"greeting"
        server.close()

# The child lives, and no longer has the listener.
listener.close()
try:
    socket.create_connection(service)
    raise AssertionError("somebody listens")
except ConnectionRefusedError:
    pass
os.close(go)
assert os.waitpid(child, 0)[1] == 0

# As in FTP servers, the pair passes descriptors.
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
assert is_offloaded(server)
child = clone()
if child == 0:
    number = server.fileno()
    server.close()
    pairs = [socket.socketpair() for _ in range(8)]
    ends = [end for pair in pairs for end in (pair, pair[::-1])]
    near, far = next(end for end in ends if end[0].fileno() == number)
    socket.send_fds(far, [b"x"], [2])
    received = socket.recv_fds(near, 1, 1)
    os._exit(0 if received[0] == b"x" and len(received[1]) == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
client.sendall(b"y")
assert server.recv(1) == b"y"
