"""A connection that came to TCP in the background is closed at once, and its number names the next one
that connects: nothing of the one before comes over it. Each program does it once, because the first
connection takes the longest to be written down. Each number is watched by a set as new as it is."""

import os
import subprocess
import sys

PLAIN_SERVER = """
import socket
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(80)]
print(*(listener.getsockname()[1] for listener in listeners), flush=True)
for listener in listeners:
    sock, _ = listener.accept()
    sock.recv(1)
    sock.send(b"z")
    sock.close()
"""

CLIENT = """
import select
import socket
import sys

for port in sys.argv[1:]:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", int(port)))
    watched = select.epoll()
    watched.register(sock, select.EPOLLOUT)
    assert watched.poll(20) == [(sock.fileno(), select.EPOLLOUT)], "no room"
    if port == sys.argv[-1]:
        sock.send(b"x")
        watched.modify(sock, select.EPOLLIN)
        assert watched.poll(20), "no answer"
        assert sock.recv(2) == b"z"
    sock.close()
"""

plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
server = subprocess.Popen(
    [sys.executable, "-c", PLAIN_SERVER], env=plain, stdout=subprocess.PIPE, text=True
)
ports = server.stdout.readline().split()
try:
    for at in range(0, len(ports), 2):
        subprocess.run([sys.executable, "-c", CLIENT, *ports[at : at + 2]], check=True)
    assert server.wait() == 0
finally:
    server.kill()
print("passed")
