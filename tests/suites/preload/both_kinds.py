"""One listener serves plain and offloaded peers."""

import os
import socket
import subprocess
import sys

DIAL = """
import socket, sys
dialled = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
dialled.sendall(sys.argv[2].encode())
print(dialled.recv(9).decode())
"""

listener = socket.create_server(("", 0))
port = str(listener.getsockname()[1])
plain = dict(os.environ)
plain.pop("LD_PRELOAD", None)
for name, environment in (("plain", plain), ("offloaded", dict(os.environ))):
    command = [sys.executable, "-c", DIAL, port, name]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    peer, address = listener.accept()
    assert address[0] == "127.0.0.1"
    said = peer.recv(20).decode()
    assert said == name, said
    peer.sendall(b"served")
    assert child.stdout.read() == b"served\n"
    assert child.wait() == 0
    peer.close()
