"""The names of connections in a program that was started by exec: sshd, inetd's children."""

import json

SEND_NAMES = """
import json, socket, sys
if sys.argv[1] == "passed":
    door = socket.socket(socket.AF_UNIX, fileno=int(sys.argv[2]))
    _, [number], _, _ = socket.recv_fds(door, 1, 1)
else:
    number = int(sys.argv[1])
# No family is given: Python asks the socket.
peer = socket.socket(fileno=number)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
names = {
    "family": peer.family,
    "protocol": peer.proto,
    "local": peer.getsockname(),
    "peer": peer.getpeername(),
    "delay": peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
}
here, there = socket.socketpair()
assert here.family == socket.AF_UNIX and here.getpeername() == "", here
peer.sendall(json.dumps(names).encode())
"""


def receive_names(client):
    got = b""
    while chunk := client.recv(1000):
        got += chunk
    return json.loads(got)


def by_exec(server):
    os.dup2(server.fileno(), 0)
    os.execv(sys.executable, [sys.executable, "-c", SEND_NAMES, "0"])


def after_a_fork(server):
    ended(forked(by_exec, server))


def by_spawn(server):
    subprocess.run([sys.executable, "-c", SEND_NAMES, "0"], stdin=server, check=True)


def passed(server):
    here, there = socket.socketpair()
    command = [sys.executable, "-c", SEND_NAMES, "passed", str(there.fileno())]
    child = subprocess.Popen(command, pass_fds=[there.fileno()])
    there.close()
    socket.send_fds(here, [b"x"], [server.fileno()])
    assert child.wait() == 0


for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for way in (after_a_fork, by_spawn, passed):
        listener = socket.create_server((host, 0), family=family)
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
        assert is_offloaded(server), (family, way)
        expected = {
            "family": family,
            "protocol": socket.IPPROTO_TCP,
            "local": list(server.getsockname()),
            "peer": list(server.getpeername()),
            "delay": 1,
        }
        way(server)
        server.close()
        answer = receive_names(client)
        assert answer == expected, (way, answer, expected)
        client.close()
        listener.close()
