"""A client does not contact the port of an old offer, because another program may use that port."""

# Longer than an answer of the port mapper is valid, in seconds.
LATER = 2.5

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.recv(4)
sys.stdin.read()
"""

# A program without the library: serves the service over TCP, and uses the old port for another purpose.
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
    """Offers and uses a service, and ends it. Returns its port and the port of the offload protocol."""
    before = ports()
    server = start(SERVER)
    service = int(server.stdout.readline())
    # Services of the protocol `local` have no other port.
    doors = ports() - before - {service}
    assert len(doors) == (1 if ASKS_PEERS else 0), doors
    with socket.create_connection(("127.0.0.1", service)) as client:
        assert is_offloaded(client)
        client.sendall(b"ping")
    server.communicate()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return service, doors.pop() if doors else unused.getsockname()[1]


def others():
    """Starts the other program at both ports. No program can use the server's port while the server's
    end of the connection is in TIME_WAIT, because the server has closed first."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for _ in range(20):
        service, door = serve_and_go()
        other = start(OTHER, service, door, env=plain)
        said = other.stdout.readline()
        if said != "taken\n":
            assert said == "ready\n", said
            return service, other
    raise AssertionError("no port that was free again")


# This listener keeps the host's port mapper running.
stays = socket.create_server(("127.0.0.1", 0))
service, other = others()
time.sleep(LATER)
with socket.create_connection(("127.0.0.1", service)) as client:
    assert not is_offloaded(client)
    said = other.stdout.readline()
    assert said == "plain\n", said
