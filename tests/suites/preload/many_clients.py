"""Connections that stay on TCP share local ports as TCP's own do, however few there are."""

import os
import socket
import subprocess
import sys

PORTS = 10
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
IP_BIND_ADDRESS_NO_PORT = 24

SERVER = """
import socket, sys
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in listeners), flush=True)
sys.stdin.read()
"""

# A socket that takes no port when it is bound gets one all the same, and both ends say the same.
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

# The protocol for tests asks nobody before it connects, for which a port is taken.
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

# Away from the ports of the listeners, which are taken.
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
