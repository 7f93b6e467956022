"""One listener serves plain and offloaded peers."""

CLIENT = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.sendall(sys.argv[2].encode())
print(client.recv(9).decode())
"""

listener = socket.create_server(("", 0))
port = str(listener.getsockname()[1])
plain = dict(os.environ)
plain.pop("LD_PRELOAD", None)
for name, environment in (("plain", plain), ("offloaded", dict(os.environ))):
    command = [sys.executable, "-c", CLIENT, port, name]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    peer, address = listener.accept()
    assert address[0] == "127.0.0.1"
    received = peer.recv(20).decode()
    assert received == name, received
    peer.sendall(b"served")
    assert child.stdout.read() == b"served\n"
    assert child.wait() == 0
    peer.close()
