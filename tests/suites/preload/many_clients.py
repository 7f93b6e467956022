"""Connections that stay on TCP share local ports, like those of TCP, even if there are few ports."""

PORTS = 10
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
IP_BIND_ADDRESS_NO_PORT = 24

SERVER = """
import socket, sys
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in listeners), flush=True)
sys.stdin.read()
"""

# A socket that is bound without a port gets a port at connect, and both ends report that port.
with socket.create_server(("127.0.0.1", 0)) as listener:
    for bound in (False, True):
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        if bound:
            client.bind(("127.0.0.3", 0))
        client.connect(listener.getsockname())
        server, peer = listener.accept()
        assert is_offloaded(client) and is_offloaded(server)
        assert peer == client.getsockname() and peer[1] != 0, (peer, client.getsockname())
        assert peer[0] == ("127.0.0.3" if bound else "127.0.0.1"), peer
        assert client.getsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) == 1
        client.close()
        server.close()

# The protocol `local` asks no port mapper before a connect, so no port is used for that.
if not ASKS_PEERS:
    sys.exit()

plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
others = subprocess.Popen(
    [sys.executable, "-c", SERVER],
    env=plain,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
)
services = [int(port) for port in others.stdout.readline().split()]

# A range without the ports of the listeners, which are in use.
first = next(
    first
    for first in range(20000, 60000, PORTS)
    if not any(first <= port < first + PORTS for port in services)
)
with open(RANGE, "w") as ports:
    ports.write(f"{first} {first + PORTS - 1}")

held = []
for port in services:
    for _ in range(PORTS):
        client = socket.socket()
        client.connect(("127.0.0.1", port))
        assert not is_offloaded(client)
        held.append(client)
assert len(held) == PORTS * len(services)

others.stdin.close()
others.wait()
