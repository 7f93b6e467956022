"""The child of a clone by number, which calls no handlers of fork, closes its copy of a listener: the
parent continues to listen, and after the parent's close no process listens."""

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
