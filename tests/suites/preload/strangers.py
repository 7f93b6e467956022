"""Where a service was offered long ago, nobody is spoken to any more: its port may be another's."""

import os
import socket
import subprocess
import sys
import time

# Longer than an answer is believed.
LATER = 2.5

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.recv(4)
sys.stdin.read()
"""

# Knows nothing of us, serves the service over TCP, and has got the port for something else.
OTHER = """
import errno, select, socket, sys
try:
    plain, strange = (socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:])
except OSError as error:
    assert error.errno == errno.EADDRINUSE
    print("taken", flush=True)
    sys.exit()
print("ready", flush=True)
ready, _, _ = select.select([plain, strange], [], [])
print("strange" if strange in ready else "plain", flush=True)
"""


def ports():
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A"}


def start(script, *arguments, **settings):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, **settings)


def serve_and_go():
    """A service that was used, and the port at which its process was found beside it."""
    before = ports()
    server = start(SERVER)
    service = int(server.stdout.readline())
    # Services of the protocol for tests have no ports.
    doors = ports() - before - {service}
    assert len(doors) == (1 if ASKS_PEERS else 0), doors
    with socket.create_connection(("127.0.0.1", service)) as client:
        assert is_offloaded(client)
        client.sendall(b"ping")
    server.communicate()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return service, doors.pop() if doors else unused.getsockname()[1]


def others():
    """A stranger at both ports. While the server's end of the connection is in TIME_WAIT, which it is
    where it was the first to close, nobody gets its port."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for _ in range(20):
        service, door = serve_and_go()
        other = start(OTHER, service, door, env=plain)
        said = other.stdout.readline()
        if said != "taken\n":
            assert said == "ready\n", said
            return service, other
    raise AssertionError("no port that was free again")


# This one stays, and so does the host's port mapper.
stays = socket.create_server(("127.0.0.1", 0))
service, other = others()
time.sleep(LATER)
with socket.create_connection(("127.0.0.1", service)) as client:
    assert not is_offloaded(client)
    said = other.stdout.readline()
    assert said == "plain\n", said
