"""Listeners within the host that other processes use: no client waits without end."""

SERVES = """
import socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    peer = listener.accept()[0]
    peer.sendall(b"served by another")
    peer.close()
"""


def greeted(client):
    client.settimeout(DEADLINE)
    said = b""
    while chunk := client.recv(100):
        said += chunk
    return said


def dial(listener):
    client = socket.create_connection(listener.getsockname())
    return client, is_offloaded(client)


# A child accepts after its parent has closed the listener. After that, no process listens.
listener = socket.create_server(("127.0.0.1", 0))
service = listener.getsockname()
child = os.fork()
if child == 0:
    peer = listener.accept()[0]
    peer.sendall(b"served by the child")
    os._exit(0)
listener.close()
client = socket.create_connection(service)
assert is_offloaded(client) and greeted(client) == b"served by the child"
os.waitpid(child, 0)
try:
    socket.create_connection(service)
    raise AssertionError("somebody listens")
except ConnectionRefusedError:
    pass

# Another program with the library gets the listener and its waiting clients by `exec`.
listener = socket.create_server(("127.0.0.1", 0))
waiting = [dial(listener) for _ in range(2)]
child = os.fork()
if child == 0:
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-c", SERVES, str(listener.fileno()), "3"])
waiting.append(dial(listener))
for client, offloaded in waiting:
    assert offloaded and greeted(client) == b"served by another"
assert os.waitpid(child, 0)[1] == 0
# This process still listens.
client, offloaded = dial(listener)
assert offloaded
listener.accept()[0].close()
assert greeted(client) == b""

# The same with `posix_spawn`.
child = os.posix_spawn(
    sys.executable,
    [sys.executable, "-c", SERVES, str(listener.fileno()), "1"],
    os.environ,
    file_actions=[],
) if os.set_inheritable(listener.fileno(), True) is None else 0
client, offloaded = dial(listener)
assert greeted(client) == b"served by another"
assert os.waitpid(child, 0)[1] == 0
listener.close()

# A program without the library accepts TCP connections only, so all clients use TCP from now on.
listener = socket.create_server(("127.0.0.1", 0))
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
ready, writer = os.pipe()
child = os.fork()
if child == 0:
    os.set_inheritable(listener.fileno(), True)
    os.set_inheritable(writer, True)
    text = f"import os; os.write({writer}, b'.')\n" + SERVES
    os.execve(sys.executable, [sys.executable, "-c", text, str(listener.fileno()), "1"], plain)
os.read(ready, 1)
client, offloaded = dial(listener)
assert not offloaded and greeted(client) == b"served by another"
assert os.waitpid(child, 0)[1] == 0
# This process accepts such clients, too.
client, offloaded = dial(listener)
assert not offloaded
listener.accept()[0].close()
listener.close()

# A listener is passed: the waiting client is served, and later clients use TCP.
listener = socket.create_server(("127.0.0.1", 0))
before, offloaded = dial(listener)
assert offloaded
ours, theirs = socket.socketpair(socket.AF_UNIX)
socket.send_fds(ours, [b"."], [listener.fileno()])
later, offloaded = dial(listener)
assert not offloaded
passed = socket.recv_fds(theirs, 1, 1)[1][0]
other = socket.socket(fileno=passed)
listener.accept()[0].sendall(b"first")
other.accept()[0].sendall(b"second")
# A client that has waited for long is offered over TCP, behind the later one.
assert {greeted(before), greeted(later)} == {b"first", b"second"}

# A listener that was shut down, and listens again.
for sock in (other, listener):
    sock.close()
listener = socket.create_server(("127.0.0.1", 0))
listener.shutdown(socket.SHUT_RDWR)
listener.listen()
client, _ = dial(listener)
listener.accept()[0].close()
assert greeted(client) == b""

# A program finds its own listener at once, also at a port where nobody listened a moment ago.
with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    address = unused.getsockname()
assert refused(lambda: dial_nobody(address)) == errno.ECONNREFUSED
with socket.create_server(address) as listener, socket.create_connection(address) as client:
    assert is_offloaded(client)
