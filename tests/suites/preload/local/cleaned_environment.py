"""A program that is executed after the library was removed from the environment serves an inherited
listener over TCP."""

SERVER = """
import socket
listener = socket.socket(fileno=20)
while True:
    peer, _ = listener.accept()
    peer.sendall(b"served")
    peer.close()
"""


def becomes_server(listener):
    os.dup2(listener.fileno(), 20)
    os.closerange(21, 100)
    del os.environ["LD_PRELOAD"]
    os.execv(sys.executable, [sys.executable, "-c", SERVER])


listener = socket.create_server(("127.0.0.1", 0))
address = listener.getsockname()
server = os.fork()
if server == 0:
    becomes_server(listener)


def is_executed():
    with open(f"/proc/{server}/cmdline") as words:
        return SERVER in words.read().split("\0")


until(is_executed, "the server is not executed")
listener.close()
try:
    with socket.create_connection(address, timeout=DEADLINE) as client:
        assert client.recv(10) == b"served"
finally:
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
